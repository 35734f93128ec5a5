/* Idempotent producers of a partition. */
#include "broker/log/producer_state.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/crc.h"

#define SNAPSHOT_VERSION     1
#define SNAPSHOT_CRC_AT      2u
#define SNAPSHOT_CRC_FROM    6u
#define SNAPSHOT_HEAD_BYTES  10u
#define SNAPSHOT_ENTRY_BYTES 46u

static struct producer *find(const struct producer_state *state, int64_t id)
{
	return id < 0 || id > PRODUCER_STATE_ID_MAX ? NULL : table_get(&state->by_id, (uint32_t)(id + 1));
}

static struct producer *find_or_make(struct producer_state *state, int64_t id)
{
	struct producer *producer = find(state, id);

	if (producer != NULL || id < 0 || id > PRODUCER_STATE_ID_MAX)
		return producer;
	producer = calloc(1, sizeof(*producer));
	if (producer == NULL)
		return NULL;
	*producer = (struct producer){.id = id, .epoch = -1, .next = state->producers};
	if (table_put(&state->by_id, (uint32_t)(id + 1), producer) != 0) {
		free(producer);
		return NULL;
	}
	state->producers = producer;
	state->count++;
	return producer;
}

enum producer_verdict producer_state_check(struct producer_state *state, const struct batch *batch, int64_t *offset_out)
{
	const struct producer *producer;

	if (batch->producer_id == BATCH_NO_PRODUCER)
		return PRODUCER_NEXT;
	producer = find_or_make(state, batch->producer_id);
	if (producer == NULL)
		return PRODUCER_NO_MEMORY;
	if (batch->producer_epoch < producer->epoch)
		return PRODUCER_OLD_EPOCH;
	if (producer->count == 0) /* unknown, or forgotten: any sequence is its first */
		return PRODUCER_NEXT;
	if (batch->producer_epoch > producer->epoch)
		return batch->base_sequence == 0 ? PRODUCER_NEXT : PRODUCER_GAP;
	for (unsigned i = 0; i < producer->count; i++) {
		const struct producer_batch *old = &producer->batches[i];

		if (old->first_sequence == batch->base_sequence && old->last_sequence == batch_last_sequence(batch)) {
			*offset_out = old->base_offset;
			return PRODUCER_DUPLICATE;
		}
	}
	return batch->base_sequence == batch_sequence_after(producer->batches[producer->count - 1].last_sequence, 1)
		       ? PRODUCER_NEXT
		       : PRODUCER_GAP;
}

int producer_state_book(struct producer_state *state, const struct batch *batch, int64_t now_ms)
{
	struct producer *producer;

	if (batch->producer_id == BATCH_NO_PRODUCER)
		return 0;
	producer = find_or_make(state, batch->producer_id);
	if (producer == NULL)
		return -ENOMEM;
	if (batch->producer_epoch != producer->epoch)
		producer->count = 0;
	if (producer->count == PRODUCER_STATE_BATCHES) {
		for (unsigned i = 1; i < PRODUCER_STATE_BATCHES; i++)
			producer->batches[i - 1] = producer->batches[i];
		producer->count--;
	}
	producer->epoch = batch->producer_epoch;
	producer->seen_ms = now_ms;
	producer->batches[producer->count++] = (struct producer_batch){.first_sequence = batch->base_sequence,
		.last_sequence = batch_last_sequence(batch),
		.base_offset = batch->base_offset,
		.timestamp_ms = batch->max_timestamp_ms};
	return 0;
}

bool producer_state_last(
	const struct producer_state *state, int64_t id, int16_t epoch, int32_t *sequence_out, int64_t *offset_out)
{
	const struct producer *producer = find(state, id);
	const struct producer_batch *last;

	if (producer == NULL || producer->epoch != epoch || producer->count == 0)
		return false;
	last = &producer->batches[producer->count - 1];
	*sequence_out = last->last_sequence;
	/* Sequences begin anew behind INT32_MAX. */
	*offset_out = last->base_offset + ((last->last_sequence - (int64_t)last->first_sequence) & INT32_MAX);
	return true;
}

