/* disk_parts.h - what the parts of the simulated disk know of each other: content of files (disk_file.c), names
 * (disk_names.c), and what is on its way to the medium (disk_commit.c). */
#ifndef HOLDFAST_SIM_DISK_PARTS_H
#define HOLDFAST_SIM_DISK_PARTS_H

#include "sim/disk.h"

#define DISK_SECTOR_BYTES 512u /* the least that a sync writes */

struct disk_file {
	struct list node; /* of the disk */
	struct disk *disk;
	uint64_t id;
	uint8_t *cache, *durable; /* both have `capacity` bytes */
	uint8_t *believed;        /* so has this; NULL until a sync fails: what the kernel takes for durable */
	size_t capacity, bytes, durable_bytes;
	size_t touched; /* behind it all copies have zeros: they were never written nor mapped */
	unsigned handles, mappings, commits;
	int mode;
	uint64_t changed_ns; /* time of day */
	unsigned names;      /* that lead here, in both lists, and changes of such names */
	const void *lock_by; /* the handle */
};

struct disk_sector {
	size_t at;
	uint8_t data[DISK_SECTOR_BYTES];
};

/* What one call makes durable: sectors and size of a file, or changes of names. */
struct disk_commit {
	struct list node;
	struct disk *disk;
	struct disk_file *file;      /* NULL: the changes that name this commit */
	struct disk_sector *sectors; /* `count` of them */
	size_t count, bytes;
	struct world_waiter *worker; /* NULL: nobody waits for it any more */
	struct world_event end;
};

/* NULL when there is no memory. It is to be begun or dropped. */
struct disk_commit *disk_commit_create(struct disk *disk, struct disk_file *file);
/* Takes effect at once, after those that were begun before, or when the worker's call ends. */
void disk_commit_begin(struct process *process, struct disk_commit *commit);
void disk_commit_drop(struct disk_commit *commit);

/* Frees the file when nothing leads to it. */
void disk_file_unused(struct disk_file *file);
struct disk_file *disk_file_create(struct disk *disk, unsigned flags);
int disk_file_open(struct process *process, struct disk_file *file, unsigned flags, struct hf_file **file_out);
void disk_file_lose_power(struct disk_file *file);

/* Makes the changes of a commit durable. */
void disk_names_commit(struct disk *disk, const struct disk_commit *commit);
void disk_names_lose_power(struct disk *disk);
void disk_names_free(struct disk *disk);

#endif
