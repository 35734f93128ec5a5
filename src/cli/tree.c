#include "cli/tree.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES  4096
#define DEPTH_MAX   64u
#define BLOCK_BYTES 512 /* of st_blocks */
#define NS_A_SECOND 1000000000u

/* A directory that is being walked, and those that it is in. */
struct level {
	const struct level *above;
	dev_t device;
	ino_t inode;
	unsigned depth;
};

struct walk {
	enum tree_scope scope;
	size_t root_bytes; /* of the path, with its slash */
	int (*found)(const struct tree_file *file, void *context);
	void *context;
};

static void fill(const struct stat *status, struct tree_file *file)
{
	file->kind = S_ISDIR(status->st_mode)   ? TREE_DIRECTORY
		     : S_ISREG(status->st_mode) ? TREE_FILE
		     : S_ISLNK(status->st_mode) ? TREE_LINK
						: TREE_OTHER;
	file->what = S_ISSOCK(status->st_mode) ? "a socket" : S_ISFIFO(status->st_mode) ? "a pipe" : "a device";
	file->bytes = (uint64_t)status->st_size;
	file->mtime_ns = (uint64_t)status->st_mtim.tv_sec * NS_A_SECOND + (uint64_t)status->st_mtim.tv_nsec;
	file->ctime_ns = (uint64_t)status->st_ctim.tv_sec * NS_A_SECOND + (uint64_t)status->st_ctim.tv_nsec;
	file->inode = (uint64_t)status->st_ino;
	file->sparse = S_ISREG(status->st_mode) && status->st_blocks < status->st_size / BLOCK_BYTES;
	file->mode = (uint32_t)status->st_mode & 07777;
}

int tree_look(const char *path, struct tree_file *file)
{
	struct stat status;

	if (stat(path, &status) != 0)
		return -errno;
	*file = (struct tree_file){.path = path, .name = path};
	fill(&status, file);
	return 0;
}

enum tree_kind tree_kind(const char *path, uint64_t *bytes_out)
{
	struct tree_file file = {0};

	if (tree_look(path, &file) != 0)
		return TREE_MISSING;
	*bytes_out = file.bytes;
	return file.kind;
}

static bool left_out(const struct walk *walk, const char *name)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return true;
	return walk->scope == TREE_SOURCES && (name[0] == '.' || strncmp(name, "build", 5) == 0);
}

static bool is_above(const struct level *level, const struct stat *status)
{
	while (level != NULL && (level->device != status->st_dev || level->inode != status->st_ino))
		level = level->above;
	return level != NULL;
}

static int walk_directory(const struct walk *walk, const char *path, const struct level *level);

static int walk_entry(const struct walk *walk, const char *path, const struct level *above)
{
	struct tree_file file = {.path = path, .name = path + walk->root_bytes};
	struct stat status, behind;
	struct level level = {.above = above, .depth = above->depth + 1};
	int answer;

	if (lstat(path, &status) != 0)
		return 0; /* gone since it was listed */
	if (walk->scope == TREE_BEHIND && S_ISLNK(status.st_mode) && stat(path, &behind) == 0 &&
		!is_above(above, &behind))
		status = behind;
	fill(&status, &file);
	if (file.kind == TREE_FILE || walk->scope >= TREE_ALL) {
		answer = walk->found(&file, walk->context);
		if (answer == TREE_SKIP && file.kind == TREE_DIRECTORY)
			return 0;
		if (answer != 0 || file.kind != TREE_DIRECTORY)
			return answer;
	}
	if (file.kind != TREE_DIRECTORY)
		return 0;
	level.device = status.st_dev;
	level.inode = status.st_ino;
	return level.depth <= DEPTH_MAX ? walk_directory(walk, path, &level) : -ELOOP;
}

static int walk_directory(const struct walk *walk, const char *path, const struct level *level)
{
	struct dirent **entries;
	int n = scandir(path, &entries, NULL, alphasort), answer = 0;
	char *entry_path = malloc(PATH_BYTES);

	if (n < 0 || entry_path == NULL)
		answer = n < 0 ? -errno : -ENOMEM;
	for (int i = 0; i < n; i++) {
		if (answer == 0 && !left_out(walk, entries[i]->d_name)) {
			if (snprintf(entry_path, PATH_BYTES, "%s/%s", path, entries[i]->d_name) >= PATH_BYTES)
				answer = -ENAMETOOLONG;
			else
				answer = walk_entry(walk, entry_path, level);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	free(entry_path);
	return answer;
}

int tree_each(const char *path, enum tree_scope scope, int (*found)(const struct tree_file *file, void *context),
	void *context)
{
	struct walk walk = {.scope = scope, .root_bytes = strlen(path) + 1, .found = found, .context = context};
	struct level root = {0};
	struct stat status;

	if (stat(path, &status) != 0)
		return -errno;
	root.device = status.st_dev;
	root.inode = status.st_ino;
	return walk_directory(&walk, path, &root);
}
