/* Proposals into the log (Mu, section 4.2): an entry is stored in the own log and posted to each confirmed member with
 * one WRITE. It is decided when a majority has it and everything below. */
#include "smr/steps.h"

#include <string.h>

#include "base/ensure.h"
#include "smr/durable.h"

#define REQUEST_HEADER 16u /* u64 session, u32 sequence, u32 bytes */
#define WRS_KEPT       4u
#define WRITE_MOST     (1u << 30) /* bytes; a NIC takes no more */

static uint32_t payload_max(const struct hf_smr *smr)
{
	return smr->geometry.slot_bytes - SMR_SLOT_HEADER;
}

uint32_t hf_smr_request_bytes_max(const struct hf_smr *smr)
{
	return smr->geometry.span * payload_max(smr) - REQUEST_HEADER - 8;
}

uint64_t smr_accept_room(const struct hf_smr *smr)
{
	uint64_t out = smr->tail - smr->commit, ring = smr->tail - smr_recycle_floor(smr);
	uint64_t window = out < smr->geometry.span ? smr->geometry.span - out : 0;
	uint64_t free = ring < smr->geometry.slots ? smr->geometry.slots - ring : 0;

	return window < free ? window : free;
}

/* Slots of our ring, as they are; they do not cross its end. */
bool smr_accept_post(struct smr_link *link, uint64_t from, uint64_t end)
{
	struct hf_smr *smr = link->smr;
	const uint8_t *at = smr_slot_at(smr, from), *last = smr_slot_at(smr, end - 1);
	struct smr_slot slot = {.bytes = get_le32(last + 16)};
	const struct smr_post post = {.type = SMR_WR_SLOTS,
		.local = at,
		.bytes = (uint32_t)(last - at) + smr_slot_bytes(&slot),
		.at = (uint64_t)(at - smr->log),
		.arg = end,
		.reads = from};

	if (!smr_post(link, SMR_OUT, &post))
		return false;
	link->sent = end;
	return true;
}

static bool pump(struct smr_link *link)
{
	struct hf_smr *smr = link->smr;
	uint64_t before = link->sent;

	while (link->stage == SMR_STAGE_CONFIRMED && link->sent < smr->tail && smr_post_room(link) > WRS_KEPT) {
		uint64_t end = (link->sent | (smr->geometry.slots - 1)) + 1; /* of the lap */

		if (end > smr->tail)
			end = smr->tail;
		if (end > link->sent + WRITE_MOST / smr->geometry.slot_bytes)
			end = link->sent + WRITE_MOST / smr->geometry.slot_bytes;
		if (!smr_accept_post(link, link->sent, end))
			break;
	}
	return link->sent != before;
}

bool smr_accept_append(struct hf_smr *smr, enum smr_kind kind, uint16_t requests, const void *data, uint32_t bytes)
{
	uint32_t most = payload_max(smr), slots = bytes == 0 ? 1 : (bytes + most - 1) / most;
	const uint8_t *at = data;

	if (slots > smr_accept_room(smr))
		return false;
	ensure(smr->holder == smr->id); /* R-S2 */
	for (uint32_t i = 0; i < slots; i++) {
		struct smr_slot slot = {.index = smr->tail + i,
			.origin = smr_slot_origin(smr->number) + i,
			.commit = smr->commit,
			.bytes = bytes < most ? bytes : most,
			.kind = (uint16_t)(kind | (i == 0 ? SMR_FIRST : 0) | (i + 1 == slots ? SMR_LAST : 0)),
			.requests = requests};

		(void)smr_slot_store(&smr->geometry, smr_slot_at(smr, slot.index), &slot, smr->number, at);
		at += slot.bytes;
		bytes -= slot.bytes;
	}
	if (smr->undecided_ns == 0)
		smr->undecided_ns = smr->now_ns;
	smr->tail += slots;
	smr->commit_told = smr->commit;
	smr_for_links (link, smr)
		(void)pump(link);
	return true;
}

/* ---- deciding ---- */

/* All below is there, and in durable mode on its disk. */
static uint64_t accepted_end(const struct smr_link *link)
{
	uint64_t durable = smr_durable_end(link);

	if (link->stage < SMR_STAGE_TAKING || !smr_is_known(link))
		return 0;
	return link->acked < durable ? link->acked : durable;
}

