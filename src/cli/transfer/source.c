#include "cli/transfer/source.h"

#include "cli/transfer/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_LEAST 64u
#define FILES_MOST  (1u << 30)

/* For one more element of that size. */
static int make_room(void **at, uint32_t count, uint32_t *room, size_t bytes)
{
	uint32_t more = *room == 0 ? FILES_LEAST : *room * 2;
	void *grown;

	if (count < *room)
		return 0;
	if (*room >= FILES_MOST)
		return -EFBIG;
	grown = realloc(*at, more * bytes);
	if (grown == NULL)
		return -ENOMEM;
	*at = grown;
	*room = more;
	return 0;
}

static int leave_out(struct copy_source *source, const char *path, const char *why)
{
	void *at = source->left_out;
	int failed = make_room(&at, source->left_out_count, &source->left_out_room, sizeof(*source->left_out));
	char *text = strdup(path);

	source->left_out = at;
	if (failed || text == NULL) {
		free(text);
		return failed ? failed : -ENOMEM;
	}
	source->left_out[source->left_out_count++] = (struct copy_left_out){.path = text, .why = why};
	return TREE_SKIP;
}

/* NULL: it is sent. */
static const char *why_not(const struct tree_file *found, bool behind, char target[COPY_NAME_BYTES])
{
	ssize_t bytes;

	switch (found->kind) {
	case TREE_FILE:
		return faccessat(AT_FDCWD, found->path, R_OK, AT_EACCESS) == 0 ? NULL : "not readable by this user";
	case TREE_DIRECTORY:
		return faccessat(AT_FDCWD, found->path, R_OK | X_OK, AT_EACCESS) == 0
			       ? NULL
			       : "a directory that is not readable by this user";
	case TREE_LINK:
		if (behind)
			return "a link that leads nowhere, or to a directory that it is in";
		bytes = readlink(found->path, target, COPY_NAME_BYTES);
		if (bytes < 0 || bytes >= COPY_NAME_BYTES)
			return "a link that cannot be read";
		target[bytes] = '\0';
		return copy_link_stays(found->name, target)
			       ? NULL
			       : "a link that leads out of the copy; --copy-links sends what it leads to";
	case TREE_OTHER:
		return found->what;
	case TREE_MISSING:
		break;
	}
	return "gone";
}

static enum copy_entry entry_of(enum tree_kind kind)
{
	return kind == TREE_DIRECTORY ? COPY_DIRECTORY : kind == TREE_LINK ? COPY_LINK : COPY_REGULAR;
}

static int add(const struct tree_file *found, void *context)
{
	struct copy_source *source = context;
	struct copy_source_file *file;
	char target[COPY_NAME_BYTES] = "";
	const char *why = why_not(found, source->behind, target);
	void *at = source->files;
	int failed;

	if (why != NULL) {
		failed = leave_out(source, found->path, why);
		return failed == TREE_SKIP && found->kind != TREE_DIRECTORY ? 0 : failed;
	}
	if (strlen(found->name) >= COPY_NAME_BYTES)
		return -ENAMETOOLONG;
	if (copy_name_is_own(found->name))
		return hf_error_set(source->error, -EINVAL,
			"%.150s has a name of a receiver's own files, which none takes; rename it or move it away",
			found->path);
	failed = make_room(&at, source->count, &source->room, sizeof(*source->files));
	source->files = at;
	if (failed)
		return failed;
	file = &source->files[source->count];
	*file = (struct copy_source_file){.path = strdup(found->path),
		.entry = entry_of(found->kind),
		.sparse = found->sparse,
		.mode = found->mode,
		.bytes = found->kind == TREE_FILE ? found->bytes : 0,
		.mtime_ns = found->mtime_ns,
		.inode = found->inode,
		.target = found->kind == TREE_LINK ? strdup(target) : NULL};
	if (file->path == NULL || (found->kind == TREE_LINK && file->target == NULL)) {
		free(file->path);
		free(file->target);
		return -ENOMEM;
	}
	file->name = file->path + (found->name - found->path);
	source->bytes += file->bytes;
	source->count++;
	return 0;
}

static bool fits_into_a_pack(const struct copy_source_file *file)
{
	return file->entry != COPY_REGULAR || file->bytes <= COPY_PACK_FILE_BYTES;
}

