/* producer_state.h - a partition's record of idempotent producers: epoch and last five batches of each.
 *
 * Sequences identify a batch that is in the log already; a batch that leaves a gap is refused. Kept across restarts in
 * Kafka's snapshot files:
 *
 *   i16 version 1, u32 CRC32C of what follows, i32 count, of each:
 *   i64 id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp (ms), i32 -1, i64 -1
 *
 * Big-endian. A producer has an entry for each of its batches, the oldest first. Kafka writes an entry for the newest
 * batch alone; of several entries of a producer it reads the last one. Pure but for memory. */
#ifndef HOLDFAST_BROKER_PRODUCER_STATE_H
#define HOLDFAST_BROKER_PRODUCER_STATE_H

#include "base/table.h"
#include "broker/log/batch.h"

#define PRODUCER_STATE_BATCHES   5u
#define PRODUCER_STATE_EXPIRY_MS 86400000 /* Kafka's producer.id.expiration.ms */

struct producer_batch {
	int32_t first_sequence, last_sequence;
	int64_t base_offset, timestamp_ms;
};

struct producer {
	int64_t id;
	int16_t epoch;
	unsigned count; /* of batches; the newest is the last */
	struct producer_batch batches[PRODUCER_STATE_BATCHES];
	int64_t seen_ms; /* time of its last batch */
	struct producer *next;
};

struct producer_state {
	struct table by_id; /* the key is id + 1: ids are handed out from 0 */
	struct producer *producers;
	unsigned count;
};

enum producer_verdict {
	PRODUCER_NEXT,      /* append it */
	PRODUCER_DUPLICATE, /* it is there already */
	PRODUCER_GAP,       /* a sequence is missing */
	PRODUCER_OLD_EPOCH, /* the producer was replaced */
	PRODUCER_NO_MEMORY,
};

#define PRODUCER_STATE_ID_MAX (UINT32_MAX - 1u)

/* What to do with this batch. DUPLICATE: its base offset in *offset_out. NEXT: there is memory to book it. A batch
 * without a producer is NEXT. */
enum producer_verdict producer_state_check(
	struct producer_state *state, const struct batch *batch, int64_t *offset_out);
/* Books a batch that is in the log now, or was found there. -ENOMEM: it is not booked. */
int producer_state_book(struct producer_state *state, const struct batch *batch, int64_t now_ms);
/* The last sequence that is there of this producer in this epoch, and its offset; false: there is none. */
bool producer_state_last(
	const struct producer_state *state, int64_t id, int16_t epoch, int32_t *sequence_out, int64_t *offset_out);
/* Removes producers without a batch since then. */
void producer_state_expire(struct producer_state *state, int64_t before_ms);
void producer_state_free(struct producer_state *state);

size_t producer_state_snapshot_bytes(const struct producer_state *state);
void producer_state_snapshot(const struct producer_state *state, uint8_t *to);
/* -EBADMSG: not a snapshot; the state is empty then. */
int producer_state_restore(struct producer_state *state, const uint8_t *at, size_t bytes, int64_t now_ms);

#endif
