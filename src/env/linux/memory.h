/* memory.h - the shared memory of this process, and its descriptors.
 *
 * A *piece* is a run of pages backed by one file. An allocation starts as one piece; share_move_pages puts pieces of
 * other files in its middle. Thread safe; for registration and fences, not for data paths. */
#ifndef HOLDFAST_ENV_LINUX_MEMORY_H
#define HOLDFAST_ENV_LINUX_MEMORY_H

#include "env/share.h"

/* A mapping of [addr, addr + bytes) on fd, which the registry owns from here on. 0 or -ENOMEM. */
int memory_add(void *addr, size_t bytes, int fd, uint64_t offset, bool writable, bool anonymous);

/* Removes the allocation that starts at addr: unmaps it and closes its descriptors. False: there is none. */
bool memory_remove(void *addr);

/* 0; -ENOENT: not ours; -EXDEV: ours, but in several files. */
int memory_find(const void *addr, size_t bytes, struct share_backing *out);

/* The lock of the registry, for a change of several steps. */
void memory_lock(void);
void memory_unlock(void);

/* With the lock held. Whether [addr, addr + bytes) is all in one allocation of anonymous memory: 0, -ENOENT: not
 * ours, -EOPNOTSUPP: a file's. */
int memory_check_movable(const char *addr, size_t bytes);
/* With the lock held: [addr, addr + bytes), which is movable, has been mapped on fd (at offset 0), which the registry
 * owns from here on. memory_reserve made sure that this cannot fail. */
int memory_reserve(void);
void memory_replaced(char *addr, size_t bytes, int fd);

#endif
