/* A member whose log lacks what no ring has any more. */
#include "smr/steps.h"

void smr_restore_begin(struct hf_smr *smr)
{
	smr_abort(smr, "it lacks entries");
	smr->role = HF_SMR_RESTORING;
	smr_public_role(smr);
	smr_event(smr, HF_SMR_BEHIND);
}
