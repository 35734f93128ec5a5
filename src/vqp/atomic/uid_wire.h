/* uid_wire.h - the accesses of uid.h as wrs, with the memory for their results. Pure. */
#ifndef HOLDFAST_VQP_ATOMIC_UID_WIRE_H
#define HOLDFAST_VQP_ATOMIC_UID_WIRE_H

#include <infiniband/verbs.h>

#include "vqp/atomic/uid.h"

/* Confirmations are in flight beside the next operations: each has its places, one for the target and one for the slot,
 * by the number of its slot. Those of a client are consecutive. */
#define UID_CONFIRMED_MAX 32u

struct uid_scratch {
	struct uid_slot out, in;
	uint64_t value, state;
	uint64_t ignored[UID_CONFIRMED_MAX][2];
};
_Static_assert(sizeof(struct uid_slot) % 8 == 0, "words are aligned");

/* Where slots and targets are, on one rail. */
struct uid_wire {
	struct uid_scratch *scratch;
	uint64_t arena_addr;
	uint32_t scratch_lkey;
	uint32_t arena_rkey, target_rkey;     /* for READ and WRITE */
	uint32_t arena_atomic, target_atomic; /* rkeys for CAS */
	bool ignored;                         /* what is found: it is a confirmation */
};

void uid_wire_access(
	const struct uid_wire *wire, const struct uid_access *access, struct ibv_send_wr *wr, struct ibv_sge *sge);

static inline bool uid_access_is_cas(const struct uid_access *access)
{
	return access->kind == UID_CAS_SLOT || access->kind == UID_CAS_TARGET;
}

/* What the last access of a plan found. */
static inline struct uid_result uid_wire_result(const struct uid_scratch *scratch)
{
	return (struct uid_result){.value = scratch->value, .slot = scratch->in};
}

#endif
