#include "env/timers.h"

#include <stdlib.h>

#include "base/ensure.h"

#define TIMERS_FIRST_CAPACITY 32

static bool earlier(const struct timer_slot *a, const struct timer_slot *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void place(struct timers *timers, size_t at, struct timer_slot slot)
{
	timers->heap[at] = slot;
	slot.timer->heap_slot = at;
}

/* Moves `slot`, which belongs at `at` or above or below, to where the order wants it. */
static void settle(struct timers *timers, size_t at, struct timer_slot slot)
{
	while (at > 1 && earlier(&slot, &timers->heap[at / 2])) {
		place(timers, at, timers->heap[at / 2]);
		at /= 2;
	}
	for (;;) {
		size_t child = 2 * at;

		if (child < timers->count && earlier(&timers->heap[child + 1], &timers->heap[child]))
			child++;
		if (child > timers->count || !earlier(&timers->heap[child], &slot))
			break;
		place(timers, at, timers->heap[child]);
		at = child;
	}
	place(timers, at, slot);
}

static void grow(struct timers *timers)
{
	size_t capacity = timers->capacity == 0 ? TIMERS_FIRST_CAPACITY : 2 * timers->capacity;
	struct timer_slot *heap = realloc(timers->heap, (capacity + 1) * sizeof(*heap));

	/* A timer that cannot be set would be a time-out that never comes: stopping is safer than going on. */
	ensure(heap != NULL);
	timers->heap = heap;
	timers->capacity = capacity;
}

void timers_set(struct timers *timers, struct hf_timer *timer, uint64_t due_ns, uint64_t now_ns)
{
	/* Clamped, so that a timer which sets itself to the past again and again cannot overtake others for ever. */
	struct timer_slot slot = {
		.due_ns = due_ns > now_ns ? due_ns : now_ns,
		.order = timers->next_order++,
		.timer = timer,
	};

	timer->due_ns = due_ns;
	if (timer->heap_slot == 0) {
		if (timers->count == timers->capacity)
			grow(timers);
		timer->heap_slot = ++timers->count;
	}
	ensure(timer->heap_slot <= timers->count);
	settle(timers, timer->heap_slot, slot);
}

void timers_cancel(struct timers *timers, struct hf_timer *timer)
{
	size_t at = timer->heap_slot;
	struct timer_slot last;

	if (at == 0)
		return;
	ensure(at <= timers->count && timers->heap[at].timer == timer);
	last = timers->heap[timers->count--];
	timer->heap_slot = 0;
	if (last.timer != timer)
		settle(timers, at, last);
}

struct timers_fired timers_fire(struct timers *timers, uint64_t now_ns)
{
	uint64_t end = timers->next_order;
	struct timers_fired fired = {0};

	while (timers->count > 0 && timers->heap[1].due_ns <= now_ns && timers->heap[1].order < end) {
		struct hf_timer *timer = timers->heap[1].timer;

		timers_cancel(timers, timer);
		timer->quiet ? fired.quiet++ : fired.others++; /* before it fires, which may free it */
		timer->fire(timer, now_ns);
	}
	return fired;
}

uint64_t timers_next_due(const struct timers *timers)
{
	return timers->count == 0 ? UINT64_MAX : timers->heap[1].due_ns;
}

void timers_destroy(struct timers *timers)
{
	for (size_t at = 1; at <= timers->count; at++)
		timers->heap[at].timer->heap_slot = 0;
	free(timers->heap);
	*timers = (struct timers){0};
}
