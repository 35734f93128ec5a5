/* Record batches, with their CRC made right, so that what lies under it is looked at too, packed records included. What
 * is right stays right when it is committed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "broker/log/batch_contents.h"

#define MOST (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What is inside is right, and then its latest record is found; or not. Plain records agree with batch_check. */
static void look_into(const uint8_t *at, const struct batch *batch)
{
	struct batch_contents contents;
	struct batch_contents_place place;

	batch_contents_check(at, batch, MOST, &contents);
	ensure(contents.bytes <= MOST);
	if ((batch->attributes & (BATCH_COMPRESSION | BATCH_CONTROL)) == 0)
		ensure(contents.result == BATCH_CONTENTS_RIGHT);
	if (contents.result != BATCH_CONTENTS_RIGHT)
		return;
	ensure((batch->attributes & BATCH_COMPRESSION) != 0 || contents.latest_ms == batch->latest_ms);
	ensure(batch_contents_find_time(at, batch, contents.latest_ms, 0, MOST, &place) == BATCH_CONTENTS_RIGHT);
	ensure(place.offset >= batch->base_offset && place.offset <= batch_last_offset(batch) &&
		place.timestamp_ms == contents.latest_ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t *copy = malloc(bytes == 0 ? 1 : bytes);
	struct batch batch;

	memcpy(copy, data, bytes);
	if (bytes >= 17)
		copy[16] = 2;
	if (bytes >= BATCH_HEADER_BYTES && bytes < INT32_MAX && (data[0] & 1) != 0)
		put_be32(copy + 8, (uint32_t)(bytes - 12));
	if (batch_read(copy, bytes, &batch) == BATCH_RIGHT) {
		ensure(batch.length >= (int32_t)BATCH_HEADER_BYTES && (size_t)batch.length <= bytes && batch.count > 0);
		put_be32(copy + 17, crc32c(0, copy + 21, (size_t)batch.length - 21));
		ensure(batch_read(copy, bytes, &batch) == BATCH_RIGHT);
		if (batch_check(copy, &batch) == BATCH_RIGHT) {
			batch_commit(copy, 1000, 1);
			ensure(batch_read(copy, bytes, &batch) == BATCH_RIGHT &&
				batch_check(copy, &batch) == BATCH_RIGHT);
			look_into(copy, &batch);
		}
	}
	free(copy);
	return 0;
}
