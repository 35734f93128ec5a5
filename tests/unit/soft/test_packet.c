/* Packets against bytes that another implementation made (scapy's RoCE layer), and against damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "dev/soft/packet.h"

/* WRITE only, 8 bytes "HOLDFAST" to 0x7f0011223344 with rkey 0xcafebabe, qpn 0xabcdef, psn 0x123456, A set. */
#define WRITE_BYTES                                                                                                    \
	0x0a, 0x00, 0xff, 0xff, 0x00, 0xab, 0xcd, 0xef, 0x80, 0x12, 0x34, 0x56, 0x00, 0x00, 0x7f, 0x00, 0x11, 0x22,    \
		0x33, 0x44, 0xca, 0xfe, 0xba, 0xbe, 0x00, 0x00, 0x00, 0x08, 'H', 'O', 'L', 'D', 'F', 'A', 'S', 'T'

static uint8_t write_loopback[] = {WRITE_BYTES, 0x1d, 0x34, 0x12, 0xee};   /* identification 0 */
static uint8_t write_identified[] = {WRITE_BYTES, 0x71, 0x7f, 0x54, 0xcb}; /* identification 0x4711 */
static uint8_t send_padded[] = {0x04, 0x30, 0xff, 0xff, 0x00, 0xab, 0xcd, 0xef, 0x80, 0x12, 0x34, 0x56, 'h', 'e', 'l',
	'l', 'o', 0, 0, 0, 0x70, 0xc0, 0x42, 0xd8};
static uint8_t ack[] = {0x11, 0x00, 0xff, 0xff, 0x00, 0xab, 0xcd, 0xef, 0x00, 0x12, 0x34, 0x56, 0x1f, 0x00, 0x00, 0x07,
	0x0e, 0x91, 0xa4, 0xb6};

static struct packet_path path_between(const char *from_text, const char *to_text)
{
	struct hf_addr from, to;
	struct packet_path path;

	assert_int_equal(hf_addr_parse(from_text, &from), 0);
	assert_int_equal(hf_addr_parse(to_text, &to), 0);
	packet_path_init(&path, &from, &to);
	return path;
}

static void fields_are_where_the_specification_has_them(void **state)
{
	struct packet packet;

	(void)state;
	assert_true(packet_decode(write_loopback, sizeof(write_loopback), &packet));
	assert_int_equal(packet.opcode, PACKET_WRITE_ONLY);
	assert_int_equal(packet.dest_qpn, 0xabcdef);
	assert_int_equal(packet.psn, 0x123456);
	assert_true(packet.ack_request);
	assert_false(packet.solicited);
	assert_true(packet.va == 0x7f0011223344);
	assert_int_equal(packet.rkey, 0xcafebabe);
	assert_int_equal(packet.dma_bytes, 8);
	assert_int_equal(packet.payload_bytes, 8);
	assert_memory_equal(packet.payload, "HOLDFAST", 8);
	assert_true(packet_decode(send_padded, sizeof(send_padded), &packet));
	assert_int_equal(packet.payload_bytes, 5);
	assert_true(packet_decode(ack, sizeof(ack), &packet));
	assert_int_equal(packet.syndrome, 0x1f);
	assert_int_equal(packet.msn, 7);
}

static void what_is_encoded_has_the_bytes_of_the_specification(void **state)
{
	struct packet packet = {.opcode = PACKET_WRITE_ONLY,
		.dest_qpn = 0xabcdef,
		.psn = 0x123456,
		.ack_request = true,
		.va = 0x7f0011223344,
		.rkey = 0xcafebabe,
		.dma_bytes = 8};
	uint8_t bytes[PACKET_HEADER_BYTES_MAX];

	(void)state;
	assert_int_equal(packet_encode(bytes, &packet, 0), 28);
	bytes[1] &= (uint8_t)~0x40; /* the migration bit, which the golden packet lacks */
	assert_memory_equal(bytes, write_loopback, 28);
}

