#include "dev/soft/packet.h"

#include <string.h>

#include "base/bytes.h"

#define TYPE_MASK      0xe0u /* upper bits of the opcode: 0 is reliable connection */
#define DCETH_BYTES    12u
#define DETH_BYTES     8u
#define RETH_BYTES     16u
#define AETH_BYTES     4u
#define ATOMIC_BYTES   28u
#define ORIGINAL_BYTES 8u
#define IMM_BYTES      4u
#define FOOT_BYTES     20u
#define FOOTED_DC      0x40u /* in BTH's byte 8 */

#define ONLY (PACKET_IS_FIRST | PACKET_IS_LAST)

static const uint32_t traits_of[32] = {
	[PACKET_SEND_FIRST] = PACKET_IS_SEND | PACKET_IS_FIRST | PACKET_HAS_PAYLOAD,
	[PACKET_SEND_MIDDLE] = PACKET_IS_SEND | PACKET_HAS_PAYLOAD,
	[PACKET_SEND_LAST] = PACKET_IS_SEND | PACKET_IS_LAST | PACKET_HAS_PAYLOAD,
	[PACKET_SEND_LAST_IMM] = PACKET_IS_SEND | PACKET_IS_LAST | PACKET_HAS_IMM | PACKET_HAS_PAYLOAD,
	[PACKET_SEND_ONLY] = PACKET_IS_SEND | ONLY | PACKET_HAS_PAYLOAD,
	[PACKET_SEND_ONLY_IMM] = PACKET_IS_SEND | ONLY | PACKET_HAS_IMM | PACKET_HAS_PAYLOAD,
	[PACKET_WRITE_FIRST] = PACKET_IS_WRITE | PACKET_IS_FIRST | PACKET_HAS_RETH | PACKET_HAS_PAYLOAD,
	[PACKET_WRITE_MIDDLE] = PACKET_IS_WRITE | PACKET_HAS_PAYLOAD,
	[PACKET_WRITE_LAST] = PACKET_IS_WRITE | PACKET_IS_LAST | PACKET_HAS_PAYLOAD,
	[PACKET_WRITE_LAST_IMM] = PACKET_IS_WRITE | PACKET_IS_LAST | PACKET_HAS_IMM | PACKET_HAS_PAYLOAD,
	[PACKET_WRITE_ONLY] = PACKET_IS_WRITE | ONLY | PACKET_HAS_RETH | PACKET_HAS_PAYLOAD,
	[PACKET_WRITE_ONLY_IMM] = PACKET_IS_WRITE | ONLY | PACKET_HAS_RETH | PACKET_HAS_IMM | PACKET_HAS_PAYLOAD,
	[PACKET_READ_REQUEST] = PACKET_IS_READ | ONLY | PACKET_HAS_RETH,
	[PACKET_READ_RESPONSE_FIRST] =
		PACKET_IS_READ | PACKET_IS_RESPONSE | PACKET_IS_FIRST | PACKET_HAS_AETH | PACKET_HAS_PAYLOAD,
	[PACKET_READ_RESPONSE_MIDDLE] = PACKET_IS_READ | PACKET_IS_RESPONSE | PACKET_HAS_PAYLOAD,
	[PACKET_READ_RESPONSE_LAST] =
		PACKET_IS_READ | PACKET_IS_RESPONSE | PACKET_IS_LAST | PACKET_HAS_AETH | PACKET_HAS_PAYLOAD,
	[PACKET_READ_RESPONSE_ONLY] = PACKET_IS_READ | PACKET_IS_RESPONSE | ONLY | PACKET_HAS_AETH | PACKET_HAS_PAYLOAD,
	[PACKET_ACK] = PACKET_IS_RESPONSE | ONLY | PACKET_HAS_AETH,
	[PACKET_ATOMIC_ACK] =
		PACKET_IS_ATOMIC | PACKET_IS_RESPONSE | ONLY | PACKET_HAS_AETH | PACKET_HAS_ATOMIC_ACK_ETH,
	[PACKET_COMPARE_SWAP] = PACKET_IS_ATOMIC | ONLY | PACKET_HAS_ATOMIC_ETH,
	[PACKET_FETCH_ADD] = PACKET_IS_ATOMIC | ONLY | PACKET_HAS_ATOMIC_ETH,
	[PACKET_DC_CONNECT & 0x1f] = PACKET_IS_CONNECT | ONLY | PACKET_HAS_RETH,
};