void producer_state_expire(struct producer_state *state, int64_t before_ms)
{
	struct producer **at = &state->producers;

	while (*at != NULL) {
		struct producer *producer = *at;

		if (producer->seen_ms >= before_ms) {
			at = &producer->next;
			continue;
		}
		*at = producer->next;
		table_remove(&state->by_id, (uint32_t)(producer->id + 1));
		state->count--;
		free(producer);
	}
}

void producer_state_free(struct producer_state *state)
{
	struct producer *next;

	for (struct producer *producer = state->producers; producer != NULL; producer = next) {
		next = producer->next;
		free(producer);
	}
	table_free(&state->by_id);
	*state = (struct producer_state){0};
}

/* ---- snapshots ---- */

size_t producer_state_snapshot_bytes(const struct producer_state *state)
{
	size_t bytes = SNAPSHOT_HEAD_BYTES;

	for (const struct producer *producer = state->producers; producer != NULL; producer = producer->next)
		bytes += producer->count * SNAPSHOT_ENTRY_BYTES;
	return bytes;
}

static void put_entry(uint8_t *at, const struct producer *producer, const struct producer_batch *batch)
{
	put_be64(at, (uint64_t)producer->id);
	put_be16(at + 8, (uint16_t)producer->epoch);
	put_be32(at + 10, (uint32_t)batch->last_sequence);
	put_be32(at + 22, (uint32_t)(batch->last_sequence - batch->first_sequence) & INT32_MAX);
	put_be64(at + 14, (uint64_t)batch->base_offset + get_be32(at + 22));
	put_be64(at + 26, (uint64_t)batch->timestamp_ms);
	put_be32(at + 34, UINT32_MAX);
	put_be64(at + 38, UINT64_MAX);
}

void producer_state_snapshot(const struct producer_state *state, uint8_t *to)
{
	uint8_t *at = to + SNAPSHOT_HEAD_BYTES;
	uint32_t count = 0;

	for (const struct producer *producer = state->producers; producer != NULL; producer = producer->next) {
		for (unsigned i = 0; i < producer->count; i++, at += SNAPSHOT_ENTRY_BYTES)
			put_entry(at, producer, &producer->batches[i]);
		count += producer->count;
	}
	put_be16(to, SNAPSHOT_VERSION);
	put_be32(to + SNAPSHOT_CRC_FROM, count);
	put_be32(to + SNAPSHOT_CRC_AT, crc32c(0, to + SNAPSHOT_CRC_FROM, (size_t)(at - to) - SNAPSHOT_CRC_FROM));
}

int producer_state_restore(struct producer_state *state, const uint8_t *at, size_t bytes, int64_t now_ms)
{
	uint32_t count;

	producer_state_free(state);
	if (bytes < SNAPSHOT_HEAD_BYTES || get_be16(at) != SNAPSHOT_VERSION ||
		get_be32(at + SNAPSHOT_CRC_AT) != crc32c(0, at + SNAPSHOT_CRC_FROM, bytes - SNAPSHOT_CRC_FROM))
		return -EBADMSG;
	count = get_be32(at + SNAPSHOT_CRC_FROM);
	if (count > (bytes - SNAPSHOT_HEAD_BYTES) / SNAPSHOT_ENTRY_BYTES)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *entry = at + SNAPSHOT_HEAD_BYTES + (size_t)i * SNAPSHOT_ENTRY_BYTES;
		int32_t delta = (int32_t)get_be32(entry + 22), last = (int32_t)get_be32(entry + 10);
		struct batch batch = {.producer_id = (int64_t)get_be64(entry),
			.producer_epoch = (int16_t)get_be16(entry + 8),
			.last_offset_delta = delta,
			.base_sequence = (int32_t)((uint32_t)last - (uint32_t)delta) & INT32_MAX,
			.base_offset = (int64_t)(get_be64(entry + 14) - (uint64_t)delta),
			.max_timestamp_ms = (int64_t)get_be64(entry + 26)};

		if (batch.producer_id < 0 || batch.producer_epoch < 0 || delta < 0 || last < 0 ||
			producer_state_book(state, &batch, now_ms) != 0) {
			producer_state_free(state);
			return -EBADMSG;
		}
	}
	return 0;
}
