/* The floor (Mu, section 5.3): a slot is written again only when every confirmed member has applied what is in it
 * (R-S13), and no wr reads it here any more (R-S14). Nothing is zeroed, because an index is part of what a slot's
 * checksum covers. A member that stands still for `patience` is left behind while a majority remains; one that holds
 * the ring up, and whose heartbeats stand still, at once. */
#include "smr/durable.h"
#include "smr/steps.h"

#include "base/log.h"

static bool has_wrs_out(const struct smr_link *link)
{
	return link->ends[SMR_OUT].head != link->ends[SMR_OUT].tail;
}

uint64_t smr_recycle_floor(const struct hf_smr *smr)
{
	uint64_t floor = smr_durable_floor(smr);

	smr_for_links (link, smr) {
		uint64_t read_from = smr_post_reads_from(link);

		if (link->stage == SMR_STAGE_CONFIRMED && link->public[SMR_PUBLIC_APPLIED] < floor)
			floor = link->public[SMR_PUBLIC_APPLIED];
		if (read_from < floor)
			floor = read_from;
	}
	return floor;
}

static void note_stall(const struct hf_smr *smr, struct smr_stall *stall, bool holds_up, uint64_t index)
{
	if (!holds_up)
		stall->since_ns = 0;
	else if (stall->since_ns == 0 || stall->at != index)
		*stall = (struct smr_stall){.at = index, .since_ns = smr->now_ns};
}

static bool is_nearly_full(const struct hf_smr *smr, uint64_t floor)
{
	return smr->tail - floor + smr->geometry.span > smr->geometry.slots;
}

static bool stands_still(const struct hf_smr *smr, struct smr_link *link, uint64_t floor)
{
	const struct smr_end *end = &link->ends[SMR_OUT];
	bool late = has_wrs_out(link) &&
		    smr->now_ns - end->wrs[end->head % SMR_WRS_MAX].posted_ns > smr->config.patience_ns;
	bool holds_up = link->stage == SMR_STAGE_CONFIRMED && is_nearly_full(smr, floor) &&
			link->public[SMR_PUBLIC_APPLIED] <= floor && smr->applied > link->public[SMR_PUBLIC_APPLIED];

	note_stall(smr, &link->stall, holds_up, link->public[SMR_PUBLIC_APPLIED]);
	return late || (holds_up && link->elect.score < SMR_ELECT_FAILED) ||
	       (holds_up && smr->now_ns - link->stall.since_ns > smr->config.patience_ns);
}

/* At each pulse. */
void smr_recycle_turn(struct hf_smr *smr)
{
	uint64_t floor = smr_recycle_floor(smr), own = smr_durable_floor(smr);
	bool waits = smr->role == HF_SMR_LEADER && smr->waiting != NULL && is_nearly_full(smr, own);

	note_stall(smr, &smr->stall, waits, own);
	smr_for_links (link, smr) {
		if (!stands_still(smr, link, floor))
			continue;
		if (link->stage >= SMR_STAGE_READ) {
			if (!smr_phase_majority(smr, smr_phase_set(smr, SMR_STAGE_PROMISED) & ~(1u << link->id)))
				continue;
			log_info("smr %s: member %u stands still and is left behind: it is taken in again when it "
				 "resumes",
				smr->name, link->id);
		}
		link->ends[SMR_OUT].stale = true;
	}
}
