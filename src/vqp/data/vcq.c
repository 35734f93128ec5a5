/* Completion queues over all rails. A vcq stores nothing: completions wait in the logs of its vqps, in order, so it
 * cannot overflow, and knows which of them have some; polling it reads the device queues of the rails in use. */
#include "vqp/objects.h"

#include <errno.h>
#include <stdlib.h>

int hf_vcq_create(struct hf_node *node, uint32_t cqe, void *context, struct hf_vcq **cq_out)
{
	struct hf_vcq *cq;

	if (cqe == 0)
		return -EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (cq == NULL)
		return -ENOMEM;
	cq->node = node;
	cq->context = context;
	list_init(&cq->ready_sends);
	list_init(&cq->ready_recvs);
	list_push_back(&vqps_of(node)->vcqs, &cq->node_link);
	*cq_out = cq;
	return 0;
}

int hf_vcq_destroy(struct hf_vcq *cq)
{
	if (cq == NULL)
		return 0;
	if (cq->users > 0)
		return -EBUSY;
	list_remove(&cq->node_link);
	free(cq);
	return 0;
}

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
	if (opcode == IBV_WR_RDMA_READ)
		return IBV_WC_RDMA_READ;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		return IBV_WC_COMP_SWAP;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return IBV_WC_FETCH_ADD;
	if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return IBV_WC_RDMA_WRITE;
	return IBV_WC_SEND;
}

static void fill_send(struct hf_vqp *vqp, const struct request_log_wr *entry, struct ibv_wc *wc)
{
	if (entry->outcome == HF_WC_UNKNOWN) {
		vqp->counters.unknown++;
		hf_metric_add(vqps_of(vqp->node)->metrics.unknown, 1);
	}
	*(entry->status == IBV_WC_SUCCESS ? &vqp->counters.completed : &vqp->counters.failed) += 1;
	*wc = (struct ibv_wc){
		.wr_id = entry->wr.wr_id,
		.status = entry->status,
		.vendor_err = (uint32_t)entry->outcome,
		.opcode = wc_opcode(entry->wr.opcode),
		.byte_len = (uint32_t)entry->bytes,
		.qp_num = vqp->num,
	};
}

static bool is_silent(const struct request_log_wr *entry)
{
	return entry->polled || (!entry->signaled && entry->status == IBV_WC_SUCCESS);
}

static int take_sends(struct hf_vqp *vqp, int n, struct ibv_wc *wc)
{
	struct request_log *log = &vqp->sends;
	int taken = 0;

	while (taken < n && log->head < log->next) {
		struct request_log_wr *entry = request_log_at(log, log->head);

		if (!entry->done)
			break;
		vcq_left(vqp, 1);
		log->head++;
		if (!is_silent(entry))
			fill_send(vqp, entry, &wc[taken++]);
	}
	return taken;
}

static int take_recvs(struct hf_vqp *vqp, int n, struct ibv_wc *wc)
{
	struct request_log *log = &vqp->recvs;
	int taken = 0;

	while (taken < n && log->head < log->next) {
		struct request_log_wr *entry = request_log_at(log, log->head);

		if (!entry->done)
			break;
		log->head++;
		wc[taken++] = (struct ibv_wc){.wr_id = entry->wr.wr_id,
			.status = entry->status,
			.opcode = entry->status == IBV_WC_SUCCESS ? entry->received.opcode : IBV_WC_RECV,
			.byte_len = entry->received.byte_len,
			.imm_data = entry->received.imm_data,
			.wc_flags = entry->received.wc_flags,
			.qp_num = vqp->num,
			.src_qp = vqp->remote_num};
	}
	return taken;
}

static bool log_ready(const struct request_log *log)
{
	return log->head < log->next && request_log_at(log, log->head)->done;
}

/* The first vqp in a list is served first, so the lists rotate. */
static int take(struct hf_vcq *cq, int n, struct ibv_wc *wc)
{
	int taken = 0;
	struct list *at;

	while (taken < n && (at = list_pop_front(&cq->ready_sends)) != NULL) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, ready_send_link);

		taken += take_sends(vqp, n - taken, wc + taken);
		if (log_ready(&vqp->sends))
			list_push_back(&cq->ready_sends, at);
	}
	while (taken < n && (at = list_pop_front(&cq->ready_recvs)) != NULL) {
		struct hf_vqp *vqp = container_of(at, struct hf_vqp, ready_recv_link);

		taken += take_recvs(vqp, n - taken, wc + taken);
		if (log_ready(&vqp->recvs))
			list_push_back(&cq->ready_recvs, at);
	}
	return taken;
}

/* Notifies also of completions that the program polls before the turn of the loop. */
static int taken(struct hf_vcq *cq, int n)
{
	void (*notify)(struct hf_vcq *, void *) = cq->notify;

	if (n > 0 && notify != NULL && cq->fresh) {
		cq->notify = NULL;
		notify(cq, cq->context);
	}
	return n;
}

