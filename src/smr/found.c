/* Founding a cluster (R-S21), and taking a configuration from others.
 *
 * The lowest listed id founds, once all that are listed are there and none knows a configuration. Entry 1 is the
 * configuration with their incarnations; it needs no log, because no other value can be there: a member that takes it
 * begins as if it had been decided. Two of three that restart find the third one not blank, and found nothing. */
#include "smr/durable.h"
#include "smr/steps.h"

#include "base/log.h"

static void begin(struct hf_smr *smr, const struct smr_members *members)
{
	smr->members = *members;
	smr->role = HF_SMR_FOLLOWER;
	smr->began_ns = smr->now_ns;
	smr->commit = smr->applied = smr->tail = smr->oldest = smr->forgot = SMR_FIRST_INDEX;
	smr_durable_begin(smr, SMR_FIRST_INDEX, true);
	smr_public_role(smr);
	smr_for_links (link, smr)
		link->tell = true;
	log_info("smr %s: member %u of %u begins", smr->name, smr->id, members->count);
	smr_event(smr, HF_SMR_MEMBERS);
}

void smr_found_heard(struct hf_smr *smr, const struct smr_members *members)
{
	if (members->index <= smr->members.index)
		return;
	if (smr->role != HF_SMR_BLANK)
		smr_change_heard(smr, members);
	else if (members->index == 1 && smr_members_votes(members, smr->id, smr->incarnation))
		begin(smr, members);
	else
		smr->behind = true; /* the cluster was founded without this process */
}

static const struct hf_smr_member *lowest(const struct hf_smr *smr)
{
	const struct hf_smr_member *best = &smr->known[0];

	for (unsigned i = 1; i < smr->known_count; i++)
		if (smr->known[i].id < best->id)
			best = &smr->known[i];
	return best;
}

void smr_found_turn(struct hf_smr *smr)
{
	struct smr_members members = {.index = 1};

	if (smr->role != HF_SMR_BLANK || smr->known_count == 0 || lowest(smr)->id != smr->id)
		return;
	for (unsigned i = 0; i < smr->known_count; i++) {
		const struct smr_link *link = &smr->links[smr->known[i].id];
		struct smr_member member = {.is = smr->known[i], .voter = true, .incarnation = smr->incarnation};

		if (smr->known[i].id != smr->id) {
			if (link->peer == NULL || !link->known || smr_link_role(link) != HF_SMR_BLANK)
				return;
			member.incarnation = link->incarnation;
		}
		(void)smr_members_put(&members, &member);
	}
	begin(smr, &members);
}
