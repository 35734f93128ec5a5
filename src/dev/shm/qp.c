/* Queue pairs: life and states.
 *
 * The state that counts for a peer is in the qp_slot, with an incarnation that changes with each reset, so that a
 * requester of a former life is never mistaken for one of this. The owner alone changes it, but for the move to ERR
 * by a requester that was refused; qp->state follows when the owner looks (events.c). */
#include "dev/shm/shm.h"
#include "dev/qp_base.h"
#include "dev/qp_rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void set_state(struct shm_qp *qp, enum ibv_qp_state state)
{
	qp->state = state;
	atomic_store(&qp->shared->state, QP_WORD(qp->incarnation_own, state));
}

void qp_enter_error(struct shm_qp *qp, enum ibv_wc_status status)
{
	struct shm_cq *send_cq = shm_cq_of(qp->qp.send_cq), *recv_cq = shm_cq_of(qp->qp.recv_cq);

	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)
		return;
	if (status == IBV_WC_SUCCESS && qp->state == IBV_QPS_RTS)
		progress_take_acks(qp);
	if (qp->state == IBV_QPS_ERR) /* an answer did not land */
		return;
	set_state(qp, IBV_QPS_ERR);
	progress_unstall(qp);
	qp->fail_status = (uint8_t)status;
	cq_expect(qp);
	if (qp->drain_since_ns == 0)
		qp->drain_since_ns = hf_env_now_ns(qp->qp.dev->env);
	if (list_empty(&qp->receiver_node))
		list_push_back(&recv_cq->receivers, &qp->receiver_node);
	recv_last_wqe(qp);
	cq_announce(send_cq, true);
	cq_announce(recv_cq, true);
}

/* ---- modify ---- */

static void store_attr(struct shm_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *own = &qp->attr;

	if (mask & IBV_QP_ACCESS_FLAGS)
		own->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_PORT)
		own->port_num = attr->port_num;
	if (mask & IBV_QP_PKEY_INDEX)
		own->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_AV)
		own->ah_attr = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		own->path_mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		own->dest_qp_num = attr->dest_qp_num;
	if (mask & IBV_QP_RQ_PSN)
		own->rq_psn = attr->rq_psn;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		own->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		own->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_SQ_PSN)
		own->sq_psn = attr->sq_psn;
	if (mask & IBV_QP_TIMEOUT)
		own->timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		own->retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		own->rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		own->max_rd_atomic = attr->max_rd_atomic;
}

/* A qp that cannot be drained stays in ERR with all that it knows: it can be fenced, asked and reset again. */
static int to_reset(struct shm_qp *qp)
{
	uint64_t held;
	int rc;

	if (qp->state == IBV_QPS_RESET)
		return 0;
	atomic_store(&qp->shared->state, QP_WORD(qp->incarnation_own, IBV_QPS_ERR)); /* no operation begins any more */
	rc = fence_drain_wait(qp);
	if (rc != 0) {
		qp_enter_error(qp, IBV_WC_SUCCESS);
		return -EBUSY;
	}
	qp->incarnation_own++;
	set_state(qp, IBV_QPS_RESET);
	recv_forget(qp);
	events_forget_qp(shm_dev_of(qp->qp.dev), &qp->qp);
	progress_unstall(qp);
	cq_forget(qp);
	bind_release_requester(qp);
	qp->polled = qp->acked = qp->executed = qp->tail = qp->sq_base = 0;
	qp->reads = 0;
	qp->ack_lost = false;
	qp->fail_status = 0;
	qp->recv_tail = qp->recv_polled = 0;
	qp->drained = qp->held = qp->unknown = qp->last_wqe = qp->claims_flushed = false;
	qp->fence_error = 0;
	qp->drain_since_ns = 0;
	qp->stuck_ns = STUCK_NS;
	atomic_store(&qp->shared->recv_tail, 0);
	held = atomic_load(&qp->shared->op) & (OP_TAKEN | OP_GIVEN);
	if (held != OP_TAKEN)
		atomic_store(&qp->shared->op, 0);
	return 0;
}

static int to_rtr(struct shm_qp *qp)
{
	struct qp_slot *shared = qp->shared;

	/* A process that was stopped in the middle of an operation may still store into the slot and the ring. */
	if ((atomic_load(&shared->op) & (OP_TAKEN | OP_GIVEN)) == OP_TAKEN)
		return -EBUSY;
	memcpy(shared->peer_gid, qp->attr.ah_attr.grh.dgid.raw, 16);
	shared->peer_qp_num = qp->attr.dest_qp_num;
	shared->mtu_bytes = 128u << qp->attr.path_mtu;
	atomic_store(&shared->min_rnr_timer, qp->attr.min_rnr_timer);
	atomic_store(&shared->access, qp->attr.qp_access_flags);
	atomic_store(&shared->atomics, 0);
	atomic_store(&shared->fault, 0);
	atomic_store(&shared->op, OP_WORD(qp->attr.rq_psn, 0));
	qp->peer = peer_get(shm_dev_of(qp->qp.dev), qp->attr.ah_attr.grh.dgid.raw);
	set_state(qp, IBV_QPS_RTR);
	return 0;
}

