/* Queue pairs: RC, each a vqp, and UD (datagram.h). The states are the program's, by the rules of ibv_modify_qp(3); the
 * vqp connects when the program names the peer, in the move to RTR, and finds rails and qps by itself. So of the
 * attributes only the peer, its number and the access flags matter; the others are kept for ibv_query_qp. */
#include "preload/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dev/qp_rules.h"
#include "preload/bond.h"
#include "preload/datagram.h"
#include "preload/drive.h"
#include "preload/real.h"

static struct queue_pair *queue_pair_of(struct ibv_qp *qp)
{
	return container_of(qp, struct queue_pair, qp);
}

static struct hf_vqp *sender_of(const struct queue_pair *qp)
{
	return qp->sender != NULL ? qp->sender : qp->vqp;
}

static bool failed(const struct queue_pair *qp)
{
	return hf_vqp_state(qp->vqp) == HF_VQP_ERROR || hf_vqp_state(sender_of(qp)) == HF_VQP_ERROR;
}

/* ---- creation ---- */

static struct ibv_qp *refuse(int error)
{
	errno = error;
	return NULL;
}

static void changed(struct hf_vqp *vqp, void *context)
{
	struct queue_pair *qp = context;

	if (qp->shared != NULL && hf_vqp_state(vqp) == HF_VQP_ERROR)
		async_last_wqe(qp);
}

/* Its own receive queue holds what it is given of the shared one. */
static void shape_for(struct ibv_qp_cap *cap, struct ibv_srq *srq)
{
	struct ibv_srq_attr attr = {0};

	(void)ibv_query_srq(srq, &attr);
	cap->max_recv_wr = attr.max_wr < SHARED_GIVEN_MAX ? attr.max_wr : SHARED_GIVEN_MAX;
	cap->max_recv_sge = attr.max_sge;
}

static int create_vqp(struct queue_pair *qp, struct ibv_pd *pd)
{
	struct ibv_qp_cap *cap = &qp->init.cap;
	struct hf_vqp_init init = {.sq_sig_all = qp->init.sq_sig_all != 0, .context = qp, .changed = changed};
	int rc;

	if (qp->init.srq != NULL)
		shape_for(cap, qp->init.srq);
	/* A vqp has both queues, and a wr of either may have an sge. */
	cap->max_send_wr += cap->max_send_wr == 0;
	cap->max_recv_wr += cap->max_recv_wr == 0;
	cap->max_send_sge += cap->max_send_sge == 0;
	cap->max_recv_sge += cap->max_recv_sge == 0;
	if (qp->init.qp_type == IBV_QPT_RC)
		init.cap = *cap;
	else
		init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
	init.send_cq = container_of(qp->init.send_cq, struct cq, cq)->vcq;
	init.recv_cq = container_of(qp->init.recv_cq, struct cq, cq)->vcq;
	drive_lock();
	rc = hf_vqp_create(container_of(pd, struct pd, pd)->vpd, &init, &qp->vqp);
	if (rc == 0 && qp->init.srq != NULL) {
		rc = shared_receive_join(qp, qp->init.srq);
		if (rc != 0)
			hf_vqp_destroy(qp->vqp);
	}
	drive_unlock();
	return rc;
}

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct queue_pair *qp;
	int rc;

	if (init->qp_type != IBV_QPT_RC && (init->qp_type != IBV_QPT_UD || init->srq != NULL))
		return refuse(EOPNOTSUPP);
	if (init->send_cq == NULL || init->recv_cq == NULL || (init->srq != NULL && init->srq->context != pd->context))
		return refuse(EINVAL);
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return refuse(ENOMEM);
	qp->init = *init;
	list_init(&qp->given);
	list_init(&qp->shared_link);
	rc = create_vqp(qp, pd);
	if (rc != 0) {
		free(qp);
		return refuse(-rc);
	}
	init->cap = qp->init.cap;
	qp->attr.cap = qp->init.cap;
	qp->qp = (struct ibv_qp){.context = pd->context,
		.qp_context = init->qp_context,
		.pd = pd,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.qp_num = hf_vqp_num(qp->vqp),
		.state = IBV_QPS_RESET,
		.qp_type = init->qp_type};
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
	if (init->qp_type == IBV_QPT_UD && (rc = datagram_create(qp)) != 0) {
		drive_lock();
		hf_vqp_destroy(qp->vqp);
		drive_unlock();
		free(qp);
		return refuse(-rc);
	}
	return &qp->qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	if (!context_is_ours(pd->context))
		return REAL(ibv_create_qp)(pd, init);
	return create(pd, init);
}

