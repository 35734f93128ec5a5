/* Changes of the members (Mu, section 5.4), one at a time, by the leader:
 *
 *   wanted --its process has a snapshot, and its log is ours--> drain: nothing new is proposed --all is decided-->
 *   CONFIG entry, alone --decided by majorities of the old and the new, and applied--> done
 *
 * A process that takes the place of a member (the same id, another incarnation) is wanted by itself. A member that
 * goes needs no snapshot; but an entry is not logged that the present followers could not decide, because none leads
 * without majorities of both, and dead ones may never return. Until its CONFIG entry a learner counts for nothing
 * (R-S22). A member with a newer configuration than it has applied needs majorities of both (R-S20). So a change is
 * done when a majority of the new configuration has applied it: one of these is alive as long as a majority is, and
 * needs no other one. Until then a member that was removed stays, because those that have not applied it need it. */
#include "smr/steps.h"

#include <errno.h>

#include "base/log.h"
#include "smr/durable.h"

void smr_change_heard(struct hf_smr *smr, const struct smr_members *members)
{
	if (members->index <= smr->told.index || members->index < smr->applied)
		return;
	smr->told = *members;
	smr->lost = true; /* its majority is needed too (R-S20) */
	if (smr->phase == SMR_PHASE_RECOVER)
		smr_mark_abort(smr, "a newer configuration was told"); /* and was not asked for what it has */
}

/* ---- what is applied ---- */

static void end_call(struct hf_smr *smr, enum hf_smr_outcome outcome, uint64_t index)
{
	struct hf_smr_call *call = smr->change_call;

	smr->change_call = NULL;
	if (call == NULL)
		return;
	call->index = index;
	smr_calls_end(smr, call, outcome);
}

/* A majority of the members has applied that they are. */
static bool is_settled(const struct hf_smr *smr)
{
	uint64_t index = smr->members.index;
	uint32_t set = smr_durable_floor(smr) > index ? 1u << smr->id : 0;

	smr_for_links (link, smr)
		if (smr_is_known(link) && link->known && link->public[SMR_PUBLIC_APPLIED] > index)
			set |= 1u << link->id;
	return smr_phase_majority_of(smr, &smr->members, set);
}

/* This process has applied entries as a voter. One that began with files of before may be about to be added again. */
static void note_part(struct hf_smr *smr)
{
	if ((smr->role == HF_SMR_FOLLOWER || smr->role == HF_SMR_LEADER) && smr->applied > smr->began_at)
		smr->took_part |= smr_members_votes(&smr->members, smr->id, smr->incarnation);
}

/* A member that was out of reach may apply its own removal never: no member gives it that entry any more. It hears the
 * configuration from those that have applied it. */
static bool was_removed(const struct hf_smr *smr)
{
	const struct smr_member *now = smr_members_find(&smr->told, smr->id);
	uint32_t set = 0;

	if (!smr->took_part || !smr_counts_told(smr) || !smr_members_votes(&smr->members, smr->id, smr->incarnation) ||
		smr_members_votes(&smr->told, smr->id, smr->incarnation))
		return false;
	smr_for_links (link, smr)
		if (link->peer != NULL && link->config_index >= smr->told.index)
			set |= 1u << link->id;
	return now != NULL || smr_members_majority(&smr->told, set);
}

/* At each pulse. A member that leaves answers a pulse before, so that its program passes the answer on. */
static void settle(struct hf_smr *smr)
{
	note_part(smr);
	smr->removed |= was_removed(smr);
	if ((!smr->leaving && smr->changed == 0) || !is_settled(smr))
		return;
	smr->removed |= smr->changed == 0;
	if (smr->changed != 0)
		end_call(smr, HF_SMR_DECIDED, smr->changed);
	smr->changed = 0;
}

/* Of a restart: it may have been added again since, or is added now. */
static bool is_removed(const struct hf_smr *smr, bool was)
{
	return (was || smr->leaving) && smr->replay == NULL &&
	       !smr_members_votes(&smr->members, smr->id, smr->incarnation);
}

static void set_members(struct hf_smr *smr, const struct smr_members *members, bool was)
{
	smr->members = *members;
	smr->leaving = is_removed(smr, was);
	smr->removed = smr->leaving && smr_members_find(members, smr->id) != NULL; /* it is not counted any more */
}

void smr_change_restored(struct hf_smr *smr, const struct smr_members *members)
{
	set_members(smr, members, smr->took_part && smr_members_votes(&smr->members, smr->id, smr->incarnation));
}

void smr_change_applied(struct hf_smr *smr, uint64_t index)
{
	struct smr_members members;

	if (!smr_members_decode(smr->entry, smr->begun.bytes, &members) || index <= smr->members.index)
		return;
	members.index = index;
	set_members(smr, &members, smr_members_votes(&smr->members, smr->id, smr->incarnation));
	smr->lost = true; /* the majority is another one now (R-S20) */
	smr_for_links (link, smr) {
		link->tell = true;
		link->learner = false;
	}
	smr->changing = false;
	if (smr->change_asked) {
		smr->change_asked = false;
		smr->wanted = SMR_NOBODY;
		smr->changed = index;
	}
	smr_event(smr, HF_SMR_MEMBERS);
}

/* ---- the leader ---- */

static bool has_newcomer(const struct smr_link *link)
{
	const struct smr_member *member = smr_members_find(&link->smr->members, link->id);

	return member != NULL && member->incarnation != link->incarnation;
}

/* Of those that are to become members, one that has everything: one that was asked for and never comes holds up no
 * other. */
static struct smr_link *find_learner(struct hf_smr *smr)
{
	struct smr_link *found = NULL;

