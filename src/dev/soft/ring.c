#include "dev/soft/ring.h"

#include <errno.h>
#include <stdlib.h>

int ring_init(struct ring *ring, uint32_t slots, uint32_t slot_bytes)
{
	uint32_t size = 1;

	while (size < slots)
		size *= 2;
	ring->slots = malloc((size_t)size * slot_bytes); /* not touched: what is never used costs no memory */
	ring->mask = size - 1;
	ring->slot_bytes = slot_bytes;
	atomic_init(&ring->head, 0);
	atomic_init(&ring->tail, 0);
	return ring->slots == NULL ? -ENOMEM : 0;
}

void ring_free(struct ring *ring)
{
	free(ring->slots);
	ring->slots = NULL;
}
