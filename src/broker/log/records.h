/* records.h - the records of an uncompressed batch: reading them, and making a batch.
 *
 * A record: varint bytes behind this field, i8 0, varint timestamp delta, varint offset delta, varint key bytes (-1:
 * null), key, varint value bytes (-1: null), value, varint n, n headers {varint key bytes, key, varint value bytes (-1:
 * null), value}. Varints are zigzag. The batch around them: batch.h. Pure. */
#ifndef HOLDFAST_BROKER_RECORDS_H
#define HOLDFAST_BROKER_RECORDS_H

#include "broker/log/batch.h"
#include "broker/codec/codec.h"

struct record {
	int64_t offset_delta, timestamp_delta;
	struct codec_bytes key, value; /* they point into the batch */
	struct codec_bytes headers;    /* as encoded, their number before them */
};

struct records_reader {
	const uint8_t *at, *end;
};

/* `at` is a batch that was read right. */
static inline struct records_reader records_begin(const uint8_t *at, const struct batch *batch)
{
	return (struct records_reader){at + BATCH_HEADER_BYTES, at + batch->length};
}
/* false: there is no further record, or it contradicts its lengths (the reader is not at its end then). */
bool records_next(struct records_reader *reader, struct record *record);

struct records_writer {
	uint8_t *to;
	size_t capacity, used;
	int32_t count;
	int16_t attributes; /* the codec of its records, once they are packed */
	int64_t base_timestamp_ms, max_timestamp_ms;
};

/* How many bytes a record takes at most, without those of key and value. */
#define RECORDS_OVERHEAD 40u

/* An empty batch in memory of `capacity` bytes, at least BATCH_HEADER_BYTES. */
void records_start(struct records_writer *writer, uint8_t *to, size_t capacity);
/* false: it does not fit. */
bool records_add(struct records_writer *writer, int64_t timestamp_ms, struct codec_bytes key, struct codec_bytes value);
/* Writes the header with base offset 0 and the epoch that is never assigned; returns the bytes of the batch. */
size_t records_finish(struct records_writer *writer, int64_t producer_id, int16_t producer_epoch, int32_t sequence);

#endif
