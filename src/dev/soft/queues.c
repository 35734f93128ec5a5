/* The device's queues: cqs, srqs, qps, and the posting to them. */
#include <errno.h>
#include <stdlib.h>

#include "dev/gid.h"
#include "dev/qp_base.h"
#include "dev/soft/datagram.h"
#include "dev/soft/dc.h"
#include "dev/soft/objects.h"

/* ---- completion queues ---- */

int objects_cq_create(struct hf_dev *dev, uint32_t cqe, void *context, struct hf_cq **cq_out)
{
	struct soft_nic *nic = nic_of(dev);
	struct soft_cq *cq = calloc(1, sizeof(*cq));
	int rc;

	if (cq == NULL)
		return -ENOMEM;
	rc = ring_init(&cq->ring, cqe, sizeof(struct ibv_wc));
	if (rc != 0) {
		free(cq);
		return rc;
	}
	cq->base = (struct hf_cq){.dev = dev, .cqe = cq->ring.mask + 1, .context = context};
	cq->engine = &nic->engine;
	pthread_mutex_lock(&nic->lock);
	list_push_back(&nic->engine.cqs, &cq->node);
	pthread_mutex_unlock(&nic->lock);
	*cq_out = &cq->base;
	return 0;
}

int objects_cq_destroy(struct hf_cq *base)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_cq *cq = (struct soft_cq *)base;
	bool used;

	pthread_mutex_lock(&nic->lock);
	used = cq->users > 0;
	if (!used) {
		nic->engine.bus->ops->drain(nic->engine.bus); /* a completion may be on its way to it */
		list_remove(&cq->node);
		engine_forget_events(&nic->engine, base);
	}
	pthread_mutex_unlock(&nic->lock);
	if (used)
		return -EBUSY;
	ring_free(&cq->ring);
	free(cq);
	return 0;
}

/* A program that polls several cqs in turn drives the NIC once a round: a drive takes longer than all the rest, and for
 * the others it is as fresh. */
static bool was_driven_since(struct soft_nic *nic, struct soft_cq *cq)
{
	uint64_t polls = atomic_load_explicit(&nic->polls, memory_order_relaxed);
	bool driven = polls != atomic_load_explicit(&cq->polls_seen, memory_order_relaxed);

	if (!driven)
		atomic_store_explicit(&nic->polls, ++polls, memory_order_relaxed);
	atomic_store_explicit(&cq->polls_seen, polls, memory_order_relaxed);
	return driven;
}

int objects_cq_poll(struct hf_cq *base, int n, struct ibv_wc *wc)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_cq *cq = (struct soft_cq *)base;
	int taken = completions_poll(cq, n, wc);

	if (taken > 0 || n <= 0 || was_driven_since(nic, cq))
		return taken;
	nic_borrow(nic, NIC_POLLED);
	return completions_poll(cq, n, wc);
}

int objects_cq_req_notify(struct hf_cq *base, bool solicited_only)
{
	struct soft_cq *cq = (struct soft_cq *)base;

	atomic_exchange(&cq->armed, solicited_only ? CQ_SOLICITED : CQ_ANY); /* against delivery, see there */
	return 0;
}

bool objects_cq_notified(struct hf_cq *base)
{
	struct soft_cq *cq = (struct soft_cq *)base;

	return observe(&cq->notified) && atomic_exchange(&cq->notified, false);
}

/* ---- shared receive queues ---- */

int objects_srq_create(struct hf_pd *pd, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out)
{
	struct soft_srq *srq = calloc(1, sizeof(*srq));
	int rc;

	if (srq == NULL)
		return -ENOMEM;
	rc = ring_init(&srq->ring, max_wr, recv_slot_bytes(max_sge));
	if (rc != 0) {
		free(srq);
		return rc;
	}
	srq->base = (struct hf_srq){
		.dev = pd->dev, .pd = pd, .max_wr = srq->ring.mask + 1, .max_sge = max_sge, .context = context};
	objects_pd_use(pd, 1);
	*srq_out = &srq->base;
	return 0;
}

