#include "vqp/recovery/verdict.h"

#include <string.h>

#include "base/ensure.h"
#include "dev/qp_rules.h"

enum executed { EXECUTED_NOT, EXECUTED_PARTLY, EXECUTED_FULLY, EXECUTED_MAYBE };

static bool is_about(const struct evidence *evidence, const struct request_log_wr *entry)
{
	return evidence->qp_num == entry->qp_num && evidence->rail == entry->rail;
}

/* By psn; *packets_out: how many executed for sure. */
static enum executed by_psn(const struct request_log_wr *entry, const struct evidence *evidence, uint32_t *packets_out)
{
	int32_t packets;

	*packets_out = 0;
	if (!evidence->has_psn || !is_about(evidence, entry))
		return EXECUTED_MAYBE;
	packets = psn_diff(evidence->executed_psn, entry->first_psn);
	if (packets >= (int32_t)entry->psns)
		return EXECUTED_FULLY;
	if (packets > 0)
		*packets_out = (uint32_t)packets;
	if (!evidence->fenced || (evidence->in_doubt && packets >= 0))
		return EXECUTED_MAYBE;
	return packets > 0 ? EXECUTED_PARTLY : EXECUTED_NOT;
}

/* That one is missing says that its wr did not execute: not when the NIC died, or the process that stood for it was
 * stopped, between the two. */
static bool tells_of_footers(const struct evidence *evidence)
{
	return !evidence->ended_there && !evidence->in_doubt;
}

static bool was_taken(const struct request_log_wr *entry, const struct evidence *evidence)
{
	return entry->message != 0 && entry->message <= evidence->consumed;
}

static bool is_newest_atomic(const struct request_log_wr *entry, const struct evidence *evidence)
{
	return evidence->atomic_count > 0 && is_about(evidence, entry) && qp_rules_is_atomic(entry->wr.opcode) &&
	       evidence->atomics[0].psn == entry->first_psn;
}

struct log_reading verdict_read_log(const struct request_log *log, const struct evidence *evidence)
{
	struct log_reading reading = {.doubt_end = UINT64_MAX};

	for (uint64_t at = log->head; at < log->next; at++) {
		const struct request_log_wr *entry = request_log_at(log, at);

		if (entry->done || entry->qp_num == 0)
			continue;
		reading.fences = reading.fences || (entry->wr.send_flags & IBV_SEND_FENCE) != 0;
		if (was_taken(entry, evidence))
			reading.taken_end = at + 1;
		if (is_newest_atomic(entry, evidence))
			reading.found_end = at + 1;
		if (!evidence->has_log || entry->log_entry == 0)
			continue;
		if (entry->log_entry == evidence->log_entry && entry->log_number == evidence->log_number) {
			reading.executed_end = at + 1;
			reading.doubt_end = UINT64_MAX;
		} else if (reading.doubt_end == UINT64_MAX) {
			reading.doubt_end =
				entry->footed && entry->psns == 1 && tells_of_footers(evidence) ? at : at + 1;
		}
	}
	return reading;
}

struct judge {
	const struct request_log_wr *entry;
	uint64_t position;
	const struct evidence *evidence;
	const struct log_reading *reading;
};

/* By what was posted behind it, on the same qp, and executed (D1). */
static bool is_vouched_for(const struct log_reading *reading, uint64_t position)
{
	return position < reading->executed_end || position < reading->taken_end || position < reading->found_end;
}

static enum executed by_both(const struct judge *judge, uint32_t *packets_out)
{
	enum executed executed = by_psn(judge->entry, judge->evidence, packets_out);

	if (is_vouched_for(judge->reading, judge->position))
		return EXECUTED_FULLY;
	if (executed == EXECUTED_MAYBE && judge->evidence->fenced && is_about(judge->evidence, judge->entry) &&
		judge->position >= judge->reading->doubt_end)
		return EXECUTED_NOT;
	return executed;
}

/* To send again what may have executed is harmless only when the application says so, of the wr or of the region. */
static struct verdict in_doubt(const struct request_log_wr *entry, const struct evidence *evidence)
{
	bool again = (entry->idempotent || entry->plain) && evidence->fenced && !evidence->no_replay;

	return (struct verdict){.kind = again ? VERDICT_REPLAY : VERDICT_UNKNOWN, .doubtful = again};
}

/* The packets of it that executed, for one that the responder refused; -1: another one was, or none. */
static int32_t packets_before_refusal(const struct request_log_wr *entry, const struct evidence *evidence)
{
	int32_t packets = psn_diff(evidence->refusal.psn, entry->first_psn);

	return evidence->refusal.status != IBV_WC_SUCCESS && is_about(evidence, entry) && packets < (int32_t)entry->psns
		       ? packets
		       : -1;
}

