/* log_marks.h - how far each log of a broker is durable: LOG_DIRS/synced, the marks that a start judges by (R-D1).
 *
 * The file is an array of slots of 256 bytes, one for a log, each of two records of 128 bytes; of the two the one with
 * the later serial is the mark, and the other one is written next:
 *
 *    0 u32 CRC32C of what follows         28 i32 node.id        64 i64 records below it were deleted
 *    4 u32 serial; 0: no record           32 u8  boot[16]       72 i64 records below it are on the disk
 *    8 u8  topic id[16]; 0: nobody's      48 u64 device         80 i64 records below it are in the file
 *   24 i32 partition; 0: the journal,     56 u64 inode          88 u32 1: closed in order
 *          -1: the directory, -2: lives   92 u32 1: damaged
 *   96 u64 the clock of the boot, ns      104 u32 1: a sync of it failed
 *  108 i32 leader epoch of the next       112 i64 the highest high watermark that was known
 *
 * Little-endian; of the journal offsets are bytes, and the first one is the CRC of those on the disk. Device and inode
 * are those of the file itself: of a copy nothing is believed but the disk's. It is mapped: what is stored there
 * outlives the process. It is synced when it has changed, each second, and before a log is cut; so after a loss of
 * power it may be behind the logs, but never before them.
 *
 * Owned by the broker's loop. */
#ifndef HOLDFAST_BROKER_LOG_MARKS_H
#define HOLDFAST_BROKER_LOG_MARKS_H

#include <holdfast/work.h>

#include "broker/log/log_verdict.h"

#define LOG_OWNER_BYTES 16u

struct log_marks;

/* Of one log. */
struct log_mark {
	struct log_marks *marks;
	struct log_proof before; /* of the life before */
	uint32_t slot;
	int64_t start, synced, written; /* of this one */
	bool closed, damaged, failed;
	int32_t hw_epoch; /* the highest high watermark that was known, and in which epoch */
	int64_t hw;
};

/* Opens or makes the file; records that cannot be read are no proof, and reported. */
int log_marks_open(struct hf_env *env, const char *directory, int32_t node_id, struct log_marks **marks_out,
	struct hf_error *error);
void log_marks_close(struct log_marks *marks); /* syncs it; NULL is legal */

/* That of the log, from which its mark of this life goes on; made if there is none. The memory is the marks'. */
int log_marks_take(struct log_marks *marks, const uint8_t owner[LOG_OWNER_BYTES], int32_t index,
	struct log_mark **mark_out, struct hf_error *error);
/* Whether there is one of this log, which is not taken by asking. */
bool log_marks_have(const struct log_marks *marks, const uint8_t owner[LOG_OWNER_BYTES], int32_t index);
/* Whether the host has, in files or in memory, all that the life before had written to every log that has a mark: the
 * boot is the same, and no sync has failed that was not followed by one of everything (R-D9). */
bool log_marks_prove_all(const struct log_marks *marks);
/* The incarnation of the life before, if that was of this boot of the host and of these files: the lock of the
 * directory, once it is held, proves that its process has ended (R-D10). 0: nothing is proven. NULL is legal. */
int64_t log_marks_ended(const struct log_marks *marks);
/* The controller has heard how this broker has come back, and of `life` lives: from now on, until the host stops, its
 * logs prove themselves. Makes a mark of the directory. NULL is legal. */
void log_marks_go_on(struct log_marks *marks, int64_t life);
/* The number of the life that begins, as this incarnation. An older copy of the directory has numbers that the
 * controller has heard (R-D9). 0: there is none. */
int64_t log_marks_begin_life(struct log_marks *marks, int64_t incarnation);
bool log_marks_are_empty(const struct log_marks *marks); /* no log has one */
/* Frees those of which nothing is known any more. */
void log_marks_keep(struct log_marks *marks, bool (*known)(const uint8_t owner[LOG_OWNER_BYTES], const void *context),
	const void *context);
/* What has changed is durable on return. */
int log_marks_sync(struct log_marks *marks);
/* A helper thread syncs what has changed. NULL is legal for both. */
void log_marks_sync_later(struct log_marks *marks, struct hf_workers *workers);

/* What the log has now: of the file, and of the disk. NULL is legal for each of these. */
void log_mark_written(struct log_mark *mark, int64_t end);
void log_mark_synced(struct log_mark *mark, int64_t end);
/* Of the journal: so many bytes are on the disk, and this is their CRC, in the place of `start`. */
void log_mark_journaled(struct log_mark *mark, int64_t end, uint32_t crc);
int log_mark_started(struct log_mark *mark, int64_t start, bool durable); /* before records below it are deleted */
/* Before the log is cut: nothing is proven from `end` on; durable on return. */
int log_mark_lower(struct log_mark *mark, int64_t end);
/* Records below `hw` were read in that epoch. It never decreases, but what was known in epochs below `void_below` is
 * forgotten: an operator has given such records up (R-D7). */
void log_mark_knows(struct log_mark *mark, int32_t epoch, int64_t hw, int32_t void_below);
/* A sync failed: what memory has above the mark may be gone from it. It says so until everything is synced. */
void log_mark_failed(struct log_mark *mark);
/* Below `proven` something cannot be read. It stays so until the log is cut (R-D5). */
void log_mark_damaged(struct log_mark *mark, int64_t proven);
/* It was judged again, and is not: someone has put its files back. What of them is on the disk is not known. */
void log_mark_whole(struct log_mark *mark);
/* The log begins and ends at this offset now; durable on return. */
void log_mark_restarted(struct log_mark *mark, int64_t offset);
void log_mark_closed(struct log_mark *mark);
void log_mark_release(struct log_mark *mark); /* the log is not open any more; the file keeps it */
void log_mark_free(struct log_mark *mark);    /* the log is removed */

#endif
