/* Execution: the requester does the responder's work on the responder's memory.
 *
 * Each operation raises OP_BUSY, checks all that may have been withdrawn, touches memory, and commits (SEG-1, SEG-2).
 * A long copy does so in chunks that check again and commit their packets, so a cut, a revocation or a fence stops it
 * at a packet, and the wr resumes there when it may (sqe.done). A refusal moves the responder's qp to ERR, as a NAK
 * would; whether the requester learns of it is the response's fate. */
#include "dev/shm/shm.h"
#include "dev/shm/cursor.h"
#include "dev/qp_rules.h"
#include "env/fault.h"

#include <string.h>

/* ---- the op word ---- */

static void lost(struct shm_qp *qp)
{
	uint64_t taken = qp->op | OP_BUSY | OP_TAKEN;

	atomic_compare_exchange_strong(&qp->remote->op, &taken, taken | OP_GIVEN);
	bind_undo_requester(qp);
}

static inline bool op_begin(struct shm_qp *qp, const struct sqe *sqe)
{
	uint64_t idle = qp->op;

	if (sqe->foot_rkey != 0 || qp->foot_shown)
		footer_show(qp, sqe);
	if (atomic_compare_exchange_strong(&qp->remote->op, &idle, idle | OP_BUSY))
		return true;
	bind_undo_requester(qp);
	return false;
}

/* False: the owner has taken it over. */
static bool op_abort(struct shm_qp *qp)
{
	uint64_t busy = qp->op | OP_BUSY;
	bool ours = atomic_compare_exchange_strong(&qp->remote->op, &busy, qp->op);

	if (!ours)
		lost(qp);
	return ours;
}

static inline bool op_commit(struct shm_qp *qp, uint32_t psns, uint32_t receives, bool more)
{
	uint64_t busy = qp->op | OP_BUSY;
	uint64_t next = OP_WORD(psn_add(OP_PSN(qp->op), psns), OP_RECEIVES(qp->op) + receives);

	if (!atomic_compare_exchange_strong(&qp->remote->op, &busy, more ? next | OP_BUSY : next)) {
		lost(qp);
		return false;
	}
	qp->op = next;
	qp->execute_psn = OP_PSN(next);
	return true;
}

/* An atomic that is taken over leaves its evidence unknown (fence.c), so no peer has to agree with the owner on it, and
 * the exchange can be saved: all that counts is that the pages had not moved when it took effect. */
static inline bool op_commit_atomic(struct shm_qp *qp)
{
	uint64_t next = OP_WORD(psn_add(OP_PSN(qp->op), 1), OP_RECEIVES(qp->op));

	if (atomic_load(&qp->remote->op) != (qp->op | OP_BUSY)) {
		lost(qp);
		return false;
	}
	publish(&qp->remote->op, next);
	qp->op = next;
	qp->execute_psn = OP_PSN(next);
	return true;
}

static inline enum touch_kind store_as(const struct shm_qp *qp, const struct region *region)
{
	return qp->guarded ? TOUCH_GUARDED : (enum touch_kind)region->store_as;
}

static inline void op_touch(
	struct shm_qp *qp, enum touch_kind kind, const struct region *region, uint64_t offset, uint64_t bytes)
{
	struct qp_slot *remote = qp->remote;

	if (kind == TOUCH_GUARDED)
		atomic_store_explicit(&remote->touch_thread, guard_thread(), memory_order_relaxed);
	atomic_store_explicit(&remote->touch_kind, kind, memory_order_relaxed);
	atomic_store_explicit(&remote->touch_mr, region->slot, memory_order_relaxed);
	atomic_store_explicit(&remote->touch_addr, region->addr + offset, memory_order_relaxed);
	atomic_store_explicit(&remote->touch_bytes, bytes, memory_order_relaxed);
}

/* With OP_BUSY up: is everything still as it must be? */
static inline bool qp_answers(struct shm_qp *qp)
{
	uint64_t state = atomic_load(&qp->remote->state);

	return (state == QP_WORD(qp->incarnation, IBV_QPS_RTS) || state == QP_WORD(qp->incarnation, IBV_QPS_RTR)) &&
	       request_path_up(qp);
}

