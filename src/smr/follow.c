/* Following the log (Mu, section 4.2): finding out what is decided, and applying it in order.
 *
 * Commit is told, never inferred (R-S9): by the commit word, or by the field of a valid entry that was reached without
 * a gap. A slot is copied, checked, then used (R-S27). */
#include "smr/durable.h"
#include "smr/steps.h"

#include <string.h>

#include "base/log.h"
#include "base/order.h"

#define SLOTS_A_TURN   256u
#define REQUEST_HEADER 16u

void smr_follow_reset(struct hf_smr *smr)
{
	smr->reach = 0;
}

void smr_follow_commit(struct hf_smr *smr, uint64_t commit)
{
	if (commit > smr->commit)
		smr->commit = commit;
}

static void discover(struct hf_smr *smr)
{
	const _Atomic uint64_t *word = (const _Atomic uint64_t *)(const void *)(smr->log + SMR_LOG_COMMIT);
	struct smr_slot slot;
	uint64_t value;

	if (smr_slot_open(le64toh(observe(word)), &value))
		smr_follow_commit(smr, value);
	if (smr->reach < smr->commit)
		smr->reach = smr->commit;
	while (smr->reach - smr->commit < smr->geometry.span &&
		smr_own_slot(smr, smr->reach, &slot) == SMR_SLOT_VALID) {
		smr_follow_commit(smr, slot.commit);
		smr->reach++;
	}
}

/* ---- applying ---- */

static void apply_request(struct hf_smr *smr, const struct hf_smr_applied *request)
{
	const void *result = smr->result;
	uint32_t bytes = 0;
	enum smr_sessions_verdict verdict = SMR_SESSIONS_NEW;

	if (request->session != 0 && request->sequence == 0) {
		smr_sessions_close(smr->sessions, request->session);
		smr_calls_applied(smr, request, result, 0, HF_SMR_DECIDED);
		return;
	}
	if (request->session == 0 && request->sequence == 1) {
		put_le64(smr->result, request->index << 8 | request->position);
		smr_sessions_open(smr->sessions, request->index << 8 | request->position);
		smr_calls_applied(smr, request, result, 8, HF_SMR_DECIDED);
		return;
	}
	if (request->session != 0)
		verdict = smr_sessions_check(smr->sessions, request->session, request->sequence, &result, &bytes);
	if (verdict == SMR_SESSIONS_NEW) {
		bytes = smr->app.apply(smr->context, request, smr->result);
		if (bytes > HF_SMR_RESULT_BYTES)
			bytes = HF_SMR_RESULT_BYTES;
		if (request->session != 0)
			smr_sessions_keep(smr->sessions, request->session, request->sequence, smr->result, bytes);
	}
	smr_calls_applied(
		smr, request, result, bytes, verdict == SMR_SESSIONS_OVER ? HF_SMR_SESSION_OVER : HF_SMR_DECIDED);
}

/* Whole requests; what a peer wrote beside them is not looked at. */
static void apply_entry(struct hf_smr *smr, uint64_t index)
{
	const uint8_t *at = smr->entry, *stop = at + smr->begun.bytes;

	for (uint32_t i = 0; i < smr->begun.requests && (size_t)(stop - at) >= REQUEST_HEADER; i++) {
		struct hf_smr_applied request = {.index = index,
			.position = i,
			.data = at + REQUEST_HEADER,
			.bytes = get_le32(at + 12),
			.session = get_le64(at),
			.sequence = get_le32(at + 8)};
		size_t padded = ((size_t)request.bytes + 7) & ~(size_t)7;

		if ((size_t)(stop - at) - REQUEST_HEADER < padded)
			return;
		apply_request(smr, &request);
		at += REQUEST_HEADER + padded;
	}
}

static void add_slot(struct hf_smr *smr, const struct smr_slot *slot, const uint8_t *payload)
{
	if (!smr_entry_add(&smr->begun, smr->entry, &smr->geometry, slot, payload))
		return;
	smr->begun.first = 0;
	if ((slot->kind & SMR_KINDS_MASK) == SMR_REQUESTS)
		apply_entry(smr, slot->index);
	else if ((slot->kind & SMR_KINDS_MASK) == SMR_CONFIG)
		smr_change_applied(smr, slot->index);
}

static void apply_slot(struct hf_smr *smr, const struct smr_slot *slot, const uint8_t *at)
{
	smr->applied++;
	smr->decided++;
	smr->lacks = smr->stayed = false;
	if (smr->giving_snapshots > 0)
		smr_snapshot_applies(smr, slot, at);
	smr->applying = true;
	add_slot(smr, slot, at + SMR_SLOT_HEADER);
	smr->applying = false;
}

bool smr_follow_given(struct hf_smr *smr, const uint8_t *at)
{
	struct smr_slot slot;

	if (smr_slot_judge(&smr->geometry, at, smr->applied, &slot) != SMR_SLOT_VALID)
		return false;
	smr_follow_commit(smr, smr->applied + 1);
	apply_slot(smr, &slot, at);
	return true;
}

bool smr_follow_apply(struct hf_smr *smr)
{
	unsigned budget = SLOTS_A_TURN;
	struct smr_slot slot;
	bool any = false;

	while (smr->applied < smr->commit && budget-- > 0) {
		enum smr_slot_state state;

		memcpy(smr->copy, smr_slot_at(smr, smr->applied), smr->geometry.slot_bytes);
		state = smr_slot_judge(&smr->geometry, smr->copy, smr->applied, &slot);
		smr->behind |= state == SMR_SLOT_LATER;
		if (state != SMR_SLOT_VALID)
			break;
		any = true;
		apply_slot(smr, &slot, smr->copy);
	}
	if (any)
		smr_public_store(smr, SMR_PUBLIC_APPLIED, smr_durable_floor(smr));
	return any;
}

/* Commit is never told ahead of its slot. One that is decided and stays away was lost: as when a device died with what
 * it had acknowledged, without a report (R-S8). It is not written again, because the holder counts it as there. */
static void watch_gap(struct hf_smr *smr)
{
	if (smr->applied == smr->commit) {
		smr->gap = 0;
	} else if (smr->gap != smr->applied) {
		smr->gap = smr->applied;
		smr->gap_ns = smr->now_ns;
	} else if (smr->now_ns - smr->gap_ns > smr->config.patience_ns) {
		log_info("smr %s: member %u lacks entry %llu, which is decided: it takes a snapshot", smr->name,
			smr->id, (unsigned long long)smr->gap);
		smr->behind = true;
		smr->gap = 0;
	}
}

bool smr_follow_turn(struct hf_smr *smr)
{
	bool any;

	if (smr->role == HF_SMR_BLANK || smr->role == HF_SMR_RESTORING || smr->role == HF_SMR_OUT)
		return false;
	if (smr->phase == SMR_PHASE_NONE)
		discover(smr);
	any = smr_follow_apply(smr);
	if (smr->phase == SMR_PHASE_NONE)
		watch_gap(smr);
	return any;
}
