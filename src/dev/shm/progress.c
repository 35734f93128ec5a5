/* Progress of a requester: executing what is posted, acknowledgements, and what happens when neither comes.
 *
 * The acknowledgement of an executed wr is a step of its own, taken at a poll: it arrives when the response
 * path (the responder's TX, our RX) is up then. When it is not, the acknowledgement is lost for good, and the request
 * is asked again, which needs both paths and a responder that still answers; its psn tells that nothing is to be
 * executed twice. A wr that cannot execute is tried again with each poll. Both last as long as RC's retry budget,
 * (retry_cnt + 1) * 4.096 us * 2^timeout without any progress; then the oldest wr fails with RETRY_EXC_ERR.
 *
 * A qp that waits for anything of this is on dev->stalled. hf_dev_poll and hf_cq_poll run those, so they count as work
 * on these qps where dev.h speaks of threads. */
#include "dev/qp_rules.h"
#include "dev/shm/shm.h"
#include "env/fault.h"

#include <string.h>

#define STALLED_BATCH 16u /* of qps, tried again by one poll */
#define LOOK_NS       1000000u

/* min_rnr_timer, InfiniBand specification table 45, in units of 10 us. */
static const uint32_t rnr_10us[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

static uint64_t now_ns(const struct shm_qp *qp)
{
	return hf_env_now_ns(qp->qp.dev->env);
}

void progress_stall(struct shm_qp *qp)
{
	struct shm_dev *dev = shm_dev_of(qp->qp.dev);

	if (qp->state != IBV_QPS_RTS || !list_empty(&qp->stalled_node))
		return;
	shm_lock(&dev->lock);
	list_push_back(&dev->stalled, &qp->stalled_node);
	shm_unlock(&dev->lock);
	qp->stalled_since_ns = now_ns(qp);
	shm_wake_by(dev, qp->stalled_since_ns + LOOK_NS);
}

void progress_unstall(struct shm_qp *qp)
{
	struct shm_dev *dev = shm_dev_of(qp->qp.dev);

	if (!list_empty(&qp->stalled_node)) {
		shm_lock(&dev->lock);
		list_remove(&qp->stalled_node);
		shm_unlock(&dev->lock);
	}
	qp->stalled_since_ns = 0;
	qp->rnr_since_ns = 0;
	qp->rnr_tries = 0;
}

/* ---- acknowledgements ---- */

static void deliver_original(void *context)
{
	const struct sqe *sqe = context;
	const uint8_t *from = (const uint8_t *)&sqe->original;

	if (sqe->num_sge == 1) {
		memcpy((void *)(uintptr_t)sqe->sges[0].addr, from, sizeof(sqe->original));
		return;
	}
	for (unsigned i = 0; i < sqe->num_sge; i++) {
		memcpy((void *)(uintptr_t)sqe->sges[i].addr, from, sqe->sges[i].length);
		from += sqe->sges[i].length;
	}
}

/* What a response carries lands with it: READs have landed when they executed, unless their response was lost. */
static bool deliver(struct shm_qp *qp)
{
	for (; qp->acked != qp->executed; qp->acked++) {
		struct sqe *sqe = sqe_at(qp, qp->acked);

		if (sqe->opcode == IBV_WR_RDMA_READ) {
			if (sqe->response_lost) {
				if (!qp->bound && !bind_requester(qp, now_ns(qp)))
					return false;
				qp->retransmitted++;
				if (!execute_read_again(qp, sqe))
					return false;
				sqe->response_lost = false;
			}
			qp->reads--;
		} else if (qp_rules_is_atomic(sqe->opcode)) {
			if (!fault_try(deliver_original, sqe)) { /* the program has unmapped the memory */
				qp_enter_error(qp, IBV_WC_LOC_PROT_ERR);
				return false;
			}
			qp->reads--;
		}
	}
	return true;
}

static bool responder_answers(struct shm_qp *qp)
{
	uint64_t state;

	if (!request_path_up(qp) || peer_was_gone(qp->peer))
		return false;
	state = atomic_load(&qp->remote->state);
	return QP_WORD_INCARNATION(state) == qp->incarnation &&
	       (QP_WORD_STATE(state) == IBV_QPS_RTS || QP_WORD_STATE(state) == IBV_QPS_RTR);
}

void progress_take_acks(struct shm_qp *qp)
{
	if (qp->acked == qp->executed)
		return;
	if (!response_path_up(qp)) {
		qp->ack_lost = true;
		progress_stall(qp);
		return;
	}
	if (qp->ack_lost) {
		if (!responder_answers(qp))
			return;
		qp->retransmitted++;
	}
	if (qp->reads == 0)
		qp->acked = qp->executed;
	else if (!deliver(qp)) {
		qp->ack_lost = true;
		progress_stall(qp);
		return;
	}
	qp->ack_lost = false;
}

/* ---- execution ---- */

static enum wr_outcome start(struct shm_qp *qp, struct sqe *sqe)
{
	bool reads = sqe->opcode == IBV_WR_RDMA_READ || qp_rules_is_atomic(sqe->opcode);
	enum wr_outcome outcome;

	if (!qp->bound && !bind_requester(qp, now_ns(qp)))
		return WR_NO_ANSWER;
	if (reads && qp->attr.max_rd_atomic == 0) {
		sqe->status = IBV_WC_LOC_QP_OP_ERR;
		return WR_FAILED;
	}
	if ((reads && qp->reads >= qp->attr.max_rd_atomic) || ((sqe->flags & IBV_SEND_FENCE) && qp->reads != 0)) {
		progress_take_acks(qp);
		if (qp->reads != 0 && ((sqe->flags & IBV_SEND_FENCE) || qp->reads >= qp->attr.max_rd_atomic))
			return WR_WAITS;
	}
	outcome = execute_wr(qp, sqe);
	if (outcome == WR_DONE && reads)
		qp->reads++;
	return outcome;
}

/* A refusal acknowledges what came before it; an error of our own has to wait for those acknowledgements. */
static enum wr_outcome fail(struct shm_qp *qp, const struct sqe *sqe)
{
	bool local = sqe->status == IBV_WC_LOC_PROT_ERR || sqe->status == IBV_WC_LOC_QP_OP_ERR;

	if (local)
		progress_take_acks(qp);
	else
		deliver(qp);
	if (qp->acked != qp->executed && local)
		return WR_WAITS;
	qp_enter_error(qp, qp->acked == qp->executed ? sqe->status : IBV_WC_RETRY_EXC_ERR);
	return WR_FAILED;
}

enum wr_outcome progress_pump(struct shm_qp *qp)
{
	struct shm_cq *cq = shm_cq_of(qp->qp.send_cq);

	while (qp->executed != qp->tail) {
		struct sqe *sqe = sqe_at(qp, qp->executed);
		enum wr_outcome outcome = start(qp, sqe);

		if (outcome == WR_FAILED)
			return fail(qp, sqe);
		if (outcome != WR_DONE)
			return outcome;
		qp->executed++;
		if (sqe->flags & IBV_SEND_SIGNALED)
			cq_announce(cq, false);
	}
	return WR_DONE;
}

/* ---- time ---- */

static uint64_t rnr_ns(const struct shm_qp *qp)
{
	return rnr_10us[qp->remote == NULL ? 0 : atomic_load(&qp->remote->min_rnr_timer) & 31] * 10000ull;
}

/* The responder is there: the time without an answer has not begun. */
static void wait_for_receive(struct shm_qp *qp, uint64_t now)
{
	qp->stalled_since_ns = now;
	if (qp->rnr_since_ns != 0 && now - qp->rnr_since_ns < rnr_ns(qp))
		return;
	if (qp->attr.rnr_retry != 7 && qp->rnr_tries >= qp->attr.rnr_retry) {
		qp_enter_error(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	qp->rnr_tries += qp->attr.rnr_retry != 7;
	qp->rnr_since_ns = now;
}

static uint64_t budget_ns(const struct shm_qp *qp)
{
	return qp_rules_budget_ns(qp->attr.timeout, qp->attr.retry_cnt);
}

static void wait_for_answer(struct shm_qp *qp, uint64_t now)
{
	uint64_t budget = budget_ns(qp);

	if (qp->peer != NULL && peer_was_gone(qp->peer))
		qp_enter_error(qp, IBV_WC_RETRY_EXC_ERR);
	else if (qp->attr.timeout != 0 && now - qp->stalled_since_ns >= budget && now > qp->stalled_since_ns)
		qp_enter_error(qp, IBV_WC_RETRY_EXC_ERR);
}

void progress_run(struct shm_qp *qp, uint64_t now)
{
	uint32_t executed = qp->executed, acked = qp->acked;
	enum wr_outcome outcome;

	progress_take_acks(qp);
	outcome = progress_pump(qp);
	if (qp->state != IBV_QPS_RTS)
		return;
	if (qp->executed != executed) {
		qp->rnr_since_ns = 0;
		qp->rnr_tries = 0;
	}
	if (qp->executed != executed || qp->acked != acked) {
		qp->stalled_since_ns = now;
		cq_expect(qp);
		if (qp->acked != acked)
			cq_announce(shm_cq_of(qp->qp.send_cq), false);
	}
	if (outcome == WR_DONE && !qp->ack_lost)
		progress_unstall(qp);
	else if (outcome == WR_NO_RECEIVE && !qp->ack_lost && response_path_up(qp) && responder_answers(qp))
		wait_for_receive(qp, now);
	else
		wait_for_answer(qp, now);
}

/* No event tells when a link of the peer comes up or a receive is posted: a sleeper looks again after LOOK_NS, at the
 * RNR timer, and when the retry budget is spent. */
static uint64_t due_ns(const struct shm_qp *qp, uint64_t now)
{
	uint64_t due = now + LOOK_NS, other = UINT64_MAX;

	if (qp->rnr_since_ns != 0)
		other = qp->rnr_since_ns + rnr_ns(qp);
	else if (qp->attr.timeout != 0)
		other = qp->stalled_since_ns + budget_ns(qp);
	return other < due ? other : due;
}

uint64_t progress_due_ns(struct shm_dev *dev, uint64_t now)
{
	uint64_t first = now + LOOK_NS;
	unsigned n = 0;

	list_for_each (node, &dev->stalled) {
		uint64_t due = due_ns(container_of(node, struct shm_qp, stalled_node), now);

		if (due < first)
			first = due;
		if (++n == STALLED_BATCH)
			break;
	}
	return first;
}

/* A few of them, in turn: a poll must not take longer because thousands of qps wait for a link. */
bool progress_all(struct shm_dev *dev, uint64_t now)
{
	struct list *first = dev->stalled.next;
	bool any = !list_empty(&dev->stalled);

	for (unsigned i = 0; i < STALLED_BATCH && !list_empty(&dev->stalled); i++) {
		struct list *node = dev->stalled.next;

		if (i > 0 && node == first)
			break;
		shm_lock(&dev->lock);
		list_remove(node);
		list_push_back(&dev->stalled, node);
		shm_unlock(&dev->lock);
		progress_run(container_of(node, struct shm_qp, stalled_node), now);
	}
	return any;
}
