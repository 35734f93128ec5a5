/* Becoming the leader (Mu, sections 4.1 and 5.2): phases of this member, stages of each other one.
 *
 *   NONE --our choice is us--> TAKE --own log is ours--> ASK --majority granted and read--> PROMISE --majority has it
 *   --> CATCH_UP --decided entries are here--> RECOVER --undecided ones are--> NOOP --one of ours is decided--> LEAD
 *
 * A member that grants later goes through the same stages and is taken in while this one leads. Losing the majority at
 * any time begins anew, with another number (R-S5). */
#include "smr/steps.h"

#include "base/log.h"
#include "base/order.h"
#include "smr/durable.h"

#define GRACE_NS 50000u /* for members that have not granted yet, once a majority has */

/* ---- asking ---- */

void smr_acquire_ask(struct smr_link *link, bool again)
{
	struct hf_smr *smr = link->smr;

	if (again || link->stage == SMR_STAGE_NONE) {
		smr->requests = (smr->requests + 1) & 0xffffff;
		if (smr->requests == 0)
			smr->requests = 1;
		link->request = smr->requests;
	}
	link->stage = SMR_STAGE_ASKED;
	link->asked = false;
}

static void write_request(struct smr_link *link)
{
	uint64_t word = htole64(smr_slot_seal(link->request));
	const struct smr_post post = {
		.type = SMR_WR_ASK, .local = &word, .bytes = sizeof(word), .at = SMR_MAILBOX((uint64_t)link->smr->id)};

	if (link->ends[SMR_BACK].vqp != NULL && hf_vqp_state(link->ends[SMR_BACK].vqp) == HF_VQP_UP &&
		link->ends[SMR_BACK].tail - link->ends[SMR_BACK].head < SMR_WRS_MAX / 2)
		link->asked = smr_post(link, SMR_BACK, &post);
}

void smr_acquire_acked(struct smr_link *link)
{
	const _Atomic uint64_t *at =
		(const _Atomic uint64_t *)(const void *)(link->smr->back + SMR_MAILBOX((size_t)link->id) + 8);
	uint64_t value;

	if (!smr_slot_open(le64toh(observe(at)), &value) || value >> 24 != link->request)
		return;
	if ((value & 0xff) == SMR_VERDICT_OVER)
		smr_acquire_ask(link, true);
	if ((value & 0xff) != SMR_VERDICT_GRANTED)
		return;
	link->grant = value >> 8 & 0xffff;
	link->stage = SMR_STAGE_GRANTED;
}

/* The ack may overtake what the vqp is told of its grant: only that one is armed (R-S3). */
static void arm(struct smr_link *link)
{
	struct hf_vqp *vqp = link->ends[SMR_OUT].vqp;
	uint32_t told;
	const struct smr_post post = {
		.type = SMR_WR_HEAD, .local = link->scratch, .bytes = 16, .at = SMR_LOG_PROMISE, .read = true};

	if (vqp == NULL || hf_vqp_state(vqp) != HF_VQP_UP)
		return;
	told = hf_vqp_remote_grant(vqp) & 0xffff;
	if (told != link->grant) {
		if (((told - link->grant) & 0xffff) < 0x8000)
			smr_acquire_ask(link, true);
		return;
	}
	if (hf_vqp_rearm(vqp) == 0 && smr_post(link, SMR_OUT, &post))
		link->stage = SMR_STAGE_HEAD;
}

static void promise(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	uint64_t word = htole64(smr_slot_seal(smr->number));
	const struct smr_post post = {
		.type = SMR_WR_PROMISE, .local = &word, .bytes = sizeof(word), .at = SMR_LOG_PROMISE};

	if (link->promise > smr->number) {
		smr_mark_abort(smr, "a member has promised a higher number");
		return;
	}
	if (smr_post(link, SMR_OUT, &post))
		link->stage = SMR_STAGE_PROMISING;
}

/* At each pulse. A log may be taken away while no wr is out that would fail, as while disks are awaited. */
void smr_acquire_pulse(struct hf_smr *smr)
{
	smr_for_links (link, smr)
		if (link->stage >= SMR_STAGE_HEAD && link->ends[SMR_OUT].vqp != NULL &&
			!hf_vqp_armed(link->ends[SMR_OUT].vqp))
			smr_mark_lost(link);
}

static bool step_link(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	enum smr_stage before = link->stage;

	/* An ack says nothing of a vqp that was made after it: nothing is asked before ours is connected. */
	if (link->stage == SMR_STAGE_NONE && (smr_is_known(link) || link->learner) && link->ends[SMR_OUT].vqp != NULL &&
		hf_vqp_state(link->ends[SMR_OUT].vqp) == HF_VQP_UP)
		smr_acquire_ask(link, false);
	if (link->stage == SMR_STAGE_ASKED) {
		if (!link->asked)
			write_request(link);
		smr_acquire_acked(link);
	}
	if (link->stage == SMR_STAGE_GRANTED)
		arm(link);
	if (link->stage == SMR_STAGE_READ && smr->phase >= SMR_PHASE_PROMISE)
		promise(link);
	if (link->stage == SMR_STAGE_PROMISED && smr->phase >= SMR_PHASE_NOOP)
		smr_take_in_begin(link);
	if (link->stage == SMR_STAGE_BEHIND && smr_link_role(link) == HF_SMR_FOLLOWER &&
		smr_link_commit(link) >= smr_take_in_oldest(smr))
		smr_take_in_begin(link);
	if (link->stage == SMR_STAGE_TAKING)
		return smr_take_in_turn(link) || link->stage != before;
	return link->stage != before;
}

/* ---- phases ---- */

