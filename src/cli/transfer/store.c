#include "cli/transfer/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/ensure.h"
#include "cli/transfer/journal.h"
#include "cli/tree.h"

#define JOURNAL_BYTES_MOST (1ll << 30)
#define STORED_LEAST       64u
#define NS_A_SECOND        1000000000u
#define HOLE_BYTES         4096u

/* ---- what is known ---- */

static uint32_t key_of(const char *name)
{
	uint32_t key = crc32c(0, name, strlen(name));

	return key == 0 ? 1 : key;
}

static struct copy_stored *find(const struct copy_store *store, const char *name)
{
	struct copy_stored *at = table_get(&store->by_name, key_of(name));

	while (at != NULL && strcmp(at->name, name) != 0)
		at = at->next;
	return at;
}

static void forget(struct copy_store *store, struct copy_stored *old)
{
	struct copy_stored *first = table_get(&store->by_name, key_of(old->name)), **link = &first;

	while (*link != old)
		link = &(*link)->next;
	*link = old->next;
	table_remove(&store->by_name, key_of(old->name));
	if (first != NULL)
		(void)table_put(&store->by_name, key_of(old->name), first); /* in the place that was just left */
	if (old->recorded)
		store->stored[old->number] = NULL;
	list_remove(&old->link);
	free(old->have);
	free(old);
}

