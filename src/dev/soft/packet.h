/* packet.h - RoCEv2 packets: the UDP payload to port 4791, and the checksum that ends it.
 *
 * Layout, big-endian (InfiniBand specification 9.2 and 9.3, annex A17):
 *   BTH   0 opcode  1 SE:1 M:1 pad:2 version:4  2 pkey:16  4 reserved:8  5 qpn:24  8 A:1 reserved:7  9 psn:24
 *   DCETH (ours, first of a DC request) 12 dc_key:64  20 source use:8  21 source qpn:24
 *   DETH  (first of a datagram) 12 qkey:32  16 reserved:8  17 source qpn:24
 *   then, by opcode: RETH va:64 rkey:32 bytes:32 | AtomicETH va:64 rkey:32 swap_add:64 compare:64 |
 *                    AETH syndrome:8 msn:24 [AtomicAckETH original:64] | ImmDt 32
 *   FOOT (ours, of a footed request) va:64 value:64 rkey:32 (0: none behind this packet)
 *   payload, pad to a multiple of four, ICRC:32 (least significant byte first)
 *
 * Pure: no clock, memory or descriptors. packet_decode validates all input; the ICRC is checked separately, because it
 * covers addresses that only the receiver's socket has. */
#ifndef HOLDFAST_DEV_SOFT_PACKET_H
#define HOLDFAST_DEV_SOFT_PACKET_H

#include <holdfast/dev.h>

enum packet_opcode {
	PACKET_SEND_FIRST = 0x00,
	PACKET_SEND_MIDDLE = 0x01,
	PACKET_SEND_LAST = 0x02,
	PACKET_SEND_LAST_IMM = 0x03,
	PACKET_SEND_ONLY = 0x04,
	PACKET_SEND_ONLY_IMM = 0x05,
	PACKET_WRITE_FIRST = 0x06,
	PACKET_WRITE_MIDDLE = 0x07,
	PACKET_WRITE_LAST = 0x08,
	PACKET_WRITE_LAST_IMM = 0x09,
	PACKET_WRITE_ONLY = 0x0a,
	PACKET_WRITE_ONLY_IMM = 0x0b,
	PACKET_READ_REQUEST = 0x0c,
	PACKET_READ_RESPONSE_FIRST = 0x0d,
	PACKET_READ_RESPONSE_MIDDLE = 0x0e,
	PACKET_READ_RESPONSE_LAST = 0x0f,
	PACKET_READ_RESPONSE_ONLY = 0x10,
	PACKET_ACK = 0x11,
	PACKET_ATOMIC_ACK = 0x12,
	PACKET_COMPARE_SWAP = 0x13,
	PACKET_FETCH_ADD = 0x14,
	/* A datagram is PACKET_SEND_ONLY or PACKET_SEND_ONLY_IMM with these bits and a DETH. */
	PACKET_UD = 0x60,
	/* In the manufacturer's range: a request of a DC initiator is the RC opcode with this bit set and a DCETH. */
	PACKET_DC = 0xc0,
	/* And with these a FOOT; BTH has a flag for a DCETH (FOOTED_DC). */
	PACKET_FOOTED = 0xe0,
	PACKET_DC_CONNECT = 0xdf, /* the stream goes on at its psn; takes none itself; RETH's va is the stream's life */
};

/* What an opcode means: its place in a message, its headers. */
enum packet_trait {
	PACKET_IS_SEND = 1 << 0,
	PACKET_IS_WRITE = 1 << 1,
	PACKET_IS_READ = 1 << 2,
	PACKET_IS_ATOMIC = 1 << 3,
	PACKET_IS_RESPONSE = 1 << 4,
	PACKET_IS_FIRST = 1 << 5, /* an only packet is first and last */
	PACKET_IS_LAST = 1 << 6,
	PACKET_HAS_IMM = 1 << 7,
	PACKET_HAS_RETH = 1 << 8,
	PACKET_HAS_AETH = 1 << 9,
	PACKET_HAS_ATOMIC_ETH = 1 << 10,
	PACKET_HAS_ATOMIC_ACK_ETH = 1 << 11,
	PACKET_HAS_PAYLOAD = 1 << 12,
	PACKET_HAS_DCETH = 1 << 13,
	PACKET_IS_CONNECT = 1 << 14,
	PACKET_HAS_FOOT = 1 << 15,
	PACKET_HAS_DETH = 1 << 16,
};

