/* holders.h - producers over RDMA that are killed, or stand still and continue later, while all else is well.
 * Their partitions are held to the promise of B7: a client that dies or stalls costs a partition the hole time-out and
 * a fence.
 *   stands     another producer's record is acknowledged within HOLDERS_STAND_NS of virtual time
 *   leader     no partition gets another leader */
#ifndef HOLDFAST_SIM_BROKER_HOLDERS_H
#define HOLDFAST_SIM_BROKER_HOLDERS_H

#include "sim/broker/broker_rdma.h"

#define HOLDERS_STAND_NS (550 * NS_MS)

struct holders {
	struct rdma_sim *all;
	struct world_event event;
	struct rdma_sim_client *failed; /* NULL: none at present */
};

void holders_start(struct rdma_sim *all);
void holders_end(struct rdma_sim *all);

/* After a record of this producer, which never fails, was acknowledged. */
void holders_judge(const struct rdma_sim_client *client, uint64_t sent_ns);

#endif
