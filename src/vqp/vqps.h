/* vqps.h - the vqps of a node: the layer above it (node/node.h), and its callbacks. */
#ifndef HOLDFAST_VQP_VQPS_H
#define HOLDFAST_VQP_VQPS_H

#include "base/table.h"
#include "node/node.h"
#include "node/peer.h"
#include "vqp/path/rebuild.h"
#include "vqp/vqp_metrics.h"

#define NODE_SERVICES_MAX 32u

struct region;

struct vqps {
	struct hf_node node;
	struct list vpds, vcqs, vqps;
	struct table nums; /* vqps by number */
	unsigned vqp_count;
	uint32_t next_num, next_pd;
	const struct hf_vqp_service *services[NODE_SERVICES_MAX];
	unsigned service_count;
	struct region **regions; /* by the low bits of a key */
	uint32_t region_slots, region_turn;
	struct list pools, graves;
	struct list initiators; /* carrier.h */
	struct rebuilds rebuilds;
	struct vqp_metrics metrics;
	bool standby_waits;          /* a vqp may wait until there is room on its standby qp */
	struct list fence_queue;     /* vqps with something to do at every turn */
	struct list fence_asked;     /* those before the others: the peer waits for their fence */
	unsigned fence_slice;        /* of them, at the last turn; 0: there were none */
	bool fence_answered;         /* some vqp has resumed since there were none */
	struct hf_timer fence_timer; /* of a node that sleeps: when a fence is tried again */
	struct list marked;          /* marks.h */
	struct list cold;            /* vqps with verdicts soon: fence_queue_warm */
	struct list resumed;         /* vqps on a new path, which post at the next turn */
	uint64_t readings;           /* of the queues of all rails: completions_turn */
	struct list owner_ended;     /* owner.h: ended atomics of the owner before their done() */
	struct list recovering;      /* vqps in the exchange, looked at whenever a rail changes and at every tick */
};

static inline struct vqps *vqps_of(const struct hf_node *node)
{
	return container_of(node, struct vqps, node);
}

/* What vqps know of a peer. */
struct vqp_peer {
	struct hf_peer peer;
	struct remote_region *regions; /* open addressing by rkey; a power of two */
	uint32_t region_slots, region_used;
	uint32_t silent; /* bit per rail of ours: by peers_silent; checked at the next tick */
	bool answered;   /* it has sent a region: wrs may have waited for that, until peers_heard */
	bool has_uids;   /* it has announced a region in HF_ATOMIC_UID */
	bool has_plain;  /* or one in HF_ATOMIC_PLAIN */
};

static inline struct vqp_peer *vqp_peer_of(const struct hf_peer *peer)
{
	return container_of(peer, struct vqp_peer, peer);
}

/* A wr went unanswered there: what else has waited for half as long fails with it, at the next tick, not each vqp when
 * its own device's retries are over. */
static inline void peers_silent(struct hf_peer *peer, unsigned rail)
{
	vqp_peer_of(peer)->silent |= 1u << rail;
	node_tick_soon(peer->node);
}

/* ---- peers.c: as struct node_layer names them ---- */
struct hf_peer *peers_alloc(void);
void peers_free(struct hf_peer *peer);
void peers_up(struct hf_peer *peer);
void peers_down(struct hf_peer *peer);
void peers_closing(struct hf_peer *peer);
bool peers_in_use(const struct hf_peer *peer);
void peers_heard(struct hf_peer *peer);
void peers_lease_over(struct hf_peer *peer);
void peers_rail_lost(struct hf_peer *peer, unsigned rail, bool ports_up);
bool peers_wait_for_rails(const struct hf_node *node);
void peers_tick(struct hf_peer *peer, uint64_t now_ns);

#endif