int objects_srq_destroy(struct hf_srq *base)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_srq *srq = (struct soft_srq *)base;
	bool used;

	pthread_mutex_lock(&nic->lock);
	used = srq->users > 0;
	if (!used)
		engine_forget_events(&nic->engine, base);
	pthread_mutex_unlock(&nic->lock);
	if (used)
		return -EBUSY;
	objects_pd_use(base->pd, -1);
	ring_free(&srq->ring);
	free(srq);
	return 0;
}

int objects_srq_post_recv(struct hf_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct soft_srq *srq = (struct soft_srq *)base;

	return recv_post(&srq->ring, base->max_sge, wr, bad_wr);
}

/* ---- queue pairs ---- */

static void free_qp(struct soft_qp *qp)
{
	requester_free(&qp->requester);
	ring_free(&qp->recv_ring);
	dc_streams_destroy(qp->streams);
	free(qp);
}

static void use_queues(struct soft_qp *qp, int users)
{
	((struct soft_cq *)qp->base.send_cq)->users += (unsigned)users;
	((struct soft_cq *)qp->base.recv_cq)->users += (unsigned)users;
	if (qp->base.srq != NULL)
		((struct soft_srq *)qp->base.srq)->users += (unsigned)users;
}

static void hold(struct soft_qp *qp)
{
	use_queues(qp, 1);
	lease_hold(qp->lease);
}

static void let_go(struct soft_qp *qp)
{
	use_queues(qp, -1);
	lease_release(qp->lease);
}

static int build_qp(struct hf_pd *pd, const struct hf_qp_init *init, struct soft_qp *qp)
{
	struct ibv_qp_cap *cap = &qp->base.cap;
	int rc;

	qp->base = qp_from_init(pd, init);
	list_init(&qp->node);
	qp->lease = (struct soft_lease *)init->lease;
	qp->dc = (int)init->dc;
	qp->dc_key = init->dc_key;
	responder_init(&qp->responder, qp, &qp->requester.flow);
	if (cap->max_send_sge == 0)
		cap->max_send_sge = 1;
	if (cap->max_recv_sge == 0)
		cap->max_recv_sge = 1;
	rc = requester_init(&qp->requester, qp, cap);
	if (rc == 0)
		rc = ring_init(&qp->recv_ring, cap->max_recv_wr, recv_slot_bytes(cap->max_recv_sge));
	if (rc == 0 && init->dc == HF_DC_TARGET)
		rc = dc_streams_create(qp, &qp->streams);
	if (rc != 0)
		return rc;
	cap->max_send_wr = qp->requester.ring.mask + 1;
	cap->max_recv_wr = init->srq != NULL ? 0 : qp->recv_ring.mask + 1;
	return 0;
}

int objects_qp_create(struct hf_pd *pd, const struct hf_qp_init *init, struct hf_qp **qp_out)
{
	struct soft_nic *nic = nic_of(pd->dev);
	struct soft_qp *qp = calloc(1, sizeof(*qp));
	int rc;

	if (qp == NULL)
		return -ENOMEM;
	rc = build_qp(pd, init, qp);
	if (rc == 0) {
		pthread_mutex_lock(&nic->lock);
		rc = engine_add_qp(&nic->engine, qp);
		if (rc == 0)
			hold(qp);
		pthread_mutex_unlock(&nic->lock);
	}
	if (rc != 0) {
		free_qp(qp);
		return rc;
	}
	objects_pd_use(pd, 1);
	*qp_out = &qp->base;
	return 0;
}

int objects_qp_destroy(struct hf_qp *base)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;

	pthread_mutex_lock(&nic->lock);
	engine_answer_doorbells(&nic->engine); /* it may be among those that rang */
	qp_move(qp, IBV_QPS_RESET);
	nic->engine.bus->ops->drain(nic->engine.bus);
	engine_remove_qp(&nic->engine, qp);
	engine_forget_events(&nic->engine, base);
	let_go(qp);
	pthread_mutex_unlock(&nic->lock);
	objects_pd_use(base->pd, -1);
	free_qp(qp);
	return 0;
}

