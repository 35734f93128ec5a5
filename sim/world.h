/* world.h - virtual time: one thread, one seed, every event ordered by (time, sequence).
 *
 * Whatever happens in the simulator is an event of this heap. The trace hash folds in each event as it fires, so two
 * runs with the same hash did the same things at the same times; the same seed gives the same hash.
 *
 * Invariants: time never goes back; two events never have the same (time, sequence). */
#ifndef HOLDFAST_SIM_WORLD_H
#define HOLDFAST_SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/rng.h"

#define NS_US 1000ull
#define NS_MS 1000000ull
#define NS_S  1000000000ull

/* Embedded in its owner; zero-initialised it is not scheduled. */
struct world_event {
	uint64_t at_ns;
	size_t slot; /* in the heap, from 1; 0: not scheduled */
	const char *what;
	uint64_t detail;
	void (*fire)(struct world_event *event);
	bool outermost; /* calls product code of any process: never fires while another event does */
};

/* The keys lie beside each other in the heap: comparing them touches no event. */
struct world_entry {
	uint64_t at_ns, sequence;
	struct world_event *event;
};

enum fault_kind {
	FAULT_CUT,
	FAULT_CUT_TX,
	FAULT_CUT_RX,
	FAULT_PORT_DOWN,
	FAULT_FLAP,
	FAULT_LOSS,
	FAULT_DELAY,
	FAULT_DUPLICATE,
	FAULT_REORDER,
	FAULT_LATE,
	FAULT_CLOG,
	FAULT_PARTITION,
	FAULT_STREAM_RESET,
	FAULT_RAIL_DOWN,      /* every port of a rail at the same moment, with events everywhere */
	FAULT_ACKS_LOST,      /* requests and responses pass */
	FAULT_RESPONSES_LOST, /* of READs and atomics only */
	FAULT_CONTROL_HELD,   /* streams stall and then bring everything at once; datagrams pass */
	FAULT_FENCE_SLOW,     /* in progress, and the qp works on meanwhile */
	FAULT_FENCE_FAILS,
	FAULT_DRAIN_HANGS, /* the qp is silent, but what it had posted is not known to be visible: in progress */
	FAULT_DRAIN_FAILS, /* the same, and the fence fails */
	FAULT_NIC_CRASH,
	FAULT_PAUSE,
	FAULT_PROCESS_CRASH,
	FAULT_HOST_STOP,
	FAULT_DATA_LOST,  /* all datagrams, as where a switch misuses the class of the data: streams pass */
	FAULT_SLOW,       /* a path of little bandwidth */
	FAULT_SUSPEND,    /* of a host: its NICs stand still too, and of its clocks only one goes on */
	FAULT_SYNC_FAILS, /* of the files of a host */
	FAULT_DISK_FULL,
	FAULT_KINDS,
};
const char *fault_name(enum fault_kind kind);

#define WORLD_VIOLATION_BYTES 512

struct world {
	uint64_t seed, now_ns, sequence;
	struct rng rng;
	uint64_t hash, events;
	bool tracing;
	struct world_entry *heap; /* [1..count] */
	size_t count, capacity;
	bool top_fired;               /* heap[1] is of the event that fires, or has fired */
	uint64_t faults[FAULT_KINDS]; /* injected so far */
	uint32_t tears_ppm;           /* of steps within a turn, between which time passes: host.h */
	uint64_t tear_ns_max;         /* how much */
	uint64_t late_ns_max;         /* on busy machines a process waits for a core, for so long at most; 0: never */
	unsigned violations;
	char violation[WORLD_VIOLATION_BYTES]; /* the first one */
};

void world_init(struct world *world, uint64_t seed, bool tracing);
void world_free(struct world *world); /* events that are still scheduled are forgotten: their owners free them */

/* Schedules, or moves, an event; `what` is a literal, which the trace prints and the hash folds in. */
void world_schedule(struct world *world, struct world_event *event, uint64_t at_ns);
void world_cancel(struct world *world, struct world_event *event); /* not scheduled: nothing happens */

/* Runs what is due until `until_ns` (time stands there then), or until the first violation. */
void world_run_until(struct world *world, uint64_t until_ns);
bool world_step(struct world *world); /* one event; false when there is none */
/* Within an event: time goes on to `until_ns`, or to the first event that is outermost. */
void world_pass(struct world *world, uint64_t until_ns);

/* Folds a value into the hash, and prints it with the trace: what an event did beyond its having fired. */
void world_note(struct world *world, const char *what, uint64_t value);
void world_trace(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

void world_count_fault(struct world *world, enum fault_kind kind);

/* A checker's verdict. `claim` names what was broken. */
void world_violate(struct world *world, const char *claim, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static inline uint64_t world_range(struct world *world, uint64_t low, uint64_t high)
{
	return rng_range(&world->rng, low, high);
}

static inline bool world_chance(struct world *world, uint32_t parts_per_million)
{
	return rng_ppm(&world->rng, parts_per_million);
}

#endif
