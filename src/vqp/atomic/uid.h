/* uid.h - atomics in two stages, which survive a failover on NICs that keep no atomic results (Varuna, section 3.3;
 * docs/protocol.md, R10 and R11). Pure: a step takes the result of the last access and returns the next accesses.
 *
 *   requester                                       responder's memory (its CPU not involved)
 *     | WRITE slot = {s pending, swap, target} ----> slot
 *     | CAS target: compare -> UID(slot, s) -------> target    here it takes effect, with a unique value
 *     | <---------------------------- original        (the application gets its result)
 *     | CAS slot: {s pending} -> {s done} ---------> slot
 *     | CAS target: UID -> swap -------------------> target    and the slot is free again
 *
 * A UID, from the top:  u8 tag   u16 index of the slot   u40 sequence, never repeated within a slot
 * A slot, in the order of the host (little-endian):
 *     0 u64 word: sequence << 8 | state   8 u64 swap   16 u64 target   24 u64 unused
 *
 * Invariants; the model (sim/scenario_uid_model.c) explores all interleavings of small runs for them:
 *   UID-1  A UID is in its target only while its slot holds its sequence, because the slot is written before the CAS
 *          that installs the UID and reused only once the UID was observed to be gone, or was refused.
 *   UID-2  Before a client removes a UID it moves the state of the slot to `done`, by a CAS on sequence and state.
 *          So a requester that reads its target first, and then its slot, finds one or the other if it took effect.
 *   UID-3  A UID is not installed twice, so a helper that stalled replaces nothing.
 *   UID-4  The contents of a slot count only when the target held the UID afterwards, or by a CAS that compares them.
 *
 * The slot distinguishes a UID from a value that looks like one: its sequence or its target differs, and the value is
 * still there when the target is read again. */
#ifndef HOLDFAST_VQP_ATOMIC_UID_H
#define HOLDFAST_VQP_ATOMIC_UID_H

#include <stdbool.h>
#include <stdint.h>

#define UID_TAG           0xb5u
#define UID_INDEX_BITS    16u
#define UID_SEQUENCE_BITS 40u
#define UID_SEQUENCE_MAX  ((1ull << UID_SEQUENCE_BITS) - 1)
#define UID_STATE_BITS    8u

enum uid_state {
	UID_FREE,    /* never used */
	UID_PENDING, /* may be installed, or not */
	UID_DONE,    /* was installed, and a client replaces it or has replaced it */
};

struct uid_slot {
	uint64_t word, swap, target, unused;
};
_Static_assert(sizeof(struct uid_slot) == 32, "peers compute the address of a slot");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a slot is written as bytes and changed by NIC atomics");

uint64_t uid_make(uint32_t index, uint64_t sequence);
uint64_t uid_word(uint64_t sequence, enum uid_state state);
/* False: it is no UID of a responder with this many slots. True: it may be one; its slot decides. */
bool uid_decode(uint64_t value, uint32_t slots, uint32_t *index_out, uint64_t *sequence_out);
/* Whether this is what the slot of `uid` must hold while the UID is in `target`. */
bool uid_slot_matches(const struct uid_slot *slot, uint64_t uid, uint64_t target);

enum uid_access_kind {
	UID_WRITE_SLOT,
	UID_READ_SLOT,
	UID_CAS_SLOT, /* of its word */
	UID_READ_TARGET,
	UID_CAS_TARGET,
};
struct uid_access {
	enum uid_access_kind kind;
	uint32_t index;         /* of the slot */
	uint64_t target;        /* address */
	uint64_t compare, swap; /* CAS */
	struct uid_slot slot;   /* WRITE_SLOT */
};
/* To be done in this order; what the last one returned goes into the next step. None: the operation is over. */
struct uid_plan {
	unsigned count;
	struct uid_access access[2];
};
struct uid_result {
	uint64_t value;       /* CAS: the original; READ_TARGET */
	struct uid_slot slot; /* READ_SLOT */
};

enum uid_kind {
	UID_CAS,
	UID_FAA,        /* read, then CAS until it succeeds */
	UID_READ,       /* the value that a UID stands for */
	UID_DIRECT_CAS, /* of a client that cannot lose responses: without a slot */
	UID_DIRECT_FAA,
	UID_RESOLVE, /* removes what may be left of the slot `index` */
};

enum uid_op_state {
	UID_OP_OVER,         /* waiting for nothing */
	UID_OP_LOOK,         /* waiting for the value of the target */
	UID_OP_TRY,          /* waiting for the CAS that takes effect */
	UID_OP_SLOT,         /* the target held what looks like a UID: waiting for its slot */
	UID_OP_HELP,         /* waiting for the CAS that replaces it by the value */
	UID_OP_AGAIN,        /* waiting for the target again, to confirm the slot's contents */
	UID_OP_CHECK_TARGET, /* the answer of the CAS was lost: waiting for the target */
	UID_OP_CHECK_SLOT,   /* and then for our slot */
	UID_OP_FIND,         /* resolving: waiting for the slot */
	UID_OP_STATES,
};

struct uid_op {
	enum uid_kind kind;
	enum uid_op_state state;
	uint32_t slots;    /* of the responder */
	uint32_t index;    /* of our slot; RESOLVE: of the slot in question */
	uint64_t sequence; /* the last one used in our slot */
	uint64_t target;
	uint64_t compare, argument; /* argument: swap, or what is added */
	uint64_t swap;              /* of this try */
	uint64_t seen, meant;       /* in the target; the value in its slot */
	uint64_t original;          /* once it is over */
	bool installed;             /* once it is over: to be confirmed */
};

/* `op` holds kind, slots, index, sequence, target, compare and argument. */
void uid_begin(struct uid_op *op, struct uid_plan *plan);
void uid_step(struct uid_op *op, const struct uid_result *result, struct uid_plan *plan);
/* The path failed and was fenced before the plan's last answer came; the plan is for another path. */
void uid_lost(struct uid_op *op, struct uid_plan *plan);
/* The UID of its last try may be in the target, and whether it is is not known yet. */
bool uid_in_doubt(const struct uid_op *op);
/* Replaces the UID that `op` installed; or may have, in doubt on a path that was fenced. Does no harm when done again;
 * afterwards the slot is free. */
void uid_confirm(const struct uid_op *op, struct uid_plan *plan);

#endif
