/* Completion queues. There is no queue: a wc is made from the state of a qp at a poll.
 *
 * Of its qps a cq visits those with wrs to complete (senders), but for those that wait for a path, and those whose bit
 * a requester has set because it completed a receive (receivers, from cq_slot.receives). As nothing is queued, nothing
 * overruns. */
#include "dev/shm/shm.h"

#include <errno.h>
#include <stdlib.h>

#define PEERS_LOOK_POLL 1024u /* hf_cq_poll reads the clock once in so many calls */

static const enum ibv_wc_opcode wc_opcodes[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
};

static void fill_wc(const struct shm_qp *qp, const struct sqe *sqe, enum ibv_wc_status status, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){
		.wr_id = sqe->wr_id,
		.status = status,
		.opcode = wc_opcodes[sqe->opcode],
		.byte_len = sqe->bytes,
		.qp_num = qp->qp.qp_num,
	};
}

static int poll_complete(struct shm_qp *qp, int n, struct ibv_wc *wc)
{
	int got = 0;

	for (; got < n && qp->polled != qp->acked; qp->polled++) {
		struct sqe *sqe = sqe_at(qp, qp->polled);

		if (sqe->flags & IBV_SEND_SIGNALED)
			fill_wc(qp, sqe, IBV_WC_SUCCESS, &wc[got++]);
	}
	return got;
}

/* In ERR: the wr that failed, then the others, flushed. */
static int poll_failed(struct shm_qp *qp, int n, struct ibv_wc *wc)
{
	int got = 0;

	for (; got < n && qp->polled != qp->tail; qp->polled++) {
		enum ibv_wc_status status = qp->fail_status != 0 ? qp->fail_status : IBV_WC_WR_FLUSH_ERR;

		fill_wc(qp, sqe_at(qp, qp->polled), status, &wc[got++]);
		qp->fail_status = 0;
		qp->acked = qp->executed = qp->polled + 1;
	}
	return got;
}

void cq_expect(struct shm_qp *qp)
{
	if (list_empty(&qp->sender_node) && qp->polled != qp->tail)
		list_push_back(&shm_cq_of(qp->qp.send_cq)->senders, &qp->sender_node);
}

/* Nothing to complete before progress_run has made progress, which then says so. */
static bool sender_waits(const struct shm_qp *qp)
{
	return qp->polled == qp->tail ||
	       (qp->state == IBV_QPS_RTS && qp->polled == qp->acked && !list_empty(&qp->stalled_node));
}

static int poll_senders(struct shm_cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;

	list_for_each_safe (node, &cq->senders) {
		struct shm_qp *qp = container_of(node, struct shm_qp, sender_node);

		if (qp->state != IBV_QPS_ERR)
			progress_take_acks(qp);
		got += poll_complete(qp, n - got, wc + got);
		if (qp->state == IBV_QPS_ERR && got < n)
			got += poll_failed(qp, n - got, wc + got);
		if (sender_waits(qp))
			list_remove(&qp->sender_node);
		if (got == n) {
			if (!list_empty(&qp->sender_node)) { /* the others come first next time */
				list_remove(&qp->sender_node);
				list_push_back(&cq->senders, &qp->sender_node);
			}
			break;
		}
	}
	return got;
}

static void collect_receiver(uint32_t slot, void *context)
{
	struct shm_cq *cq = context;
	struct shm_qp *qp = shm_dev_of(cq->cq.dev)->qps[slot];

	if (qp != NULL && qp->qp.recv_cq == &cq->cq && list_empty(&qp->receiver_node))
		list_push_back(&cq->receivers, &qp->receiver_node);
}

static int poll_receivers(struct shm_cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;

	list_for_each_safe (node, &cq->receivers) {
		struct shm_qp *qp = container_of(node, struct shm_qp, receiver_node);

		got += recv_poll(qp, n - got, wc + got);
		if (recv_idle(qp))
			list_remove(&qp->receiver_node);
		if (got == n)
			break;
	}
	return got;
}

static void look_around(struct shm_dev *dev)
{
	uint64_t now;

	events_look(dev);
	if (list_empty(&dev->stalled) && dev->polls++ % PEERS_LOOK_POLL != 0)
		return;
	now = hf_env_now_ns(dev->dev.env);
	peers_look_now(dev, now);
	progress_all(dev, now);
}