int objects_qp_modify(struct hf_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;
	bool cycled = (base->dev->attr.caps & HF_DEV_ACCESS_IN_RTS) == 0;
	int rc;

	pthread_mutex_lock(&nic->lock);
	if (cycled && (mask & IBV_QP_ACCESS_FLAGS) && qp_state(qp) == IBV_QPS_RTS)
		rc = -EOPNOTSUPP;
	else
		rc = qp_apply(qp, attr, mask, hf_env_now_ns(base->dev->env));
	if (rc == 0 && (mask & IBV_QP_ACCESS_FLAGS)) /* what was allowed before has happened */
		nic->engine.bus->ops->drain(nic->engine.bus);
	pthread_mutex_unlock(&nic->lock);
	return rc;
}

int objects_qp_query(struct hf_qp *base, struct ibv_qp_attr *attr_out, int mask)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;

	(void)mask; /* everything is at hand */
	pthread_mutex_lock(&nic->lock);
	*attr_out = qp->attr;
	attr_out->qp_state = attr_out->cur_qp_state = qp_state(qp);
	attr_out->cap = base->cap;
	pthread_mutex_unlock(&nic->lock);
	return 0;
}

static int post_send(struct soft_qp *qp, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	uint64_t before = atomic_load_explicit(&qp->requester.posted, memory_order_relaxed);
	int rc = requester_post(&qp->requester, dest, wr, footers, bad_wr);

	engine_ring_doorbell(qp);
	if (!requester_may_wait(
		    &qp->requester, atomic_load_explicit(&qp->requester.posted, memory_order_relaxed) - before))
		nic_borrow(nic_of(qp->base.dev), NIC_POSTED);
	return rc;
}

int objects_qp_post_send_footed(struct hf_qp *base, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	struct soft_qp *qp = (struct soft_qp *)base;
	struct flow flow;

	if (base->type == IBV_QPT_UD) {
		*bad_wr = wr;
		return -EINVAL;
	}
	if (dest == NULL ? qp->dc != HF_DC_NONE
			 : qp->dc != HF_DC_INITIATOR ||
				   flow_init(&flow, &qp->engine->local, &dest->gid, dest->dct_num) != 0) {
		*bad_wr = wr;
		return -EINVAL;
	}
	return post_send(qp, dest, wr, footers, bad_wr);
}

int objects_qp_post_send(struct hf_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return objects_qp_post_send_footed(base, NULL, wr, NULL, bad_wr);
}

int objects_qp_post_send_dc(
	struct hf_qp *base, const struct hf_dc_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return objects_qp_post_send_footed(base, dest, wr, NULL, bad_wr);
}

int objects_qp_post_send_ud(
	struct hf_qp *base, const struct hf_ud_dest *dest, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;
	int rc = 0;

	pthread_mutex_lock(&nic->lock);
	for (; wr != NULL && rc == 0; wr = rc == 0 ? wr->next : wr) {
		rc = datagram_send(qp, dest, wr);
		if (rc == -EAGAIN) {
			nic_drive(nic, NIC_DUE, hf_env_now_ns(base->dev->env));
			rc = datagram_send(qp, dest, wr);
		}
		if (rc == -EAGAIN)
			rc = -ENOMEM; /* the network takes nothing */
	}
	if (rc != 0)
		*bad_wr = wr;
	nic_drive(nic, NIC_POSTED, hf_env_now_ns(base->dev->env));
	pthread_mutex_unlock(&nic->lock);
	return rc;
}

int objects_qp_post_recv(struct hf_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct soft_qp *qp = (struct soft_qp *)base;
	int rc;

	if (base->srq != NULL || qp_state(qp) == IBV_QPS_RESET) {
		*bad_wr = wr;
		return -EINVAL;
	}
	rc = recv_post(&qp->recv_ring, base->cap.max_recv_sge, wr, bad_wr);
	if (qp_state(qp) == IBV_QPS_ERR) { /* flushed at once */
		engine_ring_doorbell(qp);
		nic_borrow(nic_of(base->dev), NIC_POSTED);
	}
	return rc;
}

/* ---- docs/protocol.md's clauses ---- */

int objects_qp_fence(struct hf_qp *base)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;

	pthread_mutex_lock(&nic->lock);
	if (qp_state(qp) != IBV_QPS_RESET)
		qp_fail(qp);
	responder_silence(&qp->responder);
	if (qp->streams != NULL)
		dc_streams_silence(qp->streams);
	nic->engine.bus->ops->drain(nic->engine.bus);
	pthread_mutex_unlock(&nic->lock);
	return 0;
}

