/* Names of files and directories: those that processes see, those that the medium has, and the changes between the two.
 *
 * Changes of a directory become durable in their order; those of several depend on one another only where they share a
 * directory. "." and "/" are always there. A path is a name: there are no links, and directories are not renamed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/disk_parts.h"

#define PATH_BYTES 256u

struct disk_name {
	struct list node;
	char path[PATH_BYTES];
	struct disk_file *file; /* NULL: a directory */
};

enum change_kind { CHANGE_MAKE, CHANGE_RENAME, CHANGE_REMOVE };

struct disk_change {
	struct list node;
	enum change_kind kind;
	char path[PATH_BYTES], to[PATH_BYTES]; /* `to` of a rename only */
	struct disk_file *file;
	const struct disk_commit *commit; /* that will make it durable, the first one */
	bool lost;
};

/* ---- paths ---- */

static int clean_path(const char *path, char clean[PATH_BYTES])
{
	size_t bytes;

	while (path[0] == '.' && path[1] == '/')
		path += 2;
	bytes = strlen(path);
	while (bytes > 1 && path[bytes - 1] == '/')
		bytes--;
	if (bytes >= PATH_BYTES)
		return -ENAMETOOLONG;
	snprintf(clean, PATH_BYTES, "%.*s", bytes == 0 ? 1 : (int)bytes, bytes == 0 ? "." : path);
	return 0;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

static bool is_in(const char *path, const char *directory)
{
	size_t bytes = (size_t)(last_part(path) - path);

	if (bytes == 0)
		return strcmp(directory, ".") == 0;
	bytes -= bytes > 1; /* the slash, but of the root */
	return strlen(directory) == bytes && memcmp(directory, path, bytes) == 0;
}

static bool in_same(const char *a, const char *b)
{
	size_t bytes = (size_t)(last_part(a) - a);

	return (size_t)(last_part(b) - b) == bytes && memcmp(a, b, bytes) == 0;
}

/* ---- one list of names ---- */

static struct disk_name *name_of(struct list *node)
{
	return container_of(node, struct disk_name, node);
}

static struct disk_name *find(struct list *names, const char *path)
{
	list_for_each (at, names)
		if (strcmp(name_of(at)->path, path) == 0)
			return name_of(at);
	return NULL;
}

static void drop_name(struct disk_name *name)
{
	if (name->file != NULL)
		name->file->names--;
	list_remove(&name->node);
	free(name);
}

static void add_name(struct list *names, const char *path, struct disk_file *file)
{
	struct disk_name *name = find(names, path);

	if (name != NULL)
		drop_name(name);
	name = calloc(1, sizeof(*name));
	ensure(name != NULL);
	snprintf(name->path, sizeof(name->path), "%s", path);
	name->file = file;
	if (file != NULL)
		file->names++;
	list_push_back(names, &name->node);
}

static void remove_name(struct list *names, const char *path)
{
	struct disk_name *name = find(names, path);

	if (name != NULL)
		drop_name(name);
}

static bool directory_is_there(struct list *names, const char *path)
{
	struct disk_name *name = find(names, path);

	return strcmp(path, ".") == 0 || strcmp(path, "/") == 0 || (name != NULL && name->file == NULL);
}

static bool has_directory(struct list *names, const char *path)
{
	char parent[PATH_BYTES];
	size_t bytes = (size_t)(last_part(path) - path);

	if (bytes <= 1)
		return true;
	snprintf(parent, sizeof(parent), "%.*s", (int)bytes - 1, path);
	return directory_is_there(names, parent);
}

/* ---- changes ---- */

static struct disk_change *change_of(struct list *node)
{
	return container_of(node, struct disk_change, node);
}

static void apply(struct list *names, const struct disk_change *change)
{
	switch (change->kind) {
	case CHANGE_MAKE:
		add_name(names, change->path, change->file);
		break;
	case CHANGE_RENAME:
		remove_name(names, change->path);
		add_name(names, change->to, change->file);
		break;
	case CHANGE_REMOVE:
		remove_name(names, change->path);
		break;
	}
}

static void drop_change(struct disk_change *change)
{
	list_remove(&change->node);
	if (change->file != NULL) {
		change->file->names--;
		disk_file_unused(change->file);
	}
	free(change);
}

static struct disk_change *make_change(
	struct disk *disk, enum change_kind kind, const char *path, const char *to, struct disk_file *file)
{
	struct disk_change *change = calloc(1, sizeof(*change));

	ensure(change != NULL);
	change->kind = kind;
	snprintf(change->path, sizeof(change->path), "%s", path);
	snprintf(change->to, sizeof(change->to), "%s", to);
	change->file = file;
	if (file != NULL)
		file->names++;
	list_push_back(&disk->changes, &change->node);
	apply(&disk->names, change);
	return change;
}

static bool depend(const struct disk_change *a, const struct disk_change *b)
{
	bool a_moves = a->kind == CHANGE_RENAME, b_moves = b->kind == CHANGE_RENAME;

	return in_same(a->path, b->path) || (a_moves && in_same(a->to, b->path)) ||
	       (b_moves && in_same(a->path, b->to)) || (a_moves && b_moves && in_same(a->to, b->to));
}

/* What a commit of one directory takes with it: its changes, and those that they depend on. */
static void take_changes(struct disk *disk, const struct disk_commit *commit, const char *directory)
{
	for (struct list *at = disk->changes.prev; at != &disk->changes; at = at->prev) {
		struct disk_change *change = change_of(at);
		bool taken = is_in(change->path, directory) ||
			     (change->kind == CHANGE_RENAME && is_in(change->to, directory));

		for (struct list *later = at->next; later != &disk->changes && !taken; later = later->next)
			taken = change_of(later)->commit == commit && depend(change, change_of(later));
		if (taken && change->commit == NULL)
			change->commit = commit;
	}
}

void disk_names_commit(struct disk *disk, const struct disk_commit *commit)
{
	list_for_each_safe (at, &disk->changes) {
		struct disk_change *change = change_of(at);

		if (change->commit != commit)
			continue;
		apply(&disk->durable, change);
		drop_change(change);
	}
}

static int sync_directories(struct process *process, const char *one, const char *other)
{
	struct disk *disk = process->host->disk;
	struct disk_commit *commit;

	process_step(process);
	if (world_chance(process_world(process), disk->sync_fails_ppm)) {
		disk_blocks(process);
		return -EIO;
	}
	if (disk->sync_lies) {
		disk_blocks(process);
		return 0;
	}
	commit = disk_commit_create(disk, NULL);
	if (commit == NULL)
		return -ENOMEM;
	take_changes(disk, commit, one);
	if (other != NULL)
		take_changes(disk, commit, other);
	disk_commit_begin(process, commit);
	return 0;
}

/* ---- the operations of env ---- */

int disk_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out)
{
	struct process *process = env_process(env);
	struct disk *disk = process->host->disk;
	struct disk_name *name;
	struct disk_file *file;
	char clean[PATH_BYTES];
	int rc = clean_path(path, clean);

	*file_out = NULL;
	if (rc != 0)
		return rc;
	name = find(&disk->names, clean);
	if (directory_is_there(&disk->names, clean))
		return -EISDIR;
	if (name != NULL && (flags & HF_FILE_CREATE) && (flags & HF_FILE_EXCLUSIVE))
		return -EEXIST;
	if (name == NULL && (!(flags & HF_FILE_CREATE) || !has_directory(&disk->names, clean)))
		return -ENOENT;
	if (name == NULL && process->muted)
		return -EIO;
	file = name != NULL ? name->file : disk_file_create(disk, flags);
	if (file == NULL)
		return -ENOMEM;
	if (name == NULL)
		make_change(disk, CHANGE_MAKE, clean, "", file);
	return disk_file_open(process, file, flags, file_out);
}

