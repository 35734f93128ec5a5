/* bus.h - what lies between a simulated NIC and host memory: PCIe with everything that verbs programs forget about it.
 *
 * Writes and completions are posted into one queue per NIC and leave it in order, later: so an acknowledgement can be
 * back at the requester before the data is visible, a WRITE becomes visible piece by piece, and whatever is queued is
 * lost when the NIC dies. An atomic of a NIC whose domain is the HCA reads now and writes through the queue: a window
 * against the CPU and other NICs; some write also when they compare in vain, which puts back what they had read, as
 * soft-RoCE does (Linux 6.1). With a global domain an atomic is one indivisible step.
 *
 * Invariants (D1 to D5, and soft/bus.h): the NIC reads its own earlier writes; a completion is visible after the
 * writes before it; nothing is written outside of memory that is registered on this NIC at that moment.
 *
 * Checkers see everything through the observer: what the NIC posts is the moment when an operation takes effect. */
#ifndef HOLDFAST_SIM_BUS_H
#define HOLDFAST_SIM_BUS_H

#include "base/list.h"
#include "dev/soft/bus.h"
#include "sim/world.h"

struct nic;

enum effect_kind { EFFECT_READ, EFFECT_WRITE, EFFECT_CAS, EFFECT_FAA };

struct effect {
	enum effect_kind kind;
	const struct nic *nic;
	uint64_t host; /* address */
	size_t bytes;
	const void *data;           /* WRITE */
	uint64_t argument, compare; /* CAS: swap and compare; FAA: what is added */
	uint64_t original;          /* CAS, FAA */
};

struct bus_observer {
	void (*effect)(struct bus_observer *observer, const struct effect *effect);
	/* These bytes were posted but will never be visible: the NIC died. */
	void (*lost)(struct bus_observer *observer, const struct nic *nic, uint64_t host, size_t bytes);
	struct list node; /* of the bus */
};

struct nic_bus {
	struct soft_bus base; /* first */
	struct nic *nic;
	struct world *world;
	struct list queue, granted, observers;
	struct world_event step;
	uint64_t last_due_ns;
	uint64_t lag_ns; /* how long a posted write usually takes to be visible */
	bool global_atomics;
	bool writes_back; /* a CAS that fails writes what it found */
	bool dead;
	bool stuck; /* drain does nothing */
	bool held;  /* something was due while its process was torn */
};

/* The process is not torn any more. */
void bus_release(struct nic_bus *bus);
void bus_init(struct nic_bus *bus, struct nic *nic, struct world *world, bool global_atomics);
void bus_observe(struct nic_bus *bus, struct bus_observer *observer);
void bus_free(struct nic_bus *bus);
/* The NIC dies: its queue is lost, and whatever it still does touches nothing. */
void bus_kill(struct nic_bus *bus);
/* The next write of 8 bytes, as of a log entry: what came before it is visible, and what it says of that is not. */
bool bus_is_before_entry(const struct nic_bus *bus);
/* Everything queued takes its effect now. */
void bus_drain(struct nic_bus *bus);
/* Completions for a queue that is being destroyed are forgotten. */
void bus_forget(struct nic_bus *bus, const void *cq);

/* Memory that the NIC may touch: what was registered. Ranges nest: each grant is revoked once. */
void bus_grant(struct nic_bus *bus, const void *addr, size_t bytes);
void bus_revoke(struct nic_bus *bus, const void *addr, size_t bytes);

#endif