static int make_room(struct copy_store *store)
{
	uint32_t room = store->room == 0 ? STORED_LEAST : store->room * 2;
	struct copy_stored **grown;

	if (store->count < store->room)
		return 0;
	grown = realloc(store->stored, room * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	store->stored = grown;
	store->room = room;
	return 0;
}

static struct copy_stored *add(struct copy_store *store, const struct copy_file *file, bool recorded)
{
	size_t name_bytes = strlen(file->name) + 1, target_bytes = strlen(file->target) + 1;
	uint32_t key = key_of(file->name);
	struct copy_stored *stored = calloc(1, sizeof(*stored) + name_bytes + target_bytes),
			   *first = table_get(&store->by_name, key);
	uint8_t *have = calloc(1, copy_chunks(file->bytes) / 8 + 1);

	if (stored == NULL || have == NULL || make_room(store) != 0)
		goto fail;
	*stored = (struct copy_stored){.next = first,
		.number = store->count,
		.entry = (enum copy_entry)file->entry,
		.recorded = recorded,
		.sparse = file->sparse != 0,
		.mode = file->mode,
		.bytes = file->bytes,
		.mtime_ns = file->mtime_ns,
		.inode = file->inode,
		.have = have};
	memcpy(stored->name, file->name, name_bytes);
	stored->target = memcpy(stored->name + name_bytes, file->target, target_bytes);
	if (first != NULL)
		table_remove(&store->by_name, key);
	if (table_put(&store->by_name, key, stored) != 0)
		goto fail;
	if (recorded)
		store->stored[store->count++] = stored;
	list_push_back(&store->all, &stored->link);
	return stored;
fail:
	free(have);
	free(stored);
	return NULL;
}

static bool is_same(const struct copy_stored *stored, const struct copy_file *file)
{
	return stored->entry == COPY_REGULAR && file->entry == COPY_REGULAR && stored->bytes == file->bytes &&
	       stored->mtime_ns == file->mtime_ns && stored->inode == file->inode;
}

struct copy_stored *copy_store_find(struct copy_store *store, const struct copy_file *file, bool *record_out)
{
	struct copy_stored *stored = find(store, file->name);

	if (stored != NULL && stored->named) {
		*record_out = false;
		return stored;
	}
	*record_out = false;
	if (stored != NULL && is_same(stored, file)) {
		stored->mode = file->mode;
		stored->sparse = file->sparse != 0;
		return stored;
	}
	if (stored != NULL)
		forget(store, stored);
	*record_out = file->entry == COPY_REGULAR; /* others are made again */
	return add(store, file, *record_out);
}

static bool has_parent(const struct copy_store *store, const char *name)
{
	const char *slash = strrchr(name, '/');
	char parent[COPY_NAME_BYTES] = "";
	const struct copy_stored *stored;

	if (name[0] == '\0')
		return true;
	if (slash != NULL)
		memcpy(parent, name, (size_t)(slash - name));
	stored = find(store, parent);
	return stored != NULL && stored->named && stored->entry == COPY_DIRECTORY;
}

int copy_store_allows(const struct copy_store *store, const struct copy_file *file, struct hf_error *error)
{
	const struct copy_stored *stored = find(store, file->name);

	if (file->name_bytes == 0 && file->entry != (store->directory ? COPY_DIRECTORY : COPY_REGULAR))
		return hf_error_set(error, -EPERM, "the sender begins another kind of copy than it said");
	if (copy_name_is_own(file->name))
		return hf_error_set(error, -EPERM, COPY_OWN_REFUSED, file->name);
	if (file->entry == COPY_LINK && !copy_link_stays(file->name, file->target))
		return hf_error_set(error, -EPERM, "%.100s is a link that leads out of the copy", file->name);
	if (!has_parent(store, file->name))
		return hf_error_set(error, -EPERM, "%.100s comes before the directory that it is in", file->name);
	if (stored != NULL && stored->named)
		return hf_error_set(error, -EPERM, "%.100s was sent twice", file->name);
	return 0;
}

void copy_store_describe(const struct copy_stored *stored, struct copy_file *file)
{
	*file = (struct copy_file){.file = stored->number,
		.entry = (uint8_t)stored->entry,
		.sparse = stored->sparse,
		.mode = stored->mode,
		.bytes = stored->bytes,
		.mtime_ns = stored->mtime_ns,
		.inode = stored->inode,
		.name_bytes = (uint16_t)strlen(stored->name)};
	memcpy(file->name, stored->name, file->name_bytes);
}

struct copy_stored *copy_store_renew(struct copy_store *store, struct copy_stored *stored)
{
	struct copy_file file;

	copy_store_describe(stored, &file);
	forget(store, stored);
	stored = add(store, &file, true);
	if (stored != NULL)
		stored->named = true;
	return stored;
}

/* ---- the journal ---- */

static void take_record(const struct copy_message *message, void *context)
{
	struct copy_store *store = context;
	struct copy_stored *stored;

	if (message->kind == COPY_BEGIN)
		store->journal_is_ours = message->begin.directory == store->begin.directory &&
					 strcmp(message->begin.name, store->begin.name) == 0;
	if (!store->journal_is_ours)
		return;
	if (message->kind == COPY_FILE) {
		if (message->file.file != store->count)
			return;
		stored = find(store, message->file.name);
		if (stored != NULL) /* begun anew */
			forget(store, stored);
		(void)add(store, &message->file, true);
		return;
	}
	if (message->kind != COPY_HAVE)
		return;
	stored = message->have.file < store->count ? store->stored[message->have.file] : NULL;
	if (stored != NULL && message->have.end <= copy_chunks(stored->bytes))
		for (uint64_t i = message->have.begin; i < message->have.end; i++)
			stored->have[i / 8] |= (uint8_t)(1u << i % 8);
}

static int begin_journal(struct copy_store *store)
{
	const struct copy_message begin = {.kind = COPY_BEGIN, .begin = store->begin};
	uint8_t text[COPY_JOURNAL_HEADER_BYTES + COPY_JOURNAL_RECORD_BYTES];
	int failed = hf_file_resize(store->journal, 0);

	copy_journal_header(text);
	store->journal_bytes = COPY_JOURNAL_HEADER_BYTES;
	store->journal_bytes += copy_journal_record(&begin, text + store->journal_bytes);
	if (!failed && hf_file_write_at(store->journal, text, store->journal_bytes, 0) != (ssize_t)store->journal_bytes)
		failed = -ENOSPC;
	return failed ? failed : hf_file_sync(store->journal);
}

static int read_journal(struct copy_store *store)
{
	int64_t bytes = hf_file_bytes(store->journal);
	uint8_t *text = bytes > 0 && bytes <= JOURNAL_BYTES_MOST ? malloc((size_t)bytes) : NULL;
	int failed = 0;

	if (text != NULL && hf_file_read_at(store->journal, text, (size_t)bytes, 0) == bytes)
		store->journal_bytes = copy_journal_read(text, (size_t)bytes, take_record, store);
	free(text);
	if (!store->journal_is_ours)
		return begin_journal(store);
	if ((int64_t)store->journal_bytes < bytes) /* a record was torn when the last receiver ended */
		failed = hf_file_resize(store->journal, store->journal_bytes);
	return failed;
}

int copy_store_commit(struct copy_store *store, const uint8_t *records, size_t bytes, struct hf_error *error)
{
	ssize_t n = hf_file_write_at(store->journal, records, bytes, store->journal_bytes);
	int failed = n < 0 ? (int)n : n != (ssize_t)bytes ? -ENOSPC : hf_file_sync_data(store->journal);

	if (failed)
		return hf_error_set(error, failed, "%s cannot be written: %s", store->journal_path, strerror(-failed));
	store->journal_bytes += bytes;
	return 0;
}

/* ---- the directory ---- */

static bool exists(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0;
}

/* Not through a link that lies there instead. */
static int make_directory(const struct copy_store *store, const char *path)
{
	struct stat status;
	int failed = hf_dir_make(store->env, path);

	if (failed != -EEXIST)
		return failed;
	return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
}

/* A directory that another user made, or may write in, has a part and a journal of that user's making. */
static int make_own_directory(const struct copy_store *store, struct hf_error *error)
{
	struct stat status;
	int failed = make_directory(store, store->own);

	if (failed && failed != -ENOTDIR)
		return hf_error_set(error, failed, "%s cannot be received: %s", store->target, strerror(-failed));
	if (failed || lstat(store->own, &status) != 0 || status.st_uid != geteuid() ||
		(status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return hf_error_set(error, -EEXIST,
			"%s is not a directory that this receiver's user alone writes in; remove it", store->own);
	return 0;
}

/* Not through a link that lies there instead, as open_regular. */
static int open_journal(struct copy_store *store, struct hf_error *error)
{
	struct stat status;
	int failed;

	if (lstat(store->journal_path, &status) == 0 && !S_ISREG(status.st_mode))
		return hf_error_set(error, -EEXIST, "%s is no regular file; remove it", store->journal_path);
	failed = hf_file_open(store->env, store->journal_path, HF_FILE_WRITE | HF_FILE_CREATE, &store->journal);

	if (!failed)
		failed = hf_file_lock(store->journal);
	if (!failed)
		store->takes_packs = hf_file_can_sync_all(store->journal);
	if (failed == -EAGAIN)
		return hf_error_set(error, -EBUSY, "%s is being received already", store->target);
	if (!failed)
		failed = read_journal(store);
	if (!failed && store->directory)
		failed = make_directory(store, store->part);
	if (failed)
		return hf_error_set(error, failed, "%s cannot be received: %s", store->target, strerror(-failed));
	return 0;
}

int copy_store_open(struct copy_store *store, struct hf_env *env, const char *parent, const struct copy_begin *begin,
	struct hf_error *error)
{
	const int most = (int)COPY_PATH_BYTES;
	int failed;

	list_init(&store->all);
	store->env = env;
	store->directory = begin->directory != 0;
	store->begin = *begin;
	if (snprintf(store->parent, COPY_PATH_BYTES, "%s", parent) >= most ||
		snprintf(store->target, COPY_PATH_BYTES, "%s/%s", parent, begin->name) >= most ||
		snprintf(store->own, COPY_PATH_BYTES, "%s/%s", parent, COPY_OWN) >= most ||
		snprintf(store->part, COPY_PATH_BYTES, "%s/%s.part", store->own, begin->name) >= most ||
		snprintf(store->journal_path, COPY_PATH_BYTES, "%s/%s.journal", store->own, begin->name) >= most)
		return hf_error_set(error, -ENAMETOOLONG, "the name of %s is too long", begin->name);
	if (exists(store->target))
		return hf_error_set(
			error, -EEXIST, "%s exists there; remove it, or receive in another directory", store->target);
	failed = make_own_directory(store, error);
	return failed ? failed : open_journal(store, error);
}

void copy_store_close(struct copy_store *store)
{
	while (store->all.next != NULL && !list_empty(&store->all)) {
		struct copy_stored *stored = container_of(list_pop_front(&store->all), struct copy_stored, link);

		free(stored->have);
		free(stored);
	}
	free(store->stored);
	table_free(&store->by_name);
	hf_file_close(store->journal);
	*store = (struct copy_store){0};
}

/* ---- files ---- */

static int path_of(const struct copy_store *store, const struct copy_stored *stored, char path[COPY_PATH_BYTES],
	struct hf_error *error)
{
	int n = stored->name[0] == '\0' ? snprintf(path, COPY_PATH_BYTES, "%s", store->part)
					: snprintf(path, COPY_PATH_BYTES, "%s/%s", store->part, stored->name);

	if (n >= (int)COPY_PATH_BYTES)
		return hf_error_set(
			error, -ENAMETOOLONG, "the path of %s in %s is too long", stored->name, store->part);
	return 0;
}

/* Of earlier copies, and not of this one. */
struct stray {
	struct stray *next;
	bool directory;
	char path[];
};

struct stray_walk {
	const struct copy_store *store; /* NULL: all are strays */
	struct stray *last;             /* first in the list: what is in a directory comes before it */
};

static int note_stray(const struct tree_file *found, void *context)
{
	struct stray_walk *walk = context;
	const struct copy_stored *stored = walk->store != NULL ? find(walk->store, found->name) : NULL;
	size_t path_bytes = strlen(found->path) + 1;
	struct stray *stray;

	if (stored != NULL && stored->named)
		return 0;
	if (found->kind == TREE_DIRECTORY)
		(void)chmod(found->path, S_IRWXU); /* to remove what is in it */
	stray = malloc(sizeof(*stray) + path_bytes);
	if (stray == NULL)
		return -ENOMEM;
	*stray = (struct stray){.next = walk->last, .directory = found->kind == TREE_DIRECTORY};
	memcpy(stray->path, found->path, path_bytes);
	walk->last = stray;
	return 0;
}

/* Below the directory; `named`: but what was named in this copy. */
static int remove_below(const struct copy_store *store, const char *path, bool named)
{
	struct stray_walk walk = {.store = named ? NULL : store};
	int failed = tree_each(path, TREE_ALL, note_stray, &walk);

	while (walk.last != NULL) {
		struct stray *stray = walk.last;

		walk.last = stray->next;
		if (!failed)
			failed = stray->directory ? hf_dir_remove(store->env, stray->path)
						  : hf_file_remove(store->env, stray->path);
		free(stray);
	}
	return failed;
}

/* What lies there and is of another kind is of an earlier copy, whose source had that. */
static int clear_place(const struct copy_store *store, const char *path, mode_t format)
{
	struct stat status;
	int failed;

	if (lstat(path, &status) != 0)
		return errno == ENOENT ? 0 : -errno;
	if ((status.st_mode & S_IFMT) == format)
		return 0;
	if (!S_ISDIR(status.st_mode))
		return hf_file_remove(store->env, path);
	failed = remove_below(store, path, true);
	return failed ? failed : hf_dir_remove(store->env, path);
}

static bool has_some(const struct copy_stored *stored)
{
	for (uint64_t i = 0; i < copy_chunks(stored->bytes) / 8 + 1; i++)
		if (stored->have[i] != 0)
			return true;
	return false;
}

/* Not through a link that lies there instead: it may lead anywhere. */
static int open_regular(struct copy_store *store, const struct copy_stored *stored, const char *path,
	struct hf_file **file_out, bool *intact_out)
{
	struct stat status;
	int failed = stored->name[0] != '\0' ? clear_place(store, path, S_IFREG) : 0;
	bool there = !failed && lstat(path, &status) == 0;

	if (failed)
		return failed;
	if (there && !S_ISREG(status.st_mode))
		return -EEXIST;
	*intact_out = there && (uint64_t)status.st_size == stored->bytes;
	if (there && chmod(path, S_IRUSR | S_IWUSR) != 0)
		return -errno;
	failed = hf_file_open(store->env, path, HF_FILE_WRITE | HF_FILE_CREATE, file_out);
	if (!failed && !(*intact_out && has_some(stored))) /* all of it is a hole then */
		failed = hf_file_resize(*file_out, 0);
	return failed ? failed : hf_file_resize(*file_out, stored->bytes);
}

ssize_t copy_store_write(
	const struct copy_stored *stored, struct hf_file *file, const uint8_t *data, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	if (!stored->sparse)
		return hf_file_write_at(file, data, bytes, offset);
	while (done < bytes) {
		size_t length = bytes - done < HOLE_BYTES ? bytes - done : HOLE_BYTES;
		ssize_t n = (ssize_t)length;

		if (!copy_is_zeros(data + done, length))
			n = hf_file_write_at(file, data + done, length, offset + done);
		if (n != (ssize_t)length)
			return n;
		done += length;
	}
	return (ssize_t)bytes;
}

static int open_directory(const struct copy_store *store, const struct copy_stored *stored, const char *path)
{
	int failed = stored->name[0] != '\0' ? clear_place(store, path, S_IFDIR) : 0;

	if (!failed)
		failed = make_directory(store, path);
	if (failed)
		return failed;
	return chmod(path, (mode_t)stored->mode | S_IRWXU) == 0 ? 0 : -errno;
}

static int open_link(const struct copy_store *store, const struct copy_stored *stored, const char *path)
{
	char target[COPY_NAME_BYTES];
	ssize_t bytes = readlink(path, target, sizeof(target));
	int failed;

	if (bytes >= 0 && (size_t)bytes == strlen(stored->target) && memcmp(target, stored->target, (size_t)bytes) == 0)
		return 0;
	failed = bytes >= 0 ? hf_file_remove(store->env, path) : clear_place(store, path, S_IFLNK);
	return failed ? failed : symlink(stored->target, path) == 0 ? 0 : -errno;
}

int copy_store_open_file(struct copy_store *store, const struct copy_stored *stored, struct hf_file **file_out,
	bool *intact_out, struct hf_error *error)
{
	char path[COPY_PATH_BYTES];
	int failed = path_of(store, stored, path, error);

	*file_out = NULL;
	*intact_out = true;
	if (failed)
		return failed;
	if (stored->entry == COPY_DIRECTORY)
		failed = open_directory(store, stored, path);
	else if (stored->entry == COPY_LINK)
		failed = open_link(store, stored, path);
	else
		failed = open_regular(store, stored, path, file_out, intact_out);
	return failed ? hf_error_set(error, failed, "%s cannot be written: %s", path, strerror(-failed)) : 0;
}

int copy_store_settle(const struct copy_store *store, const struct copy_stored *stored, struct hf_error *error)
{
	const struct timespec time = {
		.tv_sec = (time_t)(stored->mtime_ns / NS_A_SECOND), .tv_nsec = (long)(stored->mtime_ns % NS_A_SECOND)};
	const struct timespec times[2] = {time, time};
	/* No file that runs as another user, whoever sends it. */
	const mode_t kept = stored->entry == COPY_DIRECTORY ? S_ISGID | S_ISVTX | 0777 : 0777;
	char path[COPY_PATH_BYTES];
	int failed = path_of(store, stored, path, error);

	if (failed)
		return failed;
	if (chmod(path, (mode_t)stored->mode & kept) != 0 || utimensat(AT_FDCWD, path, times, 0) != 0)
		return hf_error_set(error, -errno, "cannot set mode and time of %s: %s", path, strerror(errno));
	return 0;
}

/* Never over, nor through, something of an earlier copy. */
static int put_content(const struct copy_store *store, const struct copy_stored *stored, const char *path,
	const struct copy_packed *entry, struct digest *digest, void *memory)
{
	const unsigned flags = HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_EXCLUSIVE;
	ssize_t bytes = (ssize_t)entry->file.bytes, n;
	char sha256[DIGEST_TEXT];
	struct hf_file *file;
	int failed = hf_file_open(store->env, path, flags, &file);

	if (failed == -EEXIST) {
		failed = clear_place(store, path, 0);
		if (!failed)
			failed = hf_file_open(store->env, path, flags, &file);
	}
	if (failed)
		return failed;
	n = copy_store_write(stored, file, entry->content, (size_t)bytes, 0);
	if (n == bytes)
		failed = hf_file_resize(file, entry->file.bytes);
	if (n == bytes && !failed)
		n = hf_file_read_at(file, memory, (size_t)bytes, 0);
	hf_file_close(file);
	if (failed || n != bytes)
		return failed ? failed : n < 0 ? (int)n : -ENOSPC;
	digest_add(digest, memory, (size_t)bytes);
	digest_finish(digest, sha256);
	return strcmp(sha256, entry->sha256) == 0 ? 0 : -EBADMSG;
}

int copy_store_put(struct copy_store *store, const struct copy_packed *entry, struct digest *digest, void *memory,
	struct hf_error *error)
{
	struct copy_stored *stored;
	struct hf_file *none;
	char path[COPY_PATH_BYTES];
	bool intact;
	int failed = copy_store_allows(store, &entry->file, error);

	if (failed)
		return failed;
	stored = find(store, entry->file.name);
	if (stored != NULL)
		forget(store, stored);
	stored = add(store, &entry->file, false);
	if (stored == NULL)
		return hf_error_set(error, -ENOMEM, "the receiver has no memory left");
	stored->named = true;
	if (stored->entry != COPY_REGULAR)
		return copy_store_open_file(store, stored, &none, &intact, error);
	failed = path_of(store, stored, path, error);
	if (failed)
		return failed;
	failed = put_content(store, stored, path, entry, digest, memory);
	if (failed == -EBADMSG)
		return hf_error_set(error, failed,
			"%.100s arrived with another SHA-256 than it was sent with; send it again", entry->file.name);
	if (failed)
		return hf_error_set(error, failed, "%s cannot be written: %s", path, strerror(-failed));
	return copy_store_settle(store, stored, error);
}

int copy_store_sync(struct copy_store *store, struct hf_error *error)
{
	int failed = hf_file_sync_all(store->journal);

	return failed ? hf_error_set(error, failed, "%s cannot be synced: %s", store->part, strerror(-failed)) : 0;
}

/* Durably, but for one that its owner may not read. */
static int settle_directory(
	const struct copy_store *store, const struct copy_stored *stored, const char *path, struct hf_error *error)
{
	int failed = copy_store_settle(store, stored, error);

	if (!failed)
		failed = hf_dir_sync(store->env, path);
	return failed == -EACCES ? 0 : failed;
}

/* Modes and times of directories, the inner ones first, and what is in them. That of the copy itself follows when it
 * has its name: it could not be moved without a permission to write. */
static int settle_directories(struct copy_store *store, struct hf_error *error)
{
	int failed = 0;

	for (const struct list *at = store->all.prev; at != &store->all; at = at->prev) {
		const struct copy_stored *stored = container_of(at, const struct copy_stored, link);
		char path[COPY_PATH_BYTES];

		if (failed || !stored->named || stored->entry != COPY_DIRECTORY)
			continue;
		failed = path_of(store, stored, path, error);
		if (!failed && !store->takes_packs)
			failed = hf_dir_sync(store->env, path);
		if (!failed && stored->name[0] != '\0')
			failed = store->takes_packs ? copy_store_settle(store, stored, error)
						    : settle_directory(store, stored, path, error);
	}
	return failed || !store->takes_packs ? failed : copy_store_sync(store, error);
}

static int give_name(struct copy_store *store, struct hf_error *error)
{
	const struct copy_stored *root = store->directory ? find(store, "") : NULL;
	int failed = hf_file_rename(store->env, store->part, store->target);

	(void)snprintf(store->part, sizeof(store->part), "%s", store->target);
	return failed || root == NULL ? failed : settle_directory(store, root, store->target, error);
}

int copy_store_finish(struct copy_store *store, struct hf_error *error)
{
	int failed = store->directory ? remove_below(store, store->part, false) : 0;

	if (!failed && store->directory)
		failed = settle_directories(store, error);
	if (!failed && exists(store->target))
		return hf_error_set(
			error, -EEXIST, "%s was created meanwhile; move it away and send again", store->target);
	if (!failed)
		failed = give_name(store, error);
	if (!failed)
		failed = hf_file_remove(store->env, store->journal_path);
	(void)hf_dir_remove(store->env, store->own); /* unless other copies are in it */
	if (!failed)
		failed = hf_dir_sync(store->env, store->parent);
	return failed ? hf_error_set(error, failed, "cannot complete %s: %s", store->target, strerror(-failed)) : 0;
}
