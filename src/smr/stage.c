/* What completions say of the stages of a member (acquire.c). */
#include "smr/steps.h"

static void head_read(struct smr_link *link)
{
	uint64_t value;

	link->promise = smr_slot_open(get_le64(link->scratch), &value) ? value : 0;
	link->commit = smr_slot_open(get_le64(link->scratch + 8), &value) ? value : 0;
	link->stage = SMR_STAGE_READ;
}

void smr_stage_completed(struct smr_link *link, const struct smr_wr *wr)
{
	if (wr->type == SMR_WR_HEAD && link->stage == SMR_STAGE_HEAD)
		head_read(link);
	else if (wr->type == SMR_WR_PROMISE && link->stage == SMR_STAGE_PROMISING)
		link->stage = SMR_STAGE_PROMISED;
	else if (wr->type == SMR_WR_FETCH && wr->arg == link->fetches)
		link->fetching = false;
}
