#include "dev/soft/datagram.h"

#include <errno.h>
#include <string.h>

#include "dev/gid.h"
#include "dev/qp_rules.h"

/* ---- receiving ---- */

bool datagram_receive(struct soft_qp *qp, const struct hf_addr *peer, uint16_t place, uint8_t *data, size_t bytes,
	const struct packet *packet)
{
	struct engine *engine = qp->engine;
	union ibv_gid from = gid_of_addr(peer), to = gid_of_addr(&engine->local);
	uint8_t grh[GRH_BYTES];
	struct flow flow;

	if (peer->sa.sa_family != engine->local.sa.sa_family || packet->qkey != qp->attr.qkey)
		return false;
	flow_init_addr(&flow, &engine->local, peer, 0);
	if (!packet_icrc_good(&flow.in, hf_addr_port(peer), place, data, bytes))
		return false;
	gid_fill_grh(grh, &from, &to, bytes);
	responder_datagram(&qp->responder, packet, grh, sizeof(grh));
	return true;
}

/* ---- sending ---- */

/* False: memory that may not be read. */
static bool gather(struct soft_qp *qp, const struct ibv_send_wr *wr, uint8_t *to)
{
	struct soft_bus *bus = qp->engine->bus;

	for (int i = 0; i < wr->num_sge; i++) {
		struct ibv_sge sge = wr->sg_list[i];

		if (wr->send_flags & IBV_SEND_INLINE) {
			memcpy(to, (const void *)(uintptr_t)sge.addr, sge.length);
		} else if (sge.length > 0) {
			const void *host = engine_local(qp->engine, qp->base.pd, &sge, 0);

			if (host == NULL || !bus->ops->read(bus, to, host, sge.length))
				return false;
		}
		to += sge.length;
	}
	return true;
}

static void complete(struct soft_qp *qp, const struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_wc wc = {.wr_id = wr->wr_id, .status = status, .opcode = IBV_WC_SEND};

	if (status != IBV_WC_SUCCESS || qp->base.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED))
		completion_add(qp, qp->base.send_cq, &wc);
}

static int check(const struct soft_qp *qp, const struct ibv_send_wr *wr)
{
	enum ibv_qp_state state = qp_state(qp);

	if ((state != IBV_QPS_RTS && state != IBV_QPS_ERR) ||
		(wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) ||
		qp_rules_check_send(&qp->base, wr) != 0 || qp_rules_wr_bytes(wr) > qp->mtu_bytes)
		return -EINVAL;
	return 0;
}

int datagram_send(struct soft_qp *qp, const struct hf_ud_dest *dest, const struct ibv_send_wr *wr)
{
	struct engine *engine = qp->engine;
	struct packet packet = {.opcode = wr->opcode == IBV_WR_SEND ? PACKET_SEND_ONLY : PACKET_SEND_ONLY_IMM,
		.solicited = (wr->send_flags & IBV_SEND_SOLICITED) != 0,
		.psn = qp->attr.sq_psn,
		.qkey = dest->qkey & 0x80000000u ? qp->attr.qkey : dest->qkey, /* as the specification has it: 10.2.5 */
		.source_qpn = qp->base.qp_num,
		.imm = wr->imm_data,
		.payload_bytes = (uint32_t)qp_rules_wr_bytes(wr)};
	struct flow flow;
	uint8_t *at, *payload;
	int rc = check(qp, wr);

	if (rc == 0)
		rc = flow_init(&flow, &engine->local, &dest->gid, dest->qp_num);
	if (rc != 0)
		return rc;
	if (qp_state(qp) == IBV_QPS_ERR) {
		complete(qp, wr, IBV_WC_WR_FLUSH_ERR);
		return 0;
	}
	packet.traits = packet_traits(packet.opcode) | PACKET_HAS_DETH;
	at = flow_packet(&flow, &engine->tx, &packet, &payload);
	if (at == NULL)
		return -EAGAIN;
	if (!gather(qp, wr, payload)) {
		flow_cancel(&engine->tx, &packet);
		complete(qp, wr, IBV_WC_LOC_PROT_ERR);
		return 0;
	}
	flow_seal(&flow, at, &packet);
	qp->attr.sq_psn = psn_add(qp->attr.sq_psn, 1);
	complete(qp, wr, IBV_WC_SUCCESS);
	return 0;
}