static void begin(struct hf_smr *smr)
{
	smr_phase_move(smr, SMR_PHASE_TAKE);
	smr->role = HF_SMR_ACQUIRING;
	smr->majority_ns = 0;
	if (smr->acquiring_ns == 0)
		smr->acquiring_ns = smr->now_ns;
	if (smr->detected_ns == 0)
		smr->detected_ns = smr->failed_seen_ns = smr->now_ns;
	smr_public_role(smr);
}

static bool all_are_read(const struct hf_smr *smr)
{
	smr_for_links (link, smr)
		if (smr_is_known(link) && link->elect.alive && link->stage < SMR_STAGE_READ)
			return false;
	return true;
}

static void choose_number(struct hf_smr *smr)
{
	uint64_t most = smr->promise, own;

	if (smr_slot_open(get_le64(smr->log + SMR_LOG_PROMISE), &own) && own > most) /* what others had promised here */
		most = own;
	if (smr->round_seen > most)
		most = smr->round_seen;
	if (smr->number > most)
		most = smr->number;
	smr_for_links (link, smr)
		if (link->stage >= SMR_STAGE_READ && link->promise > most)
			most = link->promise;
	smr->number = ((most >> 8) + 1) << 8 | smr->id;
	smr->promise = smr->number;
	put_le64(smr->log + SMR_LOG_PROMISE, smr_slot_seal(smr->number));
	smr_public_role(smr);
}

static void step_ask(struct hf_smr *smr)
{
	if (!smr_phase_majority(smr, smr_phase_set(smr, SMR_STAGE_READ))) {
		smr->majority_ns = 0; /* of one that was lost, others may have granted since */
		return;
	}
	if (smr->majority_ns == 0) {
		smr->majority_ns = smr->now_ns;
		smr->granted_boot_ns = hf_env_boot_ns(hf_loop_env(smr->loop));
	}
	if (!all_are_read(smr) && smr->now_ns - smr->majority_ns < GRACE_NS)
		return;
	smr->granted_ns = smr->now_ns;
	choose_number(smr);
	smr_phase_move(smr, SMR_PHASE_PROMISE);
}

/* Whose promise is durable, where that is asked for (R-S24). */
static uint32_t promised(const struct hf_smr *smr)
{
	uint32_t set = smr_phase_set(smr, SMR_STAGE_PROMISED);

	if (!smr_durable_own_promised(smr))
		set &= ~(1u << smr->id);
	smr_for_links (link, smr)
		if (!smr_durable_promised(link))
			set &= ~(1u << link->id);
	return set;
}

static void note_failover(struct hf_smr *smr)
{
	struct hf_smr_failover *list = smr->failovers;

	for (unsigned i = HF_SMR_FAILOVERS - 1; i > 0; i--)
		list[i] = list[i - 1];
	list[0] = (struct hf_smr_failover){.number = smr->number,
		.detected_ns = smr->detected_ns - smr->failed_seen_ns,
		.granted_ns = smr->granted_ns - smr->detected_ns,
		.leading_ns = smr->now_ns - smr->granted_ns};
	if (smr->failover_count < HF_SMR_FAILOVERS)
		smr->failover_count++;
	smr->detected_ns = 0;
}

static void lead(struct hf_smr *smr)
{
	smr_phase_move(smr, SMR_PHASE_LEAD);
	smr->role = HF_SMR_LEADER;
	smr->leader_told = smr->id;
	smr->number_told = smr->number;
	smr->undecided_ns = smr->acquiring_ns = 0;
	note_failover(smr);
	smr_public_role(smr);
	log_info("smr %s: member %u leads, number %llu, from entry %llu on", smr->name, smr->id,
		(unsigned long long)smr->number, (unsigned long long)smr->tail);
	smr_event(smr, HF_SMR_LEADING);
}

static void step_phase(struct hf_smr *smr)
{
	switch (smr->phase) {
	case SMR_PHASE_NONE:
		begin(smr);
		break;
	case SMR_PHASE_TAKE:
		smr_grant_take(smr);
		if (smr->holder == smr->id && smr->giving == SMR_GIVING_NONE)
			smr_phase_move(smr, SMR_PHASE_ASK);
		break;
	case SMR_PHASE_ASK:
		step_ask(smr);
		break;
	case SMR_PHASE_PROMISE:
		if (smr_phase_majority(smr, promised(smr)))
			smr_catch_up_begin(smr);
		break;
	case SMR_PHASE_CATCH_UP:
		smr_catch_up_turn(smr);
		break;
	case SMR_PHASE_RECOVER:
		smr_recover_turn(smr);
		break;
	case SMR_PHASE_NOOP:
		if (smr->tail == smr->noop_index) /* what was found fills the window until it is decided */
			(void)smr_accept_append(smr, SMR_NOOP, 0, NULL, 0);
		smr_accept_decide(smr);
		if (smr->commit > smr->noop_index && smr->applied > smr->noop_index)
			lead(smr);
		break;
	case SMR_PHASE_LEAD:
	case SMR_PHASES:
		break;
	}
}

bool smr_acquire_turn(struct hf_smr *smr)
{
	enum smr_phase before;
	bool busy = false;

	if (smr->choice != smr->id || !smr_public_ready(smr)) {
		smr_mark_abort(smr, "another member is to lead");
		return false;
	}
	do {
		before = smr->phase;
		step_phase(smr);
		busy |= smr->phase != before;
		if (smr->phase >= SMR_PHASE_ASK)
			smr_for_links (link, smr)
				if (smr->phase >= SMR_PHASE_ASK)
					busy |= step_link(link);
	} while (smr->phase > before && smr->abort_why == NULL && !smr->behind);
	return busy;
}