static void region_drop(struct shm_qp *qp, struct region *region)
{
	for (int i = 0; i < 2; i++)
		if (qp->cached[i] == region) {
			qp->cached[i] = NULL;
			peer_region_forget(shm_dev_of(qp->qp.dev), qp->peer, region);
			peer_region_put(region);
			return;
		}
}

bool execute_refuse(struct shm_qp *qp, enum ibv_event_type event)
{
	uint64_t rts = QP_WORD(qp->incarnation, IBV_QPS_RTS), rtr = QP_WORD(qp->incarnation, IBV_QPS_RTR);
	uint64_t err = QP_WORD(qp->incarnation, IBV_QPS_ERR);
	struct port_header *header = &qp->peer->shared->header;

	atomic_store(&qp->remote->fault, (uint32_t)event + 1);
	if (!atomic_compare_exchange_strong(&qp->remote->state, &rts, err) &&
		!atomic_compare_exchange_strong(&qp->remote->state, &rtr, err))
		return false;
	qp_bitmap_set(&header->faults, qp->remote_slot);
	atomic_store(&header->armed, 0);
	peer_ring_bell(qp->peer);
	return true;
}

static enum wr_outcome nak(struct shm_qp *qp, struct sqe *sqe, enum ibv_wc_status status, enum ibv_event_type event)
{
	if (!execute_refuse(qp, event) || !response_path_up(qp))
		return WR_NO_ANSWER;
	sqe->status = (uint8_t)status;
	return WR_FAILED;
}

/* ---- finding memory ---- */

static inline enum wr_outcome find_region(struct shm_qp *qp, uint32_t key, bool is_rkey, struct region **region_out)
{
	enum wr_outcome outcome;
	uint32_t turn;

	for (int i = 0; i < 2; i++)
		if (qp->cached[i] != NULL && (is_rkey ? qp->cached[i]->rkey : qp->cached[i]->lkey) == key) {
			*region_out = qp->cached[i];
			return WR_DONE;
		}
	outcome = peer_region_get(shm_dev_of(qp->qp.dev), qp->peer, key, is_rkey, region_out);
	if (outcome != WR_DONE)
		return outcome;
	turn = qp->cached_turn++ & 1;
	peer_region_put(qp->cached[turn]);
	qp->cached[turn] = *region_out;
	return WR_DONE;
}

static inline bool in_range(uint64_t begin, uint64_t bytes, uint64_t from, uint64_t length)
{
	return from >= begin && length <= bytes && from - begin <= bytes - length;
}

static enum wr_outcome unmapped(struct sqe *sqe)
{
	sqe->status = IBV_WC_LOC_QP_OP_ERR;
	return WR_FAILED;
}

/* Of the wr's footer; op_begin has not happened yet. */
static enum wr_outcome find_footer(struct shm_qp *qp, struct sqe *sqe)
{
	enum wr_outcome outcome = footer_find(qp, sqe);

	if (outcome == WR_UNMAPPED)
		return unmapped(sqe);
	return outcome == WR_FAILED ? nak(qp, sqe, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR) : outcome;
}

/* The region of the wr's rkey; op_begin has not happened yet. */
static inline enum wr_outcome find_remote(
	struct shm_qp *qp, struct sqe *sqe, uint32_t access, struct region **region_out)
{
	enum wr_outcome outcome = find_region(qp, sqe->rkey, true, region_out);
	struct region *region = *region_out;

