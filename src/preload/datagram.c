#include "preload/datagram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dev/gid.h"
#include "dev/qp_rules.h"
#include "env/fault.h"
#include "preload/bond.h"
#include "preload/drive.h"

#define SL_IPV4  2u /* UCX until 1.18 reads it so, as mlx5 reports the kind of network header */
#define SL_IPV6  1u
#define SGES_MAX 64u

/* A receive from its post, or a signaled send from its completion, to the poll of its completion. */
struct datagram_wr {
	struct list node; /* of datagram_qp, and then of its cq */
	struct list *home;
	struct ibv_wc wc;
	struct ibv_sge *sges;
	int num_sge;
	bool unpolled; /* bond.datagrams_unpolled counts it */
};

struct datagram_qp {
	uint32_t qkey;
	struct list free_sends, free_receives, posted;
	struct datagram_wr *wrs;
	unsigned count;
};

static struct cq *cq_of(struct ibv_cq *cq)
{
	return container_of(cq, struct cq, cq);
}

static struct bond *bond_of(const struct queue_pair *qp)
{
	return context_of(qp->qp.context)->bond;
}

/* ---- completions ---- */

static void complete(struct ibv_cq *to, struct datagram_wr *wr)
{
	list_remove(&wr->node);
	list_push_back(&cq_of(to)->datagrams, &wr->node);
	completion_ready(cq_of(to));
}

static void polled(struct bond *bond, struct datagram_wr *wr)
{
	bond->datagrams_unpolled -= wr->unpolled;
	wr->unpolled = false;
}

int datagram_poll(struct cq *cq, int n, struct ibv_wc *wc)
{
	struct bond *bond = context_of(cq->cq.context)->bond;
	int got = 0;

	bond->datagrams_polled_ns = hf_loop_now_ns(drive_loop());
	datagram_links_poll(bond);
	for (; got < n && !list_empty(&cq->datagrams); got++) {
		struct datagram_wr *wr = container_of(list_pop_front(&cq->datagrams), struct datagram_wr, node);

		wc[got] = wr->wc;
		polled(bond, wr);
		list_push_back(wr->home, &wr->node);
	}
	return got;
}

/* ---- life ---- */

static int fits(const struct queue_pair *qp)
{
	const struct ibv_qp_cap *cap = &qp->init.cap;
	struct ibv_device_attr device;

	(void)ibv_query_device(qp->qp.context, &device);
	return cap->max_send_wr <= (uint32_t)device.max_qp_wr && cap->max_recv_wr <= (uint32_t)device.max_qp_wr &&
	       cap->max_send_sge <= SGES_MAX && cap->max_recv_sge <= SGES_MAX && cap->max_inline_data <= DATAGRAM_BYTES;
}

static struct datagram_qp *allocate(const struct ibv_qp_cap *cap)
{
	unsigned count = cap->max_send_wr + cap->max_recv_wr;
	struct datagram_qp *ud = calloc(1, sizeof(*ud));
	struct ibv_sge *sges;

	if (ud == NULL)
		return NULL;
	ud->wrs = calloc(1, count * sizeof(*ud->wrs) + (size_t)cap->max_recv_wr * cap->max_recv_sge * sizeof(*sges));
	if (ud->wrs == NULL) {
		free(ud);
		return NULL;
	}
	ud->count = count;
	list_init(&ud->free_sends);
	list_init(&ud->free_receives);
	list_init(&ud->posted);
	sges = (struct ibv_sge *)(void *)(ud->wrs + count);
	for (unsigned i = 0; i < count; i++) {
		struct datagram_wr *wr = &ud->wrs[i];

		wr->home = i < cap->max_send_wr ? &ud->free_sends : &ud->free_receives;
		if (i >= cap->max_send_wr)
			wr->sges = sges + (size_t)(i - cap->max_send_wr) * cap->max_recv_sge;
		list_push_back(wr->home, &wr->node);
	}
	return ud;
}

int datagram_create(struct queue_pair *qp)
{
	int rc;

	if (!fits(qp))
		return -EINVAL;
	qp->ud = allocate(&qp->init.cap);
	if (qp->ud == NULL)
		return -ENOMEM;
	drive_lock();
	rc = table_put(&bond_of(qp)->datagram_qps, hf_vqp_num(qp->vqp), qp);
	if (rc == 0) {
		cq_of(qp->init.send_cq)->datagram_users++;
		cq_of(qp->init.recv_cq)->datagram_users++;
	} else {
		free(qp->ud->wrs);
		free(qp->ud);
	}
	drive_unlock();
	return rc;
}

static void empty(struct queue_pair *qp)
{
	for (unsigned i = 0; i < qp->ud->count; i++) {
		struct datagram_wr *wr = &qp->ud->wrs[i];

		polled(bond_of(qp), wr);
		list_remove(&wr->node);
		list_push_back(wr->home, &wr->node);
	}
}

