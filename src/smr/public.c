/* The public words of this member, the heartbeats of the others, and the leader that this member would elect. */
#include "smr/durable.h"
#include "smr/steps.h"

#include "base/order.h"

#define BECOMING_PULSES 20u
#define FOUNDING_NS     20000000u
#define YIELDING_NS     1000000000u
#define VAIN_NS         100000000u /* at least: a fence may take 10 ms, at each of two members */

void smr_public_store(struct hf_smr *smr, enum smr_public word, uint64_t value)
{
	_Atomic uint64_t *at = (_Atomic uint64_t *)(void *)(smr->back + SMR_PUBLIC_WORDS + 8 * (size_t)word);

	publish(at, htole64(smr_slot_seal(value & SMR_WORD_MAX)));
}

/* A member that could lead has applied a newer configuration. That one needs its majority alone, and this one that of
 * the former configuration too, whose members may have gone (R-S20). */
static bool gives_way(const struct hf_smr *smr)
{
	if (smr->phase > SMR_PHASE_ASK)
		return false;
	smr_for_links (link, smr)
		if (link->config_index > smr->members.index && smr_is_known(link) && link->known && link->elect.alive &&
			(link->public[SMR_PUBLIC_FLAGS] & SMR_FLAG_READY) != 0)
			return true;
	return false;
}

/* One that is no member, has no state, or takes a snapshot neither leads nor grants (R-S15, R-S22). A leader that logs
 * its own removal leads until that is decided. */
bool smr_public_ready(const struct hf_smr *smr)
{
	return (smr->role == HF_SMR_FOLLOWER || smr->role == HF_SMR_ACQUIRING || smr->role == HF_SMR_LEADER) &&
	       !smr->lacks && smr_members_votes(&smr->members, smr->id, smr->incarnation) &&
	       (!smr_counts_told(smr) || smr_members_votes(&smr->told, smr->id, smr->incarnation)) &&
	       (smr->role == HF_SMR_LEADER || !smr_counts_found(smr) ||
		       smr_members_votes(&smr->found, smr->id, smr->incarnation)) &&
	       !gives_way(smr);
}

void smr_public_role(struct hf_smr *smr)
{
	smr_public_store(smr, SMR_PUBLIC_INCARNATION, smr->incarnation);
	smr_public_store(smr, SMR_PUBLIC_ROLE, smr->number << 8 | (uint64_t)smr->role);
	smr_public_store(smr, SMR_PUBLIC_APPLIED, smr_durable_floor(smr));
	smr_public_store(smr, SMR_PUBLIC_COMMIT, smr->commit);
	smr_public_store(smr, SMR_PUBLIC_DURABLE, smr->durable == NULL ? 0 : smr->durable->shown);
	smr_public_store(smr, SMR_PUBLIC_DURABLE_ROUND, smr->durable == NULL ? 0 : smr->durable->shown_number);
	smr_public_store(smr, SMR_PUBLIC_SEQUENCE, smr->durable == NULL ? 0 : smr->durable->store.promised);
	smr_public_store(smr, SMR_PUBLIC_FLAGS,
		(uint64_t)smr->tail_fill << 16 | (uint64_t)(smr->holder + 1) << 8 |
			(smr_public_ready(smr) ? SMR_FLAG_READY : 0));
}

/* ---- heartbeats ---- */

void smr_public_answered(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	const uint8_t *at = smr->look + SMR_PUBLIC_BYTES * (size_t)link->id;
	uint64_t value, number;

	link->asked_ns = 0;
	if (!smr_slot_open(get_le64(at + SMR_PUBLIC_WORDS), &value) || value != link->incarnation)
		return;
	for (unsigned i = 0; i < SMR_PUBLIC_COUNT; i++)
		if (smr_slot_open(get_le64(at + SMR_PUBLIC_WORDS + 8 * (size_t)i), &value))
			link->public[i] = value;
	link->known = true;
	if (smr_link_role(link) == HF_SMR_OUT)
		smr_mark_lost(link);
	number = link->public[SMR_PUBLIC_ROLE] >> 8;
	if (number > smr->round_seen)
		smr->round_seen = number;
	smr_durable_seen(link, at + SMR_PUBLIC_WORDS);
	if (smr->durable != NULL)
		smr_durable_note_seen(link);
	smr_elect_answered(&link->elect, get_le64(at + SMR_PUBLIC_HEARTBEAT), smr->now_ns);
}