/* A READ executes when it is answered, which is too late for a footer. */
static bool may_be_footed(uint32_t traits)
{
	return (traits & (PACKET_IS_RESPONSE | PACKET_IS_READ)) == 0;
}

uint32_t packet_traits(uint8_t opcode)
{
	uint32_t traits = traits_of[opcode & 0x1f];

	if (opcode == PACKET_DC_CONNECT)
		return traits | PACKET_HAS_DCETH;
	if (traits == 0 || (traits & PACKET_IS_CONNECT))
		return 0;
	if ((opcode & TYPE_MASK) == 0)
		return traits;
	if ((opcode & TYPE_MASK) == PACKET_UD && (traits & PACKET_IS_SEND) && (traits & ONLY) == ONLY)
		return traits | PACKET_HAS_DETH;
	if ((opcode & TYPE_MASK) == PACKET_DC && (traits & PACKET_IS_RESPONSE) == 0)
		return traits | PACKET_HAS_DCETH;
	if ((opcode & TYPE_MASK) == PACKET_FOOTED && may_be_footed(traits))
		return traits | PACKET_HAS_FOOT;
	return 0;
}

uint32_t packet_header_bytes(uint32_t traits)
{
	return PACKET_BTH_BYTES + (traits & PACKET_HAS_DCETH ? DCETH_BYTES : 0) +
	       (traits & PACKET_HAS_DETH ? DETH_BYTES : 0) + (traits & PACKET_HAS_RETH ? RETH_BYTES : 0) +
	       (traits & PACKET_HAS_AETH ? AETH_BYTES : 0) + (traits & PACKET_HAS_ATOMIC_ETH ? ATOMIC_BYTES : 0) +
	       (traits & PACKET_HAS_ATOMIC_ACK_ETH ? ORIGINAL_BYTES : 0) + (traits & PACKET_HAS_IMM ? IMM_BYTES : 0) +
	       (traits & PACKET_HAS_FOOT ? FOOT_BYTES : 0);
}

static void decode_extended(const uint8_t *at, struct packet *out)
{
	if (out->traits & PACKET_HAS_DCETH) {
		out->dc_key = get_be64(at);
		out->source_use = at[8];
		out->source_qpn = get_be24(at + 9);
		at += DCETH_BYTES;
	}
	if (out->traits & PACKET_HAS_DETH) {
		out->qkey = get_be32(at);
		out->source_qpn = get_be24(at + 5);
		at += DETH_BYTES;
	}
	if (out->traits & (PACKET_HAS_RETH | PACKET_HAS_ATOMIC_ETH)) {
		out->va = get_be64(at);
		out->rkey = get_be32(at + 8);
	}
	if (out->traits & PACKET_HAS_RETH) {
		out->dma_bytes = get_be32(at + 12);
		at += RETH_BYTES;
	}
	if (out->traits & PACKET_HAS_ATOMIC_ETH) {
		out->swap_add = get_be64(at + 12);
		out->compare = get_be64(at + 20);
		at += ATOMIC_BYTES;
	}
	if (out->traits & PACKET_HAS_AETH) {
		out->syndrome = at[0];
		out->msn = get_be24(at + 1);
		at += AETH_BYTES;
	}
	if (out->traits & PACKET_HAS_ATOMIC_ACK_ETH) {
		out->original = get_be64(at);
		at += ORIGINAL_BYTES;
	}
	if (out->traits & PACKET_HAS_IMM) {
		memcpy(&out->imm, at, sizeof(out->imm));
		at += IMM_BYTES;
	}
	if (out->traits & PACKET_HAS_FOOT) {
		out->footer.remote_addr = get_be64(at);
		memcpy(&out->footer.value, at + 8, sizeof(out->footer.value));
		out->footer.rkey = get_be32(at + 16);
	}
}