	smr_for_links (link, smr) {
		if (smr->wanted != link->id && !has_newcomer(link))
			continue;
		link->learner = true;
		if (link->stage == SMR_STAGE_CONFIRMED && link->sent == smr->tail)
			found = link;
	}
	return found;
}

static bool can_be_decided(const struct hf_smr *smr, const struct smr_members *next)
{
	uint32_t set = 1u << smr->id;

	smr_for_links (link, smr)
		if (link->stage == SMR_STAGE_CONFIRMED && link->elect.alive)
			set |= 1u << link->id;
	return smr_phase_majority_of(smr, next, set);
}

static void begin(struct hf_smr *smr, const struct smr_members *next, bool asked)
{
	smr->next = *next;
	smr->changing = true;
	smr->change_asked = asked;
}

/* Nothing is written yet. A process that is to join is found again. */
static void give_up(struct hf_smr *smr)
{
	bool removes = smr->change_asked && smr_members_find(&smr->next, (unsigned)smr->wanted) == NULL;

	smr->changing = smr->change_asked = false;
	if (!removes)
		return;
	smr->wanted = SMR_NOBODY;
	end_call(smr, HF_SMR_NOT_LEADER, 0);
}

static void log_change(struct hf_smr *smr)
{
	uint32_t bytes;

	if (smr->tail != smr->commit)
		return;
	if (!can_be_decided(smr, &smr->next)) {
		give_up(smr);
		return;
	}
	bytes = smr_members_encode(&smr->next, smr->batch);
	if (!smr_accept_append(smr, SMR_CONFIG, 0, smr->batch, bytes))
		return;
	smr->found = smr->next;
	smr->found.index = smr->tail - 1;
}

/* At each pulse. */
void smr_change_turn(struct hf_smr *smr)
{
	struct smr_link *learner;
	struct smr_members next = smr->members;
	struct smr_member member = {.voter = true};

	settle(smr);
	if (smr->role != HF_SMR_LEADER)
		return;
	if (smr->changing) {
		if (!smr_counts_told(smr) && !smr_counts_found(smr))
			log_change(smr);
		return;
	}
	learner = find_learner(smr);
	if (learner == NULL)
		return;
	member.is = has_newcomer(learner) ? smr_members_find(&smr->members, learner->id)->is : smr->wanted_member;
	member.incarnation = learner->incarnation;
	if (smr_members_put(&next, &member) == 0)
		begin(smr, &next, smr->wanted == learner->id);
}

/* Leadership is over, or the replica is. The removal of a leader, which ends its leadership, is answered by settle. */
void smr_change_end(struct hf_smr *smr)
{
	smr->changing = smr->change_asked = false;
	smr->wanted = SMR_NOBODY;
	smr_for_links (link, smr)
		link->learner = false;
	if (smr->leaving && smr->changed != 0 && smr->role != HF_SMR_OUT && !smr->stopping)
		return;
	smr->changed = 0;
	end_call(smr, HF_SMR_UNKNOWN, 0);
}

static int take_call(struct hf_smr *smr, struct hf_smr_call *call, uint8_t id)
{
	if (smr->role != HF_SMR_LEADER)
		return -ENOTCONN;
	if (smr->changing || smr->change_call != NULL)
		return -EBUSY;
	smr->calls++;
	call->result = NULL;
	call->result_bytes = 0;
	smr->change_call = call;
	smr->wanted = id;
	return 0;
}

int hf_smr_add(struct hf_smr *smr, const struct hf_smr_member *member, struct hf_smr_call *call)
{
	int rc;

	if (member->id >= HF_SMR_MEMBERS_MAX || member->address_count > HF_SMR_ADDRESSES_MAX)
		return -EINVAL;
	if (smr_members_find(&smr->members, member->id) != NULL)
		return -EEXIST;
	if (smr_members_slots(smr->members.count + 1, smr->geometry.slot_bytes) > smr->geometry.span)
		return -ENOSPC;
	rc = take_call(smr, call, member->id);
	if (rc == 0) /* else another member may be on its way */
		smr->wanted_member = *member;
	return rc;
}

/* It was asked for, is no member yet, and its CONFIG entry is not about to be written. */
static bool is_awaited(const struct hf_smr *smr, uint8_t id)
{
	return smr->change_call != NULL && smr->wanted == id && !smr->change_asked &&
	       smr_members_find(&smr->members, id) == NULL;
}

/* Its caller does not wait any more. */
static int withdraw(struct hf_smr *smr, uint8_t id, struct hf_smr_call *call)
{
	smr->wanted = SMR_NOBODY;
	smr->links[id].learner = false;
	smr_mark_lost(&smr->links[id]);
	end_call(smr, HF_SMR_NOT_LEADER, 0);
	smr->calls++;
	call->result = NULL;
	call->result_bytes = 0;
	call->index = smr->members.index;
	smr_calls_end(smr, call, HF_SMR_DECIDED);
	return 0;
}

int hf_smr_remove(struct hf_smr *smr, uint8_t id, struct hf_smr_call *call)
{
	struct smr_members next = smr->members;
	int rc;

	if (is_awaited(smr, id))
		return withdraw(smr, id, call);
	if (smr_members_find(&smr->members, id) == NULL)
		return -ENOENT;
	if (smr->members.count == 1)
		return -EINVAL;
	smr_members_drop(&next, id);
	if (smr->role == HF_SMR_LEADER && !can_be_decided(smr, &next))
		return -EHOSTDOWN;
	rc = take_call(smr, call, id);
	if (rc != 0)
		return rc;
	begin(smr, &next, true);
	return 0;
}