int objects_qp_executed_psn(struct hf_qp *base, uint32_t *psn_out)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;

	if (qp->dc !=
		HF_DC_NONE) /* a target has as many as initiators, an initiator none: objects_qp_executed_psn_dc */
		return -EOPNOTSUPP;
	pthread_mutex_lock(&nic->lock);
	*psn_out = qp->responder.expected;
	pthread_mutex_unlock(&nic->lock);
	return 0;
}

int objects_qp_atomic_results(struct hf_qp *base, struct hf_atomic_result *results_out, unsigned n)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;
	unsigned filled;

	if (qp->dc != HF_DC_NONE)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&nic->lock);
	filled = responder_atomic_results(&qp->responder, results_out, n);
	pthread_mutex_unlock(&nic->lock);
	return (int)filled;
}

int objects_qp_refusal(struct hf_qp *base, struct hf_refusal *refusal_out)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;

	if (qp->dc != HF_DC_NONE)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&nic->lock);
	*refusal_out = qp->responder.refusal;
	pthread_mutex_unlock(&nic->lock);
	return refusal_out->status != IBV_WC_SUCCESS;
}

uint32_t objects_qp_next_psn(struct hf_qp *base)
{
	struct soft_qp *qp = (struct soft_qp *)base;

	return (uint32_t)atomic_load_explicit(&qp->requester.posted, memory_order_relaxed) & 0xffffff;
}

/* ---- of each initiator at a DC target ---- */

int objects_qp_dc_source(struct hf_qp *base, struct hf_dc_source *source_out)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;

	if (qp->dc != HF_DC_INITIATOR)
		return -EINVAL;
	pthread_mutex_lock(&nic->lock);
	*source_out = (struct hf_dc_source){
		.gid = gid_of_addr(&nic->engine.local), .qp_num = base->qp_num, .use = qp->requester.life};
	pthread_mutex_unlock(&nic->lock);
	return 0;
}

int objects_qp_fence_dc(struct hf_qp *base, const struct hf_dc_source *source)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;
	int rc;

	if (qp->dc != HF_DC_TARGET)
		return -EINVAL;
	pthread_mutex_lock(&nic->lock);
	rc = dc_fence(qp->streams, source);
	nic->engine.bus->ops->drain(nic->engine.bus);
	pthread_mutex_unlock(&nic->lock);
	return rc;
}

int objects_qp_executed_psn_dc(struct hf_qp *base, const struct hf_dc_source *source, uint32_t *psn_out)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;
	const struct responder *responder;
	int rc;

	if (qp->dc != HF_DC_TARGET)
		return -EINVAL;
	pthread_mutex_lock(&nic->lock);
	rc = dc_evidence(qp->streams, source, &responder);
	if (rc == 0)
		*psn_out = responder->expected;
	pthread_mutex_unlock(&nic->lock);
	return rc;
}

int objects_qp_atomic_results_dc(
	struct hf_qp *base, const struct hf_dc_source *source, struct hf_atomic_result *results_out, unsigned n)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;
	const struct responder *responder;
	int rc;

	if (qp->dc != HF_DC_TARGET)
		return -EINVAL;
	pthread_mutex_lock(&nic->lock);
	rc = dc_evidence(qp->streams, source, &responder);
	if (rc == 0)
		rc = (int)responder_atomic_results(responder, results_out, n);
	pthread_mutex_unlock(&nic->lock);
	return rc;
}

int objects_qp_refusal_dc(struct hf_qp *base, const struct hf_dc_source *source, struct hf_refusal *refusal_out)
{
	struct soft_nic *nic = nic_of(base->dev);
	struct soft_qp *qp = (struct soft_qp *)base;
	const struct responder *responder;
	int rc;

	if (qp->dc != HF_DC_TARGET)
		return -EINVAL;
	pthread_mutex_lock(&nic->lock);
	rc = dc_evidence(qp->streams, source, &responder);
	if (rc == 0) {
		*refusal_out = responder->refusal;
		rc = refusal_out->status != IBV_WC_SUCCESS;
	}
	pthread_mutex_unlock(&nic->lock);
	return rc == -ENOENT ? 0 : rc;
}
