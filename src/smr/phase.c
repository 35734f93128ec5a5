/* Where an acquisition stands: the phases of acquire.c, and what a majority is at the moment. */
#include "base/states.h"
#include "smr/steps.h"

static const struct state phase_states[SMR_PHASES] = {
	[SMR_PHASE_NONE] = {"none", BIT(SMR_PHASE_TAKE)},
	[SMR_PHASE_TAKE] = {"take", BIT(SMR_PHASE_ASK) | BIT(SMR_PHASE_NONE)},
	[SMR_PHASE_ASK] = {"ask", BIT(SMR_PHASE_PROMISE) | BIT(SMR_PHASE_NONE)},
	[SMR_PHASE_PROMISE] = {"promise", BIT(SMR_PHASE_CATCH_UP) | BIT(SMR_PHASE_NONE)},
	[SMR_PHASE_CATCH_UP] = {"catch up", BIT(SMR_PHASE_RECOVER) | BIT(SMR_PHASE_NONE)},
	[SMR_PHASE_RECOVER] = {"recover", BIT(SMR_PHASE_NOOP) | BIT(SMR_PHASE_NONE)},
	[SMR_PHASE_NOOP] = {"noop", BIT(SMR_PHASE_LEAD) | BIT(SMR_PHASE_NONE)},
	[SMR_PHASE_LEAD] = {"lead", BIT(SMR_PHASE_NONE)},
};

void smr_phase_move(struct hf_smr *smr, enum smr_phase phase)
{
	states_move("election", phase_states, &smr->phase, phase, "of replica %u", smr->id);
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
