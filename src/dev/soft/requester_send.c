/* The send side, outwards: segmentation of wrs into packets, as far as the window allows. */
#include <string.h>

#include "dev/qp_rules.h"
#include "dev/soft/dc.h"
#include "dev/soft/engine.h"
#include "dev/soft/sge.h"

#define WINDOW_START_BYTES   (256u * 1024)
#define WINDOW_START_PACKETS 128u /* of small ones, each of which takes a buffer */
#define WINDOW_MAX_BYTES     (2u << 20)
#define WINDOW_MAX_PACKETS   1024u
#define WINDOW_MIN_PACKETS   16u
#define GROWTH_FAST          4u  /* acknowledged packets for one more in the window, before anything was lost */
#define GROWTH_SLOW          64u /* and after */
#define PIECE_BYTES          (128u * 1024)
#define PIECE_PACKETS        64u
#define ACKS_IN_WINDOW       8u    /* at least so many are asked for, so that it moves on evenly */
#define ACK_EVERY_MAX        64u   /* packets */
#define REFER_BYTES          1024u /* payloads from here on are not copied */
#define BURST_PACKETS        64u   /* before it is another qp's turn */

enum sent { SENT, SENT_NOTHING, SENT_TX_FULL };

static uint32_t packets_of(const struct requester *requester, uint32_t bytes, uint32_t most)
{
	uint32_t packets = bytes / requester->qp->mtu_bytes;

	return packets < most ? packets : most;
}

void requester_reset_window(struct requester *requester)
{
	requester->window = packets_of(requester, WINDOW_START_BYTES, WINDOW_START_PACKETS);
	requester->window_credit = 0;
	requester->window_was_too_big = false;
}

void requester_grow_window(struct requester *requester, uint64_t packets)
{
	uint32_t price = requester->window_was_too_big ? GROWTH_SLOW : GROWTH_FAST;
	uint32_t most = packets_of(requester, WINDOW_MAX_BYTES, WINDOW_MAX_PACKETS);

	requester->window_credit += (uint32_t)packets;
	requester->window += requester->window_credit / price;
	requester->window_credit %= price;
	if (requester->window > most)
		requester->window = most;
}

void requester_shrink_window(struct requester *requester)
{
	requester->window_was_too_big = true;
	requester->window /= 2;
	if (requester->window < WINDOW_MIN_PACKETS)
		requester->window = WINDOW_MIN_PACKETS;
}

uint64_t requester_piece_end(const struct requester *requester, const struct send_slot *slot, uint64_t psn)
{
	uint32_t piece = packets_of(requester, PIECE_BYTES, PIECE_PACKETS);
	uint64_t end = slot->psn + ((psn - slot->psn) / piece + 1) * piece;

	return end < slot->psn + slot->psns ? end : slot->psn + slot->psns;
}

/* Copies [offset, offset + bytes) of the wr's payload. False: a sge's memory may not be read. */
static bool gather(struct requester *requester, struct send_slot *slot, uint64_t offset, uint8_t *to, uint32_t bytes)
{
	struct engine *engine = requester->qp->engine;
	struct sge_walk walk = {.next = slot->sge, .left = slot->num_sge, .offset = offset};
	struct ibv_sge piece;

	if (slot->send_flags & IBV_SEND_INLINE) {
		memcpy(to, send_slot_inline(requester, slot) + offset, bytes);
		return true;
	}
	while (bytes > 0 && sge_walk_next(&walk, bytes, &piece)) {
		const void *host = engine_local(engine, requester->qp->base.pd, &piece, 0);

		if (host == NULL || !engine->bus->ops->read(engine->bus, to, host, piece.length))
			return false;
		to += piece.length;
		bytes -= piece.length;
	}
	return true;
}

/* Where the payload lies in host memory, if it is in one piece, worth referring to and may be looked at there. */
static const void *payload_in_place(
	struct requester *requester, struct send_slot *slot, uint64_t offset, uint32_t bytes)
{
	struct engine *engine = requester->qp->engine;
	struct sge_walk walk = {.next = slot->sge, .left = slot->num_sge, .offset = offset};
	struct ibv_sge piece;
	const void *host;

	if (bytes < REFER_BYTES || (slot->send_flags & IBV_SEND_INLINE) || !sge_walk_next(&walk, bytes, &piece) ||
		piece.length < bytes)
		return NULL;
	host = engine_local(engine, requester->qp->base.pd, &piece, 0);
	return host == NULL ? NULL : engine->bus->ops->view(engine->bus, host, bytes);
}

