/* smr_changes.h - changes of who is a member, made at the leader one at a time, while faults hit: members that are none
 * are started and added, others removed, also while one is down. */
#ifndef HOLDFAST_SIM_SMR_SMR_CHANGES_H
#define HOLDFAST_SIM_SMR_SMR_CHANGES_H

#include "sim/smr/smr_nodes.h"

struct smr_changes {
	struct world_event event;
	struct smr_sim *sim;
	struct smr_sim_member *leader; /* that was asked last */
	struct hf_smr_call call;
	uint64_t until_ns;
	unsigned added, removed, refused;
	bool adds;
};

void smr_changes_begin(struct smr_changes *changes, struct smr_sim *sim, uint64_t until_ns);

#endif
