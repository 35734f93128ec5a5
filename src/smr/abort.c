/* The end of an acquisition or of leading (Mu, section 4.1): a majority is not ours any more, or another member is to
 * lead. What is undecided ends as unknown, in order; what comes next has a new request and a new number (R-S5). */
#include "smr/steps.h"

#include "base/log.h"

/* Those below `kept` are answered when they are applied. */
static void end_logged(struct hf_smr *smr, uint64_t kept)
{
	struct hf_smr_call *call = smr->logged, *next;

	smr->logged = NULL;
	smr->logged_end = &smr->logged;
	for (; call != NULL; call = next) {
		next = call->next;
		call->next = NULL;
		if (call->wait < kept) {
			*smr->logged_end = call;
			smr->logged_end = &call->next;
			continue;
		}
		smr->unknown++;
		smr_calls_end(smr, call, HF_SMR_UNKNOWN);
	}
}

void smr_abort_calls(struct hf_smr *smr)
{
	end_logged(smr, 0);
	smr_change_end(smr);
}

static void end_calls(struct hf_smr *smr)
{
	struct hf_smr_call *call, *next;

	while (smr_follow_apply(smr)) /* what is decided is answered first */
		continue;
	end_logged(smr, smr->commit);
	for (call = smr->waiting; call != NULL; call = next) {
		next = call->next;
		smr_calls_end(smr, call, HF_SMR_NOT_LEADER);
	}
	for (call = smr->reads; call != NULL; call = next) {
		next = call->next;
		smr_calls_end(smr, call, HF_SMR_NOT_LEADER);
	}
	smr->waiting = smr->reads = NULL;
	smr->waiting_end = &smr->waiting;
	smr->reads_end = &smr->reads;
}

void smr_abort(struct hf_smr *smr, const char *why)
{
	bool led = smr->role == HF_SMR_LEADER;

	if (smr->phase == SMR_PHASE_NONE)
		return;
	if (led)
		log_info("smr %s: member %u no longer leads: %s", smr->name, smr->id, why);
	smr->aborted += led;
	smr_phase_move(smr, SMR_PHASE_NONE);
	if (smr->role != HF_SMR_OUT)
		smr->role = HF_SMR_FOLLOWER;
	smr->undecided_ns = 0;
	smr->idle_out = false;
	smr_for_links (link, smr) {
		smr_end_life(link);
		(void)smr_post_end_reading(link);
	}
	smr_follow_reset(smr);
	end_calls(smr);
	smr_change_end(smr);
	smr_public_role(smr);
	if (!led)
		return;
	smr->leader_told = SMR_NOBODY;
	smr->number_told = 0;
	smr_event(smr, HF_SMR_FOLLOWING);
}

/* Some member's log is not ours any more. */
void smr_abort_check(struct hf_smr *smr)
{
	enum smr_stage least = smr->phase == SMR_PHASE_PROMISE ? SMR_STAGE_READ : SMR_STAGE_PROMISED;

	if (smr->phase >= SMR_PHASE_PROMISE && !smr_phase_majority(smr, smr_phase_set(smr, least)))
		smr_abort(smr, "a majority of the members has taken its log away, or is out of reach");
}
