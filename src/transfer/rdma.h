/* rdma.h - slices over the lanes of all rails to a peer. One of these is the transport rdma, over soft and
 * verbs rails, another one shm, over the rails of this machine's memory.
 *
 * Each peer has a queue of jobs and a lane for each rail; peers are served in turn (R-T18). The
 * next slice goes to the lane where it ends first (schedule.h). A job is given up when no lane is open (R-T21): at once
 * if another transport reaches the peer, else after max_timeout_ns. */
#ifndef HOLDFAST_TRANSFER_RDMA_H
#define HOLDFAST_TRANSFER_RDMA_H

#include "transfer/lane.h"
#include "transfer/transport.h"

struct peer;

struct rdma_transport {
	struct transport transport;
	struct lane_context lanes;
	uint32_t rails; /* bit per rail of the node that is of this transport */
	uint64_t max_timeout_ns;
};

struct rdma_peer {
	struct rdma_transport *transport;
	struct peer *peer;
	struct list jobs;
	uint32_t made;        /* bit per rail: lanes that were initialised */
	uint64_t stranded_ns; /* since when no rail is open; 0: one is */
	struct blame blames[HF_RAILS_MAX];
	struct lane lanes[HF_RAILS_MAX];
};

void rdma_transport_init(struct rdma_transport *rdma, enum hf_transport kind);
void rdma_peer_init(struct rdma_peer *rails, struct rdma_transport *rdma, struct peer *peer);
/* The peer has left: turns end the lanes and give the jobs up. True: none is left. */
bool rdma_peer_has_ended(const struct rdma_peer *rails);
/* The peer has left so, or the engine closes: slices come back at once, jobs are given up. */
void rdma_peer_close(struct rdma_peer *rails);

bool rdma_peer_is_released(const struct rdma_peer *rails); /* peer_is_released */

bool rdma_peer_turn(struct rdma_peer *rails, uint64_t now_ns); /* true: something was done */
uint64_t rdma_peer_wake_ns(const struct rdma_peer *rails);

#endif
