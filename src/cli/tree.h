/* tree.h - the entries below a directory, in order of names. */
#ifndef HOLDFAST_CLI_TREE_H
#define HOLDFAST_CLI_TREE_H

#include <stdbool.h>
#include <stdint.h>

enum tree_kind { TREE_MISSING, TREE_FILE, TREE_DIRECTORY, TREE_LINK, TREE_OTHER };

struct tree_file {
	const char *path; /* to open it */
	const char *name; /* relative to where the walk began */
	enum tree_kind kind;
	uint64_t bytes;
	uint64_t mtime_ns, ctime_ns;
	uint64_t inode;
	uint32_t mode;    /* as of chmod(2) */
	bool sparse;      /* has less on disk than bytes */
	const char *what; /* of OTHER: "a socket" */
};

enum tree_kind tree_kind(const char *path, uint64_t *bytes_out);
/* Of one path, which becomes `path` and `name`; links are followed. 0 or -errno. */
int tree_look(const char *path, struct tree_file *file_out);

enum tree_scope {
	TREE_FILES,   /* regular files */
	TREE_SOURCES, /* of these, none that are hidden or in build directories */
	TREE_ALL,     /* directories too, before their entries, and links and devices */
	TREE_BEHIND,  /* the same, and in the place of a link what it leads to; a link that is found leads nowhere, or
	               * to a directory that it is in */
};
#define TREE_SKIP 1 /* found()'s answer to a directory whose entries are not wanted */
/* Calls found() for each; stops at and returns its first answer that is not 0, or -errno. Links are not followed,
 * except for TREE_BEHIND. */
int tree_each(const char *path, enum tree_scope scope, int (*found)(const struct tree_file *file, void *context),
	void *context);

#endif