	if (outcome == WR_NO_ANSWER || outcome == WR_AGAIN)
		return outcome;
	if (outcome == WR_UNMAPPED)
		return unmapped(sqe);
	if (outcome != WR_DONE || region->pd != qp->remote_pd || (region->access & access) == 0 ||
		!in_range(region->iova, region->bytes, sqe->remote_addr, sqe->bytes)) {
		if (outcome == WR_DONE && !region_is_current(qp, region)) {
			region_drop(qp, region);
			return WR_AGAIN;
		}
		return nak(qp, sqe, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	}
	return WR_DONE;
}

/* ---- local memory ---- */

static inline __attribute__((always_inline)) bool local_memory_is_good(const struct shm_qp *qp, const struct sqe *sqe)
{
	const struct shm_dev *dev = shm_dev_of(qp->qp.dev);
	bool written = sqe->opcode >= IBV_WR_RDMA_READ; /* and atomics */

	if (sqe->flags & IBV_SEND_INLINE)
		return true;
	for (unsigned i = 0; i < sqe->num_sge; i++) {
		const struct ibv_sge *sge = &sqe->sges[i];
		const struct shm_mr *mr = atomic_load_explicit(&dev->mrs[sge->lkey & SLOT_MASK], memory_order_acquire);

		if (sge->length == 0)
			continue;
		if (mr == NULL || mr->mr.lkey != sge->lkey || mr->mr.pd != qp->qp.pd ||
			!in_range((uintptr_t)mr->mr.addr, mr->mr.bytes, sge->addr, sge->length) ||
			(written && (mr->mr.access & IBV_ACCESS_LOCAL_WRITE) == 0))
			return false;
	}
	return true;
}

/* ---- WRITE ---- */

static inline uint32_t chunk_psns(const struct shm_qp *qp, const struct sqe *sqe, uint32_t bytes)
{
	uint32_t mtu_log = 7 + (uint32_t)qp->attr.path_mtu;

	if (sqe->done + bytes == sqe->bytes)
		return sqe->psns - (sqe->done >> mtu_log);
	return bytes >> mtu_log;
}

static inline uint32_t chunk_bytes(const struct sqe *sqe)
{
	uint32_t rest = sqe->bytes - sqe->done;

	return rest < CHUNK_BYTES ? rest : CHUNK_BYTES;
}

/* Behind op_begin or a commit with more to come; everything but WR_DONE leaves the op word idle. */
static inline __attribute__((always_inline)) enum wr_outcome check(
	struct shm_qp *qp, struct sqe *sqe, struct region *region, uint32_t access)
{
	if (!qp_answers(qp)) {
		op_abort(qp);
		return WR_NO_ANSWER;
	}
	if (region != NULL && !region_is_current(qp, region)) {
		op_abort(qp);
		region_drop(qp, region);
		return WR_AGAIN;
	}
	if (sqe->foot_rkey != 0) {
		if (!region_is_current(qp, qp->foot_region)) {
			op_abort(qp);
			footer_drop(qp);
			return WR_AGAIN;
		}
		access |= IBV_ACCESS_REMOTE_WRITE;
	}
	if ((atomic_load(&qp->remote->access) & access) != access) {
		op_abort(qp);
		return nak(qp, sqe, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	}
	return WR_DONE;
}

/* A copy between mappings, which meets a file that was truncated, or local memory that was unmapped, as a fault. */
struct copy {
	struct shm_qp *qp;
	const struct region *region;
	uint64_t offset;
	struct cursor *cursor;
	uint32_t bytes;
	enum wr_outcome outcome;
};

static void store_mapped(void *context)
{
	struct copy *copy = context;
	const struct region *region = copy->region;

	if (region->guarded || copy->qp->guarded)
		copy->outcome = reach_store(copy->qp, region, copy->offset, copy->cursor, copy->bytes);
	else
		copy_sges(copy->cursor, region->at + copy->offset, copy->bytes, true);
}

static void load_mapped(void *context)
{
	struct copy *copy = context;

	copy_sges(copy->cursor, copy->region->at + copy->offset, copy->bytes, false);
}

/* Whose memory was not there: that of the cursor, or the peer's. `place` NULL: only the kernel has met it. */
static enum wr_outcome missing(struct cursor cursor, size_t bytes, const void *place, bool written)
{
	while (bytes > 0) {
		size_t part;
		const uint8_t *at = cursor_at(&cursor, bytes, &part);

		if (place != NULL ? (uintptr_t)place - (uintptr_t)at < part : fault_check(at, part, written) != 0)
			return WR_NO_LOCAL;
		bytes -= part;
		cursor_pass(&cursor, part);
	}
	return WR_FAILED;
}

static inline enum wr_outcome store(
	struct shm_qp *qp, const struct region *region, uint64_t offset, struct cursor *from, uint32_t bytes)
{
	struct copy copy = {.qp = qp, .region = region, .offset = offset, .cursor = from, .bytes = bytes};
	const struct cursor begin = *from;

