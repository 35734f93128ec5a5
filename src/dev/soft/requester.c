#include "dev/soft/requester.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"
#include "dev/qp_rules.h"
#include "dev/soft/engine.h"

#define STREAM_BYTES  (128u * 1024)
#define GATHER_BYTES  (256u * 1024)
#define RESEND_NS     4194304u /* the first time; then twice as long each, within the qp's time-out */
#define MTU_BYTES_MIN 256u     /* until it is modified: a qp that went from INIT to ERR takes wrs too, to flush them */

int requester_init(struct requester *requester, struct soft_qp *qp, const struct ibv_qp_cap *cap)
{
	size_t bytes = sizeof(struct send_slot) + cap->max_send_sge * sizeof(struct ibv_sge) + cap->max_inline_data;

	requester->qp = qp;
	requester->max_sge = cap->max_send_sge;
	qp->mtu_bytes = MTU_BYTES_MIN;
	list_init(&requester->busy);
	list_init(&requester->timed);
	return ring_init(&requester->ring, cap->max_send_wr, (uint32_t)(bytes + 15) & ~15u);
}

void requester_free(struct requester *requester)
{
	ring_free(&requester->ring);
}

void requester_start(struct requester *requester, uint32_t psn, uint64_t now_ns)
{
	/* Room below, so that late acknowledgements of lower psns do not wrap. */
	uint64_t first = (uint64_t)1 << 32 | psn;

	atomic_store(&requester->posted, first);
	requester->acked = requester->next = requester->sent = requester->ack_asked = first;
	atomic_store_explicit(&requester->acked_shown, first, memory_order_relaxed);
	requester->undriven = 0;
	requester->retries = requester->qp->attr.retry_cnt;
	requester->rnr_retries = requester->qp->attr.rnr_retry;
	requester->life = (now_ns & ~(uint64_t)0xff) | (uint8_t)(requester->life + 1);
	requester_reset_window(requester);
}

/* ---- the application's end ---- */

static void fill_slot(struct requester *requester, struct send_slot *slot, const struct ibv_send_wr *wr)
{
	bool atomic = qp_rules_is_atomic(wr->opcode);

	slot->wr_id = wr->wr_id;
	slot->opcode = wr->opcode;
	slot->send_flags = wr->send_flags;
	slot->status = IBV_WC_SUCCESS;
	slot->checked = false;
	slot->imm = wr->imm_data;
	slot->va = atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr;
	slot->rkey = atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
	slot->compare_add = wr->wr.atomic.compare_add;
	slot->swap = wr->wr.atomic.swap;
	slot->bytes = qp_rules_wr_bytes(wr);
	slot->psns = qp_rules_psns(wr->opcode, slot->bytes, requester->qp->mtu_bytes);
	slot->num_sge = (uint32_t)wr->num_sge;
	if (wr->send_flags & IBV_SEND_INLINE) {
		uint8_t *to = send_slot_inline(requester, slot);

		for (int i = 0; i < wr->num_sge; to += wr->sg_list[i].length, i++)
			memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
	} else if (wr->num_sge > 0) {
		memcpy(slot->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
	}
}

static bool footer_is_sound(const struct hf_footer *footer, const struct ibv_send_wr *wr)
{
	return footer->rkey == 0 || (footer->remote_addr % 8 == 0 && wr->opcode != IBV_WR_RDMA_READ);
}

static int post_one(struct requester *requester, const struct hf_dc_dest *dest, const struct ibv_send_wr *wr,
	const struct hf_footer *footer)
{
	enum ibv_qp_state state = qp_state(requester->qp);
	struct send_slot *slot;
	uint64_t psn;
	int rc;

	if (state != IBV_QPS_RTS && state != IBV_QPS_ERR)
		return -EINVAL;
	rc = footer_is_sound(footer, wr) ? qp_rules_check_send(&requester->qp->base, wr) : -EINVAL;
	if (rc != 0)
		return rc;
	slot = ring_room(&requester->ring);
	if (slot == NULL)
		return -ENOMEM;
	fill_slot(requester, slot, wr);
	slot->footer = *footer;
	if (dest != NULL)
		slot->dest = *dest;
	psn = atomic_load_explicit(&requester->posted, memory_order_relaxed);
	slot->psn = psn;
	atomic_store_explicit(&requester->posted, psn + slot->psns, memory_order_relaxed);
	ring_push(&requester->ring);
	return 0;
}

int requester_post(struct requester *requester, const struct hf_dc_dest *dest, struct ibv_send_wr *wr,
	const struct hf_footer *footers, struct ibv_send_wr **bad_wr)
{
	static const struct hf_footer none;

	for (; wr != NULL; wr = wr->next) {
		int rc = post_one(requester, dest, wr, footers == NULL ? &none : footers++);

		if (rc != 0) {
			*bad_wr = wr;
			return rc;
		}
	}
	return 0;
}

bool requester_may_wait(struct requester *requester, uint64_t posted)
{
	uint64_t acked = atomic_load_explicit(&requester->acked_shown, memory_order_relaxed);
	uint64_t now = atomic_load_explicit(&requester->posted, memory_order_relaxed);
	uint32_t mtu = requester->qp->mtu_bytes;

	requester->undriven += posted;
	if (requester->undriven < GATHER_BYTES / mtu && now - acked >= requester->undriven + STREAM_BYTES / mtu)
		return true;
	requester->undriven = 0;
	return false;
}

/* ---- completion ---- */

struct send_slot *requester_tail_slot(struct requester *requester)
{
	return ring_oldest(&requester->ring);
}

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
	if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return IBV_WC_RDMA_WRITE;
	if (opcode == IBV_WR_RDMA_READ)
		return IBV_WC_RDMA_READ;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		return IBV_WC_COMP_SWAP;
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD : IBV_WC_SEND;
}

