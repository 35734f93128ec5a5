/* The receive side, outwards: responses in psn order, then the ACK or NAK that comes behind them. */
#include "base/bytes.h"
#include "dev/qp_rules.h"
#include "dev/soft/engine.h"

#define BURST_PACKETS 64u /* of a long READ, before it is another qp's turn */

static uint8_t read_opcode(const struct pending_response *response)
{
	if (response->psns == 1)
		return response->started ? PACKET_READ_RESPONSE_LAST : PACKET_READ_RESPONSE_ONLY;
	return response->started ? PACKET_READ_RESPONSE_MIDDLE : PACKET_READ_RESPONSE_FIRST;
}

enum step { STEP_DONE, STEP_FULL, STEP_REFUSED };

static enum step send_read_packet(struct responder *responder, struct pending_response *response)
{
	struct soft_qp *qp = responder->qp;
	struct engine *engine = qp->engine;
	uint32_t bytes = response->bytes < qp->mtu_bytes ? response->bytes : qp->mtu_bytes;
	struct packet packet = {.opcode = read_opcode(response),
		.psn = response->psn,
		.syndrome = SYNDROME_ACK | CREDITS_UNLIMITED,
		.msn = responder->msn,
		.payload_bytes = bytes};
	const void *host = NULL;
	uint8_t *at, *payload;

	if ((qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0) /* revoked since the request came */
		return STEP_REFUSED;
	if (bytes > 0 && (host = engine_remote(engine, qp->base.pd, response->rkey, response->va, bytes,
				  IBV_ACCESS_REMOTE_READ)) == NULL)
		return STEP_REFUSED;
	at = flow_packet(responder->flow, &engine->tx, &packet, &payload);
	if (at == NULL)
		return STEP_FULL;
	if (bytes > 0 && !engine->bus->ops->read(engine->bus, payload, host, bytes)) {
		flow_cancel(&engine->tx, &packet);
		return STEP_REFUSED;
	}
	flow_seal(responder->flow, at, &packet);
	response->started = true;
	response->psn = psn_add(response->psn, 1);
	response->psns--;
	response->va += bytes;
	response->bytes -= bytes;
	return STEP_DONE;
}

static enum step send_atomic_ack(struct responder *responder, struct pending_response *response)
{
	struct packet packet = {.opcode = PACKET_ATOMIC_ACK,
		.psn = response->psn,
		.syndrome = SYNDROME_ACK | CREDITS_UNLIMITED,
		.msn = responder->msn,
		.original = response->original};
	uint8_t *payload, *at = flow_packet(responder->flow, &responder->qp->engine->tx, &packet, &payload);

	if (at == NULL)
		return STEP_FULL;
	flow_seal(responder->flow, at, &packet);
	response->psns--;
	return STEP_DONE;
}

static enum step send_ack(struct responder *responder, uint8_t syndrome, uint32_t psn)
{
	struct packet packet = {.opcode = PACKET_ACK, .psn = psn, .syndrome = syndrome, .msn = responder->msn};
	uint8_t *payload, *at = flow_packet(responder->flow, &responder->qp->engine->tx, &packet, &payload);

	if (at == NULL)
		return STEP_FULL;
	flow_seal(responder->flow, at, &packet);
	return STEP_DONE;
}

static enum step send_pending(struct responder *responder)
{
	unsigned burst = 0;

	while (responder->pending_count > 0 && burst++ < BURST_PACKETS) {
		struct pending_response *response = &responder->pending[responder->pending_first];
		enum step step =
			response->atomic ? send_atomic_ack(responder, response) : send_read_packet(responder, response);

		if (step != STEP_DONE)
			return step;
		if (response->psns > 0)
			continue;
		responder->pending_first = (responder->pending_first + 1) % RD_ATOMIC_MAX;
		responder->pending_count--;
	}
	return STEP_DONE;
}

static bool send_nak(struct responder *responder)
{
	if (send_ack(responder, responder->nak_syndrome, responder->expected) == STEP_FULL)
		return true;
	responder->nak_due = responder->ack_due = false;
	responder->qp->engine->counters.naks_sent++;
	return false;
}

/* The region went away under a READ that had been accepted: refused at the psn that has no data. */
static void refuse_pending(struct responder *responder)
{
	struct soft_qp *qp = responder->qp;
	uint32_t psn = responder->pending[responder->pending_first].psn;

	responder->pending_count = 0;
	responder_refused(responder, NAK_REMOTE_ACCESS, psn);
	if (send_ack(responder, SYNDROME_NAK | NAK_REMOTE_ACCESS, psn) == STEP_FULL)
		return; /* the requester asks again, and finds the qp in ERR */
	qp->engine->counters.naks_sent++;
	responder->nak_due = responder->ack_due = false;
	if (qp->dc == HF_DC_TARGET) { /* its stream ends, and no other */
		responder->fatal = true;
		return;
	}
	engine_event(qp->engine, IBV_EVENT_QP_ACCESS_ERR, &qp->base, NULL);
	qp_fail(qp);
}

bool responder_respond(struct responder *responder)
{
	if (send_pending(responder) == STEP_REFUSED)
		refuse_pending(responder);
	return responder->pending_count == 0;
}

bool responder_acknowledge(struct responder *responder)
{
	if (!responder->ack_due || responder->nak_due || responder->pending_count > 0)
		return false;
	if (send_ack(responder, SYNDROME_ACK | CREDITS_UNLIMITED, responder->ack_psn) == STEP_FULL)
		return true;
	responder->ack_due = false;
	return false;
}

bool responder_transmit(struct responder *responder, bool hold_acks)
{
	if (!responder_respond(responder))
		return true;
	if (responder->nak_due)
		return send_nak(responder);
	return !hold_acks && responder_acknowledge(responder);
}
