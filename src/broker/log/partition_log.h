/* partition_log.h - the log of one partition: segments in a directory, the last of which is written.
 *
 *   LOG_DIR/TOPIC-N/   segments (segment.h), producer snapshots, leader-epoch-checkpoint
 *
 * Offsets have no gaps: a batch begins where the one before it ends. Bytes that were committed never change.
 *
 * Owned by one loop. Opening, rolling and closing block for the file system. */
#ifndef HOLDFAST_BROKER_PARTITION_LOG_H
#define HOLDFAST_BROKER_PARTITION_LOG_H

#include "broker/kafka_error.h"
#include "broker/log/batch_contents.h"
#include "broker/log/flusher.h"
#include "broker/log/leader_epochs.h"
#include "broker/log/log_marks.h"
#include "broker/log/producer_state.h"
#include "broker/log/segment.h"

/* Kafka's names and meanings; -1: without limit where Kafka has that. */
struct log_config {
	uint32_t segment_bytes, index_interval_bytes, max_message_bytes;
	int64_t segment_ms, retention_ms, retention_bytes;
	int64_t timestamp_after_ms;       /* how far records of clients may be ahead of this broker's clock */
	int64_t flush_messages, flush_ms; /* FLUSH_NEVER */
	bool log_append_time;
	int64_t min_insync_replicas;
	bool unclean_election; /* a replica that is not in sync may lead when no other can */
};

struct partition_log {
	struct hf_env *env;
	char directory[SEGMENT_PATH_BYTES - 64];
	struct log_config config;
	struct list segments;      /* by base offset; never empty while it is open */
	struct next_segment *next; /* NULL: none is made ahead */
	int64_t start_offset;      /* records below it are gone */
	struct producer_state producers;
	struct leader_epochs epochs;
	struct log_flush flush;
	struct log_mark *mark; /* NULL: none is kept */
	struct log_verdict verdict;
	bool granted; /* an extent is out: its holder writes, and nothing else does */
	bool failed;  /* the disk refused: nothing is appended until the broker starts again */
};

/* Makes the directory if it is missing. `closed`: it was closed in order, so batches need no CRC check. `mark` is of
 * this log until it is closed or removed; NULL: without proof, nothing is damage. A log that is damaged (verdict)
 * opens with what lies before the damage, and has failed; its files are as they were. */
int partition_log_open(struct hf_env *env, const char *directory, const struct log_config *config,
	struct log_mark *mark, bool closed, int64_t start_offset, int64_t now_ms, struct partition_log **log_out,
	struct hf_error *error);
/* After it was opened: what lies there, from `offset` on, is not right. The log fails, with its verdict. */
void partition_log_found_damage(
	struct partition_log *log, const struct segment *segment, uint32_t place, int64_t offset, const char *fault);
/* Gives up what cannot be read: the log ends at the damage, and takes records again; the rest is kept beside, in files
 * *.damaged. Blocks. -EBUSY: a segment is still registered; others: nothing was cut. */
int partition_log_cut_damage(struct partition_log *log, int64_t now_ms, struct hf_error *error);

static inline bool partition_log_is_damaged(const struct partition_log *log)
{
	return log->verdict.state == LOG_DAMAGED;
}

/* Trims files, writes the snapshot of producers, syncs all; NULL is legal. -errno: what the disk has is not known. */
int partition_log_close(struct partition_log *log);
/* Whether it has files of a log, or cannot be read. */
bool partition_log_has_files(struct hf_env *env, const char *directory);
/* Removes what a deleted topic of the same name has left in the directory, if it is there. No log has it open. */
void partition_log_clear(struct hf_env *env, const char *directory);
/* The same, but segments with records are kept under other names, *.log.aside. */
int partition_log_clear_aside(struct hf_env *env, const char *directory, struct hf_error *error);
/* Whether an empty log can take records: makes its first pages. */
int partition_log_probe(struct partition_log *log, struct hf_error *error);
/* Closes it and removes the directory. */
void partition_log_remove(struct partition_log *log);

struct append_result {
	int64_t base_offset, append_time_ms; /* -1: the client's time holds */
	const char *message;                 /* a sentence when it was refused, or NULL */
	bool duplicate;                      /* it was there already */
};
/* Appends one batch of a client, which must fill `bytes`. What is refused changes nothing. Packed records are looked
 * into (R-B42): `contents` is what was found in them, or NULL, and they are unpacked here. */
enum kafka_error partition_log_append_inspected(struct partition_log *log, const uint8_t *data, size_t bytes,
	int32_t leader_epoch, int64_t now_ms, const struct batch_contents *contents, struct append_result *result);
static inline enum kafka_error partition_log_append(struct partition_log *log, const uint8_t *data, size_t bytes,
	int32_t leader_epoch, int64_t now_ms, struct append_result *result)
{
	return partition_log_append_inspected(log, data, bytes, leader_epoch, now_ms, NULL, result);
}

/* A part of the head, from the tail on, that its holder writes by itself: batch behind batch, each with the epoch that
 * is never assigned. One at a time. */
struct log_extent {
	struct segment *segment; /* pinned; segment_unpin is its user's */
	uint32_t tail, end;      /* places: where the first batch goes, and where all must end */
};
/* At most `most` bytes behind the tail, room for a batch of `batch_bytes` at least; rolls where the head has none, and
 * makes the pages, of 1 MiB where none are made ahead. -EMSGSIZE: no segment has room for that batch; other errors: the
 * disk is full, the log failed. */
