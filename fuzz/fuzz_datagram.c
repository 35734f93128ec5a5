/* A UD queue pair of a soft NIC: whatever packets arrive, what completes lies inside its receive and has the length
 * that the packet says; nothing else is written.
 *
 * The input is packets, each behind its length (two bytes) and a byte: bit 0 gives it the number of the queue pair,
 * bit 1 the opcode of a datagram, bit 2 the qkey, bit 3 a good checksum. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "dev/gid.h"
#include "dev/soft/datagram.h"

#define QKEY       0x01020304u
#define KEY        0x5eed0000u
#define ROOM       256u /* of a receive: longer datagrams do not fit */
#define GUARD      64u
#define GUARD_BYTE 0xa5
#define PACKET_MAX 4200u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct soft_bus bus = {.ops = &bus_direct};
static struct hf_dev dev = {.attr = {.max_msg_bytes = 1u << 30}};
static struct engine engine;
static struct soft_pd pd;
static struct soft_mr mr;
static struct soft_cq cq;
static struct soft_qp qp;
static struct hf_addr local, peer;
static uint8_t memory[ROOM + GUARD];

static void wake(struct engine *woken)
{
	(void)woken;
}

static void build(void)
{
	ensure(hf_addr_parse("127.0.0.1:4791", &local) == 0 && hf_addr_parse("127.0.0.2:4791", &peer) == 0);
	engine_init(&engine, &dev, &bus, &local);
	engine.wake = wake;
	mr.base = (struct hf_mr){.pd = &pd.base,
		.addr = memory,
		.bytes = ROOM,
		.iova = (uintptr_t)memory,
		.lkey = KEY,
		.rkey = KEY,
		.access = IBV_ACCESS_LOCAL_WRITE};
	engine.mrs[KEY % MR_BUCKETS] = &mr;
	ensure(ring_init(&cq.ring, 16, sizeof(struct ibv_wc)) == 0);
	cq.engine = &engine;
	qp.base = (struct hf_qp){.dev = &dev,
		.pd = &pd.base,
		.send_cq = &cq.base,
		.recv_cq = &cq.base,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.type = IBV_QPT_UD};
	responder_init(&qp.responder, &qp, &qp.requester.flow);
	ensure(requester_init(&qp.requester, &qp, &qp.base.cap) == 0);
	ensure(ring_init(&qp.recv_ring, 4, recv_slot_bytes(1)) == 0);
	ensure(engine_add_qp(&engine, &qp) == 0);
	qp.attr.qkey = QKEY;
	qp_move(&qp, IBV_QPS_RTR);
}

static void aim(uint8_t how, uint8_t *packet, size_t bytes)
{
	struct packet_path path;

	if (bytes < PACKET_BTH_BYTES + 8 + PACKET_ICRC_BYTES)
		return;
	if (how & 1)
		put_be24(packet + 5, qp.base.qp_num);
	if (how & 2)
		packet[0] = (uint8_t)(PACKET_UD | (packet[0] & 1 ? PACKET_SEND_ONLY_IMM : PACKET_SEND_ONLY));
	if (how & 4)
		put_be32(packet + PACKET_BTH_BYTES, QKEY);
	if (how & 8) {
		packet_path_init(&path, &peer, &local);
		packet_seal(&path, 0, packet, bytes);
	}
}

static void check(const struct ibv_wc *wc, const uint8_t *packet, size_t bytes)
{
	struct packet decoded;

	ensure(packet_decode(packet, bytes, &decoded) && (decoded.traits & PACKET_HAS_DETH) != 0);
	ensure(decoded.qkey == QKEY && wc->src_qp == decoded.source_qpn);
	ensure(wc->byte_len == GRH_BYTES + decoded.payload_bytes);
	if (wc->byte_len > ROOM) {
		ensure(wc->status == IBV_WC_LOC_LEN_ERR);
		return;
	}
	ensure(wc->status == IBV_WC_SUCCESS);
	ensure(memcmp(memory + GRH_BYTES, decoded.payload, decoded.payload_bytes) == 0);
}

static void receive(uint8_t how, const uint8_t *data, size_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = ROOM, .lkey = KEY};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	uint8_t *packet = malloc(bytes + 1); /* its end is where a sanitizer looks */
	struct ibv_wc wc[2];
	int n;

	ensure(packet != NULL);
	memcpy(packet, data, bytes);
	aim(how, packet, bytes);
	if (ring_empty(&qp.recv_ring))
		ensure(recv_post(&qp.recv_ring, 1, &wr, &bad) == 0);
	memset(memory + ROOM, GUARD_BYTE, GUARD);
	engine_receive(&engine, &peer, 0, packet, bytes, 1);
	n = completions_poll(&cq, 2, wc);
	ensure(n <= 1);
	if (n == 1)
		check(&wc[0], packet, bytes);
	for (unsigned i = 0; i < GUARD; i++)
		ensure(memory[ROOM + i] == GUARD_BYTE);
	free(packet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (engine.dev == NULL)
		build();
	while (bytes >= 3) {
		size_t length = get_be16(data) % PACKET_MAX;

		length = length < bytes - 3 ? length : bytes - 3;
		receive(data[2], data + 3, length);
		data += 3 + length;
		bytes -= 3 + length;
	}
	return 0;
}
