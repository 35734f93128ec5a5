/* sorted.h - arrays of elements in order. */
#ifndef HOLDFAST_BASE_SORTED_H
#define HOLDFAST_BASE_SORTED_H

#include <stdbool.h>
#include <stddef.h>

/* Where the element of that key stands, or would. `compare` is as of memcmp(3), of an element and the key. */
unsigned sorted_place(const void *at, unsigned count, size_t bytes,
	int (*compare)(const void *element, const void *key), const void *key, bool *there_out);
/* The array with room for one element more, the same or moved; NULL: there is no memory, and it stays as it is. */
void *sorted_grow(void *at, unsigned count, unsigned *room, size_t bytes);

#endif
