/* apart.h - a broker that stands still for longer than its session, and goes on while clients reach it, but the other
 * brokers do not: one of these has taken its place, and no message has said so yet. */
#ifndef HOLDFAST_SIM_BROKER_APART_H
#define HOLDFAST_SIM_BROKER_APART_H

#include "sim/network.h"

struct apart {
	struct network *network;
	const struct process *const *brokers;
	unsigned count;
	uint64_t quiet_ns;
	/* The broker that may be set apart now; NULL: none, and it is asked again soon. */
	struct process *(*choose)(struct apart *apart);
	struct process *broker; /* that is apart; NULL: none is */
	struct world_event event;
};

/* Of some seeds, once. `network`, `brokers`, `count`, `quiet_ns` and `choose` are filled in. */
void apart_plan(struct apart *apart);

#endif
