/* The states of a queue pair, and what each move does to both sides of it. */
#include "dev/soft/engine.h"

#include <errno.h>
#include <string.h>

#include "dev/qp_rules.h"
#include "dev/soft/dc.h"
#include "dev/soft/nic.h"

static void complete_recv(struct soft_qp *qp, uint64_t wr_id)
{
	struct ibv_wc wc = {.wr_id = wr_id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

	completion_add(qp, qp->base.recv_cq, &wc);
}

static void flush(struct soft_qp *qp)
{
	struct recv_slot *slot;

	requester_flush(&qp->requester);
	responder_stop(&qp->responder);
	if (qp->streams != NULL)
		dc_streams_stop(qp->streams);
	if (qp->base.srq == NULL) {
		while ((slot = ring_oldest(&qp->recv_ring)) != NULL) {
			complete_recv(qp, slot->wr_id);
			ring_pop(&qp->recv_ring);
		}
	} else if (!qp->last_wqe_reported) {
		qp->last_wqe_reported = true;
		engine_event(qp->engine, IBV_EVENT_QP_LAST_WQE_REACHED, &qp->base, NULL);
	}
}

static void forget(struct soft_qp *qp)
{
	requester_forget(&qp->requester);
	responder_forget(&qp->responder);
	if (qp->streams != NULL)
		dc_streams_forget(qp->streams);
	while (qp->base.srq == NULL && ring_oldest(&qp->recv_ring) != NULL)
		ring_pop(&qp->recv_ring);
	qp->last_wqe_reported = false;
	qp->attr = (struct ibv_qp_attr){0};
}

void qp_move(struct soft_qp *qp, enum ibv_qp_state state)
{
	atomic_store_explicit(&qp->state, (int)state, memory_order_release);
	if (state == IBV_QPS_ERR)
		flush(qp);
	else if (state == IBV_QPS_RESET)
		forget(qp);
}

void qp_fail(struct soft_qp *qp)
{
	if (qp_state(qp) != IBV_QPS_ERR)
		qp_move(qp, IBV_QPS_ERR);
}

#define TAKE(flag, field)                                                                                              \
	if (mask & (flag))                                                                                             \
	to->field = from->field

static void take_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_QKEY, qkey);
}

/* The specification's attributes that DC leaves open get what a soft NIC can do. */
static void take_dc_defaults(struct soft_qp *qp, int mask)
{
	if (qp->dc == HF_DC_NONE)
		return;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) == 0)
		qp->attr.max_dest_rd_atomic = RD_ATOMIC_MAX;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) == 0)
		qp->attr.max_rd_atomic = RD_ATOMIC_MAX;
}

static int limits_hold(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct hf_dev_attr *dev = &qp->base.dev->attr;

	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > dev->max_rd_atomic)
		return -EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > dev->max_rd_atomic)
		return -EINVAL;
	return 0;
}

int qp_apply(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask, uint64_t now_ns)
{
	enum ibv_qp_state from = qp_state(qp), to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int rc = qp_rules_check(qp->base.type, from, attr, mask);

	if (rc == 0)
		rc = limits_hold(qp, attr, mask);
	if (rc == 0 && (mask & IBV_QP_AV))
		rc = flow_init(&qp->requester.flow, &qp->engine->local, &attr->ah_attr.grh.dgid,
			mask & IBV_QP_DEST_QPN ? attr->dest_qp_num : 0);
	if (rc != 0)
		return rc;
	take_attr(&qp->attr, attr, mask);
	if (mask & IBV_QP_RNR_RETRY)
		qp->requester.rnr_retries = qp->attr.rnr_retry;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
		take_dc_defaults(qp, mask);
		qp->mtu_bytes = 128u << (qp->base.type == IBV_QPT_UD ? nic_of(qp->base.dev)->mtu : qp->attr.path_mtu);
		responder_start(&qp->responder, qp->attr.rq_psn);
	}
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
		if (qp->dc != HF_DC_NONE && (mask & IBV_QP_MAX_QP_RD_ATOMIC) == 0)
			qp->attr.max_rd_atomic = RD_ATOMIC_MAX;
		requester_start(&qp->requester, qp->attr.sq_psn, now_ns);
	}
	if (to != from || to == IBV_QPS_ERR)
		qp_move(qp, to);
	return 0;
}
