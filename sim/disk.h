/* disk.h - the files of a host and what a power loss leaves of them.
 *
 * A file has its content as processes see it (the page cache) and its durable content. Sync and flush copy from the
 * first to the second; at a power loss each sector that differs survives or not, by chance, and the size likewise.
 * Mapped files are the page cache itself, so mappings of one file are coherent. */
#ifndef HOLDFAST_SIM_DISK_H
#define HOLDFAST_SIM_DISK_H

#include "sim/host.h"

struct disk_file;

int disk_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out);
int disk_rename(struct hf_env *env, const char *from, const char *to);
int disk_remove(struct hf_env *env, const char *path);
void disk_power_loss(struct host *host);
void disk_free(struct host *host);

/* memory.c: a mapping ends, or [at, at + bytes) of the content becomes durable. */
void disk_unmapped(struct disk_file *file);
void disk_flush(struct disk_file *file, const void *at, size_t bytes);
/* Arena memory that belongs to no process. */
void *memory_take(size_t bytes);
void memory_add_mapping(struct process *process, void *addr, size_t bytes, struct disk_file *file);

#endif
