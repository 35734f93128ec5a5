/* Index files: entries in order, found by bisection. */
#include "broker/log/segment_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define FIRST_ENTRIES 64u
#define INDEX_MOST    (1 << 30)

int segment_index_write(const struct segment_index *index, struct hf_env *env, const char *path)
{
	size_t bytes = (size_t)index->count * index->entry_bytes;
	struct hf_file *file;
	ssize_t n;
	int rc = hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &file);

	if (rc != 0)
		return rc;
	n = hf_file_write_at(file, index->entries, bytes, 0);
	hf_file_close(file);
	return n < 0 ? (int)n : (size_t)n < bytes ? -ENOSPC : 0;
}

static bool is_ascending(const struct segment_index *index)
{
	const uint8_t *at = index->entries;

	/* The first number of an entry has 4 bytes or 8, the second 4. */
	for (uint32_t i = 1; i < index->count; i++, at += index->entry_bytes) {
		const uint8_t *next = at + index->entry_bytes;
		uint32_t second = index->entry_bytes - 4;

		if (memcmp(at, next, second) >= 0 || get_be32(at + second) > get_be32(next + second))
			return false;
	}
	return true;
}

bool segment_index_read(struct segment_index *index, struct hf_env *env, const char *path)
{
	struct hf_file *file;
	int64_t bytes = -1;
	ssize_t n = -1;

	if (hf_file_open(env, path, 0, &file) != 0)
		return false;
	bytes = hf_file_bytes(file);
	if (bytes > 0 && bytes < INDEX_MOST && bytes % index->entry_bytes == 0)
		index->entries = malloc((size_t)bytes);
	if (index->entries != NULL)
		n = hf_file_read_at(file, index->entries, (size_t)bytes, 0);
	hf_file_close(file);
	if (n == bytes && n > 0) {
		index->count = index->capacity = (uint32_t)n / index->entry_bytes;
		if (is_ascending(index))
			return true;
	}
	segment_index_free(index);
	return false;
}

void segment_index_free(struct segment_index *index)
{
	free(index->entries);
	*index = (struct segment_index){.entry_bytes = index->entry_bytes};
}

static uint8_t *entry_at(const struct segment_index *index, uint32_t i)
{
	return index->entries + (size_t)i * index->entry_bytes;
}

/* Room for one more, or NULL. */
static uint8_t *add(struct segment_index *index)
{
	if (index->count == index->capacity) {
		uint32_t capacity = index->capacity == 0 ? FIRST_ENTRIES : index->capacity * 2;
		uint8_t *entries = realloc(index->entries, (size_t)capacity * index->entry_bytes);

		if (entries == NULL)
			return NULL;
		index->entries = entries;
		index->capacity = capacity;
	}
	return entry_at(index, index->count++);
}

bool segment_index_add_place(struct segment_index *index, uint32_t offset, uint32_t place)
{
	uint8_t *entry = add(index);

	if (entry == NULL)
		return false;
	put_be32(entry, offset);
	put_be32(entry + 4, place);
	return true;
}

bool segment_index_add_time(struct segment_index *index, int64_t timestamp_ms, uint32_t offset)
{
	uint8_t *entry = add(index);

	if (entry == NULL)
		return false;
	put_be64(entry, (uint64_t)timestamp_ms);
	put_be32(entry + 8, offset);
	return true;
}

uint32_t segment_index_place(const struct segment_index *index, uint32_t offset, uint32_t *entry_out)
{
	uint32_t low = 0,
		 high = index->count; /* entries below low are at most `offset`, those from high on are above */

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (get_be32(entry_at(index, middle)) <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return 0;
	*entry_out = get_be32(entry_at(index, low - 1));
	return get_be32(entry_at(index, low - 1) + 4);
}

uint32_t segment_index_before(const struct segment_index *index, int64_t timestamp_ms)
{
	uint32_t low = 0, high = index->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if ((int64_t)get_be64(entry_at(index, middle)) < timestamp_ms)
			low = middle + 1;
		else
			high = middle;
	}
	return low == 0 ? 0 : get_be32(entry_at(index, low - 1) + 8);
}

int64_t segment_index_last_time(const struct segment_index *index, uint32_t *offset_out)
{
	if (index->count == 0)
		return INT64_MIN;
	*offset_out = get_be32(entry_at(index, index->count - 1) + 8);
	return (int64_t)get_be64(entry_at(index, index->count - 1));
}
