/* uid_slots.h - the responder's end of atomics by uid: the slots of its peers, and their resolution by the owner.
 *
 * A protection domain with a region in HF_ATOMIC_UID has an arena of slots, registered on every rail like any region
 * (plain, never with relaxed ordering). A peer's vqp borrows UID_SLOTS_PER_VQP of them on request. The node checks
 * borrowed slots from time to time and replaces the UIDs that their owners have left, and does so for
 * the last time when the vqp has ended and its paths are fenced; only then are they lent again, with their current
 * sequences. It uses atomics like every peer.
 *
 * Where NICs are not atomic with the CPU, a failing CAS may write the old value back (soft-RoCE of Linux 6.1 does),
 * over a store of the CPU in between: a slot whose UID is gone would be pending again, or a UID would reappear. So the
 * CPU does not touch the slots of living vqps there; peers resolve the UIDs that they find. The owner checks the slots
 * of an ended vqp for UID_LEFT_NS more, in which no other vqp gets them. */
#ifndef HOLDFAST_VQP_ATOMIC_UID_SLOTS_H
#define HOLDFAST_VQP_ATOMIC_UID_SLOTS_H

#include "vqp/objects.h"
#include "vqp/atomic/uid.h"

#define UID_SLOTS_PER_VQP 4u
#define UID_LEFT_NS       1000000000ull
#define UID_OWNER         UINT32_MAX /* in place of a vqp's number, which none has: the owner of the memory */

/* Of UID_SLOTS_PER_VQP slots. */
struct uid_loan {
	uint32_t vqp;     /* 0: free */
	uint64_t free_ns; /* the vqp has ended, and no other gets them before; 0: it has not */
};

struct uid_arena {
	struct hf_vmr *mr;
	struct uid_slot *slots;
	uint32_t count;
	struct uid_loan *loans;
};

/* What a vqp may use; lent_slots 0: nothing is left. */
struct slots_message {
	struct message_head head;
	uint32_t rkey;
	uint64_t addr, sequence;
	uint32_t slots, first_slot;
	uint8_t lent_slots;
};

/* Makes the arena, if there is none yet. */
int uid_arena_open(struct hf_vpd *pd, struct hf_error *error);
void uid_arena_close(struct hf_vpd *pd);
void uid_slots_ask(struct hf_vqp *vqp); /* the peer for slots of its own; it answers with SLOTS */
/* A slot for the owner's own atomics, always the same; false: all are lent. */
bool uid_slots_owner(struct hf_vpd *pd, uint32_t *index_out, uint64_t *sequence_out);
/* The vqp's paths are fenced, or destroyed. */
void uid_slots_return(struct hf_vqp *vqp);
/* No peer reaches this memory any more: every UID in it is replaced. */
void uid_slots_leave_region(struct hf_vpd *pd, const struct hf_vmr *mr);
void uid_slots_tick(struct hf_node *node, uint64_t now_ns);

#endif