static uint64_t bytes_of(const struct request_log_wr *entry, uint32_t packets)
{
	uint64_t left = entry->bytes - entry->landed, landed = (uint64_t)packets * entry->mtu_bytes;

	return landed < left ? landed : left;
}

static struct verdict judge_write(const struct judge *judge)
{
	const struct request_log_wr *entry = judge->entry;
	uint32_t packets;

	switch (by_both(judge, &packets)) {
	case EXECUTED_NOT:
		return (struct verdict){.kind = VERDICT_REPLAY};
	case EXECUTED_PARTLY:
		return (struct verdict){.kind = VERDICT_REPLAY, .landed = bytes_of(entry, packets)};
	case EXECUTED_FULLY:
		if (entry->message != 0)
			return (struct verdict){.kind = VERDICT_REPLAY, .landed = entry->bytes - entry->landed};
		return (struct verdict){.kind = VERDICT_EXECUTED};
	case EXECUTED_MAYBE:
		break;
	}
	return in_doubt(entry, judge->evidence);
}

static struct verdict judge_atomic(const struct judge *judge)
{
	const struct request_log_wr *entry = judge->entry;
	const struct evidence *evidence = judge->evidence;
	uint32_t packets;

	/* Most of a batch: not looked for among the results. */
	if (by_psn(entry, evidence, &packets) == EXECUTED_NOT && !is_vouched_for(judge->reading, judge->position))
		return (struct verdict){.kind = VERDICT_REPLAY};
	for (unsigned i = 0; is_about(evidence, entry) && i < evidence->atomic_count; i++)
		if (evidence->atomics[i].psn == entry->first_psn)
			return (struct verdict){.kind = VERDICT_EXECUTED, .original = evidence->atomics[i].original};
	if (by_both(judge, &packets) == EXECUTED_NOT)
		return (struct verdict){.kind = VERDICT_REPLAY};
	return in_doubt(entry, evidence);
}

static struct verdict judge_by_evidence(const struct judge *judge)
{
	const struct request_log_wr *entry = judge->entry;
	const struct evidence *evidence = judge->evidence;

	if (was_taken(entry, evidence))
		return (struct verdict){.kind = VERDICT_EXECUTED};
	switch ((unsigned)entry->wr.opcode) {
	case IBV_WR_RDMA_READ:
		return (struct verdict){.kind = VERDICT_REPLAY};
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return (struct verdict){.kind = evidence->fenced ? VERDICT_REPLAY : VERDICT_UNKNOWN};
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return judge_write(judge);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return judge_atomic(judge);
	}
	ensure(false); /* others are refused when they are posted */
	return (struct verdict){.kind = VERDICT_UNKNOWN};
}

static struct verdict refusal(const struct request_log_wr *entry, const struct evidence *evidence, uint32_t packets)
{
	bool is_write = entry->wr.opcode == IBV_WR_RDMA_WRITE || entry->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	return (struct verdict){.kind = VERDICT_REFUSED,
		.landed = is_write ? bytes_of(entry, packets) : 0,
		.status = evidence->refusal.status};
}

struct verdict verdict_judge(enum hf_policy policy, const struct request_log_wr *entry, uint64_t position,
	const struct evidence *evidence, const struct log_reading *reading)
{
	const struct judge judge = {.entry = entry, .position = position, .evidence = evidence, .reading = reading};
	int32_t packets = packets_before_refusal(entry, evidence);

	if (packets >= 0)
		return refusal(entry, evidence, (uint32_t)packets);
	switch (policy) {
	case HF_POLICY_NONE:
		if (evidence->no_replay && !was_taken(entry, evidence))
			return (struct verdict){.kind = VERDICT_UNKNOWN};
		break;
	case HF_POLICY_RESEND:
	case HF_POLICY_RESEND_CACHE:
		break;
	case HF_POLICY_VARUNA:
		return judge_by_evidence(&judge);
	}
	return (struct verdict){.kind = was_taken(entry, evidence) ? VERDICT_EXECUTED : VERDICT_REPLAY};
}