/* What the older call can say too; the newer ways to post (send_ops_flags) are not there. */
struct ibv_qp *queue_pair_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	struct ibv_qp_init_attr legacy;
	struct ibv_qp *qp;

	(void)context;
	if ((init->comp_mask & IBV_QP_INIT_ATTR_PD) == 0)
		return refuse(EINVAL);
	if ((init->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS)) != 0 ||
		((init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && init->create_flags != 0))
		return refuse(EOPNOTSUPP);
	memcpy(&legacy, init, sizeof(legacy)); /* the newer structure begins with the older one */
	qp = create(init->pd, &legacy);
	if (qp != NULL)
		init->cap = legacy.cap;
	return qp;
}

static void drop_sender(struct queue_pair *qp)
{
	if (qp->sender == NULL)
		return;
	table_remove(&container_of(qp->init.send_cq, struct cq, cq)->own, hf_vqp_num(qp->sender));
	hf_vqp_destroy(qp->sender);
	qp->sender = NULL;
}

int ibv_destroy_qp(struct ibv_qp *base)
{
	struct queue_pair *qp = queue_pair_of(base);

	if (!context_is_ours(base->context))
		return REAL(ibv_destroy_qp)(base);
	drive_lock();
	drop_sender(qp);
	if (qp->ud != NULL)
		datagram_destroy(qp);
	hf_vqp_destroy(qp->vqp);
	if (qp->shared != NULL)
		shared_receive_leave(qp);
	hf_peer_close_unanswered(node_of(base->context)); /* else it would be looked for without an end */
	drive_again();
	drive_unlock();
	async_forget(qp);
	free(qp);
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return context_is_ours(qp->context) ? NULL : REAL(ibv_qp_to_qp_ex)(qp);
}

/* ---- moves ---- */

static void keep(struct ibv_qp_attr *kept, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		kept->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_PORT)
		kept->port_num = attr->port_num;
	if (mask & IBV_QP_AV)
		kept->ah_attr = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		kept->path_mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		kept->dest_qp_num = attr->dest_qp_num;
	if (mask & IBV_QP_RQ_PSN)
		kept->rq_psn = attr->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		kept->sq_psn = attr->sq_psn;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		kept->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		kept->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		kept->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_TIMEOUT)
		kept->timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		kept->retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		kept->rnr_retry = attr->rnr_retry;
}

/* Of two queue pairs of this process the one with the lower number takes end 0. */
static int connect_own(struct bond *bond, struct hf_vqp *vqp, uint32_t other, unsigned access)
{
	struct hf_peer *peer = hf_peer_own(bond->node, hf_vqp_num(vqp) > other);

	return peer == NULL ? -ENOMEM : hf_vqp_connect_num(vqp, peer, other, (int)access);
}

/* Receives may wait with the vqp by now, so the second vqp sends. */
static int connect_itself(struct bond *bond, struct queue_pair *qp)
{
	struct cq *cq = container_of(qp->init.send_cq, struct cq, cq);
	struct hf_vqp_init init = {.cap = qp->init.cap,
		.send_cq = cq->vcq,
		.sq_sig_all = qp->init.sq_sig_all != 0,
		.context = qp,
		.changed = changed};
	int rc;

	init.cap.max_recv_wr = init.cap.max_recv_sge = 1;
	rc = hf_vqp_create(container_of(qp->qp.pd, struct pd, pd)->vpd, &init, &qp->sender);
	if (rc != 0)
		return rc;
	rc = table_put(&cq->own, hf_vqp_num(qp->sender), qp);
	if (rc == 0)
		rc = connect_own(bond, qp->sender, qp->qp.qp_num, 0);
	if (rc == 0)
		rc = connect_own(bond, qp->vqp, hf_vqp_num(qp->sender), qp->attr.qp_access_flags);
	if (rc != 0)
		drop_sender(qp);
	return rc;
}

