#include "cli/tree.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096
#define DEPTH_MAX  64u

struct walk {
	bool sources_only;
	size_t root_bytes; /* of the path, with its slash */
	int (*found)(const struct tree_file *file, void *context);
	void *context;
};

enum tree_kind tree_kind(const char *path, uint64_t *bytes_out)
{
	struct stat status;

	if (stat(path, &status) != 0)
		return TREE_MISSING;
	*bytes_out = (uint64_t)status.st_size;
	if (S_ISDIR(status.st_mode))
		return TREE_DIRECTORY;
	return S_ISREG(status.st_mode) ? TREE_FILE : TREE_OTHER;
}

static bool left_out(const struct walk *walk, const char *name)
{
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return true;
	return walk->sources_only && (name[0] == '.' || strncmp(name, "build", 5) == 0);
}

static int walk_directory(const struct walk *walk, const char *path, unsigned depth);

static int walk_entry(const struct walk *walk, const char *path, unsigned depth)
{
	struct stat status;

	if (lstat(path, &status) != 0)
		return 0; /* gone since it was listed */
	if (S_ISDIR(status.st_mode))
		return depth < DEPTH_MAX ? walk_directory(walk, path, depth + 1) : -ELOOP;
	if (!S_ISREG(status.st_mode))
		return 0;
	return walk->found(&(struct tree_file){.path = path,
				   .name = path + walk->root_bytes,
				   .bytes = (uint64_t)status.st_size,
				   .mtime_s = (uint64_t)status.st_mtim.tv_sec},
		walk->context);
}

static int walk_directory(const struct walk *walk, const char *path, unsigned depth)
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
				answer = walk_entry(walk, entry_path, depth);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	free(entry_path);
	return answer;
}

int tree_each(
	const char *path, bool sources_only, int (*found)(const struct tree_file *file, void *context), void *context)
{
	struct walk walk = {
		.sources_only = sources_only, .root_bytes = strlen(path) + 1, .found = found, .context = context};

	return walk_directory(&walk, path, 0);
}
