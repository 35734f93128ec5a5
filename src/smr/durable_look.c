/* What of the own log is durable at another member, as it publishes it, and what counts of that (R-S24).
 *
 * Its two words may be read while they change. A round that one READ shows, and the next, and the one after, held
 * while the second was made: what that one has of `durable` belongs to it. The leader READs again and again while it
 * waits; such a READ says nothing of heartbeats. */
#include "smr/durable.h"
#include "smr/steps.h"

#define WORDS_BYTES (SMR_PUBLIC_BYTES - SMR_PUBLIC_WORDS)

static uint8_t *memory_of(const struct smr_link *link)
{
	return link->smr->look + SMR_PUBLIC_BYTES * ((size_t)HF_SMR_MEMBERS_MAX + link->id);
}

void smr_durable_seen(struct smr_link *link, const uint8_t *words)
{
	uint64_t incarnation, number, durable, applied;

	if (!smr_slot_open(get_le64(words), &incarnation) || incarnation != link->incarnation ||
		!smr_slot_open(get_le64(words + 8 * (size_t)SMR_PUBLIC_DURABLE_ROUND), &number) ||
		!smr_slot_open(get_le64(words + 8 * (size_t)SMR_PUBLIC_DURABLE), &durable))
		return;
	if (smr_slot_open(get_le64(words + 8 * (size_t)SMR_PUBLIC_APPLIED), &applied))
		link->public[SMR_PUBLIC_APPLIED] = applied;
	if (number != link->durable_number) {
		link->durable_number = number;
		link->durable = link->durable_next = 0;
		return;
	}
	link->durable = link->durable_next;
	link->durable_next = durable;
}

void smr_durable_answered(struct smr_link *link)
{
	smr_durable_seen(link, memory_of(link));
}

/* ---- what counts ---- */

bool smr_durable_promised(const struct smr_link *link)
{
	return link->smr->durable == NULL || link->durable_number == link->smr->number;
}

uint64_t smr_durable_end(const struct smr_link *link)
{
	if (link->smr->durable == NULL)
		return UINT64_MAX;
	return link->durable_number == link->smr->number ? link->durable : 0;
}

uint64_t smr_durable_room_end(const struct smr_link *link)
{
	return link->smr->durable == NULL ? UINT64_MAX : link->public[SMR_PUBLIC_APPLIED] + link->smr->geometry.slots;
}

bool smr_durable_own_promised(const struct hf_smr *smr)
{
	return smr->durable == NULL || smr->durable->shown_number == smr->number;
}

uint64_t smr_durable_own_end(const struct hf_smr *smr)
{
	if (smr->durable == NULL)
		return UINT64_MAX;
	return smr->durable->shown_number == smr->number ? smr->durable->shown : 0;
}

/* ---- looking ---- */

static bool is_awaited(const struct smr_link *link)
{
	const struct hf_smr *smr = link->smr;

	if (smr->phase < SMR_PHASE_PROMISE || link->stage < SMR_STAGE_PROMISED || link->durable_out)
		return false;
	if (!smr_durable_promised(link))
		return true;
	return link->stage >= SMR_STAGE_TAKING && link->acked > smr->commit && smr_durable_end(link) < link->acked;
}

bool smr_durable_look(struct hf_smr *smr)
{
	bool any = false;

	smr_for_links (link, smr) {
		const struct smr_post post = {.type = SMR_WR_DURABLE,
			.local = memory_of(link),
			.bytes = WORDS_BYTES,
			.at = SMR_PUBLIC_WORDS,
			.read = true};

		if (is_awaited(link) && smr_post(link, SMR_BACK, &post))
			any = link->durable_out = true;
	}
	return any;
}
