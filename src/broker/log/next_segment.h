/* next_segment.h - the file of a log's next segment: made, mapped and given its first pages by a helper thread, before
 * the head is full (R-B26).
 *
 *   DIRECTORY/next-0123456789abcdef.tmp   until the log rolls; then it has the name of the segment
 *
 *   MAKING --the helper thread has ended--> READY --next_segment_take--> it is gone
 *                                     \---> FAILED: the log makes the segment when it rolls, and reports the error
 *   MAKING --next_segment_drop--> DROPPED --the helper thread has ended--> it is gone, with its file
 *
 * Owned by the broker's loop; next_segment_take and next_segment_drop make two calls of the file system. */
#ifndef HOLDFAST_BROKER_NEXT_SEGMENT_H
#define HOLDFAST_BROKER_NEXT_SEGMENT_H

#include <holdfast/work.h>

#include "broker/log/segment.h"

enum next_segment_state {
	NEXT_SEGMENT_MAKING,
	NEXT_SEGMENT_READY,
	NEXT_SEGMENT_FAILED,
	NEXT_SEGMENT_DROPPED,
	NEXT_SEGMENT_STATES,
};

struct next_segment {
	struct hf_work work;
	struct hf_env *env;
	enum next_segment_state state;
	char path[SEGMENT_PATH_BYTES];
	struct hf_file *file;
	void *map;
	uint32_t capacity, populated;
};

/* NULL: no memory. */
struct next_segment *next_segment_make(
	struct hf_env *env, const char *directory, uint32_t capacity, struct hf_workers *workers);
/* The same at once, without pages; blocks for the file system. -errno: there is none. */
int next_segment_make_now(struct hf_env *env, const char *directory, uint32_t capacity, struct next_segment **next_out);
/* It becomes the empty segment at this base offset. NULL: it is not ready, has another capacity, or cannot have the
 * name; it stays the caller's. */
struct segment *next_segment_take(struct next_segment *next, const char *directory, int64_t base_offset,
	uint32_t capacity, uint32_t index_interval);
void next_segment_drop(struct next_segment *next); /* NULL is legal */
/* Of a file that a crash has left. */
bool next_segment_is_name(const char *name);

#endif
