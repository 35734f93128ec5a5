/* device.h - simulated NICs: the product's soft device on a simulated bus.
 *
 * device_register puts a kind "soft" in front of the product's. What it opens is the unmodified engine; in front of its
 * operations stands a layer that tells the bus what is registered, and that can make fences slow or fail and the
 * device die. A dead NIC stays dead until its device is opened again.
 *
 * Invariants: nothing of the product knows; a NIC outlives its device by nothing. */
#ifndef HOLDFAST_SIM_DEVICE_H
#define HOLDFAST_SIM_DEVICE_H

#include <holdfast/dev.h>

#include "base/table.h"
#include "sim/bus.h"
#include "sim/host.h"
#include "sim/network.h"

struct nic {
	struct list node; /* of the process */
	struct process *process;
	struct port *port;
	struct nic_bus bus;
	struct hf_dev *dev;
	const struct hf_dev_ops *engine; /* the product's */
	struct hf_dev_ops ops;           /* ours, in front */
	bool dead, fatal_pending;
	struct table unfenced; /* qps whose fence was still going on when it was last asked for, because of a fault */
	uint64_t fence_slow_until_ns, fence_fails_until_ns, drain_hangs_until_ns, drain_fails_until_ns;
};

void device_register(void); /* once per program */
void device_abandon(struct process *process);

struct nic *nic_of(const struct hf_dev *dev);
struct nic *nic_at(const struct port *port); /* NULL: no device is open there */
/* The NIC loses what it had queued and does nothing any more. With words: events say so; else it just falls silent. */
void nic_crash(struct nic *nic, bool with_events);
void nic_set_link(struct nic *nic, bool up); /* the operator's switch: port events on this side */

#endif
