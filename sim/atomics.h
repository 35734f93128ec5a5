/* atomics.h - two clients and the owner do atomics on a few words, while paths fail and clients die.
 *
 * In each mode of a region, on NICs with and without what that mode needs to know. Whatever the memory holds in
 * between, the values that were asked for and answered must be those of words that change one at a time:
 *   linear      for each word, checkers/linear.h explains every answer
 *   lost        an atomic that fails had a reason: its client died, a process stood still beyond its lease, its grant
 *               ended, or its outcome can not be known in this mode; it takes no effect afterwards
 *   quiet       when nobody does anything any more the memory holds values, and slots of vqps that ended are back
 *   liveness    when all has healed there is progress
 *
 * Elsewhere: the programs (atomics_nodes.c), what is asked for and the verdict (scenario_atomics.c). */
#ifndef HOLDFAST_SIM_ATOMICS_H
#define HOLDFAST_SIM_ATOMICS_H

#include <holdfast/vqp.h>

#include "sim/checkers/linear.h"
#include "sim/endpoint.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define ATOMICS_RAILS   2u
#define ATOMICS_CLIENTS 2u
#define ATOMICS_WORDS   3u
#define ATOMICS_OPS     400u
#define ATOMICS_DEPTH   6u
#define ATOMICS_SERVED  64u

#define ATOMICS_LEASE_NS (300 * NS_MS) /* and the budget, where a process stands still for longer */

enum atomics_kind { ATOMICS_CAS, ATOMICS_FAA, ATOMICS_READ };

struct atomics;

struct atomics_op {
	enum atomics_kind kind;
	unsigned word;
	uint64_t argument, compare, posted_ns;
	size_t linear; /* index */
};

struct atomics_side {
	struct atomics *run;
	unsigned number; /* 0: the owner; from 1: clients */
	struct endpoint endpoint;
	uint64_t *memory; /* owner: the words; client: a result for each op */
	/* a client's */
	struct hf_peer *peer;
	struct hf_vqp *vqp;
	bool peer_is_up;
	uint64_t next_ns, retry_ns, remote_addr;
	uint32_t remote_rkey;
	struct atomics_op ops[ATOMICS_OPS];
	uint32_t posted, completed;
	/* the owner's */
	struct hf_vqp_service service;
	struct hf_vqp *served[ATOMICS_SERVED];
	unsigned served_count;
	struct hf_vmr_atomic own;
	struct atomics_op *own_op; /* NULL: none is under way */
	uint64_t next_grant_ns;
	bool withdrawn; /* nobody may do atomics at the moment */
};

struct atomics {
	struct world *world;
	struct network network;
	struct faults faults;
	struct atomics_side sides[ATOMICS_CLIENTS + 1];
	struct linear words[ATOMICS_WORDS];
	uint64_t last[ATOMICS_WORDS]; /* seen by somebody: good to compare with */
	enum hf_atomic_mode mode;
	enum hf_policy policy;
	bool hca;     /* atomicity ends at the NIC */
	bool revokes; /* the owner takes access away and gives it again */
	bool stalls;  /* a process stands still for longer than its lease */
	bool crashed, may_be_unknown, stopping;
	uint64_t succeeded_since_quiet;
	struct outcome *outcome;
};

extern const struct program atomics_program; /* atomics_nodes.c; its context is a struct atomics_side */

/* ---- what is asked for, and the truth: scenario_atomics.c ---- */
struct atomics_op *atomics_choose(struct atomics_side *side);
void atomics_answered(struct atomics_side *side, struct atomics_op *op, uint64_t original);
void atomics_completed(struct atomics_side *side, const struct ibv_wc *wc);

#endif
