/* The owner's side of receives: posting them, completing those that requesters filled, flushing the rest.
 *
 * A receive queue lives in the port's arena: a recv_slot is written here when it is posted and by the requester when it
 * is consumed; the op word counts the consumed ones. For a qp with an srq the ring holds, instead, the indexes of the
 * srq's recv_slots in the order of their completion. What is left when the qp is in ERR is flushed once no requester
 * can touch it any more (drain_try). */
#include "dev/shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t round_up(uint32_t n)
{
	uint32_t power = 1;

	while (power < n)
		power <<= 1;
	return power;
}

static void write_slot(struct recv_slot *slot, const struct ibv_recv_wr *wr)
{
	slot->wr_id = wr->wr_id;
	slot->num_sge = (uint32_t)wr->num_sge;
	if (wr->num_sge != 0)
		memcpy(slot->sges, wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
}

/* Peers can only write to memory that they can reach. */
static bool wr_is_good(const struct shm_dev *dev, const struct ibv_recv_wr *wr, uint32_t max_sge)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
		return false;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct shm_mr *mr = atomic_load(&dev->mrs[wr->sg_list[i].lkey & SLOT_MASK]);

		if (mr != NULL && mr->mr.lkey == wr->sg_list[i].lkey && !mr->shared)
			return false;
	}
	return true;
}

/* ---- receive queue of a qp ---- */

int recv_ring_create(struct shm_qp *qp)
{
	struct shm_dev *dev = shm_dev_of(qp->qp.dev);
	struct shm_srq *srq = (struct shm_srq *)qp->qp.srq;
	struct ring_place *ring = &qp->ring;

	if (srq != NULL) {
		ring->slots = srq->mask + 1;
		ring->stride = sizeof(uint32_t);
	} else if (qp->qp.cap.max_recv_wr != 0) {
		ring->slots = round_up(qp->qp.cap.max_recv_wr);
		ring->stride = (uint32_t)(sizeof(struct recv_slot) + qp->qp.cap.max_recv_sge * sizeof(struct ibv_sge));
		qp->qp.cap.max_recv_wr = ring->slots;
	} else {
		return 0;
	}
	qp->recv_mask = ring->slots - 1;
	qp->recv_stride = ring->stride;
	return arena_alloc(dev, (size_t)ring->slots * ring->stride, ring, &qp->recv_ring, NULL);
}

void recv_ring_destroy(struct shm_qp *qp)
{
	arena_free(shm_dev_of(qp->qp.dev), &qp->ring);
}

static int post_one(struct shm_qp *qp, struct ibv_recv_wr *wr)
{
	struct shm_cq *cq = shm_cq_of(qp->qp.recv_cq);

	if (qp->state == IBV_QPS_RESET || qp->qp.srq != NULL ||
		!wr_is_good(shm_dev_of(qp->qp.dev), wr, qp->qp.cap.max_recv_sge))
		return -EINVAL;
	if (qp->recv_ring == NULL || qp->recv_tail - qp->recv_polled > qp->recv_mask)
		return -ENOMEM;
	write_slot(
		(struct recv_slot *)(void *)(qp->recv_ring + (size_t)(qp->recv_tail & qp->recv_mask) * qp->recv_stride),
		wr);
	publish(&qp->shared->recv_tail, ++qp->recv_tail);
	if (qp->state == IBV_QPS_ERR) {
		if (list_empty(&qp->receiver_node))
			list_push_back(&cq->receivers, &qp->receiver_node);
		cq_announce(cq, true);
	}
	return 0;
}

int shm_qp_post_recv(struct hf_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	for (; wr != NULL; wr = wr->next) {
		int rc = post_one(shm_qp_of(base), wr);

		if (rc != 0) {
			*bad_wr = wr;
			return rc;
		}
	}
	return 0;
}

/* ---- completion ---- */

static void fill_wc(const struct shm_qp *qp, const struct recv_slot *slot, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){
		.wr_id = slot->wr_id,
		.status = slot->status <= IBV_WC_TM_RNDV_INCOMPLETE ? (enum ibv_wc_status)slot->status
								    : IBV_WC_GENERAL_ERR,
		.opcode = slot->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = slot->byte_len,
		.imm_data = slot->imm,
		.wc_flags = slot->flags & IBV_WC_WITH_IMM,
		.qp_num = qp->qp.qp_num,
		.src_qp = qp->attr.dest_qp_num,
	};
}

static void flush_wc(const struct shm_qp *qp, uint64_t wr_id, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){
		.wr_id = wr_id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = qp->qp.qp_num};
}

/* How many receives have been consumed but not polled; nonsense counts as none. */
static uint32_t consumed(const struct shm_qp *qp)
{
	uint64_t op = qp->drained ? qp->evidence : atomic_load(&qp->shared->op);
	uint32_t n = OP_RECEIVES(op) - qp->recv_polled;
	uint32_t limit = qp->qp.srq != NULL ? qp->recv_mask + 1 : qp->recv_tail - qp->recv_polled;

	return n <= limit ? n : 0;
}