static int to_rts(struct shm_qp *qp)
{
	uint64_t rtr = QP_WORD(qp->incarnation_own, IBV_QPS_RTR);

	if (!atomic_compare_exchange_strong(&qp->shared->state, &rtr, QP_WORD(qp->incarnation_own, IBV_QPS_RTS)))
		return -EINVAL; /* a refusal came first */
	qp->state = IBV_QPS_RTS;
	qp->next_psn = qp->execute_psn = qp->attr.sq_psn;
	qp->bind_again_ns = 0;
	if (qp->peer != NULL && !bind_requester(qp, hf_env_now_ns(qp->qp.dev->env)))
		bind_ahead(qp);
	return 0;
}

static int move(struct shm_qp *qp, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RESET:
		return to_reset(qp);
	case IBV_QPS_INIT:
		set_state(qp, IBV_QPS_INIT);
		return 0;
	case IBV_QPS_RTR:
		return to_rtr(qp);
	case IBV_QPS_RTS:
		return qp->state == IBV_QPS_RTS ? 0 : to_rts(qp);
	case IBV_QPS_ERR:
		qp_enter_error(qp, IBV_WC_SUCCESS);
		if (qp->state == IBV_QPS_RESET)
			set_state(qp, IBV_QPS_ERR);
		return 0;
	case IBV_QPS_SQD:
	case IBV_QPS_SQE:
	case IBV_QPS_UNKNOWN:
		break;
	}
	return -EINVAL;
}

static bool values_are_possible(const struct shm_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct hf_dev *dev = qp->qp.dev;

	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > dev->attr.max_rd_atomic)
		return false;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > dev->attr.max_rd_atomic)
		return false;
	return !(mask & IBV_QP_PATH_MTU) || attr->path_mtu <= shm_dev_of(dev)->mtu;
}

/* D5. */
static int set_access(struct shm_qp *qp, unsigned access)
{
	int rc;

	atomic_store(&qp->shared->access, access);
	rc = fence_quiesce_access(qp);
	if (rc == 0 && qp->state != IBV_QPS_ERR) {
		qp->drain_since_ns = 0;
		qp->stuck_ns = STUCK_NS;
	}
	return rc;
}

int shm_qp_modify(struct hf_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct shm_qp *qp = shm_qp_of(base);
	int rc;

	events_look(shm_dev_of(base->dev));
	if ((rc = qp_rules_check(base->type, qp->state, attr, mask)) != 0)
		return rc;
	if (!values_are_possible(qp, attr, mask))
		return -EINVAL;
	store_attr(qp, attr, mask);
	if ((mask & IBV_QP_STATE) && (rc = move(qp, attr->qp_state)) != 0)
		return rc;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		atomic_store(&qp->shared->min_rnr_timer, attr->min_rnr_timer);
	return mask & IBV_QP_ACCESS_FLAGS ? set_access(qp, attr->qp_access_flags) : 0;
}

int shm_qp_query(struct hf_qp *base, struct ibv_qp_attr *attr_out, int mask)
{
	struct shm_qp *qp = shm_qp_of(base);

	(void)mask;
	events_look(shm_dev_of(base->dev));
	*attr_out = qp->attr;
	attr_out->qp_state = attr_out->cur_qp_state = qp->state;
	attr_out->cap = base->cap;
	attr_out->sq_psn = qp->next_psn;
	if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_INIT)
		attr_out->rq_psn = OP_PSN(qp->drained ? qp->evidence : atomic_load(&qp->shared->op));
	return 0;
}

uint32_t shm_qp_next_psn(struct hf_qp *base)
{
	return shm_qp_of(base)->next_psn;
}

/* ---- life ---- */

/* A slot that a stopped requester may still write to is not used again. */
static bool slot_is_usable(struct shm_dev *dev, uint32_t slot)
{
	return dev->qps[slot] == NULL && (atomic_load(&dev->shared->qps[slot].op) & (OP_TAKEN | OP_GIVEN)) != OP_TAKEN;
}

static int take_slot(struct shm_dev *dev, struct shm_qp *qp)
{
	int rc = -ENOMEM;

	shm_lock(&dev->lock);
	for (uint32_t tries = 0; tries < QP_SLOTS; tries++) {
		uint32_t number = ++dev->next_qp_count & 0xffffffu;

		if (number < 2 || !slot_is_usable(dev, number & QP_SLOT_MASK))
			continue;
		qp->slot = number & QP_SLOT_MASK;
		qp->qp.qp_num = number;
		dev->qps[qp->slot] = qp;
		rc = 0;
		break;
	}
	shm_unlock(&dev->lock);
	return rc;
}

