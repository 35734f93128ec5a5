/* What operators see of a replica. */
#include "smr/steps.h"

#include <string.h>

const char *hf_smr_role_name(enum hf_smr_role role)
{
	static const char *const names[] = {[HF_SMR_BLANK] = "blank",
		[HF_SMR_RESTORING] = "restoring",
		[HF_SMR_FOLLOWER] = "follower",
		[HF_SMR_ACQUIRING] = "acquiring",
		[HF_SMR_LEADER] = "leader",
		[HF_SMR_OUT] = "out"};

	return (unsigned)role < sizeof(names) / sizeof(names[0]) ? names[role] : "?";
}

static void describe(const struct hf_smr *smr, const struct smr_member *member, struct hf_smr_member_status *out)
{
	const struct smr_link *link = &smr->links[member->is.id];
	bool own = member->is.id == smr->id, here = link->peer != NULL && link->incarnation == member->incarnation;

	*out = (struct hf_smr_member_status){
		.id = member->is.id, .incarnation = member->incarnation, .voter = member->voter};
	memcpy(out->name, member->is.name, sizeof(out->name));
	out->alive = own || (here && link->elect.alive);
	out->score = own ? SMR_ELECT_SCORE_MAX : here ? link->elect.score : 0;
	out->confirmed = own ? smr->role == HF_SMR_LEADER : here && link->stage == SMR_STAGE_CONFIRMED;
	out->applied = own ? smr->applied : here ? link->public[SMR_PUBLIC_APPLIED] : 0;
}

void hf_smr_status(const struct hf_smr *smr, struct hf_smr_status *status_out)
{
	*status_out = (struct hf_smr_status){.role = smr->role,
		.id = smr->id,
		.incarnation = smr->incarnation,
		.number = smr->number,
		.leader = hf_smr_leader(smr),
		.commit = smr->commit,
		.applied = smr->applied,
		.floor = smr->role == HF_SMR_LEADER ? smr_recycle_floor(smr) : 0,
		.config_index = smr->members.index,
		.member_count = smr->members.count,
		.decided = smr->decided,
		.aborted = smr->aborted,
		.unknown = smr->unknown,
		.reads = smr->read_count,
		.granted = smr->granted,
		.failover_count = smr->failover_count};
	for (unsigned i = 0; i < smr->members.count; i++)
		describe(smr, &smr->members.at[i], &status_out->members[i]);
	memcpy(status_out->failovers, smr->failovers, sizeof(smr->failovers));
}
