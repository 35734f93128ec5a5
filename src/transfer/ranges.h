/* ranges.h - the bytes of a task that are done (R-T1).
 *
 * A sorted list of disjoint half-open ranges that do not touch each other. A byte that is reported twice counts once:
 * with counters a task could complete with a hole, if a lane hands back a slice whose success is found later. */
#ifndef HOLDFAST_TRANSFER_RANGES_H
#define HOLDFAST_TRANSFER_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
	uint64_t begin, end;
};

/* All zero: nothing is done, and there is no room. */
struct ranges {
	struct range *at; /* owned */
	unsigned count, room;
};

/* Room for `more` further ranges: n slices need n at the most. -ENOMEM: nothing changed. */
int ranges_reserve(struct ranges *ranges, unsigned more);
void ranges_free(struct ranges *ranges);
void ranges_clear(struct ranges *ranges);

/* Adds [begin, end). False: no room is left, and nothing was added. */
bool ranges_add(struct ranges *ranges, uint64_t begin, uint64_t end);
bool ranges_cover(const struct ranges *ranges, uint64_t begin, uint64_t end);
uint64_t ranges_bytes(const struct ranges *ranges, uint64_t begin, uint64_t end); /* how many of them are done */
/* The first range at or behind `from`, below `end`, that is not done; false: all is done. */
bool ranges_next_hole(const struct ranges *ranges, uint64_t from, uint64_t end, struct range *hole_out);

#endif
