/* Completion queues and posted receives: the rings between engine and application. */
#include <errno.h>
#include <string.h>

#include "dev/soft/engine.h"

static void overflow(struct soft_cq *cq)
{
	if (cq->overflowed)
		return;
	cq->overflowed = true;
	engine_event(cq->engine, IBV_EVENT_CQ_ERR, NULL, &cq->base);
}

/* The bus's delivery: what was written before it is visible now. */
static void deliver(void *context, const struct ibv_wc *wc)
{
	struct soft_cq *cq = context;
	struct ibv_wc *slot = ring_room(&cq->ring);
	int armed;
	bool solicited = (wc->wc_flags & WC_SOLICITED) != 0 || wc->status != IBV_WC_SUCCESS;

	if (slot == NULL || cq->overflowed) {
		overflow(cq);
		return;
	}
	*slot = *wc;
	slot->wc_flags &= ~WC_SOLICITED;
	ring_push(&cq->ring);
	/* Against arming: both are read-modify-writes of one word, so either we see that it was armed, or the caller
	 * that arms later sees the wc when it polls once more. */
	armed = atomic_fetch_or(&cq->armed, 0);
	if (armed == CQ_ANY || (armed == CQ_SOLICITED && solicited)) {
		atomic_store(&cq->armed, CQ_QUIET);
		publish(&cq->notified, true);
		cq->engine->wake(cq->engine);
	}
}

void completion_add(struct soft_qp *qp, struct hf_cq *cq, struct ibv_wc *wc)
{
	struct soft_bus *bus = qp->engine->bus;

	wc->qp_num = qp->base.qp_num;
	bus->ops->complete(bus, deliver, cq, wc);
}

int completions_poll(struct soft_cq *cq, int n, struct ibv_wc *wc)
{
	int taken = 0;
	struct ibv_wc *slot;

	while (taken < n && (slot = ring_oldest(&cq->ring)) != NULL) {
		wc[taken++] = *slot;
		ring_pop(&cq->ring);
	}
	return taken;
}

/* ---- receives ---- */

uint32_t recv_slot_bytes(uint32_t max_sge)
{
	return (uint32_t)(sizeof(struct recv_slot) + max_sge * sizeof(struct ibv_sge));
}

static int post_one(struct ring *ring, uint32_t max_sge, const struct ibv_recv_wr *wr)
{
	struct recv_slot *slot;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
		return -EINVAL;
	slot = ring_room(ring);
	if (slot == NULL)
		return -ENOMEM;
	slot->wr_id = wr->wr_id;
	slot->num_sge = (uint32_t)wr->num_sge;
	if (wr->num_sge > 0)
		memcpy(slot->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
	ring_push(ring);
	return 0;
}

int recv_post(struct ring *ring, uint32_t max_sge, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	for (; wr != NULL; wr = wr->next) {
		int rc = post_one(ring, max_sge, wr);

		if (rc != 0) {
			*bad_wr = wr;
			return rc;
		}
	}
	return 0;
}
