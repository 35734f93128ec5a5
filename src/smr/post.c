/* Wrs to other members and their completions. WRITEs may execute twice (HF_SEND_IDEMPOTENT): what is written again is
 * the same, and under another grant nothing of it executes. Eight bytes are posted inline, because a value that is read
 * later may be ahead of the slots before it (R-S9). */
#include "smr/durable.h"
#include "smr/steps.h"

#define WCS 16

static uint32_t lkey_of(const struct hf_smr *smr, const struct smr_post *post)
{
	const uint8_t *at = post->local;

	if (at >= smr->scratch && at < smr->scratch + smr->scratch_mr->bytes)
		return smr->scratch_mr->lkey;
	if (at >= smr->look && at < smr->look + smr->look_mr->bytes)
		return smr->look_mr->lkey;
	return smr->log_mr->lkey;
}

static bool needs_grant(enum smr_wr_type type)
{
	return type == SMR_WR_SLOTS || type == SMR_WR_COMMIT || type == SMR_WR_PROMISE;
}

uint32_t smr_post_room(const struct smr_link *link)
{
	const struct smr_end *end = &link->ends[SMR_OUT];

	return end->vqp == NULL ? 0 : SMR_WRS_MAX - (end->tail - end->head);
}

bool smr_post(struct smr_link *link, enum smr_end_kind kind, const struct smr_post *post)
{
	struct hf_smr *smr = link->smr;
	struct smr_end *end = &link->ends[kind];
	bool inlined = !post->read && post->bytes == 8;
	struct ibv_sge sge = {
		.addr = (uintptr_t)post->local, .length = post->bytes, .lkey = inlined ? 0 : lkey_of(smr, post)};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = post->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED};

	if (end->vqp == NULL || end->tail - end->head == SMR_WRS_MAX || hf_vqp_state(end->vqp) == HF_VQP_ERROR)
		return false;
	if (!post->read)
		wr.send_flags |= HF_SEND_IDEMPOTENT;
	if (inlined)
		wr.send_flags |= IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = (kind == SMR_BACK ? link->back_addr : link->log_addr) + post->at;
	wr.wr.rdma.rkey = kind == SMR_BACK ? link->back_rkey : link->log_rkey;
	if (hf_vqp_post_send(end->vqp, &wr, &bad) != 0)
		return false;
	end->wrs[end->tail++ % SMR_WRS_MAX] = (struct smr_wr){.type = post->type,
		.life = link->life,
		.arg = post->arg,
		.reads = post->reads,
		.stamp = ++smr->clock,
		.posted_ns = smr->now_ns};
	if (needs_grant(post->type))
		link->posted_stamp = smr->clock;
	return true;
}

void smr_post_drop(struct smr_end *end)
{
	end->head = end->tail = 0;
}

/* Whatever became of the grant since: a wr of a lost follower is out until its vqp has ended. Others read no slot. */
uint64_t smr_post_reads_from(const struct smr_link *link)
{
	const struct smr_end *end = &link->ends[SMR_OUT];
	uint64_t from = UINT64_MAX;

	for (uint32_t i = end->head; i != end->tail; i++) {
		uint64_t reads = end->wrs[i % SMR_WRS_MAX].reads;

		if (reads != 0 && reads < from)
			from = reads;
	}
	return from;
}

bool smr_post_end_reading(struct smr_link *link)
{
	bool reads = smr_post_reads_from(link) != UINT64_MAX;

	link->ends[SMR_OUT].stale |= reads;
	return reads;
}

static bool has_slots_out(const struct smr_link *link)
{
	const struct smr_end *end = &link->ends[SMR_OUT];

	for (uint32_t i = end->head; i != end->tail; i++)
		if (end->wrs[i % SMR_WRS_MAX].type == SMR_WR_SLOTS && end->wrs[i % SMR_WRS_MAX].life == link->life)
			return true;
	return false;
}

static void succeeded(struct smr_link *link, const struct smr_wr *wr)
{
	if (wr->type == SMR_WR_PUBLIC) {
		smr_public_answered(link);
		return;
	}
	if (wr->type == SMR_WR_DURABLE) {
		link->durable_out = false;
		smr_durable_answered(link);
		return;
	}
	if (wr->life != link->life || wr->type == SMR_WR_ASK || wr->type == SMR_WR_ACK)
		return;
	if (needs_grant(wr->type))
		link->done_stamp = wr->stamp;
	if (wr->type == SMR_WR_SLOTS)
		link->acked = has_slots_out(link) ? wr->arg : link->sent;
	else if (wr->type != SMR_WR_COMMIT)
		smr_stage_completed(link, wr);
}

/* REM_ACCESS or a flush: that log is not ours any more, and nothing else is the matter. Whatever is unknown ends with
 * its vqp (R-S26). */
static void failed(struct smr_link *link, enum smr_end_kind kind, const struct smr_wr *wr)
{
	if (wr->type == SMR_WR_PUBLIC)
		link->asked_ns = 0;
	if (wr->type == SMR_WR_DURABLE)
		link->durable_out = false;
	if (kind == SMR_OUT && wr->life == link->life)
		smr_mark_lost(link);
}

static struct smr_link *link_of(struct hf_smr *smr, enum smr_end_kind kind, uint32_t num)
{
	smr_for_links (link, smr)
		if (link->ends[kind].vqp != NULL && hf_vqp_num(link->ends[kind].vqp) == num)
			return link;
	return NULL;
}

static bool take(struct hf_smr *smr, struct hf_vcq *cq, enum smr_end_kind kind)
{
	struct ibv_wc wcs[WCS];
	int n = hf_vcq_poll(cq, WCS, wcs);

	for (int i = 0; i < n; i++) {
		struct smr_link *link = link_of(smr, kind, wcs[i].qp_num);
		struct smr_end *end = link == NULL ? NULL : &link->ends[kind];
		struct smr_wr wr;

		if (end == NULL || end->head == end->tail)
			continue;
		wr = end->wrs[end->head++ % SMR_WRS_MAX];
		if (wcs[i].status == IBV_WC_SUCCESS)
			succeeded(link, &wr);
		else
			failed(link, kind, &wr);
	}
	return n > 0;
}

bool smr_post_turn(struct hf_smr *smr)
{
	bool busy = take(smr, smr->log_cq, SMR_OUT);

	return take(smr, smr->back_cq, SMR_BACK) || busy;
}
