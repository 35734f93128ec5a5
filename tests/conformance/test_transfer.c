/* Every operation moves exactly its bytes, at every size, and its completion says so. */
#include "pair.h"

#include <arpa/inet.h>

#define GUARD 64u /* bytes around a target that must not change */

static const uint32_t sizes[] = {0, 1, 7, 8, 64, 4095, 4096, 4097, 64u << 10, 1u << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The target, filled with `before`, holds the source's bytes and nothing around it changed. */
static void expect_copied(struct side *to, uint64_t at, uint32_t bytes, uint64_t source_seed, uint64_t before)
{
	uint64_t start = to->mem[0] + at - GUARD;

	assert_int_equal(side_mismatch(to, to->mem[0] + at, bytes, source_seed), bytes);
	assert_int_equal(side_mismatch(to, start, GUARD, before), GUARD);
	assert_int_equal(side_mismatch(to, to->mem[0] + at + bytes, GUARD, before + 1), GUARD);
}

static void prepare_target(struct side *to, uint64_t at, uint32_t bytes, uint64_t before)
{
	side_fill(to, to->mem[0] + at - GUARD, GUARD + bytes, before);
	side_fill(to, to->mem[0] + at + bytes, GUARD, before + 1);
}

static void writes_of_every_size_arrive(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	for (unsigned i = 0; i < SIZES; i++) {
		side_fill(pair->a, pair->a->mem[0], sizes[i], i + 10);
		prepare_target(pair->b, 4096 + i, sizes[i], 77);
		post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 4096 + i, sizes[i]), i);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
		expect_copied(pair->b, 4096 + i, sizes[i], i + 10, 77);
	}
}

static void reads_of_every_size_arrive(void **state)
{
	struct pair *pair = connected(state);
	struct ibv_wc wc;
	struct wr wr;

	for (unsigned i = 0; i < SIZES; i++) {
		side_fill(pair->b, pair->b->mem[0] + i, sizes[i], i + 20);
		prepare_target(pair->a, 8192, sizes[i], 78);
		post(pair->a, 0, wr_read(&wr, pair->a, pair->b, 8192, i, sizes[i]), i);
		wc = next_wc(pair, pair->a, SEND_CQ);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
		assert_int_equal(wc.byte_len, sizes[i]);
		expect_copied(pair->a, 8192, sizes[i], i + 20, 78);
	}
}

static void sends_of_every_size_arrive(void **state)
{
	struct pair *pair = connected(state);
	struct ibv_wc wc;
	struct recv recv;
	struct wr wr;

	for (unsigned i = 0; i < SIZES; i++) {
		side_fill(pair->a, pair->a->mem[0], sizes[i], i + 30);
		prepare_target(pair->b, 4096, sizes[i], 79);
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 4096, sizes[i]), 100 + i);
		post(pair->a, 0, wr_send(&wr, pair->a, 0, sizes[i]), i);
		wc = next_wc(pair, pair->b, RECV_CQ);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, 100 + i);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, sizes[i]);
		assert_int_equal(wc.qp_num, pair->b->qp_num[0]);
		assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM, 0);
		expect_copied(pair->b, 4096, sizes[i], i + 30, 79);
		wc = next_wc(pair, pair->a, SEND_CQ);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_SEND);
		assert_int_equal(wc.qp_num, pair->a->qp_num[0]);
	}
}

/* Posts an immediate's wr and checks what both ends are told about it. */
static void expect_immediate(struct pair *pair, struct wr *wr, uint32_t imm, enum ibv_wc_opcode opcode, uint32_t bytes)
{
	struct ibv_wc wc;

	post(pair->a, 0, wr_imm(wr, imm), imm);
	wc = next_wc(pair, pair->b, RECV_CQ);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, opcode);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), imm);
	assert_int_equal(wc.byte_len, bytes);
	expect_wc(pair, pair->a, SEND_CQ, imm, IBV_WC_SUCCESS);
}

static void sends_bring_their_immediate(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	for (unsigned i = 0; i < SIZES; i++) {
		side_fill(pair->a, pair->a->mem[0], sizes[i], i);
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 64, sizes[i]), i);
		expect_immediate(pair, wr_send(&wr, pair->a, 0, sizes[i]), 0xabcd0000 + i, IBV_WC_RECV, sizes[i]);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 64, sizes[i], i), sizes[i]);
	}
}

static void writes_with_immediate_consume_a_receive_but_not_its_buffer(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	for (unsigned i = 0; i < SIZES; i++) {
		side_fill(pair->a, pair->a->mem[0], sizes[i], i);
		side_store(pair->b, pair->b->mem[0], 0x5555);
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 8), i);
		expect_immediate(pair, wr_write(&wr, pair->a, pair->b, 0, 4096, sizes[i]), 7 + i,
			IBV_WC_RECV_RDMA_WITH_IMM, sizes[i]);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 4096, sizes[i], i), sizes[i]);
		assert_int_equal(side_load(pair->b, pair->b->mem[0]), 0x5555);
	}
}