	if (region->at == NULL)
		copy.outcome = reach_store(qp, region, offset, from, bytes);
	else if (!fault_try(store_mapped, &copy))
		return missing(begin, bytes, fault_place(), false);
	return copy.outcome == WR_FAILED ? missing(begin, bytes, NULL, false) : copy.outcome;
}

static inline enum wr_outcome load(
	struct shm_qp *qp, const struct region *region, uint64_t offset, struct cursor *to, uint32_t bytes)
{
	struct copy copy = {.qp = qp, .region = region, .offset = offset, .cursor = to, .bytes = bytes};
	const struct cursor begin = *to;

	if (region->at == NULL)
		copy.outcome = reach_load(qp, region, offset, to, bytes);
	else if (!fault_try(load_mapped, &copy))
		return missing(begin, bytes, fault_place(), true);
	return copy.outcome == WR_FAILED ? missing(begin, bytes, NULL, true) : copy.outcome;
}

/* Behind the data. */
static inline enum wr_outcome end_with_footer(struct shm_qp *qp, const struct sqe *sqe)
{
	return sqe->foot_rkey == 0 ? WR_DONE : footer_store(qp, sqe);
}

/* A copy that did not succeed, with OP_BUSY up. WR_FAILED: the registered memory is not there any more. */
static enum wr_outcome give_up(struct shm_qp *qp, struct sqe *sqe, enum wr_outcome outcome)
{
	op_abort(qp);
	if (outcome == WR_NO_LOCAL) {
		sqe->status = IBV_WC_LOC_PROT_ERR;
		return WR_FAILED;
	}
	return outcome == WR_FAILED ? nak(qp, sqe, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR) : outcome;
}

static inline void count(struct shm_qp *qp, const struct sqe *sqe)
{
	struct qp_slot *remote = qp->remote;

	qp->packets += sqe->psns;
	qp->bytes += sqe->bytes;
	atomic_store_explicit(&remote->packets,
		atomic_load_explicit(&remote->packets, memory_order_relaxed) + sqe->psns, memory_order_relaxed);
	atomic_store_explicit(&remote->bytes, atomic_load_explicit(&remote->bytes, memory_order_relaxed) + sqe->bytes,
		memory_order_relaxed);
}

static inline enum wr_outcome execute_write(struct shm_qp *qp, struct sqe *sqe)
{
	bool imm = sqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct cursor from = {.sge = sqe->sges};
	struct recv_slot *slot = NULL;
	struct region *region = NULL;
	uint64_t offset = 0;
	enum wr_outcome outcome;

	if (sqe->foot_rkey != 0 && (outcome = find_footer(qp, sqe)) != WR_DONE)
		return outcome;
	if (imm && (outcome = receive_take(qp, &slot)) != WR_DONE)
		return outcome;
	if (sqe->bytes != 0) {
		if ((outcome = find_remote(qp, sqe, IBV_ACCESS_REMOTE_WRITE, &region)) != WR_DONE)
			return outcome;
		offset = sqe->remote_addr - region->iova;
		op_touch(qp, store_as(qp, region), region, offset + sqe->done, sqe->bytes - sqe->done);
		if (sqe->done != 0)
			cursor_skip(&from, sqe->done);
	}
	if (!op_begin(qp, sqe))
		return WR_NO_ANSWER;
	for (;;) {
		uint32_t bytes = chunk_bytes(sqe), psns = chunk_psns(qp, sqe, bytes);
		bool more = sqe->done + bytes != sqe->bytes;

		if ((outcome = check(qp, sqe, region, IBV_ACCESS_REMOTE_WRITE)) != WR_DONE)
			return outcome;
		if (region != NULL && (outcome = store(qp, region, offset + sqe->done, &from, bytes)) != WR_DONE)
			return give_up(qp, sqe, outcome);
		if (!more && (outcome = end_with_footer(qp, sqe)) != WR_DONE)
			return give_up(qp, sqe, outcome);
		if (imm && !more)
			receive_complete(qp, slot, sqe, IBV_WC_SUCCESS);
		if (!op_commit(qp, psns, imm && !more, more))
			return WR_NO_ANSWER;
		sqe->done += bytes;
		if (!more)
			break;
	}
	count(qp, sqe);
	if (imm)
		receive_signal(qp, (sqe->flags & IBV_SEND_SOLICITED) != 0);
	return WR_DONE;
}

/* ---- READ ---- */

static enum wr_outcome execute_read(struct shm_qp *qp, struct sqe *sqe)
{
	struct cursor to = {.sge = sqe->sges};
	struct region *region = NULL;
	enum wr_outcome outcome;

