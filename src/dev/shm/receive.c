/* The requester's side of receives: which one a message goes into, and its completion.
 *
 * A receive queue has one producer, its owner, and one consumer, the connected requester: the count of consumed
 * receives is part of the op word, so that a message is consumed exactly when it is executed (SEG-2).
 *
 * An srq has many consumers. A claim is one exchange that puts the claimer's qp number (of the responder's qp) into the
 * ring's entry, so there is no moment at which a dying process holds a receive that is not known to be its own; the
 * owner gives it back when it flushes that qp. `head` is only a hint of where to look. */
#include "dev/shm/shm.h"

#include <string.h>

static enum wr_outcome take_own(struct shm_qp *qp, struct recv_slot **slot_out)
{
	uint32_t consumed = OP_RECEIVES(qp->op);
	uint32_t posted = observe(&qp->remote->recv_tail) - consumed;

	if (posted == 0 || qp->remote_receives.at == NULL)
		return WR_NO_RECEIVE;
	if (posted > qp->remote_receives.mask + 1)
		return WR_NO_ANSWER;
	*slot_out =
		(struct recv_slot *)(void *)(qp->remote_receives.at + (size_t)(consumed & qp->remote_receives.mask) *
									      qp->remote_receives.stride);
	return WR_DONE;
}

static enum wr_outcome claim(struct shm_qp *qp)
{
	_Atomic uint64_t *ring = (_Atomic uint64_t *)(void *)qp->remote_claims.at;
	struct srq_slot *srq = qp->remote_srq;
	uint32_t head = atomic_load(&srq->head);

	for (uint32_t tries = 0; tries <= qp->remote_claims.mask; tries++) {
		uint32_t position = head + tries;
		uint64_t seen;

		if ((int32_t)(observe(&srq->tail) - position) <= 0)
			return WR_NO_RECEIVE;
		seen = atomic_load(&ring[position & qp->remote_claims.mask]);
		if (SRQ_CLAIM_POSITION(seen) != (position & 0xffffffu) || SRQ_CLAIM_QP(seen) != 0)
			continue;
		if (!atomic_compare_exchange_strong(
			    &ring[position & qp->remote_claims.mask], &seen, seen | qp->attr.dest_qp_num))
			continue;
		atomic_compare_exchange_strong(&srq->head, &head, position + 1);
		qp->claimed = SRQ_CLAIM_SLOT(seen) + 1;
		return WR_DONE;
	}
	return WR_NO_RECEIVE;
}

enum wr_outcome receive_take(struct shm_qp *qp, struct recv_slot **slot_out)
{
	if (qp->remote_srq == NULL)
		return take_own(qp, slot_out);
	if (qp->claimed == 0) {
		enum wr_outcome outcome = claim(qp);

		if (outcome != WR_DONE)
			return outcome;
	}
	if (qp->claimed - 1 > qp->remote_srq_slots.mask)
		return WR_NO_ANSWER;
	*slot_out = (struct recv_slot *)(void *)(qp->remote_srq_slots.at +
						 (size_t)(qp->claimed - 1) * qp->remote_srq_slots.stride);
	return WR_DONE;
}

void receive_complete(struct shm_qp *qp, struct recv_slot *slot, const struct sqe *sqe, enum ibv_wc_status status)
{
	bool imm = sqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || sqe->opcode == IBV_WR_SEND_WITH_IMM;

	slot->status = status;
	slot->opcode = sqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	slot->byte_len = sqe->bytes;
	slot->imm = sqe->imm;
	slot->flags = imm ? IBV_WC_WITH_IMM : 0;
	if (qp->remote_srq != NULL) {
		uint32_t at = OP_RECEIVES(qp->op) & qp->remote_receives.mask;

		*(uint32_t *)(void *)(qp->remote_receives.at + (size_t)at * qp->remote_receives.stride) =
			qp->claimed - 1;
	}
}

void receive_signal(struct shm_qp *qp, bool solicited)
{
	struct segment *shared = qp->peer->shared;
	struct cq_slot *cq = &shared->cqs[qp->remote_recv_cq];
	uint32_t armed;
	bool ring = false;

	qp->claimed = 0;
	if (atomic_fetch_add(&cq->unpolled, 1) >= cq->cqe)
		execute_refuse(qp, IBV_EVENT_CQ_ERR);
	qp_bitmap_set(&cq->receives, qp->remote_slot);
	armed = atomic_load(&cq->armed);
	if ((armed == CQ_ARMED || (armed == CQ_ARMED_SOLICITED && solicited)) &&
		atomic_exchange(&cq->armed, CQ_QUIET) != CQ_QUIET) {
		atomic_store(&cq->notified, 1);
		ring = true;
	}
	if (atomic_load(&shared->header.armed) != 0 && atomic_exchange(&shared->header.armed, 0) != 0)
		ring = true;
	if (ring)
		peer_ring_bell(qp->peer);
}
