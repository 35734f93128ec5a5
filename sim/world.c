/* The event heap, the trace and the verdicts. */
#include "sim/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

static const char *const fault_names[FAULT_KINDS] = {
	[FAULT_CUT] = "cut",
	[FAULT_CUT_TX] = "cut-tx",
	[FAULT_CUT_RX] = "cut-rx",
	[FAULT_PORT_DOWN] = "port-down",
	[FAULT_FLAP] = "flap",
	[FAULT_LOSS] = "loss",
	[FAULT_DELAY] = "delay",
	[FAULT_DUPLICATE] = "duplicate",
	[FAULT_REORDER] = "reorder",
	[FAULT_LATE] = "late-packets",
	[FAULT_CLOG] = "clog",
	[FAULT_PARTITION] = "partition",
	[FAULT_STREAM_RESET] = "stream-reset",
	[FAULT_RAIL_DOWN] = "rail-down",
	[FAULT_ACKS_LOST] = "acks-lost",
	[FAULT_RESPONSES_LOST] = "responses-lost",
	[FAULT_CONTROL_HELD] = "control-held",
	[FAULT_FENCE_SLOW] = "fence-slow",
	[FAULT_FENCE_FAILS] = "fence-fails",
	[FAULT_DRAIN_HANGS] = "drain-hangs",
	[FAULT_DRAIN_FAILS] = "drain-fails",
	[FAULT_NIC_CRASH] = "nic-crash",
	[FAULT_PAUSE] = "pause",
	[FAULT_PROCESS_CRASH] = "process-crash",
	[FAULT_HOST_STOP] = "host-stop",
	[FAULT_DATA_LOST] = "data-lost",
	[FAULT_SLOW] = "slow",
	[FAULT_SUSPEND] = "suspend",
	[FAULT_SYNC_FAILS] = "sync-fails",
	[FAULT_DISK_FULL] = "disk-full",
};

const char *fault_name(enum fault_kind kind)
{
	return fault_names[kind];
}

void world_init(struct world *world, uint64_t seed, bool tracing)
{
	*world = (struct world){.seed = seed, .tracing = tracing, .hash = 0xcbf29ce484222325ull};
	rng_seed(&world->rng, seed);
}

void world_free(struct world *world)
{
	free(world->heap);
	world->heap = NULL;
	world->count = world->capacity = 0;
}

static bool before(const struct world_entry *a, const struct world_entry *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->sequence < b->sequence);
}

static void place(struct world *world, const struct world_entry *entry, size_t slot)
{
	world->heap[slot] = *entry;
	entry->event->slot = slot;
}

static void sift_up(struct world *world, struct world_entry entry, size_t slot)
{
	while (slot > 1 && before(&entry, &world->heap[slot / 2])) {
		place(world, &world->heap[slot / 2], slot);
		slot /= 2;
	}
	place(world, &entry, slot);
}

static void sift_down(struct world *world, struct world_entry entry, size_t slot)
{
	for (size_t child = slot * 2; child <= world->count; slot = child, child = slot * 2) {
		if (child < world->count && before(&world->heap[child + 1], &world->heap[child]))
			child++;
		if (!before(&world->heap[child], &entry))
			break;
		place(world, &world->heap[child], slot);
	}
	place(world, &entry, slot);
}

static void heap_grow(struct world *world)
{
	size_t capacity = world->capacity == 0 ? 256 : world->capacity * 2;
	struct world_entry *heap = realloc(world->heap, (capacity + 1) * sizeof(*heap));

	ensure(heap != NULL);
	world->heap = heap;
	world->capacity = capacity;
}

static void heap_remove(struct world *world, size_t slot)
{
	struct world_entry last = world->heap[world->count--];

	if (slot > world->count)
		return;
	if (slot > 1 && before(&last, &world->heap[slot / 2]))
		sift_up(world, last, slot);
	else
		sift_down(world, last, slot);
}

/* The event that fires leaves its entry, which is before all others, to the next one that is scheduled. */
static void heap_settle(struct world *world)
{
	if (world->top_fired)
		heap_remove(world, 1);
	world->top_fired = false;
}

void world_cancel(struct world *world, struct world_event *event)
{
	if (event->slot != 0)
		heap_remove(world, event->slot);
	event->slot = 0;
}

void world_schedule(struct world *world, struct world_event *event, uint64_t at_ns)
{
	struct world_entry entry = {.event = event};

	ensure(event->fire != NULL && event->what != NULL);
	world_cancel(world, event);
	entry.at_ns = event->at_ns = at_ns < world->now_ns ? world->now_ns : at_ns;
	entry.sequence = world->sequence++;
	if (world->top_fired) {
		world->top_fired = false;
		sift_down(world, entry, 1);
		return;
	}
	if (world->count == world->capacity)
		heap_grow(world);
	sift_up(world, entry, ++world->count);
}

static void fold(struct world *world, uint64_t value)
{
	world->hash = (world->hash ^ value) * 0x100000001b3ull;
	world->hash ^= world->hash >> 29;
}

static void fold_text(struct world *world, const char *text)
{
	for (; *text != '\0'; text++)
		world->hash = (world->hash ^ (uint8_t)*text) * 0x100000001b3ull;
}

void world_trace(struct world *world, const char *format, ...)
{
	va_list arguments;

	if (!world->tracing)
		return;
	printf("%12.3f us  ", (double)world->now_ns / 1e3);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

void world_note(struct world *world, const char *what, uint64_t value)
{
	fold_text(world, what);
	fold(world, value);
	world_trace(world, "  %s %" PRIu64, what, value);
}

bool world_step(struct world *world)
{
	struct world_event *event;

	heap_settle(world);
	if (world->count == 0)
		return false;
	event = world->heap[1].event;
	ensure(event->at_ns >= world->now_ns);
	event->slot = 0;
	world->top_fired = true;
	world->now_ns = event->at_ns;
	world->events++;
	fold(world, event->at_ns);
	fold(world, event->detail);
	fold_text(world, event->what);
	world_trace(world, "%s %" PRIu64, event->what, event->detail);
	event->fire(event);
	return true;
}

/* Whether an event is due, which is at the top of the heap then. */
static bool is_due(struct world *world, uint64_t until_ns)
{
	heap_settle(world);
	return world->violations == 0 && world->count > 0 && world->heap[1].at_ns <= until_ns;
}

void world_run_until(struct world *world, uint64_t until_ns)
{
	while (is_due(world, until_ns))
		world_step(world);
	if (world->violations == 0 && world->now_ns < until_ns)
		world->now_ns = until_ns;
}

void world_pass(struct world *world, uint64_t until_ns)
{
	while (is_due(world, until_ns)) {
		if (world->heap[1].event->outermost) {
			world->now_ns = world->heap[1].at_ns;
			return;
		}
		world_step(world);
	}
	if (world->violations == 0 && world->now_ns < until_ns)
		world->now_ns = until_ns;
}

void world_count_fault(struct world *world, enum fault_kind kind)
{
	world->faults[kind]++;
	world_note(world, fault_name(kind), world->faults[kind]);
}

void world_violate(struct world *world, const char *claim, const char *format, ...)
{
	char text[WORLD_VIOLATION_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (world->violations++ == 0)
		snprintf(world->violation, sizeof(world->violation), "%s: at %.3f us: %.400s", claim,
			(double)world->now_ns / 1e3, text);
	world_trace(world, "VIOLATION %s: %s", claim, text);
}