void requester_complete(struct requester *requester, enum ibv_wc_status status)
{
	struct soft_qp *qp = requester->qp;
	struct send_slot *slot = requester_tail_slot(requester);
	uint32_t tail = atomic_load_explicit(&requester->ring.tail, memory_order_relaxed);
	bool signaled = qp->base.sq_sig_all || (slot->send_flags & IBV_SEND_SIGNALED) || status != IBV_WC_SUCCESS;
	struct ibv_wc wc = {.wr_id = slot->wr_id,
		.status = status,
		.opcode = wc_opcode(slot->opcode),
		.byte_len = (uint32_t)slot->bytes};

	if (requester->cursor == tail)
		requester->cursor++;
	ring_pop(&requester->ring); /* before the wc: a caller that has polled it finds room */
	if (signaled)
		completion_add(qp, qp->base.send_cq, &wc);
}

void requester_flush(struct requester *requester)
{
	while (requester_tail_slot(requester) != NULL)
		requester_complete(requester, IBV_WC_WR_FLUSH_ERR);
	requester->ack_due_ns = requester->rnr_due_ns = 0;
	requester->reads_out = 0;
	list_remove(&requester->busy);
}

void requester_forget(struct requester *requester)
{
	while (requester_tail_slot(requester) != NULL) {
		ring_pop(&requester->ring);
		requester->cursor++;
	}
	requester->cursor = atomic_load_explicit(&requester->ring.tail, memory_order_relaxed);
	requester->ack_due_ns = requester->rnr_due_ns = 0;
	requester->reads_out = 0;
	requester->went_back = requester->connected = false;
	list_remove(&requester->busy);
}

/* The oldest wr failed for good; the ones behind it are flushed. */
void requester_fail(struct requester *requester, enum ibv_wc_status status)
{
	if (requester_tail_slot(requester) != NULL)
		requester_complete(requester, status);
	qp_fail(requester->qp);
}

/* ---- time ---- */

static void set_timer(struct requester *requester, uint64_t now_ns)
{
	uint64_t resend_due_ns = now_ns + requester->resend_ns;

	requester->ack_due_ns = resend_due_ns < requester->period_end_ns ? resend_due_ns : requester->period_end_ns;
	engine_time(requester->qp->engine, &requester->timed, requester->ack_due_ns);
}

void requester_arm_timer(struct requester *requester, uint64_t now_ns)
{
	uint8_t timeout = requester->qp->attr.timeout;

	if (timeout == 0 || requester->acked == requester->sent) { /* 0: wait for ever */
		requester->ack_due_ns = 0;
		return;
	}
	requester->period_end_ns = now_ns + qp_rules_timeout_ns(timeout);
	requester->resend_ns = RESEND_NS;
	set_timer(requester, now_ns);
}

void requester_go_back(struct requester *requester)
{
	requester->went_back = true;
	requester->next = requester->acked;
	requester->cursor = atomic_load_explicit(&requester->ring.tail, memory_order_relaxed);
	requester->reads_out = 0;
	requester->connected = false;
	if (list_empty(&requester->busy))
		list_push_back(&requester->qp->engine->busy_requesters, &requester->busy);
}

/* A time-out may be long, since a peer that is a program waits for a core. What the network lost is sent again before
 * its end, as the adaptive retransmission of RoCE NICs does. */
static void timed_out(struct requester *requester, uint64_t now_ns)
{
	if (now_ns >= requester->period_end_ns) {
		if (requester->retries == 0) {
			requester_fail(requester, IBV_WC_RETRY_EXC_ERR);
			return;
		}
		requester->retries--;
		requester->period_end_ns = now_ns + qp_rules_timeout_ns(requester->qp->attr.timeout);
	}
	requester->resend_ns *= 2;
	requester_shrink_window(requester);
	requester_go_back(requester);
	set_timer(requester, now_ns);
}

bool requester_tick(struct requester *requester, uint64_t now_ns)
{
	struct engine *engine = requester->qp->engine;

	if (requester->rnr_due_ns != 0 && requester->rnr_due_ns <= now_ns) {
		requester->rnr_due_ns = 0;
		requester_go_back(requester);
		requester_arm_timer(requester, now_ns);
	} else if (requester->rnr_due_ns != 0) {
		engine_time(engine, &requester->timed, requester->rnr_due_ns);
	} else if (requester->ack_due_ns != 0 && requester->ack_due_ns <= now_ns) {
		requester->ack_due_ns = 0;
		timed_out(requester, now_ns);
	} else if (requester->ack_due_ns != 0) {
		engine_time(engine, &requester->timed, requester->ack_due_ns);
	}
	return requester->ack_due_ns != 0 || requester->rnr_due_ns != 0;
}