bool packet_decode(const void *data, size_t bytes, struct packet *out)
{
	const uint8_t *bth = data;
	uint32_t header, pad;

	*out = (struct packet){0};
	if (bytes < PACKET_BTH_BYTES + PACKET_ICRC_BYTES || bytes % 4 != 0 ||
		bytes > PACKET_HEADER_BYTES_MAX + PACKET_PAYLOAD_MAX + PACKET_ICRC_BYTES)
		return false;
	out->traits = packet_traits(bth[0]);
	if ((out->traits & PACKET_HAS_FOOT) && (bth[8] & FOOTED_DC))
		out->traits |= PACKET_HAS_DCETH;
	header = packet_header_bytes(out->traits);
	pad = bth[1] >> 4 & 3;
	if (out->traits == 0 || (bth[1] & 0x0f) != 0 || (get_be16(bth + 2) & 0x7fff) != (PACKET_PKEY & 0x7fff) ||
		bytes < header + PACKET_ICRC_BYTES + pad)
		return false;
	out->payload = bth + header;
	out->payload_bytes = (uint32_t)bytes - header - PACKET_ICRC_BYTES - pad;
	if (out->payload_bytes > PACKET_PAYLOAD_MAX ||
		((out->traits & PACKET_HAS_PAYLOAD) == 0 && out->payload_bytes + pad != 0))
		return false;
	out->opcode = out->traits & PACKET_IS_CONNECT ? bth[0] : bth[0] & (uint8_t)~TYPE_MASK;
	out->solicited = bth[1] >> 7;
	out->dest_qpn = get_be24(bth + 5);
	out->ack_request = bth[8] >> 7;
	out->psn = get_be24(bth + 9);
	if (out->dest_qpn < 2) /* management datagrams are none of ours */
		return false;
	decode_extended(bth + PACKET_BTH_BYTES, out);
	return true;
}

static uint8_t *encode_extended(uint8_t *at, uint32_t traits, const struct packet *packet)
{
	if (traits & PACKET_HAS_DCETH) {
		put_be64(at, packet->dc_key);
		put_be32(at + 8, (uint32_t)packet->source_use << 24 | packet->source_qpn);
		at += DCETH_BYTES;
	}
	if (traits & PACKET_HAS_DETH) {
		put_be32(at, packet->qkey);
		put_be32(at + 4, packet->source_qpn);
		at += DETH_BYTES;
	}
	if (traits & (PACKET_HAS_RETH | PACKET_HAS_ATOMIC_ETH)) {
		put_be64(at, packet->va);
		put_be32(at + 8, packet->rkey);
	}
	if (traits & PACKET_HAS_RETH) {
		put_be32(at + 12, packet->dma_bytes);
		at += RETH_BYTES;
	}
	if (traits & PACKET_HAS_ATOMIC_ETH) {
		put_be64(at + 12, packet->swap_add);
		put_be64(at + 20, packet->compare);
		at += ATOMIC_BYTES;
	}
	if (traits & PACKET_HAS_AETH) {
		at[0] = packet->syndrome;
		put_be24(at + 1, packet->msn);
		at += AETH_BYTES;
	}
	if (traits & PACKET_HAS_ATOMIC_ACK_ETH) {
		put_be64(at, packet->original);
		at += ORIGINAL_BYTES;
	}
	if (traits & PACKET_HAS_IMM) {
		memcpy(at, &packet->imm, sizeof(packet->imm));
		at += IMM_BYTES;
	}
	if (traits & PACKET_HAS_FOOT) {
		put_be64(at, packet->footer.remote_addr);
		memcpy(at + 8, &packet->footer.value, sizeof(packet->footer.value));
		put_be32(at + 16, packet->footer.rkey);
		at += FOOT_BYTES;
	}
	return at;
}

uint32_t packet_encode(uint8_t *at, const struct packet *packet, uint32_t pad)
{
	uint32_t traits = packet->traits == 0 ? packet_traits(packet->opcode) : packet->traits;
	uint8_t opcode = packet->opcode;

	if (traits & PACKET_HAS_FOOT)
		opcode |= PACKET_FOOTED;
	else if (traits & PACKET_HAS_DCETH)
		opcode |= PACKET_DC;
	else if (traits & PACKET_HAS_DETH)
		opcode |= PACKET_UD;
	at[0] = opcode;
	at[1] = (uint8_t)((packet->solicited ? 0x80u : 0u) | 0x40u | pad << 4); /* M: migrated, as everybody sends */
	put_be16(at + 2, PACKET_PKEY);
	put_be32(at + 4, packet->dest_qpn);
	put_be32(at + 8, packet->psn | (packet->ack_request ? 0x80000000u : 0));
	if ((traits & PACKET_HAS_FOOT) && (traits & PACKET_HAS_DCETH))
		at[8] |= FOOTED_DC;
	return (uint32_t)(encode_extended(at + PACKET_BTH_BYTES, traits, packet) - at);
}
