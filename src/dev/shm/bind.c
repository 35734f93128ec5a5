/* The connection of a requester: finding the responder's slot and rings, once per incarnation of it.
 *
 * A requester works on a slot only when the responder names it as its peer, by gid and qp number, and expects the psn
 * that comes next. Whatever does not fit is no answer: the request is repeated until the retry budget is spent. */
#include "dev/shm/shm.h"

#include <string.h>

#define BIND_AGAIN_NS 50000ull /* looking for a port that is not there costs system calls */

void bind_undo_requester(struct shm_qp *qp)
{
	qp->bound = false;
	for (int i = 0; i < 2; i++) {
		peer_region_put(qp->cached[i]);
		qp->cached[i] = NULL;
	}
	peer_region_put(qp->foot_region);
	qp->foot_region = NULL;
}

void bind_release_requester(struct shm_qp *qp)
{
	bind_undo_requester(qp);
	qp->claimed = 0;
	peer_put(shm_dev_of(qp->qp.dev), qp->peer);
	qp->peer = NULL;
}

static bool view_ring(struct shm_qp *qp, const struct ring_place *shared, size_t bytes, struct ring_view *view)
{
	struct ring_place place;

	memcpy(&place, shared, sizeof(place));
	view->at = peer_ring(shm_dev_of(qp->qp.dev), qp->peer, &place, bytes);
	view->mask = place.slots - 1;
	view->stride = place.stride;
	return view->at != NULL;
}

static bool bind_receives(struct shm_qp *qp, uint32_t srq)
{
	struct qp_slot *remote = qp->remote;

	qp->remote_srq = NULL;
	if (srq == SRQ_SLOTS) {
		if (remote->receives.slots != 0)
			return view_ring(qp, &remote->receives, sizeof(struct recv_slot), &qp->remote_receives);
		qp->remote_receives.at = NULL;
		return true;
	}
	if (srq > SRQ_SLOTS)
		return false;
	qp->remote_srq = &qp->peer->shared->srqs[srq];
	qp->srq_pd = qp->remote_srq->pd;
	return view_ring(qp, &remote->receives, sizeof(uint32_t), &qp->remote_receives) &&
	       view_ring(qp, &qp->remote_srq->claims, sizeof(uint64_t), &qp->remote_claims) &&
	       view_ring(qp, &qp->remote_srq->slots, sizeof(struct recv_slot), &qp->remote_srq_slots);
}

static bool names_us(const struct shm_qp *qp, const struct qp_slot *remote)
{
	return remote->qp_num == qp->attr.dest_qp_num && remote->peer_qp_num == qp->qp.qp_num &&
	       memcmp(remote->peer_gid, shm_dev_of(qp->qp.dev)->gid.raw, 16) == 0;
}

static bool bind_slot(struct shm_qp *qp)
{
	uint32_t slot = qp->attr.dest_qp_num & QP_SLOT_MASK;
	struct qp_slot *remote = &qp->peer->shared->qps[slot];
	uint64_t state = atomic_load(&remote->state);
	uint64_t op = atomic_load(&remote->op);

	if (QP_WORD_STATE(state) != IBV_QPS_RTR && QP_WORD_STATE(state) != IBV_QPS_RTS)
		return false;
	if (!names_us(qp, remote) || (op & OP_FLAGS) != 0 || OP_PSN(op) != qp->execute_psn)
		return false;
	qp->remote = remote;
	qp->remote_slot = slot;
	qp->remote_pd = remote->pd;
	qp->remote_recv_cq = remote->recv_cq;
	qp->guarded = remote->revocable != 0 && guard_works();
	if (qp->remote_recv_cq >= CQ_SLOTS || !bind_receives(qp, remote->srq))
		return false;
	if (qp->incarnation != QP_WORD_INCARNATION(state))
		qp->claimed = 0;
	qp->incarnation = QP_WORD_INCARNATION(state);
	qp->op = op;
	qp->foot_shown = true;
	confirm();
	return QP_WORD_INCARNATION(atomic_load(&remote->state)) == qp->incarnation;
}

/* The end that is ready first cannot be bound yet, but the rings of the other's qp are where they will be. Mapped now,
 * the first wr does not wait for it: that may be the first one after a cut. */
void bind_ahead(struct shm_qp *qp)
{
	const struct qp_slot *remote;

	if (qp->peer == NULL || qp->bound || peer_is_gone(qp->peer))
		return;
	remote = &qp->peer->shared->qps[qp->attr.dest_qp_num & QP_SLOT_MASK];
	if (remote->qp_num == qp->attr.dest_qp_num && remote->receives.slots != 0)
		(void)view_ring(qp, &remote->receives, sizeof(uint32_t), &qp->remote_receives);
}

bool bind_requester(struct shm_qp *qp, uint64_t now_ns)
{
	struct shm_dev *dev = shm_dev_of(qp->qp.dev);

	if (qp->peer != NULL && peer_is_gone(qp->peer))
		return false;
	if (qp->peer == NULL) {
		if (now_ns < qp->bind_again_ns)
			return false;
		qp->bind_again_ns = now_ns + BIND_AGAIN_NS;
		qp->peer = peer_get(dev, qp->attr.ah_attr.grh.dgid.raw);
	}
	qp->bound = qp->peer != NULL && bind_slot(qp);
	return qp->bound;
}
