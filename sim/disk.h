/* disk.h - the files and directories of a host, and what a power loss leaves of them.
 *
 * A file has its content as processes see it (the page cache) and its durable content. Sync and flush copy from the
 * first to the second. At a power loss each piece that differs survives or not, by chance, and so does the size; pieces
 * have 8, 64 or 512 bytes, as media have it. Mapped files are the page cache itself, so mappings of one file are
 * coherent.
 *
 * Names are there twice as well. What makes, renames or removes one is a change, which is durable once its directory
 * was synced. At a power loss the changes of a directory survive up to one of them, by chance.
 *
 * What a worker calls (work.h) takes time, at the end of which it is durable; a power loss before leaves it to chance.
 * A sync covers what was written before it began. For other threads calls take no time.
 *
 * The kernel may write back what is stored in a mapping whenever it likes. Here it does so where a scenario says it.
 *
 * After a sync that failed, what it was to write counts as clean, and the next one leaves it out, unless it is written
 * again: as Linux does. */
#ifndef HOLDFAST_SIM_DISK_H
#define HOLDFAST_SIM_DISK_H

#include "sim/host.h"

struct disk_file;

struct disk {
	struct host *host;
	struct list files;          /* struct disk_file */
	struct list names, durable; /* struct disk_name: as processes see them, and as the medium has them */
	struct list changes;        /* struct disk_change: from `durable` to `names`, the oldest first */
	struct list commits;        /* struct disk_commit: calls that have not ended, in the order in which they do */

	uint64_t losses; /* of power */
	uint64_t files_made;

	/* Tests and scenarios may set these. */
	uint64_t bytes;                    /* that files can have in all */
	uint64_t call_ns_min, call_ns_max; /* what a worker's call takes */
	uint64_t hangs_until_ns;           /* none ends before */
	uint32_t sync_fails_ppm;
	size_t piece_bytes; /* of what a power loss leaves; 0: drawn */
	bool sync_lies;     /* it succeeds, and nothing is durable */
};

struct disk *disk_create(struct host *host);
void disk_free(struct disk *disk);
void disk_power_loss(struct disk *disk);
uint64_t disk_used_bytes(const struct disk *disk); /* by all files */
/* The process died: what it had locked is free. */
void disk_abandon(struct process *process);
/* A worker is being stopped: what it called ends now; with a dead process's, whenever it would have. */
void disk_settle(struct world_waiter *worker);
/* A call takes the time of one of the disk. Returns the worker that it blocks, or NULL. */
struct world_waiter *disk_blocks(struct process *process);

int disk_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out);
int disk_rename(struct hf_env *env, const char *from, const char *to);
int disk_remove(struct hf_env *env, const char *path);
int disk_dir_make(struct hf_env *env, const char *path);
int disk_dir_list(struct hf_env *env, const char *path, void (*found)(const char *name, void *context), void *context);
int disk_dir_remove(struct hf_env *env, const char *path);
int disk_dir_sync(struct hf_env *env, const char *path);
int disk_dir_space(struct hf_env *env, const char *path, uint64_t *free_bytes_out, uint64_t *bytes_out);

/* The kernel writes back `bytes` bytes that are stored at `at`, in a mapping of this process, as soon as they are. */
void disk_write_back(struct process *process, const void *at, const void *data, size_t bytes);

/* memory.c: a mapping ends, or [at, at + bytes) of the content is to be durable, or is. */
void disk_unmapped(struct disk_file *file);
int disk_flush(struct process *process, struct disk_file *file, const void *at, size_t bytes);
void disk_file_write_back(struct disk_file *file, const void *at, const void *data, size_t bytes);
/* Arena memory that belongs to no process. */
void *memory_take(size_t bytes);
void memory_add_mapping(struct process *process, void *addr, size_t bytes, struct disk_file *file);

#endif
