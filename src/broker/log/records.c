/* Records of a batch. */
#include "broker/log/records.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"

#define VARINT_BYTES 10u

static bool read_varint(const uint8_t **at, const uint8_t *end, int64_t *value_out)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 7 * VARINT_BYTES && *at < end; shift += 7) {
		uint8_t byte = *(*at)++;

		value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
		if ((byte & 0x80) != 0)
			continue;
		*value_out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
		return true;
	}
	return false;
}

/* A length and so many bytes; -1, where it is legal, has none. */
static bool read_span(const uint8_t **at, const uint8_t *end, bool nullable, struct codec_bytes *out)
{
	int64_t bytes;

	if (!read_varint(at, end, &bytes) || bytes < (nullable ? -1 : 0) || bytes > end - *at)
		return false;
	*out = (struct codec_bytes){bytes < 0 ? NULL : *at, (int32_t)bytes};
	*at += bytes < 0 ? 0 : bytes;
	return true;
}

static bool read_headers(const uint8_t **at, const uint8_t *end, struct codec_bytes *out)
{
	struct codec_bytes part;
	int64_t count;

	out->at = *at;
	if (!read_varint(at, end, &count) || count < 0 || count > end - *at)
		return false;
	for (int64_t i = 0; i < count; i++)
		if (!read_span(at, end, false, &part) || !read_span(at, end, true, &part))
			return false;
	out->bytes = (int32_t)(*at - out->at);
	return true;
}

bool records_next(struct records_reader *reader, struct record *record)
{
	const uint8_t *at = reader->at, *end;
	int64_t bytes;

	if (at == reader->end || !read_varint(&at, reader->end, &bytes) || bytes < 1 || bytes > reader->end - at)
		return false;
	end = at + bytes;
	at++; /* attributes: none are defined */
	if (!read_varint(&at, end, &record->timestamp_delta) || !read_varint(&at, end, &record->offset_delta) ||
		!read_span(&at, end, true, &record->key) || !read_span(&at, end, true, &record->value) ||
		!read_headers(&at, end, &record->headers) || at != end)
		return false;
	reader->at = end;
	return true;
}

/* ---- writing ---- */

static uint8_t *put_varint(uint8_t *at, int64_t value)
{
	uint64_t zigzag = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);

	for (; zigzag > 0x7f; zigzag >>= 7)
		*at++ = (uint8_t)(zigzag | 0x80);
	*at++ = (uint8_t)zigzag;
	return at;
}

static uint8_t *put_span(uint8_t *at, struct codec_bytes span)
{
	at = put_varint(at, span.bytes);
	if (span.bytes > 0)
		memcpy(at, span.at, (size_t)span.bytes);
	return at + (span.bytes > 0 ? span.bytes : 0);
}

static size_t varint_bytes(int64_t value)
{
	uint8_t bytes[VARINT_BYTES];

	return (size_t)(put_varint(bytes, value) - bytes);
}

static size_t span_bytes(struct codec_bytes span)
{
	return varint_bytes(span.bytes) + (span.bytes > 0 ? (size_t)span.bytes : 0);
}

void records_start(struct records_writer *writer, uint8_t *to, size_t capacity)
{
	ensure(capacity >= BATCH_HEADER_BYTES);
	*writer = (struct records_writer){.to = to, .capacity = capacity, .used = BATCH_HEADER_BYTES};
}

bool records_add(struct records_writer *writer, int64_t timestamp_ms, struct codec_bytes key, struct codec_bytes value)
{
	int64_t delta = writer->count == 0 ? 0 : timestamp_ms - writer->base_timestamp_ms;
	size_t bytes = 1 + varint_bytes(delta) + varint_bytes(writer->count) + span_bytes(key) + span_bytes(value) + 1;
	uint8_t *at = writer->to + writer->used;

	if (bytes + varint_bytes((int64_t)bytes) > writer->capacity - writer->used)
		return false;
	if (writer->count == 0)
		writer->base_timestamp_ms = writer->max_timestamp_ms = timestamp_ms;
	if (timestamp_ms > writer->max_timestamp_ms)
		writer->max_timestamp_ms = timestamp_ms;
	at = put_varint(at, (int64_t)bytes);
	*at++ = 0; /* attributes */
	at = put_varint(at, delta);
	at = put_varint(at, writer->count);
	at = put_span(at, key);
	at = put_span(at, value);
	*at++ = 0; /* no headers */
	writer->used = (size_t)(at - writer->to);
	writer->count++;
	return true;
}

size_t records_finish(struct records_writer *writer, int64_t producer_id, int16_t producer_epoch, int32_t sequence)
{
	uint8_t *to = writer->to;

	ensure(writer->count > 0);
	put_be64(to, 0);
	put_be32(to + 8, (uint32_t)(writer->used - BATCH_LENGTH_END));
	put_be32(to + 12, UINT32_MAX);
	to[16] = 2;
	put_be16(to + 21, (uint16_t)writer->attributes);
	put_be32(to + 23, (uint32_t)(writer->count - 1));
	put_be64(to + 27, (uint64_t)writer->base_timestamp_ms);
	put_be64(to + 35, (uint64_t)writer->max_timestamp_ms);
	put_be64(to + 43, (uint64_t)producer_id);
	put_be16(to + 51, (uint16_t)producer_epoch);
	put_be32(to + 53, (uint32_t)sequence);
	put_be32(to + 57, (uint32_t)writer->count);
	put_be32(to + 17, crc32c(0, to + 21, writer->used - 21));
	return writer->used;
}
