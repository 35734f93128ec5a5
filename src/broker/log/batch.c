/* Record batches: reading, checking, committing. */
#include "broker/log/batch.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "broker/log/records.h"

#define MAGIC        2
#define CRC_AT       17u
#define CRC_FROM     21u
#define COMPRESSIONS 5 /* none, gzip, snappy, lz4, zstd */

enum batch_verdict batch_read(const uint8_t *at, size_t bytes, struct batch *batch_out)
{
	uint8_t header[BATCH_HEADER_BYTES];
	int64_t length;

	if (bytes < BATCH_LENGTH_END + 5)
		return BATCH_SHORT;
	if (at[16] != MAGIC)
		return BATCH_WRONG_MAGIC;
	if (bytes < BATCH_HEADER_BYTES)
		return BATCH_SHORT;
	memcpy(header, at, sizeof(header));
	length = (int64_t)(int32_t)get_be32(header + 8) + BATCH_LENGTH_END;
	*batch_out = (struct batch){
		.base_offset = (int64_t)get_be64(header),
		.leader_epoch = (int32_t)get_be32(header + 12),
		.crc = get_be32(header + CRC_AT),
		.attributes = (int16_t)get_be16(header + CRC_FROM),
		.last_offset_delta = (int32_t)get_be32(header + 23),
		.base_timestamp_ms = (int64_t)get_be64(header + 27),
		.max_timestamp_ms = (int64_t)get_be64(header + 35),
		.producer_id = (int64_t)get_be64(header + 43),
		.producer_epoch = (int16_t)get_be16(header + 51),
		.base_sequence = (int32_t)get_be32(header + 53),
		.count = (int32_t)get_be32(header + 57),
	};
	if (header[16] != MAGIC)
		return BATCH_WRONG_MAGIC;
	if (length < BATCH_HEADER_BYTES || length > INT32_MAX)
		return BATCH_WRONG;
	if ((uint64_t)length > bytes)
		return BATCH_SHORT;
	batch_out->length = (int32_t)length;
	if (batch_out->count < 1 || batch_out->last_offset_delta != batch_out->count - 1)
		return BATCH_WRONG;
	if ((batch_out->attributes & BATCH_COMPRESSION) >= COMPRESSIONS)
		return BATCH_WRONG;
	if (batch_out->producer_id < BATCH_NO_PRODUCER ||
		(batch_out->producer_id != BATCH_NO_PRODUCER &&
			(batch_out->producer_epoch < 0 || batch_out->base_sequence < 0)))
		return BATCH_WRONG;
	return BATCH_RIGHT;
}

/* A delta that overflows is the client's; the sum only has to be defined. */
static int64_t time_of(const struct batch *batch, const struct record *record)
{
	return (int64_t)((uint64_t)batch->base_timestamp_ms + (uint64_t)record->timestamp_delta);
}

/* Each record has its lengths, and the deltas count from 0. */
static bool records_are_right(const uint8_t *at, const struct batch *batch, int64_t *latest_ms_out)
{
	struct records_reader reader = records_begin(at, batch);
	int64_t latest_ms = INT64_MIN;
	struct record record;

	for (int32_t i = 0; i < batch->count; i++) {
		if (!records_next(&reader, &record) || record.offset_delta != i)
			return false;
		if (time_of(batch, &record) > latest_ms)
			latest_ms = time_of(batch, &record);
	}
	if ((batch->attributes & BATCH_LOG_APPEND_TIME) == 0)
		*latest_ms_out = latest_ms;
	return reader.at == reader.end;
}

enum batch_verdict batch_check(const uint8_t *at, struct batch *batch)
{
	batch->latest_ms = batch->max_timestamp_ms;
	if (crc32c(0, at + CRC_FROM, (size_t)batch->length - CRC_FROM) != batch->crc)
		return BATCH_WRONG_CRC;
	if ((batch->attributes & (BATCH_COMPRESSION | BATCH_CONTROL)) == 0 &&
		!records_are_right(at, batch, &batch->latest_ms))
		return BATCH_WRONG;
	return BATCH_RIGHT;
}

const char *batch_fault(enum batch_verdict verdict)
{
	switch (verdict) {
	case BATCH_RIGHT:
		break;
	case BATCH_SHORT:
		return "the record batch ends too early";
	case BATCH_WRONG_MAGIC:
		return "only record batches of format 2 are taken; use a client newer than Kafka 0.11";
	case BATCH_WRONG:
		return "the record batch contradicts itself in a length, count, delta or attribute";
	case BATCH_WRONG_CRC:
		return "the record batch has a wrong CRC";
	}
	return "";
}

void batch_commit(uint8_t *at, int64_t base_offset, int32_t leader_epoch)
{
	put_be64(at, (uint64_t)base_offset);
	put_be32(at + 12, (uint32_t)leader_epoch);
}

void batch_stamp(uint8_t *at, struct batch *batch, int64_t now_ms)
{
	batch->attributes = (int16_t)(batch->attributes | BATCH_LOG_APPEND_TIME);
	batch->max_timestamp_ms = now_ms;
	put_be16(at + CRC_FROM, (uint16_t)batch->attributes);
	put_be64(at + 35, (uint64_t)now_ms);
	batch->crc = crc32c(0, at + CRC_FROM, (size_t)batch->length - CRC_FROM);
	put_be32(at + CRC_AT, batch->crc);
}

void batch_correct_time(uint8_t *at, struct batch *batch)
{
	batch->max_timestamp_ms = batch->latest_ms;
	put_be64(at + 35, (uint64_t)batch->latest_ms);
	batch->crc = crc32c(0, at + CRC_FROM, (size_t)batch->length - CRC_FROM);
	put_be32(at + CRC_AT, batch->crc);
}

int32_t batch_sequence_after(int32_t sequence, int32_t records)
{
	return (int32_t)(((int64_t)sequence + records) % ((int64_t)INT32_MAX + 1));
}