static uint32_t accepted_by(const struct hf_smr *smr, uint64_t end)
{
	uint32_t set = smr_durable_own_end(smr) >= end ? 1u << smr->id : 0;

	smr_for_links (link, smr)
		if (accepted_end(link) >= end)
			set |= 1u << link->id;
	return set;
}

void smr_accept_decide(struct hf_smr *smr)
{
	uint64_t best = smr->commit, own = smr_durable_own_end(smr);

	if (smr_phase_majority(smr, accepted_by(smr, smr->tail)))
		best = smr->tail;
	else
		smr_for_links (link, smr)
			if (accepted_end(link) > best && smr_phase_majority(smr, accepted_by(smr, accepted_end(link))))
				best = accepted_end(link);
	if (own < smr->tail && own > best && smr_phase_majority(smr, accepted_by(smr, own)))
		best = own;
	if (best == smr->commit)
		return;
	smr->undecided_ns = best == smr->tail ? 0 : smr->now_ns;
	smr_follow_commit(smr, best);
	put_le64(smr->log + SMR_LOG_COMMIT, smr_slot_seal(best));
	(void)smr_follow_apply(smr);
}

/* ---- entries of what waits ---- */

static uint32_t put_request(uint8_t *at, const struct hf_smr_call *call)
{
	uint32_t padded = (call->bytes + 7) & ~7u;

	put_le64(at, call->session);
	put_le32(at + 8, call->sequence);
	put_le32(at + 12, call->bytes);
	if (call->bytes > 0)
		memcpy(at + REQUEST_HEADER, call->data, call->bytes);
	memset(at + REQUEST_HEADER + call->bytes, 0, padded - call->bytes);
	return REQUEST_HEADER + padded;
}

static unsigned entries_out(const struct hf_smr *smr)
{
	uint64_t last = 0;
	unsigned n = 0;

	for (const struct hf_smr_call *call = smr->logged; call != NULL && n <= smr->config.window; call = call->next) {
		n += call->wait != last && call->wait >= smr->commit;
		last = call->wait;
	}
	return n;
}

/* As many of the first calls as an entry takes. */
static uint32_t gather(struct hf_smr *smr, uint64_t room, unsigned *calls_out)
{
	uint32_t bytes = 0, most = (uint32_t)room * payload_max(smr);
	const struct hf_smr_call *call = smr->waiting;
	unsigned n = 0;

	for (; call != NULL && n < HF_SMR_BATCH_MAX; call = call->next, n++) {
		if (bytes + REQUEST_HEADER + ((call->bytes + 7) & ~7u) > most)
			break;
		bytes += put_request(smr->batch + bytes, call);
	}
	*calls_out = n;
	return bytes;
}

static bool log_calls(struct hf_smr *smr)
{
	uint64_t room = smr_accept_room(smr);
	unsigned calls;
	uint32_t bytes;

	if (room == 0 || smr->changing || (smr->paced && smr->pace_bytes <= 0) ||
		entries_out(smr) >= smr->config.window)
		return false;
	bytes = gather(smr, room, &calls);
	if (calls == 0 || !smr_accept_append(smr, SMR_REQUESTS, (uint16_t)calls, smr->batch, bytes))
		return false;
	smr->pace_bytes -= bytes;
	for (; calls > 0; calls--) {
		struct hf_smr_call *call = smr->waiting;

		smr->waiting = call->next;
		if (smr->waiting == NULL)
			smr->waiting_end = &smr->waiting;
		call->next = NULL;
		call->wait = smr->tail - 1;
		*smr->logged_end = call;
		smr->logged_end = &call->next;
	}
	return true;
}

/* Nothing to propose: what was decided is told by itself (Mu piggybacks it on the next entry, which may never come). */
static void tell_commit(struct hf_smr *smr)
{
	if (smr->commit_told >= smr->commit)
		return;
	smr->commit_told = smr->commit;
	smr_for_links (link, smr)
		(void)smr_read_post(link);
}

bool smr_accept_turn(struct hf_smr *smr)
{
	uint64_t commit = smr->commit;
	bool busy = false;

	if (smr->phase < SMR_PHASE_NOOP)
		return false;
	smr_for_links (link, smr)
		busy |= pump(link);
	smr_accept_decide(smr);
	if (smr->role != HF_SMR_LEADER)
		return busy;
	while (smr->waiting != NULL && log_calls(smr))
		busy = true;
	if (!busy)
		tell_commit(smr);
	return busy || smr->commit != commit;
}
