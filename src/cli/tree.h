/* tree.h - the regular files below a directory, in order of their names. */
#ifndef HOLDFAST_CLI_TREE_H
#define HOLDFAST_CLI_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct tree_file {
	const char *path; /* to open it */
	const char *name; /* relative to where the walk began */
	uint64_t bytes;
	uint64_t mtime_s;
};

enum tree_kind { TREE_MISSING, TREE_FILE, TREE_DIRECTORY, TREE_OTHER };
enum tree_kind tree_kind(const char *path, uint64_t *bytes_out);

/* Calls found() for each; stops at and returns its first answer that is not 0, or -errno. Links are not followed.
 * With `sources_only`, hidden entries and build directories are left out. */
int tree_each(
	const char *path, bool sources_only, int (*found)(const struct tree_file *file, void *context), void *context);

#endif
