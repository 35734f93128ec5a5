/* synced.h - the mark beside a log: up to where it is durable (R-D1).
 *
 *   SYNCED-1  The mark is written behind each sync of the log and before anything of it is acknowledged. It may lag,
 *             and never leads the log: the owner lowers it, durably, before the log is cut.
 *   SYNCED-2  Of two records the one with the later serial counts. One is on the disk, and only the other one is
 *             written until that is synced: a loss of power tears one of them at most.
 *   SYNCED-3  What is only written counts in the boot of the host that wrote it, and in that very file: its device and
 *             inode are in the record, so a copied directory proves nothing but what its disk has.
 *
 * The file has two records of 256 bytes, little-endian:
 *
 *     0 u32 crc32c of what follows   4 u32 serial; 0: none   8 owner, a text of 64 bytes   72 u64 first   80 u64 synced
 *    88 u64 written   96 u32 1: closed in order   100 boot id of 16 bytes   120 u64 device   128 u64 inode   136 zeros
 *
 * Positions are the log's own. One thread at a time. Writing does not sync, so it costs a system call. */
#ifndef HOLDFAST_ENV_SYNCED_H
#define HOLDFAST_ENV_SYNCED_H

#include <holdfast/env.h>

#define SYNCED_OWNER_BYTES 64u

struct synced;

/* What the life before has left as proof. */
struct synced_proof {
	bool known;     /* false: there is no mark, or none of this owner that can be read */
	bool same;      /* it wrote in this boot of the host, and to this very file */
	bool closed;    /* in order: the log ends at `end` */
	uint64_t first; /* the log begins there, or behind it */
	uint64_t end;   /* all before it was in the log */
};

/* Opens or makes the file. A mark that cannot be read is no proof, and reported in the log of the process. */
int synced_open(struct hf_env *env, const char *path, const char *owner, struct synced **synced_out,
	struct synced_proof *before_out, struct hf_error *error);
/* The log has [first, written), of which what is below `synced` is on the disk. */
int synced_write(struct synced *synced, uint64_t first, uint64_t synced_end, uint64_t written);
/* The mark is on the disk on return. */
int synced_sync(struct synced *synced);
/* closed: the log is whole, and its owner ends. NULL is legal. */
void synced_close(struct synced *synced, bool closed);

#endif
