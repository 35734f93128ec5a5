/* segment_index.h - the two indexes of a segment: ascending entries, in memory; in Kafka's files once it is sealed.
 *
 *   .index       i32 offset - base offset, i32 place in the segment     a batch's last offset, and where it begins
 *   .timeindex   i64 timestamp (ms), i32 offset - base offset           the largest timestamp so far, and its offset
 *
 * Big-endian. An index is rebuilt when its segment is opened, or is read as a hint, until the segment was
 * verified; there is none while the segment is written. */
#ifndef HOLDFAST_BROKER_SEGMENT_INDEX_H
#define HOLDFAST_BROKER_SEGMENT_INDEX_H

#include <holdfast/env.h>

#define SEGMENT_INDEX_PLACE_BYTES 8u
#define SEGMENT_INDEX_TIME_BYTES  12u

/* Zeroed but for entry_bytes it is empty. */
struct segment_index {
	uint8_t *entries;
	uint32_t entry_bytes, count, capacity;
};

/* Reads the file into an index that is empty. false: it is missing, no index, or not ascending; the index is empty. */
bool segment_index_read(struct segment_index *index, struct hf_env *env, const char *path);
/* Writes the file; blocks. */
int segment_index_write(const struct segment_index *index, struct hf_env *env, const char *path);
void segment_index_free(struct segment_index *index);

/* false: no memory; the entry is not there. */
bool segment_index_add_place(struct segment_index *index, uint32_t offset, uint32_t place);
bool segment_index_add_time(struct segment_index *index, int64_t timestamp_ms, uint32_t offset);

/* Of the last entry whose offset, in *entry_out, is at most `offset`; 0 when there is none. */
uint32_t segment_index_place(const struct segment_index *index, uint32_t offset, uint32_t *entry_out);
/* The offset of the last entry whose timestamp is below `timestamp_ms`; 0 when there is none. */
uint32_t segment_index_before(const struct segment_index *index, int64_t timestamp_ms);
/* The timestamp of the last entry, INT64_MIN without one; its offset in *offset_out. */
int64_t segment_index_last_time(const struct segment_index *index, uint32_t *offset_out);

#endif
