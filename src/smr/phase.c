/* Where an acquisition stands: the phases of acquire.c, and what a majority is at the moment. */
#include "base/ensure.h"
#include "smr/steps.h"

static const unsigned allowed[SMR_PHASES] = {
	[SMR_PHASE_NONE] = 1u << SMR_PHASE_TAKE,
	[SMR_PHASE_TAKE] = 1u << SMR_PHASE_ASK | 1u << SMR_PHASE_NONE,
	[SMR_PHASE_ASK] = 1u << SMR_PHASE_PROMISE | 1u << SMR_PHASE_NONE,
	[SMR_PHASE_PROMISE] = 1u << SMR_PHASE_CATCH_UP | 1u << SMR_PHASE_NONE,
	[SMR_PHASE_CATCH_UP] = 1u << SMR_PHASE_RECOVER | 1u << SMR_PHASE_NONE,
	[SMR_PHASE_RECOVER] = 1u << SMR_PHASE_NOOP | 1u << SMR_PHASE_NONE,
	[SMR_PHASE_NOOP] = 1u << SMR_PHASE_LEAD | 1u << SMR_PHASE_NONE,
	[SMR_PHASE_LEAD] = 1u << SMR_PHASE_NONE,
};

void smr_phase_move(struct hf_smr *smr, enum smr_phase phase)
{
	ensure((allowed[smr->phase] & 1u << phase) != 0);
	smr->phase = phase;
}

uint32_t smr_phase_set(const struct hf_smr *smr, enum smr_stage least)
{
	uint32_t set = 1u << smr->id;

	smr_for_links (link, smr)
		if (link->stage >= least && smr_is_known(link))
			set |= 1u << link->id;
	return set;
}

static uint32_t counted(const struct hf_smr *smr, const struct smr_members *members, uint32_t set)
{
	uint32_t counts = 0;

	for (unsigned i = 0; i < members->count; i++) {
		unsigned id = members->at[i].is.id;
		uint64_t incarnation = id == smr->id ? smr->incarnation : smr->links[id].incarnation;

		if (members->at[i].incarnation == incarnation)
			counts |= set & 1u << id;
	}
	return counts;
}

bool smr_phase_majority_of(const struct hf_smr *smr, const struct smr_members *members, uint32_t set)
{
	return smr_members_majority(members, counted(smr, members, set));
}

bool smr_phase_majority(const struct hf_smr *smr, uint32_t set)
{
	return smr_phase_majority_of(smr, &smr->members, set) &&
	       (!smr_counts_told(smr) || smr_phase_majority_of(smr, &smr->told, set)) &&
	       (!smr_counts_found(smr) || smr_phase_majority_of(smr, &smr->found, set));
}
