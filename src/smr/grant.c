/* The own log and the member that may write it (Mu, section 5.2). One at a time:
 *
 *   NONE --request of our choice, or our own acquisition--> REVOKE --holder is off everywhere--> GIVE --on--> NONE, ack
 *
 * A request is granted once (R-S3): found again in its mailbox, it is answered with `granted` while it holds, else with
 * `over`. What the former holder's WRITEs executed is visible when REVOKE ends (D5). */
#include "smr/steps.h"

#include <errno.h>

#include "base/log.h"
#include "base/order.h"

#define READS  IBV_ACCESS_REMOTE_READ
#define WRITES (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* ---- one change of the holder ---- */

static void changed(struct hf_vqp *vqp, void *context)
{
	struct hf_smr *smr = context;

	(void)vqp;
	smr->giving_done = true;
}

static void set_access(struct hf_smr *smr, struct hf_vqp *vqp, int access)
{
	smr->giving_done = vqp == NULL || hf_vqp_set_access(vqp, access, changed, smr) != -EINPROGRESS;
}

static void begin(struct hf_smr *smr, int to, uint32_t request)
{
	struct smr_link *from = smr->holder < 0 || smr->holder == smr->id ? NULL : &smr->links[smr->holder];

	smr->giving = SMR_GIVING_REVOKE;
	smr->giving_to = to;
	smr->giving_request = request;
	if (from != NULL)
		from->grant_holds = false;
	set_access(smr, from == NULL ? NULL : from->ends[SMR_IN].vqp, READS);
}

void smr_grant_take(struct hf_smr *smr)
{
	if (smr->giving == SMR_GIVING_NONE && smr->holder != smr->id)
		begin(smr, smr->id, 0);
}

/* A vqp that is gone grants nothing. */
void smr_grant_destroyed(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;

	if (smr->giving == SMR_GIVING_REVOKE && smr->holder == link->id)
		smr->giving_done = true;
	if (smr->giving == SMR_GIVING_GIVE && smr->giving_to == link->id)
		smr->giving = SMR_GIVING_NONE;
	link->grant_holds = false;
}

/* Slots of entries that a snapshot covers may be empty here: the member that is granted this log learns that they are
 * decided, and looks for them elsewhere. */
static void tell_commit(struct hf_smr *smr)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(smr->log + SMR_LOG_COMMIT);
	uint64_t told;

	if (!smr_slot_open(le64toh(observe(word)), &told) || told < smr->commit)
		publish(word, htole64(smr_slot_seal(smr->commit)));
}

/* What was accepted here before a snapshot that covers it may have lost to another value: the commit that is told now
 * would make it a decided one. Between two holders no other member writes here. */
static void forget_covered(struct hf_smr *smr)
{
	if (smr->forgot == smr->oldest)
		return;
	for (uint64_t place = 0; place < smr->geometry.slots; place++) {
		uint8_t *slot = smr_slot_at(smr, place);

		if (get_le64(slot + SMR_SLOT_INDEX) < smr->oldest && get_le64(slot + SMR_SLOT_ACCEPT) != 0)
			publish((_Atomic uint64_t *)(void *)(slot + SMR_SLOT_ACCEPT), 0);
	}
	smr->forgot = smr->oldest;
}

/* A WRITE of this member that is still out may be continued, and would read slots of the next holder (R-S14). */
static bool end_reading(struct hf_smr *smr)
{
	bool any = false;

	smr_for_links (link, smr)
		any |= smr_post_end_reading(link);
	return any;
}

bool smr_grant_promise(const struct hf_smr *smr, uint64_t *number_out)
{
	const _Atomic uint64_t *word = (const _Atomic uint64_t *)(const void *)(smr->log + SMR_LOG_PROMISE);

	return smr_slot_open(le64toh(observe(word)), number_out);
}

/* The holder before may have been cut off within its WRITE of eight bytes: no member has counted that promise, and
 * those before it hold (R-S4). */
static void keep_promise(struct hf_smr *smr)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(smr->log + SMR_LOG_PROMISE);
	uint64_t number;

	if (smr_grant_promise(smr, &number))
		smr->promised = number;
	else
		publish(word, htole64(smr_slot_seal(smr->promised)));
}

static uint32_t request_of(const struct smr_link *link)
{
	const _Atomic uint64_t *at =
		(const _Atomic uint64_t *)(const void *)(link->smr->back + SMR_MAILBOX((size_t)link->id));
	uint64_t value;

	return smr_slot_open(le64toh(observe(at)), &value) ? (uint32_t)value : 0;
}

