#include "dev/soft/datagram.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "dev/qp_rules.h"

#define IPV4_AT      20u /* of the header in place of a GRH */
#define IPV4_BYTES   20u
#define VERSION_IHL  0x45u
#define VERSION_IPV6 0x60u
#define TTL          64u
#define UDP          17u

/* ---- receiving ---- */

static void fill_grh(
	uint8_t grh[DATAGRAM_GRH_BYTES], const struct hf_addr *from, const struct hf_addr *to, size_t bytes)
{
	uint8_t *ip = grh + IPV4_AT;

	memset(grh, 0, DATAGRAM_GRH_BYTES);
	if (from->sa.sa_family == AF_INET) {
		ip[0] = VERSION_IHL;
		put_be16(ip + 2, (uint16_t)(bytes + IPV4_BYTES));
		ip[8] = TTL;
		ip[9] = UDP;
		memcpy(ip + 12, &from->in.sin_addr, 4);
		memcpy(ip + 16, &to->in.sin_addr, 4);
		return;
	}
	grh[0] = VERSION_IPV6;
	put_be16(grh + 4, (uint16_t)bytes);
	grh[6] = UDP;
	grh[7] = TTL;
	memcpy(grh + 8, &from->in6.sin6_addr, 16);
	memcpy(grh + 24, &to->in6.sin6_addr, 16);
}

bool datagram_receive(struct soft_qp *qp, const struct hf_addr *peer, uint16_t place, uint8_t *data, size_t bytes,
	const struct packet *packet)
{
	struct engine *engine = qp->engine;
	uint8_t grh[DATAGRAM_GRH_BYTES];
	struct flow flow;

	if (peer->sa.sa_family != engine->local.sa.sa_family || packet->qkey != qp->attr.qkey)
		return false;
	flow_init_addr(&flow, &engine->local, peer, 0);
	if (!packet_icrc_good(&flow.in, hf_addr_port(peer), place, data, bytes))
		return false;
	fill_grh(grh, peer, &engine->local, bytes);
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
