/* segment.h - a piece of a partition's log: a file of record batches with its indexes, mapped.
 *
 *   DIRECTORY/00000000000000001234.log          batches, the first with base offset 1234
 *   DIRECTORY/00000000000000001234.index        segment_index.h; written when the segment is sealed
 *   DIRECTORY/00000000000000001234.timeindex
 *
 * The head of a log has its maximal length (segment.bytes) and is written through its mapping; zeros lie behind the
 * tail. A sealed segment is cut behind its last batch, once it is no longer registered. Code that passes on a part of
 * the mapping holds the segment; it is unmapped when the last hold ends.
 *
 * Owned by one loop. Opening, sealing and closing block for the file system. */
#ifndef HOLDFAST_BROKER_SEGMENT_H
#define HOLDFAST_BROKER_SEGMENT_H

#include <holdfast/work.h>

#include "base/list.h"
#include "broker/log/batch.h"
#include "broker/log/segment_index.h"

#define SEGMENT_PATH_BYTES 512u

struct segment {
	struct hf_env *env;
	char directory[SEGMENT_PATH_BYTES - 64];
	struct list node; /* the log's */
	struct hf_file *file;
	uint8_t *map;
	uint32_t capacity;  /* bytes mapped */
	uint32_t stored;    /* when it was opened: the end of what its file has that is no hole */
	uint32_t bytes;     /* the tail: behind the last committed batch */
	uint32_t populated; /* bytes whose pages exist */
	int64_t base_offset, next_offset;
	int32_t last_epoch; /* of the last batch; -1: none */
	struct segment_index places, times;
	uint32_t index_interval, since_index;
	int64_t max_timestamp_ms, max_timestamp_offset, first_timestamp_ms;
	int64_t begun_ms, changed_ms; /* when its first batch and its last one came, as far as that is known (R-B44) */
	unsigned holds, pins;
	bool checked;       /* its batches were verified by this process, or written by it */
	bool sealed, ahead; /* ahead: a helper thread makes pages, or could not */
};

/* The part of the file that is trusted without a check. */
enum segment_trust {
	SEGMENT_WHOLE, /* it was sealed or closed in order: CRCs are not looked at */
	SEGMENT_CHECK, /* batches are verified */
	SEGMENT_INDEX, /* as WHOLE; of a sealed one the indexes on the disk are believed, where they lead to its end */
};

#define SEGMENT_HEAD INT64_MAX
/* Opens the segment at this base offset and reads it up to the first batch that is not right; the file stays as it is.
 * `end_offset`: SEGMENT_HEAD, or where the next one begins: what its file has from there on is no part of the log. It
 * takes no records until segment_begin. -ENOENT: there is none; its path is in the error. */
int segment_open(struct hf_env *env, const char *directory, int64_t base_offset, uint32_t index_interval,
	int64_t end_offset, enum segment_trust trust, struct segment **segment_out, struct hf_error *error);
/* A new one at this base offset, empty, which takes records. */
int segment_make(struct hf_env *env, const char *directory, int64_t base_offset, uint32_t capacity,
	uint32_t index_interval, struct segment **segment_out, struct hf_error *error);
/* A place for one that has no file. NULL: no memory. */
struct segment *segment_absent(struct hf_env *env, const char *directory, int64_t base_offset);
/* Makes it a head of `capacity` bytes, with zeros behind its last batch. Nothing else has it yet. */
int segment_begin(struct segment *segment, uint32_t capacity, struct hf_error *error);
/* Whether bytes other than zero lie behind the last batch. A read that fails counts as such. */
bool segment_has_rest(const struct segment *segment);
/* Copies what lies behind `place` into another file, named as this one and `ending`; durable on return. */
int segment_keep_rest(const struct segment *segment, uint32_t place, const char *ending, struct hf_error *error);
/* The same of a file that was made under another path: empty, and not mapped yet. NULL: no memory, or it cannot have
 * the name; the file stays the caller's. */
struct segment *segment_adopt(struct hf_env *env, const char *directory, int64_t base_offset, uint32_t index_interval,
	const char *path, struct hf_file *file);
/* Ends it behind its last batch, in all three files. */
int segment_seal(struct segment *segment);
void segment_hold(struct segment *segment);
void segment_release(struct segment *segment); /* the holder's; the log has one hold of its own */
/* A hold for a registration of the mapping: the file keeps its length as well (R-B14). */
void segment_pin(struct segment *segment);
void segment_unpin(struct segment *segment);
/* Out of the log: its files are removed, and the log's hold ends. */
void segment_delete(struct segment *segment);
/* The same, of one whose name another one has now. */
void segment_delete_replaced(struct segment *segment);

/* Its batches are to be written to the disk again by the next sync. */
void segment_dirty(struct segment *segment);
/* Whether `bytes` more fit, and an index entry for them. */
bool segment_fits(const struct segment *segment, uint32_t bytes);
/* Makes the pages for `bytes` behind the tail; -ENOSPC and others: the disk is full. */
int segment_prepare(struct segment *segment, uint32_t bytes);
/* The same of the first `bytes` of an empty head alone: whether there is room at all. */
int segment_probe(struct segment *segment, uint32_t bytes);
/* A helper thread makes those below `end` that segment_prepare would make (R-B26). NULL: there is none. */
void segment_prepare_ahead(struct segment *segment, struct hf_workers *workers, uint32_t end);
/* The number of bytes from its begin that have pages: a load from behind them may fail by a full disk. */
uint32_t segment_present(const struct segment *segment);
/* The batch at the tail, whose bytes lie there, is a part of the log now: base offset, epoch, index. */
void segment_commit(struct segment *segment, struct batch *batch, int32_t leader_epoch, int64_t now_ms);

/* The same of a batch that another broker has committed: nothing is written (R-B18). */
void segment_accept(struct segment *segment, const struct batch *batch, int64_t now_ms);
/* The largest timestamp; of records without one the time of the file (R-B44). */
static inline int64_t segment_latest_ms(const struct segment *segment)
{
	return segment->max_timestamp_ms >= 0 ? segment->max_timestamp_ms : segment->changed_ms;
}
/* Ends the segment at `place` and makes it a head again, of `capacity` bytes with zeros behind; the struct is another
 * one, in the same place of the log's list, and holds on the old one stay good for what lies below. */
int segment_reopen(struct segment **segment, uint32_t place, uint32_t capacity, struct hf_error *error);

/* The place of the batch that has `offset`, with its header; false: there is none in this segment, or what lies before
 * it is not what was committed any more. */
bool segment_find(const struct segment *segment, int64_t offset, uint32_t *place_out, struct batch *batch_out);
/* The batch that begins at this place; false: the tail, or bytes that are no batch any more. */
bool segment_at(const struct segment *segment, uint32_t place, struct batch *batch_out);
/* The first place, and its offset, where the headers of batches do not follow each other; or the tail. */
void segment_find_break(const struct segment *segment, uint32_t *place_out, int64_t *offset_out);
/* The first batch that ends at or behind `offset` and whose largest timestamp is at least this; false: none. */
bool segment_find_time(const struct segment *segment, int64_t timestamp_ms, int64_t offset, uint32_t *place_out,
	struct batch *batch_out);

#endif
