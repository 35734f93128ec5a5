/* remap.h - between the files that find, move and remap shared memory of this process. */
#ifndef HOLDFAST_ENV_LINUX_REMAP_H
#define HOLDFAST_ENV_LINUX_REMAP_H

#include "env/share.h"

/* A line of /proc/self/maps. */
struct mapping {
	uint64_t start, end, offset, inode;
	unsigned major, minor;
	bool readable, writable, executable, shared;
	const char *path; /* in the line */
};

/* share_memory.c. False: it is no such line. */
bool share_mapping_parse(char *line, struct mapping *out);

/* share_move.c. Maps `fd`, which has room, over whole pages, with their content; no store of ours is lost. */
int share_pages_replace(char *addr, size_t bytes, int fd, struct hf_error *error);

/* share_remap.c; the caller holds the lock of share_memory.c. */
bool remap_is_ours(const struct mapping *mapping); /* remapped by us, whether its file is open still or not */
int remap_fd(uint64_t inode);                      /* -ENOENT: not open */
void remap_hold(uint64_t inode);
void remap_release(uint64_t inode); /* closes behind the last holder */
/* Remaps whole pages of private, or remapped, memory into a new file, which has no holder yet. */
int remap_pages(char *addr, size_t bytes, struct hf_error *error);

#endif
