#include "broker/log/batch_contents.h"

#include <errno.h>

#include "broker/codec/compression.h"

#define VARINT_BYTES 10u

/* Reads records from one piece after the other. */
struct walk {
	struct compression_reader reader;
	const uint8_t *at, *end; /* of the piece */
	uint64_t used;           /* bytes that came out, up to `at` */
	int rc;                  /* of the reader */
};

struct outline { /* of a record */
	int64_t timestamp_delta, offset_delta;
};

static void walk_begin(struct walk *walk, const uint8_t *at, const struct batch *batch, size_t most)
{
	*walk = (struct walk){0};
	walk->rc = compression_reader_open(&walk->reader, (unsigned)batch->attributes & BATCH_COMPRESSION,
		at + BATCH_HEADER_BYTES, (size_t)batch->length - BATCH_HEADER_BYTES, most);
}

/* Whether there is a byte at `at`. */
static bool walk_more(struct walk *walk)
{
	size_t bytes = 0;

	if (walk->at < walk->end)
		return true;
	if (walk->rc == 0)
		walk->rc = compression_reader_next(&walk->reader, &walk->at, &bytes);
	walk->end = walk->at + bytes;
	return walk->rc == 0 && bytes > 0;
}

static bool walk_varint(struct walk *walk, int64_t *value_out)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 7 * VARINT_BYTES && walk_more(walk); shift += 7) {
		uint8_t byte = *walk->at++;

		walk->used++;
		value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
		if ((byte & 0x80) != 0)
			continue;
		*value_out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
		return true;
	}
	return false;
}

static bool walk_skip(struct walk *walk, uint64_t bytes)
{
	while (bytes > 0 && walk_more(walk)) {
		uint64_t here = (uint64_t)(walk->end - walk->at), n = bytes < here ? bytes : here;

		walk->at += n;
		walk->used += n;
		bytes -= n;
	}
	return bytes == 0;
}

/* A length and so many bytes, which end at `end` at the latest; -1, where it is legal, has none. */
static bool walk_span(struct walk *walk, uint64_t end, bool nullable)
{
	int64_t bytes;

	return walk_varint(walk, &bytes) && bytes >= (nullable ? -1 : 0) && walk->used <= end &&
	       (bytes <= 0 || (uint64_t)bytes <= end - walk->used) && walk_skip(walk, bytes < 0 ? 0 : (uint64_t)bytes);
}

static bool walk_headers(struct walk *walk, uint64_t end)
{
	int64_t count;

	if (!walk_varint(walk, &count) || count < 0)
		return false;
	for (int64_t i = 0; i < count; i++)
		if (!walk_span(walk, end, false) || !walk_span(walk, end, true))
			return false;
	return true;
}

/* As records_next, of records that lie in pieces. */
static bool walk_record(struct walk *walk, struct outline *record)
{
	int64_t bytes;
	uint64_t end;

	if (!walk_varint(walk, &bytes) || bytes < 1)
		return false;
	end = walk->used + (uint64_t)bytes;
	return walk_skip(walk, 1) && walk_varint(walk, &record->timestamp_delta) &&
	       walk_varint(walk, &record->offset_delta) && walk_span(walk, end, true) && walk_span(walk, end, true) &&
	       walk_headers(walk, end) && walk->used == end;
}

static enum batch_contents_result walk_end(struct walk *walk, bool right)
{
	int rc = walk->rc;

	compression_reader_close(&walk->reader);
	return rc == -EMSGSIZE    ? BATCH_CONTENTS_LARGE
	       : rc == -ENOMEM    ? BATCH_CONTENTS_NO_MEMORY
	       : rc == 0 && right ? BATCH_CONTENTS_RIGHT
				  : BATCH_CONTENTS_WRONG;
}

/* A delta that overflows is the client's; the sum only has to be defined. */
static int64_t time_of(const struct batch *batch, const struct outline *record)
{
	return (batch->attributes & BATCH_LOG_APPEND_TIME) != 0
		       ? batch->max_timestamp_ms
		       : (int64_t)((uint64_t)batch->base_timestamp_ms + (uint64_t)record->timestamp_delta);
}

void batch_contents_check(
	const uint8_t *at, const struct batch *batch, size_t most, struct batch_contents *contents_out)
{
	int64_t latest_ms = INT64_MIN;
	struct outline record;
	struct walk walk;
	bool right = true;

	walk_begin(&walk, at, batch, most);
	for (int32_t i = 0; i < batch->count && right; i++) {
		right = walk_record(&walk, &record) && record.offset_delta == i;
		if (right && time_of(batch, &record) > latest_ms)
			latest_ms = time_of(batch, &record);
	}
	right = right && !walk_more(&walk);
	contents_out->latest_ms = latest_ms;
	contents_out->bytes = walk.used;
	contents_out->result = walk_end(&walk, right);
}

enum batch_contents_result batch_contents_find_time(const uint8_t *at, const struct batch *batch, int64_t timestamp_ms,
	int64_t from, size_t most, struct batch_contents_place *place_out)
{
	bool right = true, found = false;
	struct outline record;
	struct walk walk;

	place_out->offset = -1;
	walk_begin(&walk, at, batch, most);
	for (int32_t i = 0; i < batch->count && right && !found; i++) {
		right = walk_record(&walk, &record);
		found = right && time_of(batch, &record) >= timestamp_ms && batch->base_offset + i >= from;
		if (found)
			*place_out = (struct batch_contents_place){
				.offset = batch->base_offset + i, .timestamp_ms = time_of(batch, &record)};
	}
	place_out->bytes = walk.used;
	return walk_end(&walk, right);
}
