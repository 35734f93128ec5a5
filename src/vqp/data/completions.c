/* Completions of the qp in use: what they say about wrs in the log, and about the path (docs/protocol.md, R16). */
#include "vqp/path/pool.h"

#include "dev/qp_rules.h"
#include "vqp/atomic/uid_post.h"
#include "vqp/data/wc_kind.h"

#define POSITION(id) ((id)&WR_POSITION)

/* The wrs before `end` executed. Where there are none, as before a wr that failed first, the path carried nothing, and
 * the outage goes on. */
static void retire(struct hf_vqp *vqp, uint64_t end)
{
	struct request_log *log = &vqp->sends;
	bool some = false;

	for (uint64_t at = log->head; at < end && at < log->next; at++) {
		struct request_log_wr *entry = request_log_at(log, at);

		if (!entry->done)
			path_count(vqp->path, &vqp->packets, -(int64_t)entry->psns);
		some |= !entry->done;
	}
	if (end > log->head)
		(void)request_log_retire(log, end - 1);
	vqp->moved_ns = vqp->node->turned_ns;
	if (some)
		recovery_progress(&vqp->recovery);
}

/* Bytes that it was to send lie outside of their region. That was so when its turn came, and nothing behind it has left
 * then. Other local errors may come when what had left already is sent once more, or when an answer lands. */
static bool was_never_sent(const struct hf_vqp *vqp, const struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	bool outside = false;

	for (int i = 0; i < wr->num_sge; i++)
		outside |= region_ends_before(vqp->pd, &wr->sg_list[i]);
	return outside && status == IBV_WC_LOC_PROT_ERR && !qp_rules_has_answer(wr->opcode);
}

/* A wr failed because of what it asked for: it is reported, and the vqp is in error like a plain qp would be. */
static void fail_one(struct hf_vqp *vqp, uint64_t position, enum ibv_wc_status status)
{
	retire(vqp, position); /* D1: all before it executed */
	if (was_never_sent(vqp, &request_log_at(&vqp->sends, position)->wr, status))
		request_log_take_back(&vqp->sends, position + 1);
	else if (!wc_kind_is_refusal(status)) { /* of this side: what is behind the wr may be on its way */
		vqp_abort(vqp, status, IBV_WC_WR_FLUSH_ERR);
		return;
	}
	vqp_fail(vqp, status, IBV_WC_WR_FLUSH_ERR, true);
}

static void send_failed(struct hf_vqp *vqp, const struct ibv_wc *wc)
{
	enum wc_kind kind = wc_kind_of(wc->status, vqp->node->rails[vqp->path->rail].up);
	bool own = (wc->wr_id & WR_PROBE) != 0 || uid_post_confirms(wc->wr_id); /* no wr of the program */

	if (vqp->state != HF_VQP_UP && vqp->state != HF_VQP_RECOVERING)
		return;
	/* Also when the other side was quicker to say that the qp is lost: otherwise the wr would break the next one,
	 * which others may share. */
	if (!own && access_may_be_revoked(vqp, POSITION(wc->wr_id), wc->status)) {
		retire(vqp, POSITION(wc->wr_id));
		marks_broken(vqp);
		return;
	}
	if (kind == WC_PROGRAM && !own && vqp->lane >= 0 && (wc->wr_id & WR_UID) == 0) {
		end_for_program(vqp, wc->status);
		retire(vqp, POSITION(wc->wr_id));
		request_log_at(&vqp->sends, POSITION(wc->wr_id))->refused = wc->status;
		marks_broken(vqp); /* the others are handed back by evidence */
		return;
	}
	if (kind == WC_PROGRAM && !own) {
		fail_one(vqp, POSITION(wc->wr_id), wc->status);
		return;
	}
	if (vqp->state != HF_VQP_UP || vqp->path_broken)
		return;
	retire(vqp, POSITION(wc->wr_id));
	if (!policy_recovers(vqp->node->config.policy)) {
		vqp_abort(vqp, wc->status, IBV_WC_WR_FLUSH_ERR);
		return;
	}
	vqp->rail_suspect = kind == WC_PATH;
	if (vqp->lane >= 0 && vqp->rail_suspect)
		end_for_path(vqp);
	if (vqp->rail_suspect && !vqp->forsaken)
		peers_silent(vqp->peer, vqp->path->rail);
	marks_broken(vqp);
}