int partition_log_grant(struct partition_log *log, uint32_t most, uint32_t batch_bytes, struct log_extent *extent_out);
/* A helper thread makes the pages of the head up to that place. */
void partition_log_prepare_ahead(struct partition_log *log, uint32_t end);
/* As partition_log_append_inspected, of the one batch of `bytes` bytes that lies at the tail. What is refused stays
 * behind the tail, and nothing more is committed in that extent. */
enum kafka_error partition_log_commit(struct partition_log *log, const struct log_extent *extent, uint32_t bytes,
	int32_t leader_epoch, int64_t now_ms, const struct batch_contents *contents, struct append_result *result);
/* The extent is no longer writable for others: zeroes the bytes behind the tail (R-B9). */
void partition_log_end_grant(struct partition_log *log, const struct log_extent *extent);
/* A stopped process may still write there, because it cannot be fenced: the log continues in another segment. */
void partition_log_leave_grant(struct partition_log *log, const struct log_extent *extent);

struct log_span { /* whole batches in a segment that is held */
	struct segment *segment;
	const uint8_t *at;
	uint32_t bytes;
};
/* Whole batches from the one with `offset` on, below `end_offset`, at most `most` bytes but one batch at least if
 * `one`. Nothing there: a span without segment. OFFSET_OUT_OF_RANGE. */
enum kafka_error partition_log_read(struct partition_log *log, int64_t offset, int64_t end_offset, uint32_t most,
	bool one, struct log_span *span_out);

/* The segment that has `offset`, and the place of the batch with it; at the end: the tail of the head.
 * OFFSET_OUT_OF_RANGE. */
enum kafka_error partition_log_find(
	const struct partition_log *log, int64_t offset, struct segment **segment_out, uint32_t *place_out);

struct segment *partition_log_head(const struct partition_log *log);
int64_t partition_log_end(const struct partition_log *log); /* leo */
/* What is below may be acknowledged: nothing of it has to be durable before (flusher.h). */
int64_t partition_log_sure_end(const struct partition_log *log);
int64_t partition_log_bytes(const struct partition_log *log);
/* Of the batches that begin in [from, to), which are ends of batches; below UINT32_MAX. */
uint32_t partition_log_bytes_between(const struct partition_log *log, int64_t from, int64_t to);
struct log_batch { /* in a segment */
	struct segment *segment;
	const uint8_t *at;
	struct batch batch;
};
/* The first batch that has an offset from `from` on and a record that is not older than that; the record may lie below
 * `from` (batch_contents_find_time). false: none. Nothing is held. */
bool partition_log_find_time(
	const struct partition_log *log, int64_t timestamp_ms, int64_t from, struct log_batch *batch_out);
/* The largest timestamp; false: the log is empty. */
bool partition_log_latest_time(const struct partition_log *log, int64_t *timestamp_out);

/* Gives up records below `offset` (at most the end), and deletes segments that have no other. */
void partition_log_advance_start(struct partition_log *log, int64_t offset);
/* Applies retention.ms, retention.bytes and segment.ms to segments that end at most at `hw`; true: the log changed.
 * may_roll: only the leader rolls (R-B18). */
bool partition_log_retain(struct partition_log *log, int64_t hw, int64_t now_ms, bool may_roll);

/* ---- as a follower has it (replica_log.c): the same bytes at the same places as the leader (R-B18) ---- */

/* Takes the batches that fill `bytes` bytes at the tail, whole, right, and of epochs up to that of the leader. NULL; or
 * what is wrong, with nothing taken from the first wrong one on. */
const char *partition_log_accept(struct partition_log *log, uint32_t bytes, int32_t leader_epoch, int64_t now_ms);
/* Takes what is right of the batches up to `place` of the head, and zeroes the rest (R-B9). */
void partition_log_verify_on(struct partition_log *log, uint32_t place, int32_t leader_epoch, int64_t now_ms);
/* The log ends at this offset, or before the batch that has it. Blocks; the epochs, producers and indexes follow.
 * -EBUSY: the segment of that offset is still registered (R-B14); nothing has changed. */
int partition_log_truncate(struct partition_log *log, int64_t offset, int64_t now_ms, struct hf_error *error);
/* Cuts batches of epochs above `most`, which no leader had: the CRC does not cover what the disk has of them. 0 also
 * when there are none; -EBADMSG: they are proven, and the log is damaged; others as partition_log_truncate. */
int partition_log_cut_epochs(struct partition_log *log, int32_t most, int64_t now_ms, struct hf_error *error);
/* Drops everything; the next record has this offset. -errno: nothing is dropped, and the log has failed. */
int partition_log_restart(struct partition_log *log, int64_t offset, struct hf_error *error);
/* The head is the segment of that base offset, with its tail at `place`, and that large. -EXDEV: it lies elsewhere;
 * -EBUSY: it is still registered, as above. */
int partition_log_arrange(
	struct partition_log *log, int64_t base_offset, uint32_t place, uint32_t capacity, struct hf_error *error);
/* The segment and the place at which the batch with this offset begins, or the tail. false: no batch begins there. */
bool partition_log_locate(
	const struct partition_log *log, int64_t offset, struct segment **segment_out, uint32_t *place_out);

#endif