int shm_cq_poll(struct hf_cq *base, int n, struct ibv_wc *wc)
{
	struct shm_cq *cq = shm_cq_of(base);
	int got = 0;

	look_around(shm_dev_of(base->dev));
	if (!list_empty(&cq->senders))
		got = poll_senders(cq, n, wc);
	if (qp_bitmap_any(&cq->shared->receives))
		qp_bitmap_take(&cq->shared->receives, collect_receiver, cq);
	if (got < n && !list_empty(&cq->receivers))
		got += poll_receivers(cq, n - got, wc + got);
	return got;
}

/* ---- notification ---- */

int shm_cq_req_notify(struct hf_cq *base, bool solicited_only)
{
	atomic_store(&shm_cq_of(base)->shared->armed, solicited_only ? CQ_ARMED_SOLICITED : CQ_ARMED);
	return 0;
}

bool shm_cq_notified(struct hf_cq *base)
{
	struct cq_slot *shared = shm_cq_of(base)->shared;

	return atomic_load(&shared->notified) != 0 && atomic_exchange(&shared->notified, 0) != 0;
}

void cq_announce(struct shm_cq *cq, bool solicited)
{
	uint32_t armed = atomic_load(&cq->shared->armed);

	if (armed == CQ_QUIET || (armed == CQ_ARMED_SOLICITED && !solicited))
		return;
	if (atomic_exchange(&cq->shared->armed, CQ_QUIET) == CQ_QUIET)
		return;
	atomic_store(&cq->shared->notified, 1);
	events_ring_own_bell(shm_dev_of(cq->cq.dev));
}

/* Whether a poll would find something, acknowledgements that have only to be taken included. */
bool cq_has_work(struct shm_cq *cq)
{
	if (qp_bitmap_any(&cq->shared->receives))
		return true;
	list_for_each (node, &cq->receivers) {
		struct shm_qp *qp = container_of(node, struct shm_qp, receiver_node);

		if (!recv_idle(qp) && !recv_drains(qp))
			return true;
	}
	list_for_each (node, &cq->senders) {
		struct shm_qp *qp = container_of(node, struct shm_qp, sender_node);

		if (qp->state == IBV_QPS_ERR || qp->polled != qp->acked || (qp->acked != qp->executed && !qp->ack_lost))
			return true;
	}
	return false;
}

/* Whether it waits for a requester to get out of the way, of which no event tells. */
bool cq_drains(const struct shm_cq *cq)
{
	list_for_each (node, &cq->receivers)
		if (recv_drains(container_of(node, struct shm_qp, receiver_node)))
			return true;
	return false;
}

/* ---- life ---- */

int shm_cq_create(struct hf_dev *base, uint32_t cqe, void *context, struct hf_cq **cq_out)
{
	struct shm_dev *dev = shm_dev_of(base);
	struct shm_cq *cq = calloc(1, sizeof(*cq));
	uint32_t slot = 0;

	if (cq == NULL)
		return -ENOMEM;
	shm_lock(&dev->lock);
	while (slot < CQ_SLOTS && dev->cqs[slot] != NULL)
		slot++;
	if (slot < CQ_SLOTS)
		dev->cqs[slot] = cq;
	shm_unlock(&dev->lock);
	if (slot == CQ_SLOTS) {
		free(cq);
		return -ENOMEM;
	}
	cq->cq = (struct hf_cq){.dev = base, .cqe = cqe, .context = context};
	cq->slot = slot;
	cq->shared = &dev->shared->cqs[slot];
	list_init(&cq->senders);
	list_init(&cq->receivers);
	atomic_store(&cq->shared->armed, CQ_QUIET);
	atomic_store(&cq->shared->notified, 0);
	atomic_store(&cq->shared->unpolled, 0);
	cq->shared->cqe = cqe;
	*cq_out = &cq->cq;
	return 0;
}

int shm_cq_destroy(struct hf_cq *base)
{
	struct shm_cq *cq = shm_cq_of(base);
	struct shm_dev *dev = shm_dev_of(base->dev);

	if (cq->users != 0)
		return -EBUSY;
	shm_lock(&dev->lock);
	dev->cqs[cq->slot] = NULL;
	shm_unlock(&dev->lock);
	free(cq);
	return 0;
}

/* The qp is reset or destroyed: what it had to complete goes with it. */
void cq_forget(struct shm_qp *qp)
{
	list_remove(&qp->sender_node);
	list_remove(&qp->receiver_node);
}
