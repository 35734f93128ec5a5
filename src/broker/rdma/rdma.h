/* rdma.h - the broker's side of RDMA: the service to which clients connect vqps, and the state of each client.
 *
 *   rdma -- clients   a process of a peer, with a protection domain of its own, because all peers of a domain receive
 *            |        all its keys
 *            |- grants   exclusive produce, each with a vqp          (produce_grant.h)
 *            `- readers  a vqp with REMOTE_READ alone, and slots     (reader.h)
 *
 * All share one completion queue; the number of the vqp identifies the owner of a completion. Owned by the broker's
 * loop. */
#ifndef HOLDFAST_BROKER_RDMA_H
#define HOLDFAST_BROKER_RDMA_H

#include <holdfast/vqp.h>

#include "base/list.h"
#include "broker/log/partition.h"
#include "broker/rdma/tokens.h"

#define RDMA_CQE 32768u

struct broker;

struct rdma_client {
	struct rdma *rdma;
	struct hf_peer *peer; /* NULL: its process is gone */
	struct hf_vpd *pd;
	struct list node, grants, readers;
};

/* What could not be deregistered, because a process that stands still may still touch it. */
struct rdma_stuck {
	struct list node;
	struct hf_vmr *mr;
	struct segment *segment; /* pinned */
	struct rdma_client *client;
};

struct rdma {
	struct broker *broker;
	struct hf_node *node;
	struct hf_vcq *cq;
	struct table vqps; /* of this service, by number: struct rdma_end */
	struct tokens tokens;
	struct list clients, stuck;
	struct hf_vqp_service service;
	struct hf_node_listener listener;
	struct hf_timer timer;
	bool serving, listening;
	uint64_t grants; /* of partitions to producers, so far */
};

/* What a vqp of the service belongs to. */
struct rdma_end {
	struct hf_vqp *vqp;
	void (*completed)(struct rdma_end *end, const struct ibv_wc *wc);
	bool lost; /* the vqp is in error: its owner is closed in the next turn */
};

/* Serves on the node. */
int rdma_open(struct broker *broker, struct hf_node *node, struct rdma **rdma_out, struct hf_error *error);
void rdma_close(struct rdma *rdma); /* NULL is legal */
/* True: there was something to do. */
bool rdma_turn(struct rdma *rdma);
bool rdma_is_idle(const struct rdma *rdma);

/* A vqp of `client`, in the table, with this many receives and sends. NULL: no room. */
struct hf_vqp *rdma_make_vqp(struct rdma_client *client, struct rdma_end *end, int access, bool revocable,
	uint32_t receives, uint32_t sends);
void rdma_drop_vqp(struct rdma *rdma, struct rdma_end *end);
/* Takes what has completed on this vqp alone. */
void rdma_harvest(struct rdma *rdma, struct rdma_end *end);
/* No remote operation touches it any more, and the segment is unpinned. False: that is so later; a process that stands
 * still holds it up. */
bool rdma_dereg(struct rdma_client *client, struct hf_vmr *mr, struct segment *segment);

#endif