static void look_at(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	const struct smr_post post = {.type = SMR_WR_PUBLIC,
		.local = smr->look + SMR_PUBLIC_BYTES * (size_t)link->id,
		.bytes = SMR_PUBLIC_BYTES,
		.read = true};
	bool out = false;

	if (link->asked_ns == 0)
		link->asked_ns = hf_loop_attended_ns(smr->loop);
	else if (hf_loop_attended_ns(smr->loop) - link->asked_ns > smr->config.silent_ns)
		smr_elect_silent(&link->elect);
	if (hf_peer_died(link->peer)) /* it has granted nothing that its successor must wait for (R-G5) */
		smr_elect_silent(&link->elect);
	for (uint32_t i = link->ends[SMR_BACK].head; i != link->ends[SMR_BACK].tail; i++)
		out |= link->ends[SMR_BACK].wrs[i % SMR_WRS_MAX].type != SMR_WR_DURABLE;
	if (link->ends[SMR_BACK].vqp != NULL && hf_vqp_state(link->ends[SMR_BACK].vqp) != HF_VQP_INIT && !out)
		(void)smr_post(link, SMR_BACK, &post);
}

static bool is_over(const struct hf_smr *smr, uint64_t since_ns)
{
	return since_ns != 0 && smr->now_ns - since_ns > smr->config.stuck_ns;
}

static bool is_every_other(const struct hf_smr *smr, uint64_t since_ns, uint64_t period_ns)
{
	return since_ns != 0 && (smr->now_ns - since_ns) / period_ns % 2 == 1;
}

/* It tries to lead and does not come to it, nor does another one: every other time it leaves that to the others. Cut
 * off towards them only, or with a configuration in its log whose majority is gone, it would be preferred for ever. */
static bool stands_back(const struct hf_smr *smr)
{
	uint64_t period_ns = smr->config.stuck_ns < VAIN_NS ? VAIN_NS : smr->config.stuck_ns;

	return smr->role != HF_SMR_LEADER && smr->phase <= SMR_PHASE_ASK &&
	       is_every_other(smr, smr->acquiring_ns, period_ns);
}

/* What was proposed, or the proof that this member leads, is out for too long, or what waits has no room for as long,
 * because the own disk hangs: its heartbeat is withheld (R-S19). So it is, every other time, while a member tries to
 * lead. */
static bool is_stuck(const struct hf_smr *smr)
{
	if (smr->role != HF_SMR_LEADER)
		return stands_back(smr) ||
		       (smr->role == HF_SMR_ACQUIRING && is_every_other(smr, smr->acquiring_ns, smr->config.stuck_ns));
	return is_over(smr, smr->undecided_ns) || is_over(smr, smr->stall.since_ns);
}

/* Leadership is handed on: this member leads until another one has a majority, and does not prefer itself again. */
static bool yields(const struct hf_smr *smr)
{
	return smr->yields_ns != 0 && smr->now_ns - smr->yields_ns < YIELDING_NS;
}

void smr_public_yield(struct hf_smr *smr)
{
	if (!yields(smr))
		smr->yields_ns = smr->now_ns;
}

void smr_public_beat(struct hf_smr *smr)
{
	_Atomic uint64_t *at = (_Atomic uint64_t *)(void *)(smr->back + SMR_PUBLIC_HEARTBEAT);

	if (!is_stuck(smr) && !smr->unwell && !yields(smr))
		publish(at, htole64(le64toh(observe(at)) + 1));
}

/* ---- the choice ---- */

/* The holder of our log wrote a promise there, so a majority has granted it theirs. */
static bool has_promised(const struct hf_smr *smr)
{
	uint64_t number;

	return smr_grant_promise(smr, &number) && number > smr->promised;
}

