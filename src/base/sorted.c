#include "base/sorted.h"

#include <stdlib.h>

#define ROOM_MIN 16u

unsigned sorted_place(const void *at, unsigned count, size_t bytes,
	int (*compare)(const void *element, const void *key), const void *key, bool *there_out)
{
	unsigned low = 0, high = count;

	*there_out = false;
	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		int order = compare((const char *)at + middle * bytes, key);

		if (order == 0) {
			*there_out = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void *sorted_grow(void *at, unsigned count, unsigned *room, size_t bytes)
{
	unsigned more = *room == 0 ? ROOM_MIN : *room * 2;

	if (count < *room)
		return at;
	at = realloc(at, more * bytes);
	if (at != NULL)
		*room = more;
	return at;
}