void datagram_destroy(struct queue_pair *qp)
{
	table_remove(&bond_of(qp)->datagram_qps, qp->qp.qp_num);
	cq_of(qp->init.send_cq)->datagram_users--;
	cq_of(qp->init.recv_cq)->datagram_users--;
	empty(qp);
	free(qp->ud->wrs);
	free(qp->ud);
}

static void flush(struct queue_pair *qp)
{
	list_for_each_safe (at, &qp->ud->posted) {
		struct datagram_wr *wr = container_of(at, struct datagram_wr, node);

		wr->wc.status = IBV_WC_WR_FLUSH_ERR;
		complete(qp->init.recv_cq, wr);
	}
}

int datagram_move(struct queue_pair *qp, const struct ibv_qp_attr *attr, int mask)
{
	int rc = qp_rules_check(IBV_QPT_UD, qp->qp.state, attr, mask);

	if (rc != 0)
		return rc;
	if (mask & IBV_QP_QKEY)
		qp->ud->qkey = qp->attr.qkey = attr->qkey;
	if (mask & IBV_QP_PORT)
		qp->attr.port_num = attr->port_num;
	if (mask & IBV_QP_SQ_PSN)
		qp->attr.sq_psn = attr->sq_psn;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR)
		flush(qp);
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		empty(qp);
	return 0;
}

/* ---- receiving ---- */

static int post_receive(struct queue_pair *qp, const struct ibv_recv_wr *wr)
{
	struct datagram_wr *at;
	struct list *node;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->init.cap.max_recv_sge)
		return EINVAL;
	node = list_pop_front(&qp->ud->free_receives);
	if (node == NULL)
		return ENOMEM;
	at = container_of(node, struct datagram_wr, node);
	at->wc = (struct ibv_wc){.wr_id = wr->wr_id, .opcode = IBV_WC_RECV, .qp_num = qp->qp.qp_num};
	at->num_sge = wr->num_sge;
	if (wr->num_sge > 0)
		memcpy(at->sges, wr->sg_list, (size_t)wr->num_sge * sizeof(*at->sges));
	list_push_back(&qp->ud->posted, node);
	if (qp->qp.state == IBV_QPS_ERR)
		flush(qp);
	return 0;
}

int datagram_post_recv(struct queue_pair *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int rc = 0;

	for (; wr != NULL && rc == 0; wr = rc == 0 ? wr->next : wr)
		rc = qp->qp.state == IBV_QPS_RESET ? EINVAL : post_receive(qp, wr);
	if (rc != 0)
		*bad = wr;
	return rc;
}

struct landing {
	const struct datagram_wr *wr;
	const uint8_t *grh, *data;
	size_t bytes; /* of the data */
	bool fits;
};

static void land(void *context)
{
	struct landing *landing = context;
	size_t done = 0, all = GRH_BYTES + landing->bytes;

	for (int i = 0; i < landing->wr->num_sge && done < all; i++) {
		uint8_t *to = (uint8_t *)(uintptr_t)landing->wr->sges[i].addr;
		size_t room = landing->wr->sges[i].length, part;

		while (room > 0 && done < all) {
			bool header = done < GRH_BYTES;

			part = (header ? GRH_BYTES : all) - done;
			part = part < room ? part : room;
			memcpy(to, header ? landing->grh + done : landing->data + (done - GRH_BYTES), part);
			to += part, room -= part, done += part;
		}
	}
	landing->fits = done == all;
}

void datagram_arrived(struct bond *bond, const void *message, size_t bytes)
{
	const struct datagram_head *head = message;
	union ibv_gid own = bond_gid(bond), from;
	uint8_t grh[GRH_BYTES];
	struct landing landing = {.grh = grh, .data = (const uint8_t *)message + DATAGRAM_HEAD_BYTES};
	struct queue_pair *qp;
	struct datagram_wr *wr;
	struct list *posted;

	if (bytes < DATAGRAM_HEAD_BYTES)
		return;
	memcpy(from.raw, head->gid, sizeof(from.raw));
	if (ntohl(head->to) == DATAGRAM_CM_QP_NUM) {
		if (bond->cm != NULL)
			bond->cm->arrived(bond, &from, landing.data, bytes - DATAGRAM_HEAD_BYTES);
		return;
	}
	if ((qp = table_get(&bond->datagram_qps, ntohl(head->to))) == NULL ||
		(qp->qp.state != IBV_QPS_RTR && qp->qp.state != IBV_QPS_RTS) || ntohl(head->qkey) != qp->ud->qkey ||
		(posted = list_pop_front(&qp->ud->posted)) == NULL)
		return;
	wr = container_of(posted, struct datagram_wr, node);
	landing.wr = wr;
	landing.bytes = bytes - DATAGRAM_HEAD_BYTES;
	gid_fill_grh(grh, &from, &own, landing.bytes);
	if (!fault_try(land, &landing))
		wr->wc.status = IBV_WC_LOC_PROT_ERR;
	else if (!landing.fits)
		wr->wc.status = IBV_WC_LOC_LEN_ERR;
	wr->wc.byte_len = (uint32_t)(GRH_BYTES + landing.bytes);
	wr->wc.src_qp = ntohl(head->from);
	wr->wc.wc_flags = IBV_WC_GRH;
	wr->wc.sl = gid_is_ipv4(&from) ? SL_IPV4 : SL_IPV6;
	if (ntohl(head->flags) & DATAGRAM_IMM) {
		wr->wc.wc_flags |= IBV_WC_WITH_IMM;
		wr->wc.imm_data = head->imm;
	}
	wr->unpolled = true;
	bond->datagrams_unpolled++;
	complete(qp->init.recv_cq, wr);
}

