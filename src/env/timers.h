/* timers.h - the timers of one loop: a binary heap ordered by (due, order of setting).
 *
 * Slot 0 of the heap stays empty, so that heap_slot 0 means "not set". */
#ifndef HOLDFAST_ENV_TIMERS_H
#define HOLDFAST_ENV_TIMERS_H

#include <holdfast/loop.h>

struct timer_slot {
	uint64_t due_ns;
	uint64_t order; /* of two that are due at the same time the one that was set first fires first */
	struct hf_timer *timer;
};

struct timers {
	struct timer_slot *heap; /* 1 .. count */
	size_t count, capacity;
	uint64_t next_order;
};

/* Sets or moves; a time before `now_ns` counts as now_ns. */
void timers_set(struct timers *timers, struct hf_timer *timer, uint64_t due_ns, uint64_t now_ns);
void timers_cancel(struct timers *timers, struct hf_timer *timer);

struct timers_fired {
	unsigned quiet, others;
};
/* Fires those that are due and were set before this call; returns how many there were of each kind. */
struct timers_fired timers_fire(struct timers *timers, uint64_t now_ns);

/* UINT64_MAX when none is set. */
uint64_t timers_next_due(const struct timers *timers);

/* Cancels all. */
void timers_destroy(struct timers *timers);

#endif
