#include "cli/transfer/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_LEAST 64u
#define FILES_MOST  (1u << 30)

static int make_room(struct copy_source *source)
{
	uint32_t room = source->room == 0 ? FILES_LEAST : source->room * 2;
	struct copy_source_file *grown;

	if (source->count < source->room)
		return 0;
	if (source->room >= FILES_MOST)
		return -EFBIG;
	grown = realloc(source->files, room * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	source->files = grown;
	source->room = room;
	return 0;
}

static int add(const struct tree_file *found, void *context)
{
	struct copy_source *source = context;
	struct copy_source_file *file;
	int failed;

	if (found->kind != TREE_FILE && found->kind != TREE_DIRECTORY) {
		source->left_out++;
		return 0;
	}
	if (strlen(found->name) >= COPY_NAME_BYTES)
		return -ENAMETOOLONG;
	if (copy_name_is_own(found->name))
		return hf_error_set(source->error, -EINVAL,
			"%.150s has a name of a receiver's own files, which none takes; rename it or move it away",
			found->path);
	failed = make_room(source);
	if (failed)
		return failed;
	file = &source->files[source->count];
	*file = (struct copy_source_file){.path = strdup(found->path),
		.directory = found->kind == TREE_DIRECTORY,
		.mode = found->mode,
		.bytes = found->kind == TREE_FILE ? found->bytes : 0,
		.mtime_ns = found->kind == TREE_FILE ? found->mtime_ns : 0, /* what is in it changes a directory's */
		.inode = found->inode};
	if (file->path == NULL)
		return -ENOMEM;
	file->name = file->path + (found->name - found->path);
	source->bytes += file->bytes;
	source->count++;
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

int copy_source_open(struct copy_source *source, const char *path, struct hf_error *error)
{
	struct tree_file root;
	int failed = tree_look(path, &root);

	*source = (struct copy_source){.error = error};
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
	if (!failed && source->directory)
		failed = tree_each(path, TREE_ALL, add, source);
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
	for (uint32_t i = 0; i < source->count; i++)
		free(source->files[i].path);
	free(source->files);
	*source = (struct copy_source){0};
}

bool copy_source_is_same(const struct copy_source_file *file)
{
	struct tree_file now;

	return tree_look(file->path, &now) == 0 && now.kind == TREE_FILE && now.bytes == file->bytes &&
	       now.mtime_ns == file->mtime_ns && now.inode == file->inode;
}
