/* Changes of the members. */
#include "smr/steps.h"

void smr_change_applied(struct hf_smr *smr, uint64_t index)
{
	struct smr_members members;

	if (!smr_members_decode(smr->entry, smr->entry_bytes, &members))
		return;
	members.index = index;
	smr->members = members;
	smr_event(smr, HF_SMR_MEMBERS);
}
