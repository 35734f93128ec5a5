/* Reads (R-S11): what a leader has applied is current when a majority still takes its WRITEs. Such a WRITE begins after
 * the read came: an entry, or the commit word. One round serves all reads that came before it. */
#include "smr/steps.h"

bool smr_read_post(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	/* never ahead of the slots (R-S9) */
	uint64_t commit = smr->commit < link->sent ? smr->commit : link->sent, word = htole64(smr_slot_seal(commit));
	const struct smr_post post = {
		.type = SMR_WR_COMMIT, .local = &word, .bytes = sizeof(word), .at = SMR_LOG_COMMIT};

	return (link->stage == SMR_STAGE_TAKING || link->stage == SMR_STAGE_CONFIRMED) &&
	       smr_post(link, SMR_OUT, &post);
}

static bool is_confirmed(const struct hf_smr *smr, uint64_t stamp)
{
	uint32_t set = 1u << smr->id;

	smr_for_links (link, smr)
		if (link->stage == SMR_STAGE_CONFIRMED && link->done_stamp > stamp && smr_is_known(link))
			set |= 1u << link->id;
	return smr_phase_majority(smr, set);
}

bool smr_read_turn(struct hf_smr *smr)
{
	uint64_t newest = 0;
	bool any = false;

	if (smr->role != HF_SMR_LEADER)
		return false;
	while (smr->reads != NULL && smr->applied >= smr->reads->index && is_confirmed(smr, smr->reads->wait)) {
		struct hf_smr_call *call = smr->reads;

		smr->reads = call->next;
		if (smr->reads == NULL)
			smr->reads_end = &smr->reads;
		smr->read_count++;
		smr_calls_end(smr, call, HF_SMR_DECIDED);
		any = true;
	}
	for (const struct hf_smr_call *call = smr->reads; call != NULL; call = call->next)
		newest = call->wait + 1;
	smr_for_links (link, smr)
		if (newest != 0 && link->posted_stamp < newest)
			any |= smr_read_post(link);
	return any;
}

/* At each pulse of a leader without work: that it still leads is shown by a WRITE. */
void smr_read_idle(struct hf_smr *smr)
{
	if (smr->role != HF_SMR_LEADER || smr->tail > smr->commit)
		return;
	if (smr->idle_out && is_confirmed(smr, smr->idle_stamp)) {
		smr->idle_out = false;
		smr->undecided_ns = 0;
	}
	if (smr->idle_out || smr->now_ns - smr->told_ns < smr->config.idle_ns)
		return;
	smr->idle_out = true;
	smr->idle_stamp = smr->clock;
	smr->told_ns = smr->undecided_ns = smr->now_ns;
	smr_for_links (link, smr)
		(void)smr_read_post(link);
}