/* Once, when its first packet is due: nothing of a wr with a wrong sge leaves. */
static bool sges_are_good(struct requester *requester, struct send_slot *slot)
{
	int access = qp_rules_has_answer(slot->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (slot->checked || (slot->send_flags & IBV_SEND_INLINE))
		return true;
	for (uint32_t i = 0; i < slot->num_sge; i++)
		if (slot->sge[i].length > 0 &&
			engine_local(requester->qp->engine, requester->qp->base.pd, &slot->sge[i], access) == NULL)
			return false;
	slot->checked = true;
	return true;
}

static uint8_t message_opcode(const struct send_slot *slot, bool first, bool last)
{
	bool write = slot->opcode == IBV_WR_RDMA_WRITE || slot->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool imm = slot->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || slot->opcode == IBV_WR_SEND_WITH_IMM;
	uint8_t opcode = write ? PACKET_WRITE_FIRST : PACKET_SEND_FIRST;

	if (!last)
		return first ? opcode : (uint8_t)(opcode + 1);
	return (uint8_t)(opcode + (first ? 4 : 2) + (imm ? 1 : 0));
}

/* Is the packet behind this one going to leave, whatever becomes of this one? */
static bool more_follows(struct requester *requester)
{
	struct send_slot *slot = ring_slot(&requester->ring, requester->cursor + 1);

	return requester->cursor + 1 != observe(&requester->ring.head) && slot->status == IBV_WC_SUCCESS &&
	       sges_are_good(requester, slot);
}

/* An acknowledgement interrupts a sender, so one is asked for only where it is waited for: the application for a
 * completion, the window to move on, DC to change its destination. */
static bool wants_ack(struct requester *requester, const struct send_slot *slot, bool last)
{
	uint32_t every = requester->window / ACKS_IN_WINDOW;

	if (requester->sent > requester->next)
		return true;
	if (requester->next - requester->ack_asked >= (every < ACK_EVERY_MAX ? every : ACK_EVERY_MAX))
		return true;
	return last && (requester->qp->base.sq_sig_all || (slot->send_flags & IBV_SEND_SIGNALED) ||
			       requester->qp->dc == HF_DC_INITIATOR || !more_follows(requester));
}

/* foot: in the packet; it is empty in all but the last, where others must have the same size. */
static void packet_common(struct requester *requester, const struct send_slot *slot, struct packet *packet, bool foot)
{
	packet->psn = (uint32_t)requester->next & 0xffffff;
	packet->traits = packet_traits(packet->opcode);
	if (foot && slot->footer.rkey != 0) {
		packet->traits |= PACKET_HAS_FOOT;
		if (requester->next + 1 == slot->psn + slot->psns)
			packet->footer = slot->footer;
	}
	if (requester->qp->dc == HF_DC_INITIATOR) {
		packet->traits |= PACKET_HAS_DCETH;
		packet->dc_key = requester->dest.dc_key;
		packet->source_qpn = requester->qp->base.qp_num;
		packet->source_use = (uint8_t)requester->life;
	}
}

static enum sent copy_message_packet(
	struct requester *requester, struct send_slot *slot, uint64_t offset, struct packet *packet)
{
	struct engine *engine = requester->qp->engine;
	uint8_t *payload, *at = flow_packet(&requester->flow, &engine->tx, packet, &payload);

	if (at == NULL)
		return SENT_TX_FULL;
	if (!gather(requester, slot, offset, payload, packet->payload_bytes)) {
		flow_cancel(&engine->tx, packet);
		slot->status = IBV_WC_LOC_PROT_ERR; /* deregistered meanwhile */
		return SENT_NOTHING;
	}
	flow_seal(&requester->flow, at, packet);
	return SENT;
}

/* One packet of a WRITE or SEND. A plain WRITE leaves as one message a packet: with a RETH in each all have the same
 * size, and a run is as long as the kernel can cut it. One with an immediate stays whole, as its receive tells the
 * length of a message. */
static enum sent send_message_packet(struct requester *requester, struct send_slot *slot)
{
	struct engine *engine = requester->qp->engine;
	uint32_t mtu = requester->qp->mtu_bytes, index = (uint32_t)(requester->next - slot->psn);
	uint64_t offset = (uint64_t)index * mtu;
	bool alone = slot->opcode == IBV_WR_RDMA_WRITE, last = index + 1 == slot->psns;
	struct packet packet = {.opcode = message_opcode(slot, alone || index == 0, alone || last)};
	const void *host;
	enum sent sent;

	packet.payload_bytes = last ? (uint32_t)(slot->bytes - offset) : mtu;
	packet.ack_request = wants_ack(requester, slot, last);
	packet.solicited = last && (slot->send_flags & IBV_SEND_SOLICITED) != 0;
	packet.va = slot->va + (alone ? offset : 0);
	packet.rkey = slot->rkey;
	packet.dma_bytes = alone ? packet.payload_bytes : (uint32_t)slot->bytes;
	packet.imm = slot->imm;
	packet_common(requester, slot, &packet, alone || last);
	host = payload_in_place(requester, slot, offset, packet.payload_bytes);
	if (host == NULL)
		sent = copy_message_packet(requester, slot, offset, &packet);
	else
		sent = flow_refer(&requester->flow, &engine->tx, &packet, host) ? SENT : SENT_TX_FULL;
	if (sent != SENT)
		return sent;
	requester->next++;
	if (packet.ack_request)
		requester->ack_asked = requester->next;
	return SENT;
}

/* Asks for the rest of the piece that next lies in. */
static enum sent send_read_request(struct requester *requester, struct send_slot *slot)
{
	uint32_t mtu = requester->qp->mtu_bytes;
	uint64_t end = requester_piece_end(requester, slot, requester->next);
	uint64_t offset = (requester->next - slot->psn) * mtu, until = (end - slot->psn) * mtu;
	struct packet packet = {.opcode = PACKET_READ_REQUEST, .ack_request = true, .rkey = slot->rkey};
	uint8_t *at, *payload;

	if (requester->reads_out >= requester->qp->attr.max_rd_atomic)
		return SENT_NOTHING;
	packet.va = slot->va + offset;
	packet.dma_bytes = (uint32_t)((until < slot->bytes ? until : slot->bytes) - offset);
	packet_common(requester, slot, &packet, false);
	at = flow_packet(&requester->flow, &requester->qp->engine->tx, &packet, &payload);
	if (at == NULL)
		return SENT_TX_FULL;
	flow_seal(&requester->flow, at, &packet);
	requester->reads_out++;
	requester->next = end;
	return SENT;
}

static enum sent send_atomic(struct requester *requester, struct send_slot *slot)
{
	bool swap = slot->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct packet packet = {.opcode = swap ? PACKET_COMPARE_SWAP : PACKET_FETCH_ADD,
		.ack_request = true,
		.va = slot->va,
		.rkey = slot->rkey,
		.swap_add = swap ? slot->swap : slot->compare_add,
		.compare = swap ? slot->compare_add : 0};
	uint8_t *at, *payload;

	if (requester->reads_out >= requester->qp->attr.max_rd_atomic)
		return SENT_NOTHING;
	packet_common(requester, slot, &packet, true);
	at = flow_packet(&requester->flow, &requester->qp->engine->tx, &packet, &payload);
	if (at == NULL)
		return SENT_TX_FULL;
	flow_seal(&requester->flow, at, &packet);
	requester->reads_out++;
	requester->next++;
	return SENT;
}

static enum sent send_packet(struct requester *requester, struct send_slot *slot)
{
	bool begins = requester->next == slot->psn;

	if (slot->status != IBV_WC_SUCCESS)
		return SENT_NOTHING;
	if (begins && (slot->send_flags & IBV_SEND_FENCE) && requester->reads_out > 0)
		return SENT_NOTHING;
	if (!sges_are_good(requester, slot)) {
		slot->status = IBV_WC_LOC_PROT_ERR;
		return SENT_NOTHING;
	}
	if (requester->qp->dc == HF_DC_INITIATOR) {
		enum dc_ready ready = dc_connect(requester, slot);

		if (ready != DC_READY)
			return ready == DC_TX_FULL ? SENT_TX_FULL : SENT_NOTHING;
	}
	if (slot->opcode == IBV_WR_RDMA_READ)
		return send_read_request(requester, slot);
	return qp_rules_is_atomic(slot->opcode) ? send_atomic(requester, slot) : send_message_packet(requester, slot);
}

static void note_sent(struct requester *requester, uint64_t from, uint64_t now_ns)
{
	struct engine *engine = requester->qp->engine;

	if (requester->sent > from)
		engine->counters.retransmitted++;
	if (requester->next > requester->sent)
		requester->sent = requester->next;
	if (requester->ack_due_ns == 0)
		requester_arm_timer(requester, now_ns);
}

bool requester_transmit(struct requester *requester, uint64_t now_ns)
{
	if (qp_state(requester->qp) != IBV_QPS_RTS || requester->rnr_due_ns != 0)
		return false;
	for (unsigned burst = 0; burst < BURST_PACKETS;) {
		struct send_slot *slot = ring_slot(&requester->ring, requester->cursor);
		uint64_t from = requester->next;
		enum sent sent;

		if (requester->cursor == observe(&requester->ring.head) || from - requester->acked >= requester->window)
			return false;
		/* A SEND that answers one must not get there before that one's acknowledgement: programs take the
		 * completions in this order (ib_send_lat -e). */
		if (responder_acknowledge(&requester->qp->responder))
			return true;
		sent = send_packet(requester, slot);
		if (sent == SENT_TX_FULL)
			return true;
		if (sent == SENT_NOTHING) {
			if (slot->status != IBV_WC_SUCCESS && slot == requester_tail_slot(requester))
				requester_fail(requester, slot->status);
			return false;
		}
		note_sent(requester, from, now_ns);
		burst += (unsigned)(requester->next - from);
		if (requester->next == slot->psn + slot->psns)
			requester->cursor++;
	}
	return true; /* more, after the others */
}