static void recv_completed(struct hf_vqp *vqp, const struct ibv_wc *wc)
{
	uint64_t position = POSITION(wc->wr_id);
	struct request_log_wr *entry = request_log_at(&vqp->recvs, position);

	if (position < vqp->recvs.head || position >= vqp->recvs.next || entry->done)
		return;
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		return; /* says nothing by itself; it is posted again, or fails with the vqp */
	entry->done = true;
	entry->status = wc->status;
	entry->received = (struct request_log_received){
		.opcode = wc->opcode, .byte_len = wc->byte_len, .imm_data = wc->imm_data, .wc_flags = wc->wc_flags};
	if (wc->status != IBV_WC_SUCCESS) {
		end_for_status(vqp, wc->status);
		vqp_abort(vqp, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
		return;
	}
	vqp->consumed++;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		(void)imm_lengths_of(&vqp->lengths, vqp->consumed, &entry->received.byte_len);
}

/* Of a wr in the log, all up to it executed; of one beside the log, all that was posted before. */
static void send_completed(struct hf_vqp *vqp, const struct ibv_wc *wc)
{
	retire(vqp, POSITION(wc->wr_id) + ((wc->wr_id & (WR_PROBE | WR_UID)) == 0));
	recovery_progress(&vqp->recovery);
	if (wc->wr_id & WR_UID)
		uid_post_completed(vqp, wc);
}

static bool is_of_rebuild(const struct hf_vqp *vqp, const struct ibv_wc *wc)
{
	const struct hf_qp *qp = vqp->backup[vqp->rebuild.rail].qp;

	return qp != NULL && qp->qp_num == wc->qp_num && (wc->wr_id & WR_PROBE) != 0;
}

static void on_fatal(struct wc_sink *sink)
{
	struct hf_vqp *vqp = container_of(sink, struct hf_vqp, sink);

	if (vqp->state != HF_VQP_UP || vqp->path_broken)
		return;
	if (policy_recovers(vqp->node->config.policy))
		marks_broken(vqp);
	else
		vqp_abort(vqp, IBV_WC_FATAL_ERR, IBV_WC_WR_FLUSH_ERR);
}

static void on_wc(struct wc_sink *sink, const struct ibv_wc *wc)
{
	struct hf_vqp *vqp = container_of(sink, struct hf_vqp, sink);

	if (vqp->path->qp == NULL || wc->qp_num != vqp->path->qp->qp_num) {
		if (is_of_rebuild(vqp, wc))
			marks_probed(vqp, wc->status == IBV_WC_SUCCESS);
		return;
	}
	if (wc->wr_id & WR_PROBE)
		vqp->probing = false;
	if (wc->wr_id & WR_RECV)
		recv_completed(vqp, wc);
	else if (wc->status != IBV_WC_SUCCESS)
		send_failed(vqp, wc);
	else
		send_completed(vqp, wc);
}

static void forget_silent(struct hf_vqp *vqp)
{
	struct request_log *log = &vqp->sends;

	while (log->head < log->next) {
		struct request_log_wr *entry = request_log_at(log, log->head);

		if (!entry->done || entry->signaled || entry->status != IBV_WC_SUCCESS)
			return;
		vcq_left(vqp, 1);
		log->head++;
	}
}

static void on_settled(struct wc_sink *sink)
{
	struct hf_vqp *vqp = container_of(sink, struct hf_vqp, sink);

	forget_silent(vqp);
	vcq_note(vqp);
	post_pump(vqp);
}

static void on_room(struct wc_sink *sink)
{
	post_pump(container_of(sink, struct hf_vqp, sink));
}

void completions_init(struct hf_vqp *vqp)
{
	vqp->sink = (struct wc_sink){.completed = on_wc, .settled = on_settled, .fatal = on_fatal, .room = on_room};
	list_init(&vqp->sink.link);
}

enum hf_poll completions_turn(struct hf_node *node)
{
	enum hf_poll poll = HF_IDLE;

	vqps_of(node)->readings++;
	for (unsigned i = 0; i < node->rail_count; i++)
		if (rail_cqs_read(&node->rails[i].cqs) == HF_BUSY)
			poll = HF_BUSY;
	return poll;
}

/* In a program whose loop turns, the turn reads the queues and an empty poll costs a comparison. A program that polls
 * without turns reads them at each poll, since nothing else does. */
bool completions_look(struct hf_node *node, uint64_t *looked)
{
	struct vqps *vqps = vqps_of(node);
	bool reads = *looked == vqps->readings;

	if (reads)
		(void)completions_turn(node);
	*looked = vqps->readings;
	return reads;
}
