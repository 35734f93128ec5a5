#include "vqp/verdict.h"

#include "base/ensure.h"
#include "dev/qp_rules.h"

enum executed { EXECUTED_NOT, EXECUTED_PARTLY, EXECUTED_FULLY, EXECUTED_MAYBE };

/* By psn; *packets_out: how many executed. */
static enum executed by_psn(const struct inflight_wr *entry, const struct evidence *evidence, uint32_t *packets_out)
{
	int32_t packets;

	*packets_out = 0;
	if (!evidence->has_psn || evidence->qp_num != entry->qp_num || evidence->rail != entry->rail)
		return EXECUTED_MAYBE;
	packets = psn_diff(evidence->executed_psn, entry->first_psn);
	if (packets >= (int32_t)entry->psns)
		return EXECUTED_FULLY;
	if (packets > 0)
		*packets_out = (uint32_t)packets;
	if (!evidence->fenced)
		return EXECUTED_MAYBE;
	return packets > 0 ? EXECUTED_PARTLY : EXECUTED_NOT;
}

static enum verdict judge_write(
	const struct inflight_wr *entry, enum executed executed, uint32_t packets, uint64_t *landed_out)
{
	uint64_t left = entry->bytes - entry->landed, landed = (uint64_t)packets * entry->mtu_bytes;

	switch (executed) {
	case EXECUTED_NOT:
		return VERDICT_REPLAY;
	case EXECUTED_PARTLY:
		*landed_out = landed < left ? landed : left;
		return VERDICT_REPLAY;
	case EXECUTED_FULLY:
		*landed_out = left;
		return entry->message != 0 ? VERDICT_REPLAY : VERDICT_EXECUTED;
	case EXECUTED_MAYBE:
		break;
	}
	return VERDICT_UNKNOWN;
}

static enum verdict judge_by_evidence(
	const struct inflight_wr *entry, const struct evidence *evidence, uint64_t *landed_out)
{
	uint32_t packets;
	enum executed executed = by_psn(entry, evidence, &packets);

	if (entry->message != 0 && entry->message <= evidence->consumed)
		return VERDICT_EXECUTED;
	switch ((unsigned)entry->wr.opcode) {
	case IBV_WR_RDMA_READ:
		return VERDICT_REPLAY;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return evidence->fenced ? VERDICT_REPLAY : VERDICT_UNKNOWN;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return judge_write(entry, executed, packets, landed_out);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return executed == EXECUTED_NOT ? VERDICT_REPLAY : VERDICT_UNKNOWN;
	}
	ensure(false); /* others are refused when they are posted */
	return VERDICT_UNKNOWN;
}

enum verdict verdict_judge(
	enum hf_policy policy, const struct inflight_wr *entry, const struct evidence *evidence, uint64_t *landed_out)
{
	*landed_out = 0;
	switch (policy) {
	case HF_POLICY_NONE:
	case HF_POLICY_RESEND:
	case HF_POLICY_RESEND_CACHE:
		break;
	case HF_POLICY_VARUNA:
		return judge_by_evidence(entry, evidence, landed_out);
	}
	return entry->message != 0 && entry->message <= evidence->consumed ? VERDICT_EXECUTED : VERDICT_REPLAY;
}

static bool returns_data(const struct inflight_wr *entry)
{
	return entry->wr.opcode == IBV_WR_RDMA_READ || entry->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       entry->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* The device posts a wr with IBV_SEND_FENCE only when the data of all READs and atomics before it are there. */
static void finish_fenced(struct inflight *log, const struct evidence *evidence)
{
	uint64_t end = log->head;
	uint32_t packets;

	for (uint64_t at = log->head; at < log->next; at++) {
		const struct inflight_wr *entry = inflight_at(log, at);

		if (entry->done || entry->qp_num == 0 || (entry->wr.send_flags & IBV_SEND_FENCE) == 0)
			continue;
		if (by_psn(entry, evidence, &packets) == EXECUTED_FULLY || packets > 0)
			end = at;
	}
	for (uint64_t at = log->head; at < end; at++) {
		struct inflight_wr *entry = inflight_at(log, at);

		if (entry->done || entry->qp_num == 0 || !returns_data(entry))
			continue;
		entry->done = true;
		entry->status = IBV_WC_SUCCESS;
	}
}

static void enter(struct inflight_wr *entry, enum verdict verdict, uint64_t landed)
{
	switch (verdict) {
	case VERDICT_EXECUTED:
		entry->done = true;
		entry->status = IBV_WC_SUCCESS;
		break;
	case VERDICT_REPLAY:
		entry->sent_before = true;
		entry->landed += landed;
		break;
	case VERDICT_UNKNOWN:
		entry->done = true;
		entry->status = IBV_WC_RETRY_EXC_ERR;
		entry->outcome = HF_WC_UNKNOWN;
		break;
	}
	entry->qp_num = 0;
}

uint32_t verdict_enter(enum hf_policy policy, struct inflight *log, const struct evidence *evidence)
{
	uint32_t unknown = 0;

	if (policy == HF_POLICY_VARUNA)
		finish_fenced(log, evidence);
	for (uint64_t at = log->head; at < log->next; at++) {
		struct inflight_wr *entry = inflight_at(log, at);
		enum verdict verdict;
		uint64_t landed;

		if (entry->done || entry->qp_num == 0)
			continue;
		verdict = verdict_judge(policy, entry, evidence, &landed);
		enter(entry, verdict, landed);
		unknown += verdict == VERDICT_UNKNOWN;
	}
	return unknown;
}
