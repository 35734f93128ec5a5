/* replicas.h - whether the members of a replicated log applied the same requests in the same order, and whether what
 * their clients were told is true. Knows nothing of the protocol: it sees what is proposed, answered and applied.
 *
 * Claims:
 *   alike       the n-th request that a member applies is the n-th that any member applied
 *   proposed    what is applied was proposed, and once
 *   told        an answer says that the request is applied; not-leader, that it never is
 *   kept        what was answered is applied at every member in the end
 *   fresh       a read sees everything that was answered before it began */
#ifndef HOLDFAST_SIM_CHECKERS_REPLICAS_H
#define HOLDFAST_SIM_CHECKERS_REPLICAS_H

#include "sim/world.h"

#define REPLICAS_OPS_MAX     8192u
#define REPLICAS_MEMBERS_MAX 8u
#define REPLICAS_NEVER       UINT32_MAX

struct replicas_op {
	uint32_t place; /* in the order of all that is applied; REPLICAS_NEVER: not yet */
	bool answered, disclaimed;
};
struct replicas {
	struct world *world;
	struct replicas_op ops[REPLICAS_OPS_MAX];
	uint32_t proposed;                   /* how many were */
	uint32_t order[REPLICAS_OPS_MAX];    /* what was applied, by place */
	uint64_t index[REPLICAS_OPS_MAX];    /* and where in the log */
	uint32_t applied;                    /* by the most advanced member */
	uint32_t next[REPLICAS_MEMBERS_MAX]; /* place of the next one at each member */
	uint32_t answered_end;               /* behind the last place that was answered */
};

void replicas_init(struct replicas *replicas, struct world *world);
uint32_t replicas_propose(struct replicas *replicas); /* its number */
void replicas_apply(struct replicas *replicas, unsigned member, uint64_t index, uint32_t op);
void replicas_answer(struct replicas *replicas, uint32_t op);
void replicas_disclaim(struct replicas *replicas, uint32_t op); /* "nothing was written" */
/* A member begins with a state in which the first `place` requests are applied. */
void replicas_restart(struct replicas *replicas, unsigned member, uint32_t place);
uint32_t replicas_read_begins(const struct replicas *replicas); /* what the read has to see */
void replicas_read_ends(struct replicas *replicas, unsigned member, uint32_t least);
void replicas_settled(struct replicas *replicas, unsigned member); /* all has healed: it has everything */

#endif
