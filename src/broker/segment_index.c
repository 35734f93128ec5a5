/* Index files: entries in order, found by bisection. */
#include "broker/segment_index.h"

#include <string.h>

#include "base/bytes.h"

int segment_index_open(struct segment_index *index, struct hf_env *env, const char *path, uint32_t entry_bytes,
	uint32_t capacity, struct hf_error *error)
{
	uint64_t bytes = (uint64_t)capacity * entry_bytes;
	void *map;
	int rc;

	*index = (struct segment_index){.env = env, .entry_bytes = entry_bytes, .capacity = capacity};
	rc = hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_TRUNCATE, &index->file);
	if (rc != 0)
		return hf_error_set(error, rc, "cannot open %s: %s", path, strerror(-rc));
	rc = hf_file_resize(index->file, bytes);
	if (rc != 0)
		return hf_error_set(error, rc, "cannot make %s %llu bytes long: %s", path, (unsigned long long)bytes,
			strerror(-rc));
	rc = hf_mem_map_file(env, index->file, 0, (size_t)bytes, true, &map, error);
	if (rc == 0)
		index->map = map;
	return rc;
}

int segment_index_seal(struct segment_index *index)
{
	index->capacity = index->count;
	return hf_file_resize(index->file, (uint64_t)index->count * index->entry_bytes);
}

void segment_index_close(struct segment_index *index)
{
	if (index->map != NULL)
		hf_mem_free(index->env, index->map);
	if (index->file != NULL)
		hf_file_close(index->file);
	*index = (struct segment_index){0};
}

static uint8_t *entry_at(const struct segment_index *index, uint32_t i)
{
	return index->map + (size_t)i * index->entry_bytes;
}

/* The page of a new entry exists before it is stored to: a store to a full disk would end the process. */
static bool has_room(const struct segment_index *index)
{
	return index->count < index->capacity &&
	       hf_mem_populate(index->env, entry_at(index, index->count), index->entry_bytes) == 0;
}

bool segment_index_add_place(struct segment_index *index, uint32_t offset, uint32_t place)
{
	if (!has_room(index))
		return false;
	put_be32(entry_at(index, index->count), offset);
	put_be32(entry_at(index, index->count) + 4, place);
	index->count++;
	return true;
}

bool segment_index_add_time(struct segment_index *index, int64_t timestamp_ms, uint32_t offset)
{
	if (!has_room(index))
		return false;
	put_be64(entry_at(index, index->count), (uint64_t)timestamp_ms);
	put_be32(entry_at(index, index->count) + 8, offset);
	index->count++;
	return true;
}

uint32_t segment_index_place(const struct segment_index *index, uint32_t offset)
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
	return low == 0 ? 0 : get_be32(entry_at(index, low - 1) + 4);
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