/* Opcode 0x64, and a DETH of qkey, a reserved byte and the sender's number. */
static void a_datagram_has_the_bytes_of_the_specification(void **state)
{
	static const uint8_t expected[] = {0x64, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x00, 0x00, 0x00, 0x05, 0x80,
		0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x12};
	const struct packet packet = {.opcode = PACKET_SEND_ONLY,
		.traits = packet_traits(PACKET_UD | PACKET_SEND_ONLY),
		.dest_qpn = 0x11,
		.psn = 5,
		.qkey = 0x80010000,
		.source_qpn = 0x12};
	uint8_t bytes[PACKET_HEADER_BYTES_MAX];

	(void)state;
	assert_int_equal(packet_encode(bytes, &packet, 0), sizeof(expected));
	assert_memory_equal(bytes, expected, sizeof(expected));
}

static void the_icrc_is_the_one_that_others_compute(void **state)
{
	struct packet_path path = path_between("127.0.0.1:4791", "127.0.0.2:4791");
	struct packet_path back = path_between("127.0.0.2:4791", "127.0.0.1:4791");
	uint8_t bytes[sizeof(write_loopback)];

	(void)state;
	memcpy(bytes, write_loopback, sizeof(bytes));
	put_le32(bytes + sizeof(bytes) - 4, 0);
	packet_seal(&path, 0, bytes, sizeof(bytes));
	assert_memory_equal(bytes, write_loopback, sizeof(bytes));
	assert_true(packet_icrc_good(&path, 4791, 0, write_loopback, sizeof(write_loopback)));
	assert_true(packet_icrc_good(&path, 4791, 0, send_padded, sizeof(send_padded)));
	assert_true(packet_icrc_good(&back, 4791, 0, ack, sizeof(ack)));
}

static void an_unseen_identification_is_solved_for(void **state)
{
	struct packet_path path = path_between("10.0.0.1:4791", "10.0.0.2:4791");

	(void)state;
	assert_true(packet_icrc_good(&path, 0xc123, 0, write_identified, sizeof(write_identified)));
	assert_true(packet_icrc_good(&path, 0xc123, 0x4711, write_identified, sizeof(write_identified)));
	assert_true(packet_icrc_good(&path, 0xc123, 17, write_identified, sizeof(write_identified)));
	assert_false(packet_icrc_good(&path, 0xc124, 0, write_identified, sizeof(write_identified)));
}

/* With an unknown identification one in 65,536 damages passes; none of the single bits may. */
static void no_flipped_bit_is_believed(void **state)
{
	struct packet_path path = path_between("127.0.0.1:4791", "127.0.0.2:4791");
	uint8_t bytes[sizeof(write_loopback)];

	(void)state;
	for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
		memcpy(bytes, write_loopback, sizeof(bytes));
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (bit / 8 == 4) /* reserved: routers may change it */
			assert_true(packet_icrc_good(&path, 4791, 0, bytes, sizeof(bytes)));
		else
			assert_false(packet_icrc_good(&path, 4791, 0, bytes, sizeof(bytes)));
	}
}

/* Independent of icrc.c: the pseudo headers byte by byte. */
static void the_icrc_of_ipv6_covers_what_routers_leave_alone(void **state)
{
	struct packet_path path = path_between("[fd00::1]:4791", "[fd00::2]:4791");
	uint8_t covered[8 + 40 + 8 + 16] = {[8] = 0x6f, 0xff, 0xff, 0xff, 0, 28, 17, 0xff, 0xfd};
	uint8_t bytes[20];

	(void)state;
	memset(covered, 0xff, 8);
	covered[8 + 8 + 15] = 1;
	covered[8 + 24] = 0xfd;
	covered[8 + 24 + 15] = 2;
	put_be16(covered + 48, 4791);
	put_be16(covered + 50, 4791);
	put_be16(covered + 52, 28);
	put_be16(covered + 54, 0xffff);
	memcpy(covered + 56, ack, 16);
	covered[60] = 0xff;
	memcpy(bytes, ack, sizeof(bytes));
	packet_seal(&path, 9, bytes, sizeof(bytes));
	assert_int_equal(get_le32(bytes + 16), crc32(0, covered, sizeof(covered)));
	assert_true(packet_icrc_good(&path, 4791, 0, bytes, sizeof(bytes)));
	assert_false(packet_icrc_good(&path, 4792, 0, bytes, sizeof(bytes)));
}

static bool decodes_with(size_t at, uint8_t value, const uint8_t *packet, size_t bytes)
{
	uint8_t copy[64];
	struct packet out;

	memcpy(copy, packet, bytes);
	copy[at] = value;
	return packet_decode(copy, bytes, &out);
}

