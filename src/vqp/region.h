/* region.h - regions on every rail: ours, and those that peers have announced. */
#ifndef HOLDFAST_VQP_REGION_H
#define HOLDFAST_VQP_REGION_H

#include <holdfast/vqp.h>

#include "base/list.h"
#include "vqp/atomic/home.h"
#include "vqp/kinds.h"
#include "node/peer.h"

#define HOME_TOLD_ANY 0xff

struct region_message {
	struct message_head head;
	uint32_t rkey;
	uint32_t rkeys[HF_RAILS_MAX]; /* by rail of the sender */
	uint8_t home;                 /* rail of the sender where atomics go; HOME_TOLD_ANY */
	uint32_t atomic_rkey;         /* for them, there; 0: not now */
	uint8_t mode;                 /* enum hf_atomic_mode */
};

/* REGION_GONE, REGION_ASK, REGION_NONE. */
struct region_key_message {
	struct message_head head;
	uint32_t rkey;
};

/* The slot of a region in the low bits of its key. */
#define REGION_SLOT_BITS 16
#define REGION_SLOTS_MAX (1u << REGION_SLOT_BITS)

struct region {
	struct hf_vmr mr; /* first: what the application sees */
	struct list pd_link;
	struct hf_mr *mrs[HF_RAILS_MAX];
	int access;
	struct hf_mr *atomics; /* home.h: the second one, on the home of the domain; NULL: none */
	bool leaving;          /* it is being deregistered; where that failed, again later, and some mrs are gone */
};

static inline struct region *region_of(struct hf_vmr *mr)
{
	return container_of(mr, struct region, mr);
}

/* A peer that receives a domain's regions, for as long as a vqp connects it with them. */
struct region_audience {
	struct list pd_link;
	struct hf_peer *peer;
	uint32_t vqps;
};

struct remote_region {
	uint32_t rkey; /* 0: free */
	enum { REMOTE_ASKED, REMOTE_KNOWN, REMOTE_NONE } state;
	enum hf_atomic_mode mode;
	int home;                     /* our rail, or HOME_ANY, HOME_ELSEWHERE */
	uint32_t atomic_rkey;         /* there; 0: not now */
	uint32_t rkeys[HF_RAILS_MAX]; /* by our rail */
};

uint32_t region_lkey(const struct hf_vpd *pd, uint32_t lkey, unsigned rail); /* 0: no such region */
/* The sge names a region of ours, and some of its bytes lie outside of that. */
bool region_ends_before(const struct hf_vpd *pd, const struct ibv_sge *sge);
enum region_lookup { REGION_FOUND, REGION_UNKNOWN, REGION_REFUSED };
/* On a rail of ours. Unknown ones are requested, once; the vqps are pumped when the reply arrives. */
enum region_lookup region_rkey(struct hf_vqp *vqp, uint32_t rkey, unsigned rail, uint32_t *rkey_out);
/* The same for an atomic, which also waits until the vqp is at the region's home. */
enum region_lookup region_rkey_atomic(struct hf_vqp *vqp, uint32_t rkey, unsigned rail, uint32_t *rkey_out);
void region_announce_home(struct hf_vpd *pd); /* it is about to move: no atomics meanwhile */
void region_move_home(struct hf_vpd *pd);
/* What the peer has announced under that key; NULL: nothing, yet or any more. */
const struct remote_region *region_remote(const struct hf_peer *peer, uint32_t rkey);
void region_free(struct region *region);
void region_tell_all(const struct region *region); /* the peers that have the domain */
void region_tell_gone(const struct region *region);
/* The vqp is connected: sends the regions to its peer, unless another vqp caused that before. -ENOMEM. */
int region_join(struct hf_vqp *vqp);
void region_leave(struct hf_vqp *vqp); /* its end is told, or its peer is gone; twice is legal */

#endif