/* One piece, and not cleared: what is read was written before, and pages that a qp never gets to are never there. */
static int alloc_send_queue(struct shm_qp *qp)
{
	struct ibv_qp_cap *cap = &qp->qp.cap;
	uint32_t n = cap->max_send_wr == 0 ? 1 : cap->max_send_wr;
	size_t sges_bytes, inline_bytes;

	cap->max_send_wr = n;
	if (cap->max_send_sge == 0)
		cap->max_send_sge = 1;
	qp->sq_slots = n;
	sges_bytes = (size_t)n * cap->max_send_sge * sizeof(*qp->sge_store);
	inline_bytes = (size_t)n * cap->max_inline_data;
	qp->sq = malloc(n * sizeof(*qp->sq) + sges_bytes + inline_bytes);
	if (qp->sq == NULL)
		return -ENOMEM;
	qp->sge_store = (struct ibv_sge *)(void *)(qp->sq + n);
	qp->inline_store = (uint8_t *)qp->sge_store + sges_bytes;
	return 0;
}

static void show_slot(struct shm_qp *qp)
{
	struct qp_slot *shared = qp->shared;

	qp->incarnation_own = QP_WORD_INCARNATION(atomic_load(&shared->state)) + 1;
	atomic_store(&shared->state, QP_WORD(qp->incarnation_own, IBV_QPS_RESET));
	shared->qp_num = qp->qp.qp_num;
	shared->pd = ((struct shm_pd *)qp->qp.pd)->id;
	shared->send_cq = shm_cq_of(qp->qp.send_cq)->slot;
	shared->recv_cq = shm_cq_of(qp->qp.recv_cq)->slot;
	shared->revocable = qp->qp.revoke_ns != 0;
	shared->srq = qp->qp.srq == NULL ? SRQ_SLOTS : ((struct shm_srq *)qp->qp.srq)->slot;
	shared->receives = qp->ring;
	atomic_store(&shared->packets, 0);
	atomic_store(&shared->bytes, 0);
	atomic_store(&shared->recv_tail, 0);
	atomic_store(&shared->op, 0);
}

static void count_users(struct shm_qp *qp, uint32_t by)
{
	((struct shm_pd *)qp->qp.pd)->users += by;
	shm_cq_of(qp->qp.send_cq)->users += by;
	shm_cq_of(qp->qp.recv_cq)->users += by;
	if (qp->qp.srq != NULL)
		((struct shm_srq *)qp->qp.srq)->users += by;
}

static void free_qp(struct shm_qp *qp)
{
	recv_ring_destroy(qp);
	free(qp->sq);
	free(qp);
}

int shm_qp_create(struct hf_pd *pd, const struct hf_qp_init *init, struct hf_qp **qp_out)
{
	struct shm_dev *dev = shm_dev_of(pd->dev);
	struct shm_qp *qp = calloc(1, sizeof(*qp));
	int rc;

	if (qp == NULL)
		return -ENOMEM;
	qp->qp = qp_from_init(pd, init);
	qp->state = IBV_QPS_RESET;
	qp->stuck_ns = STUCK_NS;
	list_init(&qp->stalled_node);
	list_init(&qp->sender_node);
	list_init(&qp->receiver_node);
	if ((rc = alloc_send_queue(qp)) != 0 || (rc = recv_ring_create(qp)) != 0 || (rc = take_slot(dev, qp)) != 0) {
		free_qp(qp);
		return rc;
	}
	qp->shared = &dev->shared->qps[qp->slot];
	show_slot(qp);
	count_users(qp, 1);
	*qp_out = &qp->qp;
	return 0;
}

int shm_qp_destroy(struct hf_qp *base)
{
	struct shm_qp *qp = shm_qp_of(base);
	struct shm_dev *dev = shm_dev_of(base->dev);
	uint64_t op;
	int rc = to_reset(qp);

	if (rc != 0)
		return rc;
	op = atomic_load(&qp->shared->op);
	shm_lock(&dev->lock);
	dev->counters.packets_sent += qp->packets;
	dev->counters.bytes_sent += qp->bytes;
	dev->counters.packets_received += atomic_load(&qp->shared->packets);
	dev->counters.bytes_received += atomic_load(&qp->shared->bytes);
	dev->counters.retransmitted += qp->retransmitted;
	dev->counters.dropped_link_down += qp->dropped;
	dev->qps[qp->slot] = NULL;
	shm_unlock(&dev->lock);
	if ((op & (OP_TAKEN | OP_GIVEN)) == OP_TAKEN)
		qp->ring.slots = 0; /* not to be used again, like the slot */
	count_users(qp, -1u);
	free_qp(qp);
	return 0;
}