/* In their order otherwise. */
static int put_large_files_last(struct copy_source *source)
{
	struct copy_source_file *sorted = malloc(source->count * sizeof(*sorted));
	uint32_t n = 0;

	if (sorted == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < source->count; i++)
		if (fits_into_a_pack(&source->files[i]))
			sorted[n++] = source->files[i];
	source->packed = n;
	for (uint32_t i = 0; i < source->count; i++)
		if (!fits_into_a_pack(&source->files[i]))
			sorted[n++] = source->files[i];
	free(source->files);
	source->files = sorted;
	source->room = source->count;
	return 0;
}

/* "/data/set/" is "set"; "." and ".." have no name to be given there. */
static int take_title(struct copy_source *source, const char *path, struct hf_error *error)
{
	size_t end = strlen(path), begin;

	while (end > 1 && path[end - 1] == '/')
		end--;
	begin = end;
	while (begin > 0 && path[begin - 1] != '/')
		begin--;
	if (end - begin >= sizeof(source->title))
		return hf_error_set(error, -ENAMETOOLONG, "the name of %.100s... is too long to be sent", path + begin);
	memcpy(source->title, path + begin, end - begin);
	source->title[end - begin] = '\0';
	if (source->title[0] == '\0' || source->title[0] == '/' || strcmp(source->title, ".") == 0 ||
		strcmp(source->title, "..") == 0)
		return hf_error_set(
			error, -EINVAL, "'%s' does not end in a name for the copy; give its path by name", path);
	if (copy_name_is_own(source->title))
		return hf_error_set(error, -EINVAL,
			"%.150s is a name of a receiver's own files, which none takes; rename it", source->title);
	return 0;
}

int copy_source_open(struct copy_source *source, const char *path, bool behind, struct hf_error *error)
{
	struct tree_file root;
	int failed = tree_look(path, &root);

	*source = (struct copy_source){.error = error, .behind = behind};
	if (failed)
		return hf_error_set(error, failed, "%s cannot be read: %s", path, strerror(-failed));
	if (root.kind == TREE_OTHER)
		return hf_error_set(error, -EINVAL, "%s is neither a file nor a directory", path);
	failed = take_title(source, path, error);
	if (failed)
		return failed;
	source->directory = root.kind == TREE_DIRECTORY;
	root.name = root.path + strlen(root.path);
	failed = add(&root, source);
	if (!failed && source->count == 0)
		failed = -EACCES;
	if (!failed && source->directory)
		failed = tree_each(path, behind ? TREE_BEHIND : TREE_ALL, add, source);
	if (!failed)
		failed = put_large_files_last(source);
	if (failed) {
		copy_source_close(source);
		return error->text[0] != '\0'
			       ? failed
			       : hf_error_set(error, failed, "%s cannot be listed: %s", path, strerror(-failed));
	}
	return 0;
}

void copy_source_close(struct copy_source *source)
{
	for (uint32_t i = 0; i < source->count; i++) {
		free(source->files[i].path);
		free(source->files[i].target);
	}
	for (uint32_t i = 0; i < source->left_out_count; i++)
		free(source->left_out[i].path);
	free(source->files);
	free(source->left_out);
	*source = (struct copy_source){0};
}

bool copy_source_is_same(const struct copy_source_file *file, uint64_t *ctime_ns)
{
	struct tree_file now;

	if (tree_look(file->path, &now) != 0 || now.kind != TREE_FILE || now.bytes != file->bytes ||
		now.mtime_ns != file->mtime_ns || now.inode != file->inode)
		return false;
	if (*ctime_ns == 0)
		*ctime_ns = now.ctime_ns;
	return *ctime_ns == now.ctime_ns;
}

void copy_source_describe(const struct copy_source *source, uint32_t number, struct copy_file *file)
{
	const struct copy_source_file *at = &source->files[number];

	*file = (struct copy_file){.file = number,
		.entry = (uint8_t)at->entry,
		.sparse = at->sparse,
		.mode = at->mode,
		.bytes = at->bytes,
		.mtime_ns = at->mtime_ns,
		.inode = at->inode,
		.name_bytes = (uint16_t)strlen(at->name),
		.target_bytes = at->target != NULL ? (uint16_t)strlen(at->target) : 0};
	memcpy(file->name, at->name, file->name_bytes);
	if (at->target != NULL)
		memcpy(file->target, at->target, file->target_bytes);
}
