/* peer.h - another engine: its registered buffers, and the state of each transport for it. */
#ifndef HOLDFAST_TRANSFER_PEER_H
#define HOLDFAST_TRANSFER_PEER_H

#include <holdfast/node.h>

#include "transfer/rdma.h"
#include "transfer/segment.h"
#include "transfer/tcp.h"

struct peer {
	struct list link;
	struct hf_transfer *engine;
	struct hf_peer *node_peer; /* NULL: it is gone; the segment stays while it is opened */
	bool leaving;              /* it is gone, and slices to it may be out: not freed */
	uint64_t over_ns;          /* leaving: it executes nothing of ours from then on, by hf_env_boot_ns (R-T4) */
	struct hf_segment segment;
	struct rdma_peer rails[2]; /* of the transports shm and rdma */
	struct tcp_peer tcp;
	uint32_t first_epoch;  /* of our tcp streams, since the channel opened */
	uint32_t fenced_epoch; /* of the peer's tcp streams: those up to it may not begin any more */
	uint32_t released;     /* generation of our segment: no slice of the peer's is of an earlier one */
	bool owes_release;     /* the peer waits for the same of its own */
	struct list unsaid;    /* say.c */
};

void peer_close_segment(struct peer *peer);

/* How many transports that are used here have an end there, up or not. */
unsigned peer_transports(const struct peer *peer);

/* Whether all slices that are under way to the peer are of buffers that its segment has. */
bool peer_is_released(const struct peer *peer);

#endif
