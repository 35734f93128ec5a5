/* What the program is told. */
#include "smr/steps.h"

int hf_smr_leader(const struct hf_smr *smr)
{
	const struct smr_link *link = &smr->links[smr->choice < 0 ? 0 : smr->choice];

	if (smr->role == HF_SMR_LEADER)
		return smr->id;
	if (smr->role == HF_SMR_OUT) /* it looks at no other member any more */
		return SMR_NOBODY;
	if (smr->choice < 0 || smr->choice == smr->id || link->peer == NULL || smr_link_role(link) != HF_SMR_LEADER)
		return SMR_NOBODY;
	return smr->choice;
}

void smr_event(struct hf_smr *smr, enum hf_smr_event_kind kind)
{
	struct hf_smr_event event = {.kind = kind, .leader = hf_smr_leader(smr), .index = smr->applied};

	event.number = event.leader < 0          ? 0
		       : event.leader == smr->id ? smr->number
						 : smr->links[event.leader].public[SMR_PUBLIC_ROLE] >> 8;
	if (kind == HF_SMR_LEADING)
		event.granted_ns = smr->granted_boot_ns;
	if (kind == HF_SMR_MEMBERS)
		event.index = smr->members.index;
	event.reason = smr->reason;
	event.device_died = smr->device_died;
	if (smr->app.event != NULL && !smr->stopping)
		smr->app.event(smr->context, &event);
}
