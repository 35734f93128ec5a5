/* Undecided entries (Mu, section 4.1): for each index the valid value with the highest number that a majority has, this
 * member among them, becomes ours; where none has one, a NOOP does.
 *
 * Slots are read in chunks until as many have no valid value as may be undecided behind the last valid one (R-S8). Each
 * chunk needs the answers of a majority; the rest is waited for shortly. A value that lacks room here is read again
 * when it has: its slot has an entry that is not applied, or not on the own disk (DUR-3).
 *
 * Until all is read a value keeps its number here, so an attempt that ends leaves nothing that outranks what was
 * decided. */
#include "smr/durable.h"
#include "smr/steps.h"

#include <string.h>

#include "base/log.h"

#define GRACE_NS 50000u

static uint64_t chunk_end(const struct hf_smr *smr)
{
	uint64_t end = smr->recover_at + smr->chunk, lap = (smr->recover_at | (smr->geometry.slots - 1)) + 1;

	return end < lap ? end : lap;
}

void smr_recover_begin(struct hf_smr *smr)
{
	smr_phase_move(smr, SMR_PHASE_RECOVER);
	smr->recover_at = smr->recover_last = smr->commit;
	smr->majority_ns = smr->hole = 0;
	smr_for_links (link, smr) {
		link->hole = 0;
		link->fetched = link->fetched_end = 0;
		link->fetching = false;
	}
}

/* It was promised late, and was told of entries here that are decided: a snapshot may have them, and its ring nothing.
 * Behind them it counts. */
static bool is_ahead(const struct smr_link *link)
{
	return link->commit > link->smr->recover_at;
}

static bool has_answered(const struct smr_link *link)
{
	return link->stage == SMR_STAGE_PROMISED && !is_ahead(link) && !link->fetching &&
	       link->fetched == link->smr->recover_at && link->fetched_end == chunk_end(link->smr);
}

/* Entries come in order: a member that has one and lacks one before it had that too, and has lost it, as when a NIC
 * dies with what it had acknowledged without a report (R-S8, R-S15). */
static bool shows_loss(uint64_t *hole, enum smr_slot_state state, uint64_t index)
{
	if (state == SMR_SLOT_EMPTY && *hole == 0)
		*hole = index;
	return state == SMR_SLOT_VALID && *hole != 0;
}

static void lost_memory(struct smr_link *link, uint64_t index)
{
	log_error("smr %s: member %u has entry %llu but lost entry %llu: it does not count until it restarts",
		link->smr->name, link->id, (unsigned long long)index, (unsigned long long)link->hole);
	link->amnesiac = true;
	smr_mark_abort(link->smr, "a member has lost entries");
}

static bool has_room(const struct hf_smr *smr, uint64_t index)
{
	return index - smr_durable_floor(smr) < smr->geometry.slots;
}

/* No member has what is before it. A gap that this recovery makes is no loss of memory, should the attempt end now. */
static void break_gap(struct hf_smr *smr, uint64_t index)
{
	struct smr_slot slot;

	while (index-- > smr->commit && smr_own_slot(smr, index, &slot) == SMR_SLOT_EMPTY) {
		uint8_t *own = smr_slot_at(smr, index);

		put_le64(own, 0);
		put_le64(own + SMR_SLOT_INDEX, index);
	}
}

enum choice { CHOICE_MADE, CHOICE_WAITS, CHOICE_BEHIND };

/* The value with the highest number. BEHIND: a later lap is there already. */
static enum choice choose(struct hf_smr *smr, uint64_t index)
{
	uint8_t *own = smr_slot_at(smr, index);
	const uint8_t *best = NULL;
	uint64_t number = 0;
	struct smr_slot slot;
	enum smr_slot_state own_state = smr_own_slot(smr, index, &slot);

	if (shows_loss(&smr->hole, own_state, index))
		smr->failed = "it has lost entries that it had acknowledged; start the replica again";
	if (own_state == SMR_SLOT_VALID) {
		best = own;
		number = smr_slot_number(&slot);
	}
	smr_for_links (link, smr) {
		const uint8_t *at = link->scratch + (index - smr->recover_at) * smr->geometry.slot_bytes;
		enum smr_slot_state state;

		if (!has_answered(link))
			continue;
		state = smr_slot_judge(&smr->geometry, at, index, &slot);
		if (state == SMR_SLOT_LATER)
			return CHOICE_BEHIND;
		if (!link->amnesiac && shows_loss(&link->hole, state, index))
			lost_memory(link, index);
		if (link->amnesiac)
			continue;
		if (state == SMR_SLOT_VALID && (best == NULL || smr_slot_number(&slot) > number)) {
			best = at;
			number = smr_slot_number(&slot);
		}
	}
	if (best == NULL)
		return CHOICE_MADE;
	smr->recover_last = index + 1;
	if (best == own)
		return CHOICE_MADE;
	if (!has_room(smr, index))
		return CHOICE_WAITS;
	break_gap(smr, index);
	smr_slot_copy(&smr->geometry, own, best, number); /* as it was accepted there: this attempt may end */
	return CHOICE_MADE;
}