static struct recv_slot *srq_recv_slot(struct shm_srq *srq, uint32_t index)
{
	return (struct recv_slot *)(void *)(srq->slots + (size_t)index * srq->stride);
}

static void srq_release(struct shm_srq *srq, uint32_t index, bool reuse)
{
	srq->posts[index].posted = false;
	if (reuse)
		srq->free_slots[srq->free_count++] = (uint16_t)index;
}

static int poll_one(struct shm_qp *qp, struct ibv_wc *wc)
{
	uint8_t *at = qp->recv_ring + (size_t)(qp->recv_polled & qp->recv_mask) * qp->recv_stride;
	struct shm_srq *srq = (struct shm_srq *)qp->qp.srq;
	uint32_t index;

	qp->recv_polled++;
	atomic_fetch_sub(&shm_cq_of(qp->qp.recv_cq)->shared->unpolled, 1);
	if (srq == NULL) {
		fill_wc(qp, (struct recv_slot *)(void *)at, wc);
		return 1;
	}
	index = *(uint32_t *)(void *)at;
	if (index >= srq->srq.max_wr || !srq->posts[index].posted)
		return 0;
	fill_wc(qp, srq_recv_slot(srq, index), wc);
	srq_release(srq, index, true);
	return 1;
}

static uint32_t claimer_of(const struct shm_srq *srq, uint32_t index)
{
	uint32_t position = srq->posts[index].position;
	uint64_t claim = atomic_load(&srq->claims[position & srq->mask]);

	return SRQ_CLAIM_POSITION(claim) == (position & 0xffffffu) ? SRQ_CLAIM_QP(claim) : srq->posts[index].claimer;
}

/* The next receive of the srq that the qp's requester held when it ended. */
static int flush_claim(struct shm_qp *qp, struct ibv_wc *wc)
{
	struct shm_srq *srq = (struct shm_srq *)qp->qp.srq;
	/* A requester that was stopped may still store into the recv_slot. */
	bool reuse = (atomic_load(&qp->shared->op) & (OP_TAKEN | OP_GIVEN)) != OP_TAKEN || peer_is_gone(qp->peer);

	for (uint32_t i = 0; i < srq->srq.max_wr; i++) {
		if (!srq->posts[i].posted || claimer_of(srq, i) != qp->qp.qp_num)
			continue;
		flush_wc(qp, srq_recv_slot(srq, i)->wr_id, wc);
		srq_release(srq, i, reuse);
		return 1;
	}
	return 0;
}

void recv_forget(struct shm_qp *qp)
{
	struct ibv_wc wc;

	while (consumed(qp) != 0)
		poll_one(qp, &wc);
	while (qp->qp.srq != NULL && flush_claim(qp, &wc) != 0)
		continue;
}

static int flush_one(struct shm_qp *qp, struct ibv_wc *wc)
{
	if (qp->qp.srq != NULL) {
		if (!qp->claims_flushed)
			qp->claims_flushed = flush_claim(qp, wc) == 0;
		return !qp->claims_flushed;
	}
	if (qp->recv_polled == qp->recv_tail)
		return 0;
	flush_wc(qp,
		((struct recv_slot *)(void *)(qp->recv_ring +
					      (size_t)(qp->recv_polled & qp->recv_mask) * qp->recv_stride))
			->wr_id,
		wc);
	qp->recv_polled++;
	return 1;
}

void recv_last_wqe(struct shm_qp *qp)
{
	if (qp->qp.srq == NULL || qp->last_wqe || !fence_drain_try(qp))
		return;
	qp->last_wqe = true;
	event_push(shm_dev_of(qp->qp.dev), (struct hf_dev_event){.type = IBV_EVENT_QP_LAST_WQE_REACHED, .qp = &qp->qp});
}

int recv_poll(struct shm_qp *qp, int n, struct ibv_wc *wc)
{
	bool drained = qp->state == IBV_QPS_ERR && fence_drain_try(qp);
	int got = 0;

	if (drained)
		recv_last_wqe(qp);

	while (got < n && consumed(qp) != 0)
		got += poll_one(qp, wc + got);
	if (drained && consumed(qp) == 0)
		while (got < n && flush_one(qp, wc + got) != 0)
			got++;
	return got;
}

/* False also while a requester has to get out of the way, because no event tells when it has. */
bool recv_idle(struct shm_qp *qp)
{
	if (consumed(qp) != 0)
		return false;
	if (qp->state != IBV_QPS_ERR)
		return true;
	if (!qp->drained)
		return false;
	return qp->qp.srq != NULL ? qp->claims_flushed : qp->recv_polled == qp->recv_tail;
}

bool recv_drains(struct shm_qp *qp)
{
	return qp->state == IBV_QPS_ERR && consumed(qp) == 0 && !fence_drain_try(qp);
}

