/* batch.h - a record batch of Kafka's format 2, on the wire, in the log and in a producer's memory.
 *
 *    0 i64 base offset (the leader's)     23 i32 last offset delta      51 i16 producer epoch
 *    8 i32 bytes behind this field        27 i64 base timestamp, ms     53 i32 base sequence
 *   12 i32 leader epoch (the leader's)    35 i64 max timestamp, ms      57 i32 record count
 *   16 i8  magic, 2                       43 i64 producer id            61 records
 *   17 u32 CRC32C of 21 to the end
 *   21 i16 attributes: 0-2 compression, 3 log append time, 4 transactional, 5 control
 *
 * Big-endian. The fields that the leader assigns are outside the CRC, so a batch is committed in place. What compressed
 * records contain: batch_contents.h. (https://kafka.apache.org/documentation/#recordbatch.) Pure. */
#ifndef HOLDFAST_BROKER_BATCH_H
#define HOLDFAST_BROKER_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATCH_HEADER_BYTES 61u
#define BATCH_LENGTH_END   12u /* the end of the length field */
#define BATCH_NO_PRODUCER  (-1)
#define BATCH_NO_EPOCH     (-1) /* what clients write: it is never assigned (R-B9) */

enum batch_attribute {
	BATCH_COMPRESSION = 7,
	BATCH_LOG_APPEND_TIME = 1 << 3,
	BATCH_TRANSACTIONAL = 1 << 4,
	BATCH_CONTROL = 1 << 5,
};

/* A copy of a header: what was checked is what is used (R-B8). */
struct batch {
	int64_t base_offset;
	int32_t length; /* of the whole batch, in bytes */
	int32_t leader_epoch;
	uint32_t crc;
	int16_t attributes;
	int32_t last_offset_delta;
	int64_t base_timestamp_ms, max_timestamp_ms;
	int64_t producer_id;
	int16_t producer_epoch;
	int32_t base_sequence, count;
	int64_t latest_ms; /* once it was checked: of its records, where they are not packed, else max_timestamp_ms */
};

enum batch_verdict {
	BATCH_RIGHT,
	BATCH_SHORT,       /* its end lies beyond the bytes there are */
	BATCH_WRONG_MAGIC, /* format 0 or 1, or none */
	BATCH_WRONG,       /* a length, count, delta, attribute or record that contradicts another */
	BATCH_WRONG_CRC,
};

/* Reads the header of the batch at the front of `bytes` bytes and checks all that can be checked without the CRC. */
enum batch_verdict batch_read(const uint8_t *at, size_t bytes, struct batch *batch_out);
/* The CRC, once the header is right; and, where nothing is compressed, the frame of each record. Fills latest_ms. */
enum batch_verdict batch_check(const uint8_t *at, struct batch *batch);
/* What is wrong, for people. */
const char *batch_fault(enum batch_verdict verdict);

/* No leader has an epoch that ends in 0xff: the disk has an assigned epoch in part only, the rest as clients write it,
 * where a sector ends within it and power was lost. The CRC does not cover it. */
static inline bool batch_epoch_is_whole(int32_t leader_epoch)
{
	return leader_epoch >= 0 && (leader_epoch & 0xff) != 0xff;
}
/* The leader's fields; the epoch is the last store (R-B9). */
void batch_commit(uint8_t *at, int64_t base_offset, int32_t leader_epoch);
/* The time of the append in place of the client's; the CRC again. */
void batch_stamp(uint8_t *at, struct batch *batch, int64_t now_ms);
/* The largest timestamp of its records in place of what the client has said; the CRC again. */
void batch_correct_time(uint8_t *at, struct batch *batch);

static inline int64_t batch_last_offset(const struct batch *batch)
{
	return batch->base_offset + batch->last_offset_delta;
}

static inline int64_t batch_next_offset(const struct batch *batch)
{
	return batch_last_offset(batch) + 1;
}

/* Sequences run from 0 to 2^31 - 1 and wrap. */
int32_t batch_sequence_after(int32_t sequence, int32_t records);

static inline int32_t batch_last_sequence(const struct batch *batch)
{
	return batch_sequence_after(batch->base_sequence, batch->last_offset_delta);
}

#endif