/* A learner grants too; what has no state, or takes a snapshot, does not (R-S22). */
static bool has_state(const struct hf_smr *smr)
{
	return smr->role == HF_SMR_FOLLOWER || smr->role == HF_SMR_ACQUIRING || smr->role == HF_SMR_LEADER;
}

/* Not to a process that took the place of the one that asked (R-S25), nor if this member lost its state meanwhile. */
static void give(struct hf_smr *smr)
{
	struct smr_link *to = &smr->links[smr->giving_to];

	smr->giving = SMR_GIVING_NONE;
	if (request_of(to) != smr->giving_request || !has_state(smr)) {
		smr->holder = SMR_NOBODY;
		return;
	}
	to->granted = smr->giving_request;
	if (to->ends[SMR_IN].vqp == NULL)
		return;
	smr->giving = SMR_GIVING_GIVE;
	set_access(smr, to->ends[SMR_IN].vqp, WRITES);
}

static bool step(struct hf_smr *smr)
{
	struct smr_link *to = &smr->links[smr->giving_to];

	if (smr->giving == SMR_GIVING_NONE || !smr->giving_done)
		return false;
	if (smr->giving == SMR_GIVING_REVOKE) {
		if (smr->giving_to != smr->id && end_reading(smr))
			return false;
		smr->holder = smr->giving_to;
		smr_follow_reset(smr);
		keep_promise(smr);
		forget_covered(smr);
		tell_commit(smr);
		if (smr->giving_to == smr->id)
			smr->giving = SMR_GIVING_NONE;
		else
			give(smr);
		return true;
	}
	smr->giving = SMR_GIVING_NONE;
	to->grant_holds = true;
	smr->holder_ns = smr->now_ns;
	smr->granted++;
	return true;
}

/* ---- requests ---- */

static bool is_older(uint32_t request, uint32_t than)
{
	return ((request - than) & 0xffffff) > 0x7fffff;
}

static enum smr_verdict judge(const struct smr_link *link, uint32_t request)
{
	const struct hf_smr *smr = link->smr;

	if (smr->giving != SMR_GIVING_NONE && smr->giving_to == link->id)
		return SMR_VERDICT_NONE; /* about to be */
	if (link->granted != 0 && request == link->granted)
		return link->grant_holds ? SMR_VERDICT_GRANTED : SMR_VERDICT_OVER;
	if (link->granted != 0 && is_older(request, link->granted))
		return SMR_VERDICT_OVER;
	if (!smr_is_known(link))
		return SMR_VERDICT_STRANGER;
	if (smr->choice != link->id || !has_state(smr) || smr->giving != SMR_GIVING_NONE ||
		link->ends[SMR_IN].vqp == NULL || hf_vqp_state(link->ends[SMR_IN].vqp) != HF_VQP_UP)
		return SMR_VERDICT_LATER;
	return SMR_VERDICT_GIVE;
}

static bool tell(struct smr_link *link, uint32_t request, enum smr_verdict verdict)
{
	uint64_t grant = verdict == SMR_VERDICT_GRANTED ? hf_vqp_grant(link->ends[SMR_IN].vqp) & 0xffff : 0;
	uint64_t word = htole64(smr_slot_seal((uint64_t)request << 24 | grant << 8 | verdict));
	const struct smr_post post = {.type = SMR_WR_ACK,
		.local = &word,
		.bytes = sizeof(word),
		.at = SMR_MAILBOX((uint64_t)link->smr->id) + 8};

	if (verdict == SMR_VERDICT_NONE || (request == link->told_request && verdict == link->told_verdict))
		return false;
	if (!smr_post(link, SMR_BACK, &post))
		return false;
	link->told_request = request;
	link->told_verdict = (uint8_t)verdict;
	return true;
}

static bool consider(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	uint32_t request = request_of(link);
	enum smr_verdict verdict;

	if (request == 0)
		return false;
	verdict = judge(link, request);
	if (verdict != SMR_VERDICT_GIVE)
		return tell(link, request, verdict);
	if (smr->phase != SMR_PHASE_NONE)
		smr_mark_abort(smr, "another member is to lead"); /* its turn comes behind that */
	else
		begin(smr, link->id, request);
	return true;
}

/* At each pulse. Where access is given by an exchange, a candidate that dies meanwhile does not hold the log up. */
void smr_grant_pulse(struct hf_smr *smr)
{
	if (smr->giving == SMR_GIVING_GIVE && !smr->links[smr->giving_to].elect.alive)
		smr->links[smr->giving_to].ends[SMR_IN].stale = true;
}

bool smr_grant_turn(struct hf_smr *smr)
{
	bool busy = false;

	smr_for_links (link, smr)
		busy |= consider(link);
	while (step(smr))
		busy = true;
	return busy || (smr->giving != SMR_GIVING_NONE && smr->giving_done);
}
