/* The fence of a qp, and how it is known that it holds.
 *
 * A NIC may be executing a packet while it is told that the qp is in ERR. That is over when it has come to what was
 * posted afterwards: its responder flushes receives when it has let go of the packets, its completer flushes wrs when
 * it has put away the answers. So a marker at either end of the qp tells when nothing arrives any more, however long a
 * processor was taken away meanwhile. */
#include <errno.h>

#include "dev/verbs/verbs.h"

#define PATIENCE_NS 2000000000ull /* a NIC that flushed nothing for so long is not going to */

static bool is_marked(const struct verbs_qp *qp)
{
	return verbs_of(qp->base.dev)->port.model->flushes_end && qp->base.srq == NULL && qp->dc == NULL;
}

static void forget(struct verbs_mark *mark, struct hf_cq *cq)
{
	((struct verbs_cq *)cq)->marks -= mark->posted && !mark->seen;
	*mark = (struct verbs_mark){0};
}

void verbs_fence_forget(struct verbs_qp *qp)
{
	qp->fenced = false;
	qp->marked_ns = 0;
	forget(&qp->sent, qp->base.send_cq);
	forget(&qp->received, qp->base.recv_cq);
}

static void see(struct verbs_mark *mark, struct hf_cq *cq)
{
	((struct verbs_cq *)cq)->marks -= mark->posted && !mark->seen;
	mark->seen = mark->posted;
}

bool verbs_fence_took(struct verbs_dev *dev, const struct ibv_wc *wc)
{
	struct verbs_qp *qp;

	if (wc->wr_id != dev->sent_mark && wc->wr_id != dev->received_mark)
		return false;
	qp = table_get(&dev->by_num, wc->qp_num); /* NULL: it was destroyed meanwhile */
	if (qp != NULL && wc->wr_id == dev->sent_mark)
		see(&qp->sent, qp->base.send_cq);
	else if (qp != NULL)
		see(&qp->received, qp->base.recv_cq);
	return true;
}

static bool post_one(struct verbs_qp *qp, struct verbs_mark *mark, struct hf_cq *cq)
{
	const struct verbs_dev *dev = verbs_of(cq->dev);
	struct ibv_send_wr wr = {.wr_id = dev->sent_mark, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_recv_wr receive = {.wr_id = dev->received_mark}, *bad_receive;

	if (mark->posted || ((struct verbs_cq *)cq)->marks == VERBS_MARKS_MAX)
		return false;
	mark->posted = mark == &qp->sent ? ibv_post_send(qp->qp, &wr, &bad) == 0
					 : ibv_post_recv(qp->qp, &receive, &bad_receive) == 0;
	((struct verbs_cq *)cq)->marks += mark->posted;
	return mark->posted;
}

static void post(struct verbs_qp *qp)
{
	(void)post_one(qp, &qp->sent, qp->base.send_cq);
	if (post_one(qp, &qp->received, qp->base.recv_cq))
		verbs_qp_flush_receives(qp);
}

static bool has_ended(struct verbs_qp *qp, uint64_t now_ns)
{
	if (!is_marked(qp))
		return verbs_passed(now_ns, qp->error_ns, verbs_of(qp->base.dev)->port.model->settle_ns);
	post(qp);
	if (qp->marked_ns == 0 && qp->sent.posted && qp->received.posted)
		qp->marked_ns = now_ns;
	verbs_cq_keep((struct verbs_cq *)qp->base.send_cq);
	verbs_cq_keep((struct verbs_cq *)qp->base.recv_cq);
	return qp->sent.seen && qp->received.seen;
}

static bool is_overdue(const struct verbs_qp *qp, uint64_t now_ns)
{
	return qp->marked_ns != 0 && verbs_passed(now_ns, qp->marked_ns, PATIENCE_NS);
}

int verbs_qp_fence(struct hf_qp *base)
{
	struct verbs_qp *qp = (struct verbs_qp *)base;
	int rc = qp->error_ns == 0 ? verbs_qp_move(qp, IBV_QPS_ERR) : 0;
	uint64_t now_ns = hf_env_now_ns(base->dev->env);

	if (rc != 0)
		return rc;
	if (!qp->fenced && !has_ended(qp, now_ns))
		return is_overdue(qp, now_ns) ? -EIO : -EINPROGRESS;
	qp->fenced = true;
	return 0;
}