/* AETH syndromes: kind in the upper three bits (specification 9.7.5.2). */
#define SYNDROME_KIND     0xe0u
#define SYNDROME_ACK      0x00u
#define SYNDROME_RNR      0x20u /* | timer code */
#define SYNDROME_NAK      0x60u /* | one of: */
#define NAK_PSN_SEQUENCE  0u
#define NAK_INVALID       1u
#define NAK_REMOTE_ACCESS 2u
#define NAK_REMOTE_OP     3u
/* The only credits that we give, as rxe does; those that others give are not counted either. Credits would save a SEND
 * that has no receive its way there and the RNR NAK back, but the specification takes them from shared receive queues
 * anyhow (9.7.7.2), and a requester has to live with the NAK. */
#define CREDITS_UNLIMITED 0x1fu

#define PACKET_BTH_BYTES        12u
#define PACKET_ICRC_BYTES       4u
#define PACKET_HEADER_BYTES_MAX 72u
#define PACKET_PAYLOAD_MAX      4096u
#define PACKET_PKEY             0xffffu

/* One packet, decoded. `traits` determines the valid fields. */
struct packet {
	uint8_t opcode; /* of RC; a DC request has PACKET_HAS_DCETH among its traits, a datagram PACKET_HAS_DETH */
	uint32_t traits;
	bool solicited, ack_request;
	uint32_t dest_qpn, psn;
	uint64_t va;
	uint32_t rkey, dma_bytes;
	uint64_t swap_add, compare;
	uint8_t syndrome;
	uint32_t msn;
	uint64_t original;
	uint32_t imm; /* in the order of the wire, as in ibv_wc */
	uint64_t dc_key;
	uint32_t qkey;
	uint32_t source_qpn; /* of a DCETH or DETH */
	uint8_t source_use;
	struct hf_footer footer; /* value as it lies in memory */
	const uint8_t *payload;
	uint32_t payload_bytes; /* without pad */
	uint16_t ip_id;         /* to be sent: its place in its run, which is what the kernel writes into IPv4 */
};

/* False: not a valid packet. The ICRC's bytes are part of `bytes` and not checked. */
bool packet_decode(const void *data, size_t bytes, struct packet *out);

/* Writes everything before the payload; returns its size. traits may be zero: they follow from the opcode. */
uint32_t packet_encode(uint8_t *at, const struct packet *packet, uint32_t pad);
uint32_t packet_traits(uint8_t opcode); /* 0: no such opcode; a footed one may have a DCETH besides */
uint32_t packet_header_bytes(uint32_t traits);

/* ---- ICRC ---- */

/* The headers below BTH of one direction between two sockets, invariant fields set and variant ones masked; and the CRC
 * over them as it was for the packet before. */
struct packet_path {
	uint8_t pseudo[56]; /* 8 ones, IP header, UDP header */
	uint8_t bytes, udp; /* how many count, where UDP begins */
	bool v6;
	uint16_t port; /* of the sender */
	uint16_t known_udp_bytes, known_port;
	uint32_t known_crc; /* with identification 0 */
};
void packet_path_init(struct packet_path *path, const struct hf_addr *from, const struct hf_addr *to);

/* The ICRC of a packet of `bytes`, as far as it goes: over header_bytes from BTH on. What follows up to the ICRC is
 * added by crc32(). `header` is written to and restored. */
uint32_t packet_icrc(struct packet_path *path, uint16_t ip_id, size_t bytes, uint8_t *header, size_t header_bytes);
/* Fills in the ICRC of a complete packet at `data`; `bytes` includes its place. */
void packet_seal(struct packet_path *path, uint16_t ip_id, uint8_t *data, size_t bytes);
/* True when it is right for some value of the IPv4 identification, which a UDP socket does not show. When it is
 * guessed right that is cheap. BTH's reserved byte is set to ones, as the ICRC sees it. */
bool packet_icrc_good(struct packet_path *path, uint16_t from_port, uint16_t guess, uint8_t *data, size_t bytes);

#endif
