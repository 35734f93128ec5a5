#include "dev/soft/flow.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "dev/gid.h"

void flow_init_addr(struct flow *flow, const struct hf_addr *local, const struct hf_addr *peer, uint32_t dest_qpn)
{
	flow->peer = *peer;
	flow->dest_qpn = dest_qpn;
	hf_addr_set_port(&flow->peer, hf_addr_port(local));
	packet_path_init(&flow->out, local, &flow->peer);
	packet_path_init(&flow->in, &flow->peer, local);
}

int flow_init(struct flow *flow, const struct hf_addr *local, const union ibv_gid *gid, uint32_t dest_qpn)
{
	struct hf_addr peer = *local; /* its family, and for fe80:: its interface */

	if (gid_is_ipv4(gid) != (local->sa.sa_family == AF_INET))
		return -EINVAL;
	gid_put_host(gid, &peer);
	flow_init_addr(flow, local, &peer, dest_qpn);
	return 0;
}

bool flow_is_from(const struct flow *flow, const struct hf_addr *peer)
{
	if (flow->peer.sa.sa_family != peer->sa.sa_family)
		return false;
	if (peer->sa.sa_family == AF_INET6)
		return memcmp(&flow->peer.in6.sin6_addr, &peer->in6.sin6_addr, 16) == 0;
	return flow->peer.in.sin_addr.s_addr == peer->in.sin_addr.s_addr;
}

static uint32_t pad_of(uint32_t bytes)
{
	return -bytes & 3;
}

static uint32_t packet_bytes(const struct packet *packet)
{
	return packet_header_bytes(packet->traits) + packet->payload_bytes + pad_of(packet->payload_bytes) +
	       PACKET_ICRC_BYTES;
}

static uint8_t *reserve(struct flow *flow, struct tx *tx, struct packet *packet, uint32_t foreign)
{
	uint8_t *at;

	if (packet->traits == 0)
		packet->traits = packet_traits(packet->opcode);
	at = tx_reserve(tx, &flow->peer, packet_bytes(packet), foreign);
	if (at == NULL)
		return NULL;
	packet->dest_qpn = flow->dest_qpn;
	packet->ip_id = tx_place(tx);
	packet_encode(at, packet, pad_of(packet->payload_bytes));
	return at;
}

bool flow_refer(struct flow *flow, struct tx *tx, struct packet *packet, const void *payload)
{
	uint32_t pad = pad_of(packet->payload_bytes), header, crc;
	uint8_t *at = reserve(flow, tx, packet, packet->payload_bytes);

	if (at == NULL)
		return false;
	header = packet_header_bytes(packet->traits);
	memset(at + header, 0, pad);
	crc = packet_icrc(&flow->out, packet->ip_id, packet_bytes(packet), at, header);
	crc = crc32(crc, payload, packet->payload_bytes);
	crc = crc32(crc, at + header, pad);
	put_le32(at + header + pad, crc);
	tx_refer(tx, payload, packet->payload_bytes, pad + PACKET_ICRC_BYTES);
	return true;
}

uint8_t *flow_packet(struct flow *flow, struct tx *tx, struct packet *packet, uint8_t **payload_out)
{
	uint8_t *at = reserve(flow, tx, packet, 0);

	if (at == NULL)
		return NULL;
	*payload_out = at + packet_header_bytes(packet->traits);
	memset(*payload_out + packet->payload_bytes, 0, pad_of(packet->payload_bytes));
	return at;
}

void flow_seal(struct flow *flow, uint8_t *at, const struct packet *packet)
{
	packet_seal(&flow->out, packet->ip_id, at, packet_bytes(packet));
}

void flow_cancel(struct tx *tx, const struct packet *packet)
{
	tx_cancel(tx, packet_bytes(packet));
}