	if (sqe->bytes != 0) {
		if ((outcome = find_remote(qp, sqe, IBV_ACCESS_REMOTE_READ, &region)) != WR_DONE)
			return outcome;
		op_touch(qp, TOUCH_READ, region, sqe->remote_addr - region->iova, sqe->bytes);
		if (sqe->done != 0)
			cursor_skip(&to, sqe->done);
	}
	if (!op_begin(qp, sqe))
		return WR_NO_ANSWER;
	for (;;) {
		uint32_t bytes = chunk_bytes(sqe), psns = chunk_psns(qp, sqe, bytes);
		bool more = sqe->done + bytes != sqe->bytes;

		if ((outcome = check(qp, sqe, region, IBV_ACCESS_REMOTE_READ)) != WR_DONE)
			return outcome;
		if (!response_path_up(qp))
			sqe->response_lost = true;
		if (region != NULL && !sqe->response_lost) {
			outcome = load(qp, region, sqe->remote_addr - region->iova + sqe->done, &to, bytes);
			if (outcome != WR_DONE)
				return give_up(qp, sqe, outcome);
		}
		if (!op_commit(qp, psns, 0, more))
			return WR_NO_ANSWER;
		sqe->done += bytes;
		if (!more)
			break;
	}
	count(qp, sqe);
	return WR_DONE;
}

/* The response was lost: the request is a duplicate now and is executed once more, which changes no psn. */
bool execute_read_again(struct shm_qp *qp, struct sqe *sqe)
{
	struct cursor to = {.sge = sqe->sges};
	struct region *region = NULL;
	enum wr_outcome outcome;

	if (sqe->bytes == 0)
		return true;
	if (!local_memory_is_good(qp, sqe) || find_remote(qp, sqe, IBV_ACCESS_REMOTE_READ, &region) != WR_DONE)
		return false;
	op_touch(qp, TOUCH_READ, region, sqe->remote_addr - region->iova, sqe->bytes);
	if (!op_begin(qp, sqe) || check(qp, sqe, region, IBV_ACCESS_REMOTE_READ) != WR_DONE)
		return false;
	outcome = load(qp, region, sqe->remote_addr - region->iova, &to, sqe->bytes);
	return op_abort(qp) && outcome == WR_DONE;
}

/* ---- atomics ---- */

struct atomic {
	struct sqe *sqe;
	_Atomic uint64_t *word;
};

static void change(void *context)
{
	const struct atomic *atomic = context;
	struct sqe *sqe = atomic->sqe;

	if (sqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sqe->original = atomic_fetch_add(atomic->word, sqe->compare_add);
	} else {
		sqe->original = sqe->compare_add;
		atomic_compare_exchange_strong(atomic->word, &sqe->original, sqe->swap);
	}
}

static enum wr_outcome execute_atomic(struct shm_qp *qp, struct sqe *sqe)
{
	struct atomic_result *result;
	struct region *region;
	enum wr_outcome outcome;
	_Atomic uint64_t *word;
	uint32_t psn = OP_PSN(qp->op), n;

