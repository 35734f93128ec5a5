/* Bringing the own log up to the highest commit that a member of the majority was told of (Mu, Listing 3): these
 * entries are decided, and the log that was told has them. */
#include "smr/durable.h"
#include "smr/steps.h"

#include "base/log.h"

/* NULL: none of the majority has more than this member. */
static struct smr_link *most_advanced(struct hf_smr *smr)
{
	struct smr_link *best = NULL;

	smr_for_links (link, smr)
		if (link->stage == SMR_STAGE_PROMISED && link->commit > smr->commit &&
			(best == NULL || link->commit > best->commit))
			best = link;
	return best;
}

void smr_catch_up_begin(struct hf_smr *smr)
{
	smr_phase_move(smr, SMR_PHASE_CATCH_UP);
	smr_for_links (link, smr) {
		link->fetched = link->fetched_end = 0;
		link->fetching = false;
	}
}

/* False: some of it is not there, because the ring went on. */
static bool take(struct hf_smr *smr, struct smr_link *link)
{
	struct smr_slot slot;

	for (uint64_t i = smr->commit; i < link->fetched_end; i++) {
		const uint8_t *at = link->scratch + (i - link->fetched) * smr->geometry.slot_bytes;

		if (i - smr_durable_floor(smr) >= smr->geometry.slots)
			return true; /* what is still needed stays */
		if (smr_slot_judge(&smr->geometry, at, i, &slot) != SMR_SLOT_VALID)
			return false;
		smr_slot_copy(&smr->geometry, smr_slot_at(smr, i), at, smr_slot_number(&slot));
		smr_follow_commit(smr, i + 1);
	}
	return true;
}

/* None of the majority was told of more, and no other member writes here now: what is decided and is not there was lost
 * (R-S8). */
static bool has_lost(struct hf_smr *smr)
{
	struct smr_slot slot;

	return smr->applied < smr->commit && smr_own_slot(smr, smr->applied, &slot) != SMR_SLOT_VALID;
}

static void fall_behind(struct hf_smr *smr)
{
	log_info("smr %s: member %u lacks entries that no log has any more: it takes a snapshot", smr->name, smr->id);
	smr->behind = true;
}

void smr_catch_up_turn(struct hf_smr *smr)
{
	struct smr_link *from;

	smr_for_links (link, smr) {
		if (link->fetching || link->fetched_end <= smr->commit || link->fetched > smr->commit)
			continue;
		if (!take(smr, link)) {
			fall_behind(smr);
			return;
		}
	}
	(void)smr_follow_apply(smr);
	from = most_advanced(smr);
	if (from == NULL && smr->applied == smr->commit) /* with the newest configuration that is decided (R-S20) */
		smr_recover_begin(smr);
	else if (from == NULL && has_lost(smr))
		fall_behind(smr);
	else if (from != NULL && !from->fetching)
		(void)smr_take_in_fetch(from, smr->commit, from->commit);
}