/* While a wr is in flight the poll is what the program waits with. Else what comes is of the peer's, and one reading a
 * turn is enough. False: nothing new was looked for. */
static bool look(struct hf_vcq *cq)
{
	if (cq->awaited == 0)
		return completions_look(cq->node, &cq->looked);
	(void)completions_turn(cq->node);
	return true;
}

int hf_vcq_poll(struct hf_vcq *cq, int n, struct ibv_wc *wc)
{
	int got = take(cq, n, wc);

	if (got == 0 && look(cq))
		got = take(cq, n, wc);
	return taken(cq, got);
}

static int take_of(struct hf_vcq *cq, struct hf_vqp *vqp, int n, struct ibv_wc *wc)
{
	int got = 0;

	if (vqp->send_cq == cq)
		got = take_sends(vqp, n, wc);
	if (vqp->recv_cq == cq)
		got += take_recvs(vqp, n - got, wc + got);
	return got;
}

int hf_vcq_poll_vqp(struct hf_vcq *cq, struct hf_vqp *vqp, int n, struct ibv_wc *wc)
{
	int got = take_of(cq, vqp, n, wc);

	if (got == 0 && look(cq))
		got = take_of(cq, vqp, n, wc);
	return taken(cq, got);
}

/* D2: success of a wr is success of all before it, so it is told only when those are done. */
static bool all_done(const struct request_log *log, uint64_t position)
{
	for (uint64_t at = log->head; at <= position; at++)
		if (at >= log->next || !request_log_at(log, at)->done)
			return false;
	return true;
}

static void forget_polled(struct hf_vqp *vqp)
{
	struct request_log *log = &vqp->sends;

	for (; log_ready(log) && is_silent(request_log_at(log, log->head)); log->head++)
		vcq_left(vqp, 1);
}

static int take_request(struct hf_vcq *cq, struct hf_vqp *vqp, uint64_t request, struct ibv_wc *wc)
{
	struct request_log *log = &vqp->sends;
	struct request_log_wr *entry;

	if (vqp->send_cq != cq || request <= log->head || request > log->tail)
		return -ENOENT;
	entry = request_log_at(log, request - 1);
	if (!entry->polled && !all_done(log, request - 1))
		return 0;
	if (is_silent(entry))
		return -ENOENT;
	fill_send(vqp, entry, wc);
	entry->polled = true;
	forget_polled(vqp);
	return 1;
}

int hf_vcq_poll_request(struct hf_vcq *cq, struct hf_vqp *vqp, uint64_t request, struct ibv_wc *wc)
{
	int got = take_request(cq, vqp, request, wc);

	if (got == 0 && look(cq))
		got = take_request(cq, vqp, request, wc);
	return got < 0 ? got : taken(cq, got);
}

/* Whether a completion became ready since the last call: of sends that is one of a wr that asked for it, or failed. */
static bool log_grew(struct request_log *log, bool sends)
{
	bool grew = false;

	if (log->noted < log->head)
		log->noted = log->head;
	for (; log->noted < log->next && request_log_at(log, log->noted)->done; log->noted++)
		grew = grew || !sends || !is_silent(request_log_at(log, log->noted));
	return grew;
}

static void note(const struct request_log *log, struct list *ready, struct list *link)
{
	if (log_ready(log) && list_empty(link))
		list_push_back(ready, link);
}

void vcq_note(struct hf_vqp *vqp)
{
	if (vqp->send_cq->notify != NULL)
		vqp->send_cq->fresh |= log_grew(&vqp->sends, true);
	if (vqp->recv_cq->notify != NULL)
		vqp->recv_cq->fresh |= log_grew(&vqp->recvs, false);
	note(&vqp->sends, &vqp->send_cq->ready_sends, &vqp->ready_send_link);
	note(&vqp->recvs, &vqp->recv_cq->ready_recvs, &vqp->ready_recv_link);
}

bool vcq_ready(const struct hf_vcq *cq)
{
	list_for_each (at, &cq->ready_sends)
		if (log_ready(&container_of(at, struct hf_vqp, ready_send_link)->sends))
			return true;
	list_for_each (at, &cq->ready_recvs)
		if (log_ready(&container_of(at, struct hf_vqp, ready_recv_link)->recvs))
			return true;
	return false;
}

/* What is ready by now is not new; it is in the logs of the vqps that are listed. */
void hf_vcq_req_notify(struct hf_vcq *cq, void (*notify)(struct hf_vcq *cq, void *context))
{
	list_for_each (at, &cq->ready_sends)
		(void)log_grew(&container_of(at, struct hf_vqp, ready_send_link)->sends, true);
	list_for_each (at, &cq->ready_recvs)
		(void)log_grew(&container_of(at, struct hf_vqp, ready_recv_link)->recvs, false);
	cq->notify = notify;
	cq->fresh = false;
}
