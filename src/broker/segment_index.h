/* segment_index.h - the two indexes of a segment, as Kafka lays them out: entries that rise, in a mapped file.
 *
 *   .index       i32 offset - base offset, i32 place in the segment     a batch's last offset, and where it begins
 *   .timeindex   i64 timestamp (ms), i32 offset - base offset           the largest timestamp so far, and its offset
 *
 * Big-endian. The file of the segment that is written is as long as its capacity, with zeros behind the last entry; a
 * sealed one ends there. */
#ifndef HOLDFAST_BROKER_SEGMENT_INDEX_H
#define HOLDFAST_BROKER_SEGMENT_INDEX_H

#include <holdfast/env.h>

#define SEGMENT_INDEX_PLACE_BYTES 8u
#define SEGMENT_INDEX_TIME_BYTES  12u

struct segment_index {
	struct hf_env *env;
	struct hf_file *file;
	uint8_t *map;
	uint32_t entry_bytes, count, capacity;
};

/* Makes the file, or empties it, with room for `capacity` entries: an index is made anew from its segment. */
int segment_index_open(struct segment_index *index, struct hf_env *env, const char *path, uint32_t entry_bytes,
	uint32_t capacity, struct hf_error *error);
/* Makes the file as long as its entries; nothing is added from here on. */
int segment_index_seal(struct segment_index *index);
void segment_index_close(struct segment_index *index); /* a zeroed one is legal */

/* False: full. */
bool segment_index_add_place(struct segment_index *index, uint32_t offset, uint32_t place);
bool segment_index_add_time(struct segment_index *index, int64_t timestamp_ms, uint32_t offset);

/* Of the last entry whose offset is at most `offset`; 0 when there is none. */
uint32_t segment_index_place(const struct segment_index *index, uint32_t offset);
/* The offset of the last entry whose timestamp is below `timestamp_ms`; 0 when there is none. */
uint32_t segment_index_before(const struct segment_index *index, int64_t timestamp_ms);
/* The timestamp of the last entry, INT64_MIN without one; its offset in *offset_out. */
int64_t segment_index_last_time(const struct segment_index *index, uint32_t *offset_out);

#endif
