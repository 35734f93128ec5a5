/* mapping.h - memory of a peer, mapped once for all rails of this process.
 *
 * A peer registers the same memory on each of its rails. A mapping of one rail is reused by the next, with its pages in
 * place: after a cut there is no wait for system calls and page faults.
 *
 * Only memory that the peer allocated as shared is looked up, because its inode numbers are of one file system and are
 * not reused while a process maps the file. For another file, each registration has a mapping of its own. */
#ifndef HOLDFAST_DEV_SHM_MAPPING_H
#define HOLDFAST_DEV_SHM_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mapping_place {
	pid_t pid; /* the process of descriptor fd */
	int fd;
	uint64_t inode, offset;
	size_t bytes;
	bool writable;
	bool is_file; /* the file of another program: it is mapped again */
};

struct mapping;
/* A use of it; 0 or the error of share_peer_map. From any thread. */
int mapping_get(const struct mapping_place *place, struct mapping **mapping_out);
void mapping_put(struct mapping *mapping); /* NULL is legal */
void *mapping_at(const struct mapping *mapping);

#endif