/* A member that was granted our log is preferred to a lower id that came up meanwhile: for a while, and with a majority
 * until it leads or is stuck, since what it has to recover may be long (R-S17). */
static bool is_becoming(const struct smr_link *link)
{
	const struct hf_smr *smr = link->smr;

	return smr->holder == link->id && link->grant_holds && smr_link_role(link) == HF_SMR_ACQUIRING &&
	       (smr->now_ns - smr->holder_ns < BECOMING_PULSES * smr->config.pulse_ns || has_promised(smr));
}

/* A cluster that was founded just now: the lowest id is there, though its score is not high enough yet. Once a leader
 * was seen, a member waits for the founder no more. */
static bool awaits_founder(const struct hf_smr *smr)
{
	return smr->began_ns != 0 &&
	       smr->now_ns - smr->began_ns < FOUNDING_NS + BECOMING_PULSES * smr->config.pulse_ns &&
	       smr->members.at[0].is.id != smr->id && smr->role != HF_SMR_LEADER;
}

static int choose(struct hf_smr *smr)
{
	struct smr_elect_candidate candidates[HF_SMR_MEMBERS_MAX];
	unsigned n = 0;

	if (smr->role == HF_SMR_BLANK || smr->role == HF_SMR_OUT)
		return SMR_NOBODY;
	if (smr_public_ready(smr) && !awaits_founder(smr))
		candidates[n++] = (struct smr_elect_candidate){.id = smr->id,
			.alive = !smr->unwell && (smr->role == HF_SMR_LEADER || !(yields(smr) || stands_back(smr))),
			.ready = smr_public_ready(smr),
			.leading = smr->role == HF_SMR_LEADER,
			.number = smr->number};
	smr_for_links (link, smr)
		if (smr_is_known(link) && link->known)
			candidates[n++] = (struct smr_elect_candidate){.id = link->id,
				.alive = link->elect.alive,
				.ready = (link->public[SMR_PUBLIC_FLAGS] & SMR_FLAG_READY) != 0,
				.leading = smr_link_role(link) == HF_SMR_LEADER || is_becoming(link),
				.number = link->public[SMR_PUBLIC_ROLE] >> 8};
	return smr_elect_choose(candidates, n);
}

/* To another member, which has its first turn: when that stands back, this one begins at once. */
static bool leaves_it(const struct hf_smr *smr)
{
	return smr->choice != SMR_NOBODY && smr->choice != smr->id && !stands_back(smr);
}

static void tell_leader(struct hf_smr *smr)
{
	int leader = hf_smr_leader(smr);
	uint64_t number = leader < 0 || leader == smr->id ? 0 : smr->links[leader].public[SMR_PUBLIC_ROLE] >> 8;

	if (leader == smr->id || (leader == smr->leader_told && number == smr->number_told))
		return;
	smr->leader_told = leader;
	smr->number_told = number;
	if (leader != SMR_NOBODY)
		smr->yields_ns = 0;
	smr_event(smr, HF_SMR_FOLLOWING);
}

/* For the record of this change: when the former leader was last seen alive. */
static void note_detection(struct hf_smr *smr, int before)
{
	if (before < 0 || before == smr->id || smr->choice != smr->id)
		return;
	smr->failed_seen_ns = smr->links[before].elect.seen_ns;
	smr->detected_ns = smr->now_ns;
}

void smr_public_pulse(struct hf_smr *smr)
{
	int before = smr->choice;

	smr_for_links (link, smr)
		look_at(link);
	smr->choice = choose(smr);
	if (smr->choice != before)
		note_detection(smr, before);
	smr_public_role(smr);
	if (hf_smr_leader(smr) != SMR_NOBODY)
		smr->began_ns = 0;
	if (hf_smr_leader(smr) != SMR_NOBODY || leaves_it(smr))
		smr->acquiring_ns = 0;
	tell_leader(smr);
	smr_for_links (link, smr)
		if (link->stage == SMR_STAGE_ASKED)
			link->asked = false; /* it is repeated */
}
