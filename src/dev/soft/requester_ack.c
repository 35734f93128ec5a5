/* The send side, inwards: acknowledgements, negative ones, responses of READs and atomics. */
#include "dev/qp_rules.h"
#include "dev/soft/engine.h"
#include "dev/soft/sge.h"

/* Of AETH's five bits (specification, table 45), in units of 10 us. */
static uint64_t rnr_delay_ns(uint8_t code)
{
	static const uint16_t delays[32] = {65536u - 1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
		384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return delays[code & 0x1f] * 10000ull;
}

static void progressed(struct requester *requester, uint64_t now_ns)
{
	struct soft_qp *qp = requester->qp;

	requester->went_back = false;
	atomic_store_explicit(&requester->acked_shown, requester->acked, memory_order_relaxed);
	requester->retries = qp->attr.retry_cnt;
	requester->rnr_retries = qp->attr.rnr_retry;
	if (requester->next < requester->acked) { /* what we went back for had arrived after all */
		requester->next = requester->acked;
		requester->cursor = atomic_load_explicit(&requester->ring.tail, memory_order_relaxed);
	}
	requester_arm_timer(requester, now_ns);
	if (list_empty(&requester->busy))
		list_push_back(&qp->engine->busy_requesters, &requester->busy);
}

/* Fails a wr that was found wrong when it was to be sent, now that all before it are done. */
static void fail_if_wrong(struct requester *requester)
{
	struct send_slot *slot = requester_tail_slot(requester);

	if (slot != NULL && slot->status != IBV_WC_SUCCESS)
		requester_fail(requester, slot->status);
}

/* The responder has executed all before `end`. False: a READ or atomic among them still lacks its response. */
static bool acknowledged(struct requester *requester, uint64_t end, uint64_t now_ns)
{
	uint64_t before = requester->acked;
	bool lacks_response = false;

	while (requester->acked < end) {
		struct send_slot *slot = requester_tail_slot(requester);

		if (qp_rules_has_answer(slot->opcode)) {
			lacks_response = true;
			break;
		}
		if (end < slot->psn + slot->psns) {
			requester->acked = end;
			break;
		}
		requester->acked = slot->psn + slot->psns;
		requester_complete(requester, IBV_WC_SUCCESS);
	}
	if (requester->acked != before) {
		requester_grow_window(requester, requester->acked - before);
		progressed(requester, now_ns);
		fail_if_wrong(requester);
	}
	return !lacks_response;
}

/* Something is missing; ask again, but once until there is progress: the timer does the rest. */
static void ask_again(struct requester *requester)
{
	if (requester->went_back || qp_state(requester->qp) != IBV_QPS_RTS)
		return;
	requester_shrink_window(requester);
	requester_go_back(requester);
}

static void receive_rnr(struct requester *requester, uint8_t code, uint64_t now_ns)
{
	if (requester->rnr_due_ns != 0)
		return;
	requester->retries = requester->qp->attr.retry_cnt; /* it is there: losses of a long wait do not add up */
	if (requester->rnr_retries == 0) {
		requester_fail(requester, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (requester->rnr_retries != 7) /* 7: for ever */
		requester->rnr_retries--;
	requester->rnr_due_ns = now_ns + rnr_delay_ns(code);
	requester->ack_due_ns = 0;
	engine_time(requester->qp->engine, &requester->timed, requester->rnr_due_ns);
}

static void receive_nak(struct requester *requester, uint8_t code)
{
	if (code == NAK_PSN_SEQUENCE)
		ask_again(requester);
	else if (code == NAK_INVALID)
		requester_fail(requester, IBV_WC_REM_INV_REQ_ERR);
	else if (code == NAK_REMOTE_ACCESS)
		requester_fail(requester, IBV_WC_REM_ACCESS_ERR);
	else if (code == NAK_REMOTE_OP)
		requester_fail(requester, IBV_WC_REM_OP_ERR);
}

static void receive_ack(struct requester *requester, const struct packet *packet, uint64_t psn, uint64_t now_ns)
{
	uint8_t kind = packet->syndrome & SYNDROME_KIND, code = packet->syndrome & (uint8_t)~SYNDROME_KIND;
	bool negative = kind == SYNDROME_RNR || kind == SYNDROME_NAK;

	if (!negative && kind != SYNDROME_ACK)
		return;
	if (!acknowledged(requester, negative ? psn : psn + 1, now_ns)) {
		ask_again(requester);
		return;
	}
	if (!negative || requester->acked != psn || qp_state(requester->qp) != IBV_QPS_RTS)
		return;
	if (kind == SYNDROME_RNR)
		receive_rnr(requester, code, now_ns);
	else
		receive_nak(requester, code);
}

/* Scatters a response's payload. False: a sge's memory may not be written. */
static bool land(struct requester *requester, struct send_slot *slot, uint64_t offset, const void *data, uint32_t bytes)
{
	struct engine *engine = requester->qp->engine;
	struct sge_walk walk = {.next = slot->sge, .left = slot->num_sge, .offset = offset};
	const uint8_t *from = data;
	struct ibv_sge piece;

	while (bytes > 0 && sge_walk_next(&walk, bytes, &piece)) {
		void *host = engine_local(engine, requester->qp->base.pd, &piece, IBV_ACCESS_LOCAL_WRITE);

		if (host == NULL || !engine->bus->ops->write(engine->bus, host, from, piece.length))
			return false;
		from += piece.length;
		bytes -= piece.length;
	}
	return true;
}

/* The packet at `acked` of a READ or atomic is here. */
static void response_taken(struct requester *requester, struct send_slot *slot, uint64_t now_ns)
{
	uint64_t piece_end = requester_piece_end(requester, slot, requester->acked);

	requester->acked++;
	requester_grow_window(requester, 1);
	if (requester->acked == piece_end && requester->next >= piece_end && requester->reads_out > 0)
		requester->reads_out--; /* not when it came late and its second request has not left yet */
	if (requester->acked == slot->psn + slot->psns)
		requester_complete(requester, IBV_WC_SUCCESS);
	progressed(requester, now_ns);
	fail_if_wrong(requester);
}

static void receive_response(struct requester *requester, const struct packet *packet, uint64_t psn, uint64_t now_ns)
{
	bool atomic = packet->opcode == PACKET_ATOMIC_ACK;
	uint64_t offset, left;
	uint32_t expected;
	struct send_slot *slot;

	if (psn < requester->acked)
		return; /* a duplicate */
	if (!acknowledged(requester, psn, now_ns) || requester->acked != psn) {
		ask_again(requester);
		return;
	}
	slot = requester_tail_slot(requester);
	if (slot == NULL)
		return;
	offset = (psn - slot->psn) * requester->qp->mtu_bytes;
	left = slot->bytes - offset;
	expected = left < requester->qp->mtu_bytes ? (uint32_t)left : requester->qp->mtu_bytes;
	if (!qp_rules_has_answer(slot->opcode) || atomic != (slot->opcode != IBV_WR_RDMA_READ) ||
		(!atomic && packet->payload_bytes != expected)) {
		requester_fail(requester, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (atomic ? !land(requester, slot, 0, &packet->original, sizeof(packet->original))
		   : !land(requester, slot, offset, packet->payload, packet->payload_bytes)) {
		requester_fail(requester, IBV_WC_LOC_PROT_ERR);
		return;
	}
	response_taken(requester, slot, now_ns);
}

void requester_receive(struct requester *requester, const struct packet *packet, uint64_t now_ns)
{
	int32_t ahead = psn_diff(packet->psn, (uint32_t)requester->acked & 0xffffff);
	uint64_t psn = requester->acked + (uint64_t)(int64_t)ahead;

	if (qp_state(requester->qp) != IBV_QPS_RTS || requester_tail_slot(requester) == NULL || ahead < 0 ||
		psn >= requester->sent)
		return; /* of something that is over */
	if (packet->opcode == PACKET_ACK)
		receive_ack(requester, packet, psn, now_ns);
	else
		receive_response(requester, packet, psn, now_ns);
}
