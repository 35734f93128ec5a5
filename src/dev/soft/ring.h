/* ring.h - rings between one producer and one consumer on two threads: posted work, completions.
 *
 * Indices run freely; a slot is index & mask. The producer alone writes head, the consumer alone tail. */
#ifndef HOLDFAST_DEV_SOFT_RING_H
#define HOLDFAST_DEV_SOFT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/order.h"

struct ring {
	uint8_t *slots;
	uint32_t mask, slot_bytes;
	uint8_t apart[64]; /* the two sides write on cache lines of their own */
	_Atomic uint32_t head;
	uint8_t apart_too[64];
	_Atomic uint32_t tail;
};

int ring_init(struct ring *ring, uint32_t slots, uint32_t slot_bytes); /* slots are rounded up to a power of two */
void ring_free(struct ring *ring);

static inline void *ring_slot(const struct ring *ring, uint32_t index)
{
	return ring->slots + (size_t)(index & ring->mask) * ring->slot_bytes;
}

/* The producer's: the slot to fill, or NULL when full; then ring_push. */
static inline void *ring_room(struct ring *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	return head - observe(&ring->tail) > ring->mask ? (void *)0 : ring_slot(ring, head);
}

static inline void ring_push(struct ring *ring)
{
	publish(&ring->head, atomic_load_explicit(&ring->head, memory_order_relaxed) + 1);
}

/* The consumer's: the oldest slot, or NULL when empty; then ring_pop. */
static inline void *ring_oldest(struct ring *ring)
{
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	return observe(&ring->head) == tail ? (void *)0 : ring_slot(ring, tail);
}

static inline void ring_pop(struct ring *ring)
{
	publish(&ring->tail, atomic_load_explicit(&ring->tail, memory_order_relaxed) + 1);
}

static inline bool ring_empty(struct ring *ring)
{
	return observe(&ring->head) == observe(&ring->tail);
}

#endif