int disk_rename(struct hf_env *env, const char *from, const char *to)
{
	struct process *process = env_process(env);
	struct disk *disk = process->host->disk;
	char clean[PATH_BYTES], clean_to[PATH_BYTES], parents[2][PATH_BYTES];
	struct disk_name *name;
	int rc;

	if (process->muted)
		return -EIO;
	if ((rc = clean_path(from, clean)) != 0 || (rc = clean_path(to, clean_to)) != 0)
		return rc;
	name = find(&disk->names, clean);
	if (name == NULL || !has_directory(&disk->names, clean_to))
		return -ENOENT;
	if (name->file == NULL || directory_is_there(&disk->names, clean_to))
		return -EISDIR;
	if (strcmp(clean, clean_to) == 0)
		return 0;
	make_change(disk, CHANGE_RENAME, clean, clean_to, name->file);
	snprintf(parents[0], PATH_BYTES, "%.*s", (int)(last_part(clean) - clean), clean);
	snprintf(parents[1], PATH_BYTES, "%.*s", (int)(last_part(clean_to) - clean_to), clean_to);
	ensure(clean_path(parents[0], clean) == 0 && clean_path(parents[1], clean_to) == 0);
	return sync_directories(process, clean_to, clean);
}

int disk_remove(struct hf_env *env, const char *path)
{
	struct process *process = env_process(env);
	struct disk_name *name;
	char clean[PATH_BYTES];
	int rc = clean_path(path, clean);

	if (process->muted)
		return -EIO;
	if (rc != 0)
		return rc;
	name = find(&process->host->disk->names, clean);
	if (name == NULL)
		return directory_is_there(&process->host->disk->names, clean) ? -EISDIR : -ENOENT;
	if (name->file == NULL)
		return -EISDIR;
	make_change(process->host->disk, CHANGE_REMOVE, clean, "", name->file);
	return 0;
}