/* ---- sending ---- */

struct gathering {
	const struct ibv_send_wr *wr;
	uint8_t *to;
};

static void gather(void *context)
{
	struct gathering *gathering = context;

	for (int i = 0; i < gathering->wr->num_sge; i++) {
		const struct ibv_sge *sge = &gathering->wr->sg_list[i];

		memcpy(gathering->to, (const void *)(uintptr_t)sge->addr, sge->length);
		gathering->to += sge->length;
	}
}

/* IBV_WC_SUCCESS also for one that is lost. */
static enum ibv_wc_status send_to(struct queue_pair *qp, const struct ibv_send_wr *wr, size_t bytes)
{
	static _Thread_local uint8_t local[DATAGRAM_HEAD_BYTES + DATAGRAM_BYTES] __attribute__((aligned(8)));
	const struct datagram_ah *ah = container_of(wr->wr.ud.ah, struct datagram_ah, ah);
	struct bond *bond = bond_of(qp);
	uint8_t *room = ah->own ? local : datagram_links_room(bond, &ah->address, DATAGRAM_HEAD_BYTES + bytes);
	struct gathering gathering = {.wr = wr, .to = room + DATAGRAM_HEAD_BYTES};
	union ibv_gid gid = bond_gid(bond);
	struct datagram_head head = {.to = htonl(wr->wr.ud.remote_qpn),
		.from = htonl(qp->qp.qp_num),
		.qkey = htonl(wr->wr.ud.remote_qkey & 0x80000000u ? qp->ud->qkey : wr->wr.ud.remote_qkey),
		.flags = htonl(wr->opcode == IBV_WR_SEND_WITH_IMM ? DATAGRAM_IMM : 0),
		.imm = wr->imm_data};

	if (room == NULL)
		return IBV_WC_SUCCESS;
	memcpy(head.gid, gid.raw, sizeof(head.gid));
	memcpy(room, &head, sizeof(head));
	if (!fault_try(gather, &gathering))
		return IBV_WC_LOC_PROT_ERR;
	if (ah->own)
		datagram_arrived(bond, local, DATAGRAM_HEAD_BYTES + bytes);
	else
		datagram_links_send(bond);
	return IBV_WC_SUCCESS;
}

static int post_one(struct queue_pair *qp, const struct ibv_send_wr *wr)
{
	bool signaled = qp->init.sq_sig_all != 0 || (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
	size_t bytes = 0;
	struct datagram_wr *done;

	if ((wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) || wr->num_sge < 0 ||
		(uint32_t)wr->num_sge > qp->init.cap.max_send_sge || wr->wr.ud.ah == NULL)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	if (bytes > DATAGRAM_BYTES || ((wr->send_flags & IBV_SEND_INLINE) && bytes > qp->init.cap.max_inline_data))
		return EINVAL;
	if (list_empty(&qp->ud->free_sends))
		return ENOMEM;
	if (qp->qp.state == IBV_QPS_RTS)
		status = send_to(qp, wr, bytes);
	if (!signaled && status == IBV_WC_SUCCESS)
		return 0;
	done = container_of(list_pop_front(&qp->ud->free_sends), struct datagram_wr, node);
	done->wc =
		(struct ibv_wc){.wr_id = wr->wr_id, .status = status, .opcode = IBV_WC_SEND, .qp_num = qp->qp.qp_num};
	complete(qp->init.send_cq, done);
	return 0;
}

int datagram_post_send(struct queue_pair *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc = 0;

	for (; wr != NULL && rc == 0; wr = rc == 0 ? wr->next : wr)
		rc = post_one(qp, wr);
	if (rc != 0)
		*bad = wr;
	return rc;
}