/* Memory and region 1 of both sides: `bytes` of them. */
static void big_memory(struct pair *pair, uint64_t bytes)
{
	struct side *sides[] = {pair->a, pair->b};

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(side_mem_alloc(sides[i], 1, bytes), 0);
		assert_int_equal(side_mr_reg(sides[i], 1, 0, sides[i]->mem[1], bytes, sides[i]->mem[1], ALL_ACCESS), 0);
	}
}

static void point_at_big(struct wr *wr, struct side *from, struct side *to, uint32_t bytes)
{
	wr->sge[0] = (struct ibv_sge){.addr = from->mem[1], .length = bytes, .lkey = from->lkey[1]};
	if (to == NULL)
		return;
	wr->wr.wr.rdma.remote_addr = to->mem[1];
	wr->wr.wr.rdma.rkey = to->rkey[1];
}

static void one_big_message_of_each_operation_arrives(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.mtu = IBV_MTU_4096});
	uint32_t bytes = (uint32_t)pair->bed->big_bytes;
	struct recv recv;
	struct wr wr;

	big_memory(pair, bytes);
	side_fill(pair->a, pair->a->mem[1], bytes, 1);
	point_at_big(wr_write(&wr, pair->a, pair->b, 0, 0, bytes), pair->a, pair->b, bytes);
	post(pair->a, 0, &wr, 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[1], bytes, 1), bytes);

	side_fill(pair->b, pair->b->mem[1], bytes, 2);
	point_at_big(wr_read(&wr, pair->a, pair->b, 0, 0, bytes), pair->a, pair->b, bytes);
	post(pair->a, 0, &wr, 2);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->a, pair->a->mem[1], bytes, 2), bytes);

	side_fill(pair->a, pair->a->mem[1], bytes, 3);
	recv_into(&recv, pair->b, 0, bytes);
	recv.sge[0] = (struct ibv_sge){.addr = pair->b->mem[1], .length = bytes, .lkey = pair->b->lkey[1]};
	post_receive(pair->b, 0, &recv, 4);
	point_at_big(wr_send(&wr, pair->a, 0, bytes), pair->a, NULL, bytes);
	post(pair->a, 0, &wr, 3);
	expect_wc(pair, pair->b, RECV_CQ, 4, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 3, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[1], bytes, 3), bytes);
}

static void messages_of_every_mtu_arrive(void **state)
{
	struct pair *pair = pair_of(state);
	uint32_t bytes = 3 * 4096 + 5;
	struct wr wr;

	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		pair_connect(pair, mtu, (struct link_options){.mtu = mtu});
		side_fill(pair->a, pair->a->mem[0], bytes, mtu);
		post(pair->a, mtu, wr_write(&wr, pair->a, pair->b, 0, 0, bytes), 1);
		expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], bytes, mtu), bytes);
		post(pair->a, mtu, wr_read(&wr, pair->a, pair->b, 32768, 0, bytes), 2);
		expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_SUCCESS);
		assert_int_equal(side_mismatch(pair->a, pair->a->mem[0] + 32768, bytes, mtu), bytes);
	}
}

static void an_inline_payload_needs_no_key_and_may_change_after_the_post(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	for (uint32_t bytes = 0; bytes <= 64; bytes += 8) {
		wr_write(&wr, pair->a, pair->b, 0, 4096, bytes);
		wr.wr.send_flags = IBV_SEND_INLINE;
		wr.sge[0].lkey = 0xdead;
		side_fill(pair->a, pair->a->mem[0], bytes, bytes);
		post(pair->a, 0, &wr, bytes);
		side_fill(pair->a, pair->a->mem[0], bytes, 999);
		expect_wc(pair, pair->a, SEND_CQ, bytes, IBV_WC_SUCCESS);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 4096, bytes, bytes), bytes);
	}
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 64), 1);
	wr_send(&wr, pair->a, 0, 33);
	wr.wr.send_flags = IBV_SEND_INLINE;
	side_fill(pair->a, pair->a->mem[0], 33, 5);
	post(pair->a, 0, &wr, 2);
	side_fill(pair->a, pair->a->mem[0], 33, 6);
	expect_wc(pair, pair->b, RECV_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], 33, 5), 33);
}

/* Splits sge 0 into four of uneven lengths that lie apart in memory; the k-th piece is filled with seed k. */
#define PIECES 4
static const uint32_t piece_bytes[PIECES] = {1, 1500, 4096, 700};
#define PIECES_BYTES 6297u

static void scatter_list(struct side *side, struct ibv_sge sge[PIECES])
{
	for (unsigned i = 0; i < PIECES; i++)
		sge[i] = (struct ibv_sge){
			.addr = side->mem[0] + i * 8192 + i, .length = piece_bytes[i], .lkey = side->lkey[0]};
}