static void malformed_headers_are_refused(void **state)
{
	struct packet packet;

	(void)state;
	for (size_t bytes = 0; bytes < sizeof(write_loopback); bytes++)
		if (bytes < 32 || bytes % 4 != 0)
			assert_false(packet_decode(write_loopback, bytes, &packet));
	assert_false(decodes_with(0, 0x1f, ack, sizeof(ack)));                       /* no such opcode */
	assert_false(decodes_with(0, 0x2a, write_loopback, sizeof(write_loopback))); /* unreliable connection */
	assert_false(decodes_with(0, PACKET_UD | PACKET_WRITE_ONLY, write_loopback, sizeof(write_loopback)));
	assert_false(decodes_with(0, PACKET_UD | PACKET_SEND_FIRST, send_padded, sizeof(send_padded)));
	assert_false(decodes_with(1, 0x01, ack, sizeof(ack)));                              /* transport version */
	assert_false(decodes_with(1, 0x10, ack, sizeof(ack)));                              /* pad without payload */
	assert_false(decodes_with(2, 0x12, ack, sizeof(ack)));                              /* partition */
	assert_false(decodes_with(0, PACKET_WRITE_ONLY, send_padded, sizeof(send_padded))); /* RETH cut off */
	assert_false(decodes_with(0, PACKET_DC | PACKET_ACK, ack, sizeof(ack)));            /* DC has requests only */
}

static void management_qps_are_not_ours(void **state)
{
	uint8_t copy[sizeof(ack)];
	struct packet packet;

	(void)state;
	memcpy(copy, ack, sizeof(ack));
	put_be24(copy + 5, 1);
	assert_false(packet_decode(copy, sizeof(copy), &packet));
}

static void every_opcode_survives_a_round_trip(void **state)
{
	(void)state;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		uint32_t traits = packet_traits((uint8_t)opcode);
		struct packet out, in = {.opcode = (uint8_t)(traits & PACKET_IS_CONNECT ? opcode : opcode & 0x1f),
					   .traits = traits,
					   .dest_qpn = 77,
					   .psn = 99,
					   .va = 0x0102030405060708,
					   .rkey = 0x11223344,
					   .dma_bytes = 4,
					   .swap_add = 5,
					   .compare = 6,
					   .syndrome = 3,
					   .msn = 8,
					   .original = 9,
					   .imm = 10,
					   .dc_key = 11,
					   .qkey = 13,
					   .source_qpn = 12};
		uint8_t bytes[PACKET_HEADER_BYTES_MAX + PACKET_ICRC_BYTES] = {0};
		uint32_t header;

		if (traits == 0)
			continue;
		header = packet_encode(bytes, &in, 0);
		assert_int_equal(header, packet_header_bytes(traits));
		assert_true(packet_decode(bytes, header + PACKET_ICRC_BYTES, &out));
		assert_int_equal(out.traits, traits);
		assert_int_equal(out.opcode, in.opcode);
		if (traits & PACKET_HAS_ATOMIC_ETH)
			assert_true(out.swap_add == 5 && out.compare == 6 && out.rkey == in.rkey);
		if (traits & PACKET_HAS_ATOMIC_ACK_ETH)
			assert_true(out.original == 9);
		if (traits & PACKET_HAS_IMM)
			assert_int_equal(out.imm, 10);
		if (traits & PACKET_HAS_DCETH)
			assert_true(out.dc_key == 11 && out.source_qpn == 12);
		if (traits & PACKET_HAS_DETH)
			assert_true(out.qkey == 13 && out.source_qpn == 12);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_where_the_specification_has_them),
		cmocka_unit_test(what_is_encoded_has_the_bytes_of_the_specification),
		cmocka_unit_test(a_datagram_has_the_bytes_of_the_specification),
		cmocka_unit_test(the_icrc_is_the_one_that_others_compute),
		cmocka_unit_test(an_unseen_identification_is_solved_for),
		cmocka_unit_test(no_flipped_bit_is_believed),
		cmocka_unit_test(the_icrc_of_ipv6_covers_what_routers_leave_alone),
		cmocka_unit_test(malformed_headers_are_refused),
		cmocka_unit_test(management_qps_are_not_ours),
		cmocka_unit_test(every_opcode_survives_a_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
