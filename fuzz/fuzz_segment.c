/* Recovery of a log whose segment has any bytes: batches that are right, torn or foreign, in any order. What is
 * recovered is whole and dense, what lies behind it is zero, and to recover it again changes nothing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "broker/log/segment.h"

#define CAPACITY 16384u

static char directory[] = "/tmp/holdfast-fuzz-XXXXXX";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Makes the CRC of some batches right, as the first byte of the input says, so that others are reached; how many. */
static unsigned mend(uint8_t *at, size_t bytes, unsigned how)
{
	int64_t offset = 0;
	unsigned mended = 0;

	for (size_t place = 0; bytes - place >= BATCH_HEADER_BYTES && how != 0; how >>= 1) {
		struct batch batch;

		at[place + 16] = 2;
		if ((how & 1) != 0)
			batch_commit(at + place, offset, 1);
		if (batch_read(at + place, bytes - place, &batch) != BATCH_RIGHT)
			break;
		mended++;
		put_be32(at + place + 17, crc32c(0, at + place + 21, (size_t)batch.length - 21));
		place += (size_t)batch.length;
		offset = batch_next_offset(&batch);
	}
	return mended;
}

static struct segment *recover(void)
{
	struct segment *segment;
	struct hf_error error;

	ensure(segment_open(hf_env_host(), directory, 0, 100, SEGMENT_HEAD, SEGMENT_CHECK, &segment, &error) == 0);
	ensure(segment_begin(segment, CAPACITY, &error) == 0);
	return segment;
}

static void look(const struct segment *segment)
{
	int64_t offset = 0;
	uint32_t place = 0;
	struct batch batch;

	for (; segment_at(segment, place, &batch); place += (uint32_t)batch.length) {
		uint32_t found;

		ensure(batch.base_offset == offset && batch_check(segment->map + place, &batch) == BATCH_RIGHT);
		ensure(segment_find(segment, offset, &found, &batch) && found == place);
		offset = batch_next_offset(&batch);
	}
	ensure(place == segment->bytes && offset == segment->next_offset);
	for (uint32_t i = segment->bytes; i < segment->capacity; i++)
		ensure(segment->map[i] == 0);
}

static void remove_directory(void)
{
	rmdir(directory);
}

static void make_directory(void)
{
	static bool made;

	if (made)
		return;
	made = true;
	ensure(mkdtemp(directory) != NULL && atexit(remove_directory) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char path[128];
	struct segment *segment;
	uint8_t *copy;
	uint32_t tail;
	FILE *file;

	make_directory();
	if (bytes < 1 || bytes > CAPACITY)
		return 0;
	copy = malloc(bytes);
	memcpy(copy, data + 1, bytes - 1);
	/* Of inputs without a batch, which all look alike, a few will do: each costs two files. */
	if (mend(copy, bytes - 1, data[0]) == 0 && bytes % 32 != 0) {
		free(copy);
		return 0;
	}
	snprintf(path, sizeof(path), "%s/%020d.log", directory, 0);
	file = fopen(path, "wb");
	ensure(file != NULL && fwrite(copy, 1, bytes - 1, file) == bytes - 1 && fclose(file) == 0);
	free(copy);
	segment = recover();
	look(segment);
	tail = segment->bytes;
	segment_release(segment);
	segment = recover();
	ensure(segment->bytes == tail);
	look(segment);
	segment_delete(segment);
	return 0;
}
