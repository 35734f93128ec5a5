#include "dev/soft/responder.h"

#include <string.h>

#include "base/bytes.h"
#include "dev/qp_rules.h"
#include "dev/soft/engine.h"
#include "dev/soft/sge.h"

#define READ_BYTES_MAX (1u << 30)

void responder_init(struct responder *responder, struct soft_qp *qp, struct flow *flow)
{
	responder->qp = qp;
	responder->flow = flow;
	list_init(&responder->busy);
}

void responder_start(struct responder *responder, uint32_t psn)
{
	responder->expected = psn;
	responder->ack_psn = psn_add(psn, 0xffffff);
	responder->msn = 0;
	responder->message = MESSAGE_NONE;
}

void responder_silence(struct responder *responder)
{
	responder->pending_count = 0;
	responder->ack_due = responder->nak_due = false;
	list_remove(&responder->busy);
}

void responder_stop(struct responder *responder)
{
	struct soft_qp *qp = responder->qp;
	struct ibv_wc wc = {.wr_id = responder->recv_wr_id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

	if (responder->has_recv)
		completion_add(qp, qp->base.recv_cq, &wc);
	responder->has_recv = false;
	responder->message = MESSAGE_NONE;
	if (!responder->fatal) /* else what leads to the NAK, and itself, must still be heard */
		responder_silence(responder);
}

void responder_forget(struct responder *responder)
{
	struct soft_qp *qp = responder->qp;
	struct flow *flow = responder->flow;

	responder_silence(responder);
	*responder = (struct responder){0};
	responder_init(responder, qp, flow);
}

/* ---- answers that are due ---- */

static void answer(struct responder *responder)
{
	if (list_empty(&responder->busy))
		list_push_back(&responder->qp->engine->busy_responders, &responder->busy);
}

static void nak(struct responder *responder, uint8_t syndrome)
{
	if (responder->nak_due)
		return;
	responder->nak_due = true;
	responder->nak_syndrome = syndrome;
	answer(responder);
}

void responder_refused(struct responder *responder, uint8_t code, uint32_t psn)
{
	static const enum ibv_wc_status statuses[] = {
		[NAK_INVALID] = IBV_WC_REM_INV_REQ_ERR,
		[NAK_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
		[NAK_REMOTE_OP] = IBV_WC_REM_OP_ERR,
	};

	responder->refusal = (struct hf_refusal){.psn = psn, .status = statuses[code]};
}

/* The request cannot be executed, and nothing after it. */
static void refuse(struct responder *responder, uint8_t code, enum ibv_wc_status recv_status)
{
	struct soft_qp *qp = responder->qp;
	struct ibv_wc wc = {.wr_id = responder->recv_wr_id, .status = recv_status, .opcode = IBV_WC_RECV};

	nak(responder, (uint8_t)(SYNDROME_NAK | code));
	responder->fatal = true;
	responder_refused(responder, code, responder->expected);
	if (responder->has_recv && recv_status != IBV_WC_SUCCESS) {
		responder->has_recv = false;
		completion_add(qp, qp->base.recv_cq, &wc);
	}
	if (qp->dc == HF_DC_TARGET) { /* the stream ends; the target's other initiators are not concerned */
		responder->message = MESSAGE_NONE;
		return;
	}
	engine_event(qp->engine, code == NAK_REMOTE_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, &qp->base,
		NULL);
	qp_fail(qp);
}

/* False: the memory of its footer is not there any more, and it is refused. */
static bool executed(struct responder *responder, uint32_t psns, uint32_t bytes, bool message_ends)
{
	struct soft_bus *bus = responder->qp->engine->bus;

	if (responder->foot_to != NULL &&
		!bus->ops->write(bus, responder->foot_to, &responder->foot_value, sizeof(responder->foot_value))) {
		refuse(responder, NAK_REMOTE_ACCESS, IBV_WC_SUCCESS);
		return false;
	}
	responder->qp->engine->counters.executed_bytes += bytes;
	responder->expected = psn_add(responder->expected, psns);
	if (message_ends)
		responder->msn = psn_add(responder->msn, 1);
	return true;
}

/* A WRITE or SEND that executed. */
static void acknowledge(struct responder *responder, const struct packet *packet)
{
	responder->ack_psn = packet->psn;
	if (!packet->ack_request)
		return;
	responder->ack_due = true;
	answer(responder);
}

/* A new request that would be one too many says that the oldest was answered, when that is possible at all: when it
 * was asked for again and waits here only because of that. */
static bool pending_has_room(struct responder *responder)
{
	if (responder->pending_count < responder->qp->attr.max_dest_rd_atomic)
		return true;
	if (responder->pending_count == 0 || !responder->pending[responder->pending_first].repeated)
		return false;
	responder->pending_first = (responder->pending_first + 1) % RD_ATOMIC_MAX;
	responder->pending_count--;
	return true;
}

static bool pending_add(struct responder *responder, const struct pending_response *response)
{
	unsigned at;

	if (!pending_has_room(responder))
		return false;
	at = (responder->pending_first + responder->pending_count) % RD_ATOMIC_MAX;
	responder->pending[at] = *response;
	responder->pending_count++;
	if (psn_diff(response->psn, responder->ack_psn) > 0)
		responder->ack_due = false; /* it acknowledges what is before it */
	answer(responder);
	return true;
}

/* ---- receives ---- */

/* Takes the next posted receive for the message that begins. False: there is none. */
static bool take_recv(struct responder *responder)
{
	struct soft_qp *qp = responder->qp;
	struct ring *ring = qp->base.srq != NULL ? &((struct soft_srq *)qp->base.srq)->ring : &qp->recv_ring;
	struct recv_slot *slot = ring_oldest(ring);

	if (slot == NULL)
		return false;
	responder->has_recv = true;
	responder->recv_wr_id = slot->wr_id;
	responder->recv_num_sge = slot->num_sge;
	memcpy(responder->recv_sge, slot->sge, slot->num_sge * sizeof(struct ibv_sge));
	ring_pop(ring);
	return true;
}

static void complete_recv(struct responder *responder, const struct packet *packet, enum ibv_wc_opcode opcode)
{
	struct soft_qp *qp = responder->qp;
	struct ibv_wc wc = {.wr_id = responder->recv_wr_id,
		.status = IBV_WC_SUCCESS,
		.opcode = opcode,
		.byte_len = responder->message_bytes,
		.src_qp = responder->flow->dest_qpn};

	if (packet->traits & PACKET_HAS_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = packet->imm;
	}
	if (packet->solicited)
		wc.wc_flags |= WC_SOLICITED;
	responder->has_recv = false;
	completion_add(qp, qp->base.recv_cq, &wc);
}

static void rnr(struct responder *responder)
{
	responder->qp->engine->counters.rnr_naks_sent++;
	responder->nak_sent = true; /* what follows is out of order; no second NAK for it */
	nak(responder, (uint8_t)(SYNDROME_RNR | responder->qp->attr.min_rnr_timer));
}

/* ---- SEND ---- */

enum scatter { SCATTER_DONE, SCATTER_TOO_LONG, SCATTER_NO_ACCESS };

static enum scatter scatter(struct responder *responder, uint64_t offset, const uint8_t *from, uint32_t bytes)
{
	struct engine *engine = responder->qp->engine;
	const struct hf_pd *pd = responder->qp->base.srq != NULL ? responder->qp->base.srq->pd : responder->qp->base.pd;
	struct sge_walk walk = {.next = responder->recv_sge, .left = responder->recv_num_sge, .offset = offset};
	struct ibv_sge piece;

	while (bytes > 0 && sge_walk_next(&walk, bytes, &piece)) {
		void *host = engine_local(engine, pd, &piece, IBV_ACCESS_LOCAL_WRITE);

		if (host == NULL || !engine->bus->ops->write(engine->bus, host, from, piece.length))
			return SCATTER_NO_ACCESS;
		from += piece.length;
		bytes -= piece.length;
	}
	return bytes == 0 ? SCATTER_DONE : SCATTER_TOO_LONG;
}

static void execute_send(struct responder *responder, const struct packet *packet)
{
	bool last = (packet->traits & PACKET_IS_LAST) != 0;

	if (packet->traits & PACKET_IS_FIRST) {
		if (!take_recv(responder)) {
			rnr(responder);
			return;
		}
		responder->message = MESSAGE_SEND;
		responder->message_bytes = 0;
	}
	switch (scatter(responder, responder->message_bytes, packet->payload, packet->payload_bytes)) {
	case SCATTER_TOO_LONG:
		refuse(responder, NAK_INVALID, IBV_WC_LOC_LEN_ERR);
		return;
	case SCATTER_NO_ACCESS:
		refuse(responder, NAK_REMOTE_OP, IBV_WC_LOC_PROT_ERR);
		return;
	case SCATTER_DONE:
		break;
	}
	responder->message_bytes += packet->payload_bytes;
	if (!executed(responder, 1, packet->payload_bytes, last))
		return;
	if (last) {
		responder->message = MESSAGE_NONE;
		complete_recv(responder, packet, IBV_WC_RECV);
	}
	acknowledge(responder, packet);
}

void responder_datagram(
	struct responder *responder, const struct packet *packet, const uint8_t *header, uint32_t header_bytes)
{
	struct soft_qp *qp = responder->qp;
	struct ibv_wc wc = {.opcode = IBV_WC_RECV,
		.byte_len = header_bytes + packet->payload_bytes,
		.src_qp = packet->source_qpn,
		.wc_flags = IBV_WC_GRH | (packet->solicited ? WC_SOLICITED : 0)};
	enum scatter done;

	if (!take_recv(responder))
		return;
	responder->has_recv = false;
	wc.wr_id = responder->recv_wr_id;
	done = scatter(responder, 0, header, header_bytes);
	if (done == SCATTER_DONE)
		done = scatter(responder, header_bytes, packet->payload, packet->payload_bytes);
	if (done != SCATTER_DONE)
		wc.status = done == SCATTER_TOO_LONG ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR;
	if (packet->traits & PACKET_HAS_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = packet->imm;
	}
	completion_add(qp, qp->base.recv_cq, &wc);
}

/* ---- WRITE ---- */

/* False: refused. */
static bool begin_write(struct responder *responder, const struct packet *packet)
{
	struct soft_qp *qp = responder->qp;

	if ((qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) {
		refuse(responder, NAK_INVALID, IBV_WC_SUCCESS);
		return false;
	}
	if (packet->dma_bytes > 0 && engine_remote(qp->engine, qp->base.pd, packet->rkey, packet->va, packet->dma_bytes,
					     IBV_ACCESS_REMOTE_WRITE) == NULL) {
		refuse(responder, NAK_REMOTE_ACCESS, IBV_WC_SUCCESS);
		return false;
	}
	responder->write_va = packet->va;
	responder->write_rkey = packet->rkey;
	responder->write_left = responder->message_bytes = packet->dma_bytes;
	responder->message = MESSAGE_WRITE;
	return true;
}

/* Each packet is checked anew: the region may be gone, the permission withdrawn (D5) since the message began. */
static bool write_payload(struct responder *responder, const struct packet *packet)
{
	struct soft_qp *qp = responder->qp;
	struct soft_bus *bus = qp->engine->bus;
	void *host;

	if (packet->payload_bytes == 0)
		return true;
	if ((qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) {
		refuse(responder, NAK_INVALID, IBV_WC_SUCCESS);
		return false;
	}
	host = engine_remote(qp->engine, qp->base.pd, responder->write_rkey, responder->write_va, packet->payload_bytes,
		IBV_ACCESS_REMOTE_WRITE);
	if (host == NULL || !bus->ops->write(bus, host, packet->payload, packet->payload_bytes)) {
		refuse(responder, NAK_REMOTE_ACCESS, IBV_WC_SUCCESS);
		return false;
	}
	responder->write_va += packet->payload_bytes;
	responder->write_left -= packet->payload_bytes;
	return true;
}

static void execute_write(struct responder *responder, const struct packet *packet)
{
	bool last = (packet->traits & PACKET_IS_LAST) != 0;

	if ((packet->traits & PACKET_IS_FIRST) && !begin_write(responder, packet))
		return;
	if (packet->payload_bytes > responder->write_left || (last && packet->payload_bytes != responder->write_left)) {
		refuse(responder, NAK_INVALID, IBV_WC_SUCCESS);
		return;
	}
	if ((packet->traits & PACKET_HAS_IMM) && !take_recv(responder)) {
		if (packet->traits & PACKET_IS_FIRST) /* its retry begins again */
			responder->message = MESSAGE_NONE;
		rnr(responder);
		return;
	}
	if (!write_payload(responder, packet) || !executed(responder, 1, packet->payload_bytes, last))
		return;
	if (last)
		responder->message = MESSAGE_NONE;
	if (packet->traits & PACKET_HAS_IMM)
		complete_recv(responder, packet, IBV_WC_RECV_RDMA_WITH_IMM);
	acknowledge(responder, packet);
}

/* ---- READ and atomics ---- */

static uint32_t read_psns(const struct responder *responder, uint32_t bytes)
{
	return qp_rules_psns(IBV_WR_RDMA_READ, bytes, responder->qp->mtu_bytes);
}

/* 0, or the code of the NAK that it deserves. */
static uint8_t check_read(const struct responder *responder, const struct packet *packet)
{
	struct soft_qp *qp = responder->qp;

	if ((qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0 || packet->dma_bytes > READ_BYTES_MAX)
		return NAK_INVALID;
	if (packet->dma_bytes > 0 && engine_remote(qp->engine, qp->base.pd, packet->rkey, packet->va, packet->dma_bytes,
					     IBV_ACCESS_REMOTE_READ) == NULL)
		return NAK_REMOTE_ACCESS;
	return 0;
}

static struct pending_response read_response(const struct responder *responder, const struct packet *packet)
{
	return (struct pending_response){.psn = packet->psn,
		.psns = read_psns(responder, packet->dma_bytes),
		.va = packet->va,
		.rkey = packet->rkey,
		.bytes = packet->dma_bytes};
}

static void execute_read(struct responder *responder, const struct packet *packet)
{
	struct pending_response response = read_response(responder, packet);
	uint8_t wrong = check_read(responder, packet);

	if (wrong == 0 && !pending_add(responder, &response))
		wrong = NAK_INVALID; /* more than max_dest_rd_atomic at once */
	if (wrong != 0)
		refuse(responder, wrong, IBV_WC_SUCCESS);
	else
		(void)executed(responder, response.psns, packet->dma_bytes, true);
}

static void execute_atomic(struct responder *responder, const struct packet *packet)
{
	struct soft_qp *qp = responder->qp;
	struct soft_bus *bus = qp->engine->bus;
	struct pending_response response = {.atomic = true, .psn = packet->psn, .psns = 1};
	bool there;
	void *host;

	if ((qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) == 0 || (packet->va & 7) != 0 ||
		!pending_has_room(responder)) {
		refuse(responder, NAK_INVALID, IBV_WC_SUCCESS);
		return;
	}
	host = engine_remote(
		qp->engine, qp->base.pd, packet->rkey, packet->va, sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
	if (host == NULL || ((uintptr_t)host & 7) != 0) {
		refuse(responder, NAK_REMOTE_ACCESS, IBV_WC_SUCCESS);
		return;
	}
	there = packet->opcode == PACKET_COMPARE_SWAP
			? bus->ops->cas(bus, host, packet->compare, packet->swap_add, &response.original)
			: bus->ops->faa(bus, host, packet->swap_add, &response.original);
	if (!there) {
		refuse(responder, NAK_REMOTE_ACCESS, IBV_WC_SUCCESS);
		return;
	}
	responder->replay[responder->replay_next] =
		(struct hf_atomic_result){.psn = packet->psn, .original = response.original};
	responder->replay_next = (responder->replay_next + 1) % RD_ATOMIC_MAX;
	if (responder->replay_count < RD_ATOMIC_MAX)
		responder->replay_count++;
	pending_add(responder, &response);
	(void)executed(responder, 1, sizeof(uint64_t), true);
}

unsigned responder_atomic_results(const struct responder *responder, struct hf_atomic_result *results_out, unsigned n)
{
	unsigned kept = responder->qp->attr.max_dest_rd_atomic, filled = 0;

	for (unsigned i = 0; filled < n && i < responder->replay_count && i < kept; i++) {
		const struct hf_atomic_result *result =
			&responder->replay[(responder->replay_next + RD_ATOMIC_MAX - 1 - i) % RD_ATOMIC_MAX];

		if (psn_diff(result->psn, responder->expected) < 0) /* else psns have wrapped since */
			results_out[filled++] = *result;
	}
	return filled;
}

/* ---- what arrives ---- */

/* The requester went back to psn and asks for everything from there again. */
static void drop_pending_from(struct responder *responder, uint32_t psn)
{
	while (responder->pending_count > 0) {
		unsigned last = (responder->pending_first + responder->pending_count - 1) % RD_ATOMIC_MAX;
		struct pending_response *response = &responder->pending[last];

		if (psn_diff(psn_add(response->psn, response->psns), psn) <= 0)
			break;
		responder->pending_count--;
	}
}

static void repeat_atomic(struct responder *responder, const struct packet *packet)
{
	struct pending_response response = {.atomic = true, .repeated = true, .psn = packet->psn, .psns = 1};

	for (unsigned i = 0; i < responder->replay_count; i++) {
		if (responder->replay[i].psn != packet->psn)
			continue;
		response.original = responder->replay[i].original;
		pending_add(responder, &response);
		return;
	}
}

static void receive_duplicate(struct responder *responder, const struct packet *packet)
{
	struct pending_response response;

	responder->qp->engine->counters.duplicates++;
	if ((packet->traits & (PACKET_IS_READ | PACKET_IS_ATOMIC)) == 0) {
		responder->ack_due = true;
		answer(responder);
		return;
	}
	drop_pending_from(responder, packet->psn);
	if (packet->traits & PACKET_IS_ATOMIC) {
		repeat_atomic(responder, packet);
		return;
	}
	response = read_response(responder, packet);
	response.repeated = true;
	if (psn_diff(psn_add(packet->psn, response.psns), responder->expected) <= 0 &&
		check_read(responder, packet) == 0)
		pending_add(responder, &response);
}

/* Is the packet one that may come now, of the length that its place demands? */
static bool in_sequence(const struct responder *responder, const struct packet *packet)
{
	bool first = (packet->traits & PACKET_IS_FIRST) != 0, last = (packet->traits & PACKET_IS_LAST) != 0;
	uint32_t mtu = responder->qp->mtu_bytes;

	if (first != (responder->message == MESSAGE_NONE))
		return false;
	if (responder->message == MESSAGE_SEND && (packet->traits & PACKET_IS_SEND) == 0)
		return false;
	if (responder->message == MESSAGE_WRITE && (packet->traits & PACKET_IS_WRITE) == 0)
		return false;
	if (!last)
		return packet->payload_bytes == mtu;
	return packet->payload_bytes <= mtu && (first || packet->payload_bytes > 0);
}

/* Before the operation, since both execute or neither does. False: refused. */
static bool prepare_footer(struct responder *responder, const struct packet *packet)
{
	const struct hf_footer *footer = &packet->footer;
	struct soft_qp *qp = responder->qp;

	responder->foot_to = NULL;
	if ((packet->traits & PACKET_HAS_FOOT) == 0 || footer->rkey == 0)
		return true;
	if ((qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0 || footer->remote_addr % 8 != 0 ||
		(packet->traits & PACKET_IS_LAST) == 0) {
		refuse(responder, NAK_INVALID, IBV_WC_SUCCESS);
		return false;
	}
	responder->foot_value = footer->value;
	responder->foot_to = engine_remote(qp->engine, qp->base.pd, footer->rkey, footer->remote_addr,
		sizeof(footer->value), IBV_ACCESS_REMOTE_WRITE);
	if (responder->foot_to == NULL)
		refuse(responder, NAK_REMOTE_ACCESS, IBV_WC_SUCCESS);
	return responder->foot_to != NULL;
}

void responder_receive(struct responder *responder, const struct packet *packet)
{
	int32_t ahead = psn_diff(packet->psn, responder->expected);

	if (ahead < 0) {
		receive_duplicate(responder, packet);
		return;
	}
	if (ahead > 0) {
		if (responder->nak_sent)
			return;
		responder->nak_sent = true;
		nak(responder, SYNDROME_NAK | NAK_PSN_SEQUENCE);
		return;
	}
	responder->nak_sent = false;
	if (responder->nak_due && !responder->fatal) /* of a gap that has closed before we said so */
		responder->nak_due = false;
	if (responder->pending_count > 0 && (packet->traits & PACKET_IS_READ) == 0 && !responder_respond(responder)) {
		responder->nak_sent = true;
		nak(responder, SYNDROME_NAK | NAK_PSN_SEQUENCE); /* leaves when the responses have */
		return;
	}
	if (!prepare_footer(responder, packet))
		return;
	if (!in_sequence(responder, packet))
		refuse(responder, NAK_INVALID, IBV_WC_SUCCESS);
	else if (packet->traits & PACKET_IS_SEND)
		execute_send(responder, packet);
	else if (packet->traits & PACKET_IS_WRITE)
		execute_write(responder, packet);
	else if (packet->traits & PACKET_IS_READ)
		execute_read(responder, packet);
	else
		execute_atomic(responder, packet);
}