static int connect_peer(struct queue_pair *qp, const struct ibv_qp_attr *attr)
{
	struct bond *bond = context_of(qp->qp.context)->bond;
	unsigned access = qp->attr.qp_access_flags;
	struct hf_addr address;
	struct hf_peer *peer;
	int rc = bond_address_of(bond, &attr->ah_attr, &address);

	if (rc == -EISCONN && attr->dest_qp_num == qp->qp.qp_num)
		return connect_itself(bond, qp);
	if (rc == -EISCONN)
		return connect_own(bond, qp->vqp, attr->dest_qp_num, access);
	if (rc != 0)
		return rc;
	peer = bond_peer(bond, &address);
	return peer == NULL ? -EHOSTUNREACH : hf_vqp_connect_num(qp->vqp, peer, attr->dest_qp_num, (int)access);
}

/* With the lock held. */
static int move(struct queue_pair *qp, struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = qp->qp.state, to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int rc;

	if (qp->ud != NULL)
		return datagram_move(qp, attr, mask);
	rc = qp_rules_check(IBV_QPT_RC, from, attr, mask);
	if (rc != 0)
		return rc;
	if (to == IBV_QPS_RESET) {
		rc = hf_vqp_reset(qp->vqp);
		if (rc == 0 && qp->shared != NULL)
			shared_receive_return(qp);
		if (rc == 0)
			qp->last_told = false;
		return rc == 0 ? 0 : -EOPNOTSUPP;
	}
	if (to == IBV_QPS_ERR) {
		hf_vqp_abort(qp->vqp);
		if (qp->sender != NULL)
			hf_vqp_abort(qp->sender);
		if (qp->shared != NULL)
			async_last_wqe(qp);
		return 0;
	}
	if ((mask & IBV_QP_ACCESS_FLAGS) && from >= IBV_QPS_RTR && attr->qp_access_flags != qp->attr.qp_access_flags)
		return -EOPNOTSUPP;
	keep(&qp->attr, attr, mask);
	if (mask & IBV_QP_RNR_RETRY)
		hf_vqp_set_rnr_retry(sender_of(qp), attr->rnr_retry);
	return to == IBV_QPS_RTR && from == IBV_QPS_INIT ? connect_peer(qp, attr) : 0;
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct queue_pair *qp = queue_pair_of(base);
	int rc;

	if (!context_is_ours(base->context))
		return REAL(ibv_modify_qp)(base, attr, mask);
	drive_lock();
	rc = move(qp, attr, mask);
	if (rc == 0 && (mask & IBV_QP_STATE) != 0)
		base->state = attr->qp_state;
	if (rc == 0 && qp->shared != NULL)
		shared_receive_moved(qp);
	drive_again();
	drive_unlock();
	return result(-rc);
}

int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct queue_pair *qp = queue_pair_of(base);

	if (!context_is_ours(base->context))
		return REAL(ibv_query_qp)(base, attr, mask, init);
	drive_lock();
	if (failed(qp))
		base->state = IBV_QPS_ERR;
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = base->state;
	*init = qp->init;
	drive_unlock();
	return 0;
}

/* ---- posting ---- */

int queue_pair_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct queue_pair *qp = queue_pair_of(base);
	int rc;

	if (base->state != IBV_QPS_RTS && base->state != IBV_QPS_ERR) {
		*bad = wr;
		return result(EINVAL);
	}
	drive_lock();
	rc = qp->ud != NULL ? -datagram_post_send(qp, wr, bad) : hf_vqp_post_send(sender_of(qp), wr, bad);
	drive_unlock();
	return result(-rc);
}

int queue_pair_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct queue_pair *qp = queue_pair_of(base);
	int rc;

	if (base->state == IBV_QPS_RESET || qp->shared != NULL) {
		*bad = wr;
		return result(EINVAL);
	}
	drive_lock();
	rc = qp->ud != NULL ? -datagram_post_recv(qp, wr, bad) : hf_vqp_post_recv(qp->vqp, wr, bad);
	drive_unlock();
	return result(-rc);
}