/* ---- shared receive queues ---- */

static int srq_alloc(struct shm_srq *srq, struct shm_dev *dev)
{
	struct srq_slot *shared = srq->shared;
	int rc;

	shared->claims = (struct ring_place){.slots = srq->mask + 1, .stride = sizeof(uint64_t)};
	shared->slots = (struct ring_place){.slots = srq->mask + 1, .stride = srq->stride};
	srq->posts = calloc(srq->mask + 1, sizeof(*srq->posts));
	srq->free_slots = calloc(srq->mask + 1, sizeof(*srq->free_slots));
	if (srq->posts == NULL || srq->free_slots == NULL)
		return -ENOMEM;
	rc = arena_alloc(
		dev, (size_t)(srq->mask + 1) * sizeof(uint64_t), &shared->claims, (uint8_t **)&srq->claims, NULL);
	if (rc != 0) {
		shared->claims.slots = shared->slots.slots = 0;
		return rc;
	}
	rc = arena_alloc(dev, (size_t)(srq->mask + 1) * srq->stride, &shared->slots, &srq->slots, NULL);
	if (rc != 0)
		shared->slots.slots = 0;
	return rc;
}

static void srq_free(struct shm_srq *srq, struct shm_dev *dev)
{
	shm_lock(&dev->lock);
	dev->srqs[srq->slot] = NULL;
	shm_unlock(&dev->lock);
	arena_free(dev, &srq->shared->claims);
	arena_free(dev, &srq->shared->slots);
	((struct shm_pd *)srq->srq.pd)->users--;
	free(srq->posts);
	free(srq->free_slots);
	free(srq);
}

int shm_srq_create(struct hf_pd *pd, uint32_t max_wr, uint32_t max_sge, void *context, struct hf_srq **srq_out)
{
	struct shm_dev *dev = shm_dev_of(pd->dev);
	struct shm_srq *srq = calloc(1, sizeof(*srq));
	uint32_t slot = 0;
	int rc;

	if (srq == NULL)
		return -ENOMEM;
	shm_lock(&dev->lock);
	while (slot < SRQ_SLOTS && dev->srqs[slot] != NULL)
		slot++;
	if (slot < SRQ_SLOTS)
		dev->srqs[slot] = srq;
	shm_unlock(&dev->lock);
	if (slot == SRQ_SLOTS) {
		free(srq);
		return -ENOMEM;
	}
	srq->slot = slot;
	srq->shared = &dev->shared->srqs[slot];
	srq->mask = round_up(max_wr) - 1;
	srq->stride = (uint32_t)(sizeof(struct recv_slot) + max_sge * sizeof(struct ibv_sge));
	srq->srq = (struct hf_srq){
		.dev = pd->dev, .pd = pd, .max_wr = srq->mask + 1, .max_sge = max_sge, .context = context};
	((struct shm_pd *)pd)->users++;
	srq->shared->pd = ((struct shm_pd *)pd)->id;
	if ((rc = srq_alloc(srq, dev)) != 0) {
		srq_free(srq, dev);
		return rc;
	}
	atomic_store(&srq->shared->head, 0);
	atomic_store(&srq->shared->tail, 0);
	for (uint32_t i = 0; i <= srq->mask; i++)
		srq->free_slots[srq->free_count++] = (uint16_t)(srq->mask - i);
	*srq_out = &srq->srq;
	return 0;
}

int shm_srq_destroy(struct hf_srq *base)
{
	struct shm_srq *srq = (struct shm_srq *)base;

	if (srq->users != 0)
		return -EBUSY;
	srq_free(srq, shm_dev_of(base->dev));
	return 0;
}

static int srq_post_one(struct shm_srq *srq, const struct ibv_recv_wr *wr)
{
	uint32_t position = srq->tail, index;
	uint64_t old;

	if (!wr_is_good(shm_dev_of(srq->srq.dev), wr, srq->srq.max_sge))
		return -EINVAL;
	if (srq->free_count == 0)
		return -ENOMEM;
	old = atomic_load(&srq->claims[position & srq->mask]);
	if (SRQ_CLAIM_SLOT(old) < srq->srq.max_wr && SRQ_CLAIM_QP(old) != 0)
		srq->posts[SRQ_CLAIM_SLOT(old)].claimer = SRQ_CLAIM_QP(old);
	index = srq->free_slots[--srq->free_count];
	write_slot(srq_recv_slot(srq, index), wr);
	srq->posts[index] = (struct srq_post){.posted = true, .position = position};
	publish(&srq->claims[position & srq->mask], SRQ_CLAIM(position, index, 0));
	publish(&srq->shared->tail, ++srq->tail);
	return 0;
}

int shm_srq_post_recv(struct hf_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	for (; wr != NULL; wr = wr->next) {
		int rc = srq_post_one((struct shm_srq *)base, wr);

		if (rc != 0) {
			*bad_wr = wr;
			return rc;
		}
	}
	return 0;
}