	if ((outcome = find_remote(qp, sqe, IBV_ACCESS_REMOTE_ATOMIC, &region)) != WR_DONE)
		return outcome;
	if (sqe->foot_rkey != 0 && (outcome = find_footer(qp, sqe)) != WR_DONE)
		return outcome;
	word = (_Atomic uint64_t *)(void *)(region->at + (sqe->remote_addr - region->iova));
	if (((uintptr_t)word & 7) != 0 || region->at == NULL)
		return nak(qp, sqe, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	op_touch(qp, TOUCH_ATOMIC, region, sqe->remote_addr - region->iova, 8);
	if (!op_begin(qp, sqe))
		return WR_NO_ANSWER;
	if ((outcome = check(qp, sqe, region, IBV_ACCESS_REMOTE_ATOMIC)) != WR_DONE)
		return outcome;
	if (!fault_try(change, &(struct atomic){.sqe = sqe, .word = word}))
		return give_up(qp, sqe, WR_FAILED);
	n = atomic_load_explicit(&qp->remote->atomics, memory_order_relaxed);
	result = &qp->remote->results[n % RD_ATOMIC];
	atomic_store_explicit(&result->psn, psn, memory_order_relaxed);
	atomic_store_explicit(&result->original, sqe->original, memory_order_relaxed);
	atomic_store_explicit(&qp->remote->atomics, n + 1, memory_order_relaxed);
	outcome = end_with_footer(qp, sqe);
	if (!op_commit_atomic(qp))
		return WR_NO_ANSWER;
	if (outcome != WR_DONE) /* its memory is gone, or its process: what executed stays executed */
		return outcome == WR_FAILED ? nak(qp, sqe, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR) : outcome;
	count(qp, sqe);
	return WR_DONE;
}

/* ---- SEND ---- */

/* A receive as its owner posted it, copied, because the owner might change it under us. */
struct receive {
	uint32_t num_sge;
	struct ibv_sge sges[MAX_SGE];
	uint64_t bytes;
};

static bool receive_read(const struct recv_slot *slot, uint32_t stride, struct receive *receive)
{
	uint32_t room = (stride - (uint32_t)sizeof(*slot)) / (uint32_t)sizeof(struct ibv_sge);

	receive->num_sge = slot->num_sge;
	receive->bytes = 0;
	if (receive->num_sge > MAX_SGE || receive->num_sge > room)
		return false;
	memcpy(receive->sges, slot->sges, receive->num_sge * sizeof(struct ibv_sge));
	for (uint32_t i = 0; i < receive->num_sge; i++)
		receive->bytes += receive->sges[i].length;
	return true;
}

/* With OP_BUSY up: the part of the chunk that goes to one sge. WR_FAILED: the receive's memory is not registered. */
static enum wr_outcome scatter_part(
	struct shm_qp *qp, const struct ibv_sge *sge, uint32_t skip, struct cursor *from, uint32_t bytes)
{
	uint32_t pd = qp->remote_srq != NULL ? qp->srq_pd : qp->remote_pd;
	struct region *region;
	enum wr_outcome outcome = find_region(qp, sge->lkey, false, &region);

	if (outcome != WR_DONE)
		return outcome;
	if (region->pd != pd || (region->access & IBV_ACCESS_LOCAL_WRITE) == 0 ||
		!in_range(region->addr, region->bytes, sge->addr, sge->length))
		return WR_FAILED;
	op_touch(qp, store_as(qp, region), region, sge->addr - region->addr + skip, bytes);
	announce(); /* the one that moves the pages of a stopped process reads where it was about to copy to */
	if (!region_is_current(qp, region)) {
		region_drop(qp, region);
		return WR_AGAIN;
	}
	if (!qp_answers(qp))
		return WR_NO_ANSWER;
	return store(qp, region, sge->addr - region->addr + skip, from, bytes);
}

static enum wr_outcome scatter(
	struct shm_qp *qp, const struct receive *receive, uint32_t at, struct cursor *from, uint32_t bytes)
{
	for (uint32_t i = 0; i < receive->num_sge && bytes > 0; i++) {
		const struct ibv_sge *sge = &receive->sges[i];
		enum wr_outcome outcome;
		uint32_t part;

		if (at >= sge->length) {
			at -= sge->length;
			continue;
		}
		part = sge->length - at < bytes ? sge->length - at : bytes;
		if ((outcome = scatter_part(qp, sge, at, from, part)) != WR_DONE)
			return outcome;
		bytes -= part;
		at = 0;
	}
	return WR_DONE;
}

/* The receive itself is at fault: it completes in error, and both qps are done for. OP_BUSY is up. */
static enum wr_outcome fail_receive(
	struct shm_qp *qp, struct sqe *sqe, struct recv_slot *slot, enum ibv_wc_status here, enum ibv_wc_status there)
{
	receive_complete(qp, slot, sqe, there);
	if (!op_commit(qp, 0, 1, false))
		return WR_NO_ANSWER;
	receive_signal(qp, true);
	return nak(qp, sqe, here, IBV_EVENT_QP_REQ_ERR);
}

static enum wr_outcome execute_send(struct shm_qp *qp, struct sqe *sqe)
{
	struct cursor from = {.sge = sqe->sges};
	struct recv_slot *slot;
	struct receive receive;
	enum wr_outcome outcome;

