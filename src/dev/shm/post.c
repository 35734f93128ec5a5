/* Posting: a wr executes before hf_qp_post_send returns when nothing stands in its way, and is kept otherwise.
 *
 * The fast path reads no clock, takes no lock and makes no system call. Until it is known whether the wr can execute at
 * once, its sge list and inline data stay where the caller has them. */
#include "base/copy.h"
#include "dev/shm/shm.h"
#include "dev/qp_rules.h"

#include <errno.h>
#include <string.h>

/* For later: a copy of what belongs to the caller. */
static void keep(struct shm_qp *qp, struct sqe *sqe)
{
	size_t index = (size_t)(sqe - qp->sq);
	struct ibv_sge *sges = qp->sge_store + index * qp->qp.cap.max_send_sge;

	if (sqe->num_sge == 1 && (sqe->flags & IBV_SEND_INLINE) == 0) {
		sges[0] = sqe->sges[0];
	} else if (sqe->flags & IBV_SEND_INLINE) {
		uint8_t *data = qp->inline_store + index * qp->qp.cap.max_inline_data, *at = data;

		for (unsigned i = 0; i < sqe->num_sge; i++) {
			memcpy(at, (const void *)(uintptr_t)sqe->sges[i].addr, sqe->sges[i].length);
			at += sqe->sges[i].length;
		}
		sges[0] = (struct ibv_sge){.addr = (uintptr_t)data, .length = sqe->bytes};
		sqe->num_sge = 1;
	} else if (sqe->num_sge != 0) {
		memcpy(sges, sqe->sges, sqe->num_sge * sizeof(*sges));
	}
	sqe->sges = sges;
}

static inline void fill_footer(struct sqe *sqe, const struct hf_footer *footer)
{
	sqe->foot_rkey = footer == NULL ? 0 : footer->rkey;
	if (sqe->foot_rkey == 0)
		return;
	sqe->foot_addr = footer->remote_addr;
	sqe->foot_value = footer->value;
}

static inline void fill(struct shm_qp *qp, struct sqe *sqe, const struct ibv_send_wr *wr)
{
	uint32_t bytes = wr->num_sge == 1 ? wr->sg_list->length : (uint32_t)qp_rules_wr_bytes(wr);

	sqe->wr_id = wr->wr_id;
	sqe->bytes = bytes;
	sqe->psn = qp->next_psn;
	sqe->opcode = (uint8_t)wr->opcode;
	sqe->num_sge = (uint8_t)wr->num_sge;
	sqe->response_lost = false;
	sqe->flags = wr->send_flags | (qp->qp.sq_sig_all ? IBV_SEND_SIGNALED : 0u);
	sqe->sges = wr->sg_list;
	sqe->done = 0;
	sqe->imm = wr->imm_data;
	if (qp_rules_is_atomic(wr->opcode)) {
		sqe->psns = 1;
		sqe->rkey = wr->wr.atomic.rkey;
		sqe->remote_addr = wr->wr.atomic.remote_addr;
		sqe->compare_add = wr->wr.atomic.compare_add;
		sqe->swap = wr->wr.atomic.swap;
	} else {
		uint32_t mtu_log = 7 + (uint32_t)qp->attr.path_mtu;

		sqe->psns = bytes == 0 ? 1 : (bytes + (1u << mtu_log) - 1) >> mtu_log;
		sqe->rkey = wr->wr.rdma.rkey;
		sqe->remote_addr = wr->wr.rdma.remote_addr;
	}
	qp->next_psn = psn_add(qp->next_psn, sqe->psns);
}

/* The line that the peer polls, if it does. Nothing is stored yet, and only that the line is there has been checked. */
static inline void expect_landing(const struct shm_qp *qp, const struct ibv_send_wr *wr)
{
	if (wr->opcode != IBV_WR_RDMA_WRITE || wr->num_sge != 1 || wr->sg_list->length > COPY_EXPECT_BYTES)
		return;
	for (int i = 0; i < 2; i++) {
		const struct region *region = qp->cached[i];
		uint64_t last = wr->wr.rdma.remote_addr + wr->sg_list->length - 1;

		if (region == NULL || region->rkey != wr->wr.rdma.rkey)
			continue;
		last -= region->iova;
		if (region->at != NULL && last < region->bytes)
			copy_expect(region->at + last);
		return;
	}
}

/* A wr that succeeded and wants no completion has no more use for its place, when nothing is behind it. So log writes
 * and the wrs that they follow take little of the queue, and a burst reads and writes the same few lines. */
static inline void reuse_last_place(struct shm_qp *qp)
{
	if (qp->executed != qp->tail || qp->polled == qp->tail || qp->state != IBV_QPS_RTS ||
		(sqe_at(qp, qp->tail - 1)->flags & IBV_SEND_SIGNALED) != 0)
		return;
	progress_take_acks(qp);
	if (qp->acked != qp->tail || qp->polled == qp->tail || qp->state != IBV_QPS_RTS)
		return;
	qp->tail--;
	qp->acked = qp->executed = qp->tail;
}

static bool footer_is_sound(const struct hf_footer *footer, const struct ibv_send_wr *wr)
{
	return footer == NULL || footer->rkey == 0 ||
	       (footer->remote_addr % FOOTER_BYTES == 0 && wr->opcode != IBV_WR_RDMA_READ);
}

static inline __attribute__((always_inline)) int post_one(
	struct shm_qp *qp, struct ibv_send_wr *wr, const struct hf_footer *footer)
{
	struct shm_cq *cq = shm_cq_of(qp->qp.send_cq);
	struct sqe *sqe;
	bool first;
	int rc;

	expect_landing(qp, wr); /* first, so that the line travels while we do the rest */
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR)
		return -EINVAL;
	reuse_last_place(qp);
	first = qp->executed == qp->tail;
	if (qp->tail - qp->polled >= qp->sq_slots)
		return -ENOMEM;
	if ((rc = footer_is_sound(footer, wr) ? qp_rules_check_send(&qp->qp, wr) : -EINVAL) != 0)
		return rc;
	if (qp->polled == qp->tail)
		qp->sq_base = qp->tail; /* nothing is there: it begins anew, and gets no further than it has to */
	else if (qp->polled - qp->sq_base >= qp->sq_slots)
		qp->sq_base += qp->sq_slots;
	sqe = sqe_at(qp, qp->tail);
	fill(qp, sqe, wr);
	fill_footer(sqe, footer);
	qp->tail++;
	cq_expect(qp);
	if (qp->state == IBV_QPS_ERR) {
		cq_announce(cq, true);
	} else if (!first || progress_pump(qp) != WR_DONE) {
		if (qp->state == IBV_QPS_RTS)
			keep(qp, sqe);
		progress_stall(qp);
	} else if (qp_rules_has_answer(sqe->opcode)) {
		keep(qp, sqe); /* its response is still to come */
	}
	return 0;
}

int shm_qp_post_send(struct hf_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct shm_qp *qp = shm_qp_of(base);

	for (; wr != NULL; wr = wr->next) {
		int rc = post_one(qp, wr, NULL);

		if (rc != 0) {
			*bad_wr = wr;
			return rc;
		}
	}
	return 0;
}

int shm_qp_post_send_footed(struct hf_qp *base, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	struct shm_qp *qp = shm_qp_of(base);

	for (; wr != NULL; wr = wr->next) {
		int rc = dest != NULL ? -EINVAL : post_one(qp, wr, footers++);

		if (rc != 0) {
			*bad_wr = wr;
			return rc;
		}
	}
	return 0;
}