/* All that a majority has is known: it is accepted under this number. */
static void accept_choices(struct hf_smr *smr)
{
	struct smr_slot slot, noop = {.origin = smr_slot_origin(smr->number),
				      .commit = smr->commit,
				      .kind = SMR_NOOP | SMR_FIRST | SMR_LAST};

	for (uint64_t i = smr->commit; i < smr->recover_last; i++) {
		uint8_t *own = smr_slot_at(smr, i);

		noop.index = i;
		if (smr_own_slot(smr, i, &slot) == SMR_SLOT_VALID)
			put_le64(own, smr_slot_word(smr->number, get_le32(own + SMR_SLOT_CRC)));
		else
			(void)smr_slot_store(&smr->geometry, own, &noop, smr->number, NULL);
	}
}

/* The last configuration that may be decided, and its first slot; false: there is none. The first slots of its entry
 * may be applied already. */
static bool last_members(const struct hf_smr *smr, struct smr_members *last_out, uint64_t *first_out)
{
	struct smr_entry entry = smr->begun;
	struct smr_members members;
	struct smr_slot slot;
	bool any = false;

	memcpy(smr->batch, smr->entry, entry.first == 0 ? 0 : entry.bytes);
	for (uint64_t i = smr->commit; i < smr->recover_last; i++) {
		if (smr_own_slot(smr, i, &slot) != SMR_SLOT_VALID)
			continue;
		if (!smr_entry_add(&entry, smr->batch, &smr->geometry, &slot, smr_slot_at(smr, i) + SMR_SLOT_HEADER) ||
			(slot.kind & SMR_KINDS_MASK) != SMR_CONFIG ||
			!smr_members_decode(smr->batch, entry.bytes, &members))
			continue;
		members.index = i;
		*last_out = members;
		*first_out = entry.first;
		any = true;
	}
	return any;
}

/* Its members are asked too (R-S20). It was logged when all before it was decided, a configuration among that as well.
 * What an earlier recovery found and this one does not was never decided, and is forgotten. */
static bool finds_members(struct hf_smr *smr)
{
	struct smr_members members = {0};
	uint64_t first = 0;
	bool any = last_members(smr, &members, &first);
	bool is_new = any && !smr_members_same(&members, &smr->found) && !smr_members_same(&members, &smr->told);

	if (any)
		smr_follow_commit(smr, first);
	smr->found = members;
	return is_new;
}

static void finish(struct hf_smr *smr)
{
	if (finds_members(smr)) {
		smr_mark_abort(smr, "the log has a newer configuration");
		return;
	}
	accept_choices(smr);
	smr->tail = smr->recover_end = smr->recover_last;
	smr->noop_index = smr->tail;
	smr_phase_move(smr, SMR_PHASE_NOOP);
}

/* The value at recover_at has no room. If that cannot change, the members that have applied more give a snapshot. */
static bool waits(struct hf_smr *smr)
{
	if (smr->recover_at >= smr->recover_last || has_room(smr, smr->recover_at))
		return false;
	smr->behind |= smr_durable_floor(smr) == smr_applied_entries(smr);
	return true;
}

static void choose_until(struct hf_smr *smr, uint64_t end)
{
	enum choice choice = CHOICE_MADE;
	uint64_t i = smr->recover_at;

	while (i < end && (choice = choose(smr, i)) == CHOICE_MADE)
		i++;
	smr->behind |= choice == CHOICE_BEHIND;
	smr->recover_at = i;
	smr->majority_ns = 0;
}

void smr_recover_turn(struct hf_smr *smr)
{
	uint64_t end = chunk_end(smr);
	uint32_t answered = 1u << smr->id, ahead = 0;
	bool all = true;

	if (waits(smr))
		return;
	smr_for_links (link, smr) {
		if (link->stage != SMR_STAGE_PROMISED)
			continue;
		if (is_ahead(link)) {
			ahead |= 1u << link->id;
			continue;
		}
		if (has_answered(link) && smr_durable_promised(link)) {
			answered |= 1u << link->id;
			continue;
		}
		all = false;
		if (!link->fetching && !has_answered(link))
			(void)smr_take_in_fetch(link, smr->recover_at, end);
	}
	if (!smr_phase_majority(smr, answered)) {
		/* The next attempt catches up first. */
		if (ahead != 0 && !smr_phase_majority(smr, smr_phase_set(smr, SMR_STAGE_PROMISED) & ~ahead))
			smr_mark_abort(smr, "a member that is needed was told of more");
		return;
	}
	if (smr->majority_ns == 0)
		smr->majority_ns = smr->now_ns;
	if (!all && smr->now_ns - smr->majority_ns < GRACE_NS)
		return;
	choose_until(smr, end);
	if (smr->recover_at == end && end >= smr->recover_last + smr->geometry.span && smr->abort_why == NULL &&
		smr->failed == NULL)
		finish(smr);
}
