/* split.h - a leader that one of its followers cannot reach, while all others reach both, and that is killed then. The
 * follower may still be a member of the isr: then it leads, and must have every record that was acknowledged (R-B21).
 *
 *   whole ---- cut from one follower ----> split ---- killed ----> down ---- healed, and started again ----> whole */
#ifndef HOLDFAST_SIM_BROKER_SPLIT_H
#define HOLDFAST_SIM_BROKER_SPLIT_H

#include "sim/broker/brokers.h"

#define SPLIT_LAG_NS (60 * NS_MS) /* replica.lag.time.max.ms of its brokers */

struct split {
	struct broker_sim *all;
	struct world_event event;
	struct sim_broker *leader, *follower; /* NULL: whole */
};

void split_start(struct broker_sim *all);
void split_end(struct broker_sim *all);

#endif