static void enter(enum hf_policy policy, struct request_log_wr *entry, const struct verdict *verdict)
{
	switch (verdict->kind) {
	case VERDICT_EXECUTED:
		if (policy == HF_POLICY_VARUNA && qp_rules_is_atomic(entry->wr.opcode))
			request_log_answer(entry, verdict->original);
		entry->done = true;
		entry->status = IBV_WC_SUCCESS;
		break;
	case VERDICT_REFUSED:
		entry->refused = verdict->status;
		entry->landed += verdict->landed;
		break;
	case VERDICT_REPLAY:
		entry->sent_before = true;
		entry->doubted = entry->doubted || verdict->doubtful;
		entry->compares |= verdict->doubtful && entry->plain && entry->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
		entry->landed += verdict->landed;
		break;
	case VERDICT_UNKNOWN:
		entry->done = true;
		entry->status = IBV_WC_RETRY_EXC_ERR;
		entry->outcome = HF_WC_UNKNOWN;
		break;
	}
	entry->qp_num = 0;
}

/* The device sends a wr with IBV_SEND_FENCE only when the data of all READs and atomics before it are there. */
static uint32_t finish_fenced(
	struct request_log *log, const struct evidence *evidence, const struct log_reading *reading)
{
	uint64_t end = log->head;
	uint32_t packets, unknown = 0;

	for (uint64_t at = log->head; at < log->next; at++) {
		const struct request_log_wr *entry = request_log_at(log, at);

		if (entry->done || entry->qp_num == 0 || (entry->wr.send_flags & IBV_SEND_FENCE) == 0)
			continue;
		if (is_vouched_for(reading, at) || by_psn(entry, evidence, &packets) == EXECUTED_FULLY || packets > 0)
			end = at;
	}
	for (uint64_t at = log->head; at < end; at++) {
		struct request_log_wr *entry = request_log_at(log, at);

		if (entry->done || entry->qp_num == 0 || !qp_rules_has_answer(entry->wr.opcode))
			continue;
		/* The data may be lost, as with a dead device. An atomic's are asked for; to READ again would be to
		 * read what was written behind the fence. */
		if (evidence->answers_unsure && qp_rules_is_atomic(entry->wr.opcode))
			continue;
		if (evidence->answers_unsure) {
			enter(HF_POLICY_VARUNA, entry, &(struct verdict){.kind = VERDICT_UNKNOWN});
			unknown++;
			continue;
		}
		if (entry->compares)
			request_log_answer(entry, request_log_word(entry, 0));
		entry->done = true;
		entry->status = IBV_WC_SUCCESS;
	}
	return unknown;
}

/* The newest entry of the completion log is that of the last wr that completed, or of one in flight. */
static bool lost_messages(const struct request_log *log, uint64_t messages, const struct evidence *evidence)
{
	uint64_t acknowledged = messages;

	for (uint64_t at = log->tail; messages > 0 && at-- > log->head;) {
		const struct request_log_wr *entry = request_log_at(log, at);

		if (entry->message != 0 && !entry->done)
			acknowledged = entry->message - 1;
	}
	return evidence->fenced && acknowledged > evidence->consumed;
}

static bool is_newest(const struct log_place *place, const struct evidence *evidence)
{
	return evidence->log_entry == place->entry && evidence->log_number == place->number;
}

/* A device that was fenced has lost nothing that it acknowledged, only the entry behind an atomic that it answered. */
static bool log_is_whole(const struct request_log *log, const struct evidence *evidence)
{
	if (log->answered.entry == 0)
		return log->last.entry == 0 || is_newest(&log->last, evidence);
	return is_newest(&log->answered, evidence) || (!evidence->ended_there && is_newest(&log->last, evidence));
}

bool verdict_lost(
	struct request_log *log, uint64_t messages, const struct evidence *evidence, const struct log_reading *reading)
{
	bool kept = evidence->has_psn || !evidence->has_log || reading->executed_end > 0 || log_is_whole(log, evidence);

	if (kept && evidence->has_log) {
		log->last = (struct log_place){evidence->log_entry, evidence->log_number};
		log->answered.entry = 0;
	}
	return !kept || lost_messages(log, messages, evidence);
}

uint32_t verdict_enter(enum hf_policy policy, struct request_log *log, const struct evidence *evidence,
	const struct log_reading *reading)
{
	uint32_t unknown = 0;

	if (policy == HF_POLICY_VARUNA && reading->fences)
		unknown = finish_fenced(log, evidence, reading);
	for (uint64_t at = log->head; at < log->next; at++) {
		struct request_log_wr *entry = request_log_at(log, at);
		struct verdict verdict;

		if (entry->done || entry->qp_num == 0)
			continue;
		verdict = verdict_judge(policy, entry, at, evidence, reading);
		enter(policy, entry, &verdict);
		unknown += verdict.kind == VERDICT_UNKNOWN;
	}
	return unknown;
}