	if (sqe->foot_rkey != 0 && (outcome = find_footer(qp, sqe)) != WR_DONE)
		return outcome;
	if ((outcome = receive_take(qp, &slot)) != WR_DONE)
		return outcome;
	if (!receive_read(
		    slot, qp->remote_srq != NULL ? qp->remote_srq_slots.stride : qp->remote_receives.stride, &receive))
		return WR_NO_ANSWER;
	if (sqe->done != 0)
		cursor_skip(&from, sqe->done);
	atomic_store_explicit(&qp->remote->touch_bytes, 0, memory_order_relaxed);
	if (!op_begin(qp, sqe))
		return WR_NO_ANSWER;
	for (;;) {
		uint32_t bytes = chunk_bytes(sqe), psns = chunk_psns(qp, sqe, bytes);
		bool more = sqe->done + bytes != sqe->bytes;

		if ((outcome = check(qp, sqe, NULL, 0)) != WR_DONE)
			return outcome;
		if (sqe->bytes > receive.bytes)
			return fail_receive(qp, sqe, slot, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
		outcome = scatter(qp, &receive, sqe->done, &from, bytes);
		if (outcome == WR_FAILED)
			return fail_receive(qp, sqe, slot, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
		if (outcome == WR_UNMAPPED) {
			op_abort(qp);
			return unmapped(sqe);
		}
		if (outcome != WR_DONE)
			return give_up(qp, sqe, outcome);
		if (!more && (outcome = end_with_footer(qp, sqe)) != WR_DONE)
			return give_up(qp, sqe, outcome);
		if (!more)
			receive_complete(qp, slot, sqe, IBV_WC_SUCCESS);
		if (!op_commit(qp, psns, !more, more))
			return WR_NO_ANSWER;
		sqe->done += bytes;
		if (!more)
			break;
	}
	count(qp, sqe);
	receive_signal(qp, (sqe->flags & IBV_SEND_SOLICITED) != 0);
	return WR_DONE;
}

/* ---- any ---- */

_Static_assert(IBV_WR_RDMA_READ == 4 && IBV_WR_ATOMIC_CMP_AND_SWP == 5 && IBV_WR_ATOMIC_FETCH_AND_ADD == 6,
	"opcodes from READ on have responses with data");

enum wr_outcome execute_wr(struct shm_qp *qp, struct sqe *sqe)
{
	if (!local_memory_is_good(qp, sqe)) {
		sqe->status = IBV_WC_LOC_PROT_ERR;
		return WR_FAILED;
	}
	if (!request_path_up(qp)) {
		qp->dropped++;
		return WR_NO_ANSWER;
	}
	if (sqe->opcode == IBV_WR_RDMA_WRITE || sqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return execute_write(qp, sqe);
	if (sqe->opcode == IBV_WR_RDMA_READ)
		return execute_read(qp, sqe);
	if (qp_rules_is_atomic(sqe->opcode))
		return execute_atomic(qp, sqe);
	return execute_send(qp, sqe); /* others were refused when they were posted */
}
