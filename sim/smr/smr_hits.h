/* smr_hits.h - faults that look for the leader, or for whom it needs: a process that is paused or crashes, a NIC that
 * dies, a host whose data or packets are lost in one direction, at a moment when proposals are in flight. Some of them
 * follow the one before, and hit while another member takes the leader's place. */
#ifndef HOLDFAST_SIM_SMR_SMR_HITS_H
#define HOLDFAST_SIM_SMR_SMR_HITS_H

#include "sim/smr/smr_nodes.h"

#define SMR_HITS_MAX 8u

struct smr_hit {
	struct world_event begin, end;
	struct smr_hits *hits;
	unsigned kind, victim, waited;
	bool on;
	bool follows; /* the one before it */
	uint64_t duration_ns;
};
struct smr_hits {
	struct smr_sim *sim;
	struct smr_hit plan[SMR_HITS_MAX];
	uint64_t quiet_ns;
	bool restarts[SMR_SIM_MEMBERS_MAX]; /* a hit ends with its process anew */
	unsigned count, on_leader, on_successor, in_doubt, crashes, powers;
};

void smr_hits_plan(struct smr_hits *hits, struct smr_sim *sim, unsigned count, uint64_t quiet_ns);
/* Rails or disks are hit at the moment. */
bool smr_hits_impede(const struct smr_hits *hits);
/* It has proposals in flight. */
bool smr_sim_has_proposed(const struct smr_sim_member *member);

#endif
