/* Footers: eight bytes that belong to an operation, stored behind its data and before its commit.
 *
 * They are stored under guard wherever they go (SEG-4): a requester that was stopped between the data and the footer
 * does not store it once the owner has taken the operation over, so there is one range to move to other pages, not two.
 * The commit is that of the operation, and tells of both. Between data and footer of an atomic nothing can be told, as
 * between the atomic and its commit: that it is unknown covers both. */
#include "dev/shm/shm.h"

#include "dev/shm/cursor.h"

void footer_drop(struct shm_qp *qp)
{
	struct region *region = qp->foot_region;

	qp->foot_region = NULL;
	if (region == NULL)
		return;
	peer_region_forget(shm_dev_of(qp->qp.dev), qp->peer, region);
	peer_region_put(region);
}

static bool may_be_written(const struct shm_qp *qp, const struct sqe *sqe, const struct region *region)
{
	return region->pd == qp->remote_pd && (region->access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
	       region->bytes >= FOOTER_BYTES && sqe->foot_addr >= region->iova &&
	       sqe->foot_addr - region->iova <= region->bytes - FOOTER_BYTES;
}

enum wr_outcome footer_find(struct shm_qp *qp, const struct sqe *sqe)
{
	enum wr_outcome outcome = WR_DONE;

	if (qp->foot_region == NULL || qp->foot_region->rkey != sqe->foot_rkey) {
		struct region *region;

		outcome = peer_region_get(shm_dev_of(qp->qp.dev), qp->peer, sqe->foot_rkey, true, &region);
		if (outcome != WR_DONE)
			return outcome;
		peer_region_put(qp->foot_region);
		qp->foot_region = region;
	}
	if (may_be_written(qp, sqe, qp->foot_region))
		return WR_DONE;
	if (region_is_current(qp, qp->foot_region))
		return WR_FAILED;
	footer_drop(qp);
	return WR_AGAIN;
}

void footer_show(struct shm_qp *qp, const struct sqe *sqe)
{
	enum foot_kind kind = sqe->foot_rkey == 0 ? FOOT_NONE : guard_works() ? FOOT_GUARDED : FOOT_FREE;

	if (kind != FOOT_NONE)
		atomic_store_explicit(&qp->remote->touch_thread, guard_thread(), memory_order_relaxed);
	atomic_store_explicit(&qp->remote->touch_foot, (uint32_t)kind, memory_order_relaxed);
	qp->foot_shown = kind != FOOT_NONE;
}

enum wr_outcome footer_store(struct shm_qp *qp, const struct sqe *sqe)
{
	const struct ibv_sge sge = {.addr = (uintptr_t)&sqe->foot_value, .length = FOOTER_BYTES};
	struct cursor from = {.sge = &sge};

	return reach_store(qp, qp->foot_region, sqe->foot_addr - qp->foot_region->iova, &from, FOOTER_BYTES);
}
