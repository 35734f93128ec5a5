#include "transfer/ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

int ranges_reserve(struct ranges *ranges, unsigned more)
{
	struct range *at;

	if (ranges->room - ranges->count >= more)
		return 0;
	at = realloc(ranges->at, (ranges->count + more) * sizeof(*at));
	if (at == NULL)
		return -ENOMEM;
	ranges->at = at;
	ranges->room = ranges->count + more;
	return 0;
}

void ranges_free(struct ranges *ranges)
{
	free(ranges->at);
	*ranges = (struct ranges){0};
}

void ranges_clear(struct ranges *ranges)
{
	ranges->count = 0;
}

/* The index of the first range that ends at `position` or behind it. */
static unsigned first_ending_at(const struct ranges *ranges, uint64_t position)
{
	unsigned low = 0, high = ranges->count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (ranges->at[middle].end < position)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool ranges_add(struct ranges *ranges, uint64_t begin, uint64_t end)
{
	unsigned first = first_ending_at(ranges, begin), last = first;
	struct range *at = ranges->at;

	ensure(begin <= end);
	if (begin == end)
		return true;
	while (last < ranges->count && at[last].begin <= end)
		last++;
	if (first == last && ranges->count == ranges->room)
		return false;
	if (first < last) {
		begin = at[first].begin < begin ? at[first].begin : begin;
		end = at[last - 1].end > end ? at[last - 1].end : end;
	}
	memmove(&at[first + 1], &at[last], (ranges->count - last) * sizeof(*at));
	ranges->count = ranges->count - (last - first) + 1;
	at[first] = (struct range){.begin = begin, .end = end};
	return true;
}

bool ranges_cover(const struct ranges *ranges, uint64_t begin, uint64_t end)
{
	struct range hole;

	return !ranges_next_hole(ranges, begin, end, &hole);
}

uint64_t ranges_bytes(const struct ranges *ranges, uint64_t begin, uint64_t end)
{
	uint64_t bytes = end - begin;
	struct range hole;

	for (uint64_t at = begin; ranges_next_hole(ranges, at, end, &hole); at = hole.end)
		bytes -= hole.end - hole.begin;
	return bytes;
}

bool ranges_next_hole(const struct ranges *ranges, uint64_t from, uint64_t end, struct range *hole_out)
{
	unsigned i = first_ending_at(ranges, from);

	if (i < ranges->count && ranges->at[i].begin <= from)
		from = ranges->at[i++].end;
	if (from >= end)
		return false;
	if (i < ranges->count && ranges->at[i].begin < end)
		end = ranges->at[i].begin;
	*hole_out = (struct range){.begin = from, .end = end};
	return true;
}