static void fill_pieces(struct side *side, const struct ibv_sge sge[PIECES])
{
	for (unsigned i = 0; i < PIECES; i++)
		side_fill(side, sge[i].addr, sge[i].length, i);
}

static void expect_pieces(struct side *side, uint64_t addr)
{
	for (unsigned i = 0; i < PIECES; addr += piece_bytes[i++])
		assert_int_equal(side_mismatch(side, addr, piece_bytes[i], i), piece_bytes[i]);
}

static void writes_gather_their_sges(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	wr_write(&wr, pair->a, pair->b, 0, 100, PIECES_BYTES);
	scatter_list(pair->a, wr.sge);
	wr.wr.num_sge = PIECES;
	fill_pieces(pair->a, wr.sge);
	post(pair->a, 0, &wr, 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	expect_pieces(pair->b, pair->b->mem[0] + 100);
}

static void reads_scatter_into_their_sges(void **state)
{
	struct pair *pair = connected(state);
	uint64_t at = pair->b->mem[0] + 100;
	struct wr wr;

	wr_read(&wr, pair->a, pair->b, 0, 100, PIECES_BYTES);
	scatter_list(pair->a, wr.sge);
	wr.wr.num_sge = PIECES;
	for (unsigned i = 0; i < PIECES; at += piece_bytes[i++])
		side_fill(pair->b, at, piece_bytes[i], i);
	post(pair->a, 0, &wr, 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < PIECES; i++)
		assert_int_equal(side_mismatch(pair->a, wr.sge[i].addr, piece_bytes[i], i), piece_bytes[i]);
}

static void sends_gather_and_receives_scatter(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	wr_send(&wr, pair->a, 0, PIECES_BYTES);
	scatter_list(pair->a, wr.sge);
	wr.wr.num_sge = PIECES;
	fill_pieces(pair->a, wr.sge);
	recv_into(&recv, pair->b, 0, PIECES_BYTES);
	scatter_list(pair->b, recv.sge);
	recv.wr.num_sge = PIECES;
	post_receive(pair->b, 0, &recv, 1);
	post(pair->a, 0, &wr, 2);
	expect_wc(pair, pair->b, RECV_CQ, 1, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < PIECES; i++)
		assert_int_equal(side_mismatch(pair->b, recv.sge[i].addr, piece_bytes[i], i), piece_bytes[i]);
}

static void atomics_scatter_their_original_value(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0x1122334455667788);
	wr_faa(&wr, pair->a, pair->b, 0, 0, 1);
	wr.sge[0].length = 4;
	wr.sge[1] = wr.sge[0];
	wr.sge[1].addr = pair->a->mem[0] + 16;
	wr.wr.num_sge = 2;
	post(pair->a, 0, &wr, 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal((uint32_t)side_load(pair->a, pair->a->mem[0]), 0x55667788);
	assert_int_equal((uint32_t)side_load(pair->a, pair->a->mem[0] + 16), 0x11223344);
}

static void both_directions_work_at_once(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	side_fill(pair->a, pair->a->mem[0], 1u << 20, 1);
	side_fill(pair->b, pair->b->mem[0], 1u << 20, 2);
	for (unsigned i = 0; i < 8; i++) {
		post(pair->a, 0, wr_write(&wr, pair->a, pair->b, i << 17, (2u << 20) + (i << 17), 1u << 17), i);
		post(pair->b, 0, wr_read(&wr, pair->b, pair->a, (1u << 20) + (i << 17), i << 17, 1u << 17), i);
	}
	for (unsigned i = 0; i < 8; i++) {
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
		expect_wc(pair, pair->b, SEND_CQ, i, IBV_WC_SUCCESS);
	}
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + (2u << 20), 1u << 20, 1), 1u << 20);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + (1u << 20), 1u << 20, 1), 1u << 20);
}

const struct CMUnitTest transfer_tests[] = {
	CONFORMS(writes_of_every_size_arrive),
	CONFORMS(reads_of_every_size_arrive),
	CONFORMS(sends_of_every_size_arrive),
	CONFORMS(sends_bring_their_immediate),
	CONFORMS(writes_with_immediate_consume_a_receive_but_not_its_buffer),
	CONFORMS(one_big_message_of_each_operation_arrives),
	CONFORMS(messages_of_every_mtu_arrive),
	CONFORMS(an_inline_payload_needs_no_key_and_may_change_after_the_post),
	CONFORMS(writes_gather_their_sges),
	CONFORMS(reads_scatter_into_their_sges),
	CONFORMS(sends_gather_and_receives_scatter),
	CONFORMS(atomics_scatter_their_original_value),
	CONFORMS(both_directions_work_at_once),
};
const size_t transfer_tests_count = sizeof(transfer_tests) / sizeof(transfer_tests[0]);