int disk_dir_make(struct hf_env *env, const char *path)
{
	struct process *process = env_process(env);
	struct disk *disk = process->host->disk;
	char clean[PATH_BYTES];
	int rc = clean_path(path, clean);

	if (process->muted)
		return -EIO;
	if (rc != 0)
		return rc;
	if (find(&disk->names, clean) != NULL || directory_is_there(&disk->names, clean))
		return -EEXIST;
	if (!has_directory(&disk->names, clean))
		return -ENOENT;
	make_change(disk, CHANGE_MAKE, clean, "", NULL);
	return 0;
}

/* The clean path of a directory that is there. */
static int find_directory(struct disk *disk, const char *path, char clean[PATH_BYTES])
{
	int rc = clean_path(path, clean);

	if (rc != 0 || directory_is_there(&disk->names, clean))
		return rc;
	return find(&disk->names, clean) == NULL ? -ENOENT : -ENOTDIR;
}

int disk_dir_list(struct hf_env *env, const char *path, void (*found)(const char *name, void *context), void *context)
{
	struct disk *disk = env_process(env)->host->disk;
	char clean[PATH_BYTES];
	int rc = find_directory(disk, path, clean);

	if (rc != 0)
		return rc;
	list_for_each_safe (at, &disk->names) {
		char name[PATH_BYTES];

		if (!is_in(name_of(at)->path, clean))
			continue;
		snprintf(name, sizeof(name), "%s", last_part(name_of(at)->path)); /* found() may remove it */
		found(name, context);
	}
	return 0;
}

int disk_dir_remove(struct hf_env *env, const char *path)
{
	struct process *process = env_process(env);
	struct disk *disk = process->host->disk;
	char clean[PATH_BYTES];
	int rc = find_directory(disk, path, clean);

	if (process->muted)
		return -EIO;
	if (rc != 0)
		return rc;
	if (find(&disk->names, clean) == NULL)
		return -EBUSY; /* "." or "/" */
	list_for_each (at, &disk->names)
		if (is_in(name_of(at)->path, clean))
			return -ENOTEMPTY;
	make_change(disk, CHANGE_REMOVE, clean, "", NULL);
	return 0;
}

int disk_dir_sync(struct hf_env *env, const char *path)
{
	struct process *process = env_process(env);
	char clean[PATH_BYTES];
	int rc = find_directory(process->host->disk, path, clean);

	return process->muted ? -EIO : rc != 0 ? rc : sync_directories(process, clean, NULL);
}

/* ---- ends ---- */

static void drop_all(struct list *names)
{
	while (!list_empty(names))
		drop_name(name_of(names->next));
}

static void drop_changes(struct disk *disk)
{
	while (!list_empty(&disk->changes))
		drop_change(change_of(disk->changes.next));
}

/* What has no directory any more is gone, too. */
static void drop_orphans(struct list *names)
{
	for (bool dropped = true; dropped;) {
		dropped = false;
		list_for_each_safe (at, names) {
			if (has_directory(names, name_of(at)->path))
				continue;
			drop_name(name_of(at));
			dropped = true;
		}
	}
}

void disk_names_lose_power(struct disk *disk)
{
	list_for_each (at, &disk->changes) {
		struct disk_change *change = change_of(at);

		for (struct list *before = disk->changes.next; before != at; before = before->next)
			change->lost = change->lost || (change_of(before)->lost && depend(change, change_of(before)));
		change->lost = change->lost || world_chance(disk->host->world, 500000);
		if (!change->lost)
			apply(&disk->durable, change);
	}
	drop_orphans(&disk->durable);
	drop_all(&disk->names);
	list_for_each (at, &disk->durable)
		add_name(&disk->names, name_of(at)->path, name_of(at)->file);
	drop_changes(disk);
}

void disk_names_free(struct disk *disk)
{
	drop_all(&disk->names);
	drop_all(&disk->durable);
	drop_changes(disk);
}
