/* D1 and D2: wrs execute in post order, completions come in post order and speak for all before them; psns count. */
#include "pair.h"

#define ROUNDS 48

/* Each WRITE puts its number where the READ behind it finds it; only a fence orders a WRITE behind a READ. */
static void wrs_execute_in_post_order(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	for (unsigned i = 0; i < ROUNDS / 2; i++) {
		side_store(pair->a, pair->a->mem[0] + 8 * i, i + 1);
		wr_write(&wr, pair->a, pair->b, 8 * i, 0, 8)->wr.send_flags = IBV_SEND_FENCE;
		post(pair->a, 0, &wr, 2 * i);
		post(pair->a, 0, wr_read(&wr, pair->a, pair->b, 4096 + 8 * i, 0, 8), 2 * i + 1);
	}
	for (unsigned i = 0; i < ROUNDS / 2; i++) {
		expect_wc(pair, pair->a, SEND_CQ, 2 * i, IBV_WC_SUCCESS);
		expect_wc(pair, pair->a, SEND_CQ, 2 * i + 1, IBV_WC_SUCCESS);
		assert_int_equal(side_load(pair->a, pair->a->mem[0] + 4096 + 8 * i), i + 1);
	}
}

static void different_operations_keep_their_order(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	side_store(pair->a, pair->a->mem[0], 100);
	for (unsigned i = 0; i < 8; i++) {
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 64, 8), i);
		post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 4 * i);
		post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 512 + 8 * i, 0, i), 4 * i + 1);
		post(pair->a, 0, wr_cas(&wr, pair->a, pair->b, 1024 + 8 * i, 0, 100 + i, 7), 4 * i + 2);
		post(pair->a, 0, wr_send(&wr, pair->a, 0, 8), 4 * i + 3);
	}
	for (unsigned i = 0; i < 32; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 8; i++) {
		expect_wc(pair, pair->b, RECV_CQ, i, IBV_WC_SUCCESS);
		assert_int_equal(side_load(pair->a, pair->a->mem[0] + 512 + 8 * i), 100);
		assert_int_equal(side_load(pair->a, pair->a->mem[0] + 1024 + 8 * i), 100 + i);
	}
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 7);
}

static void data_written_before_a_send_is_there_when_its_receive_completes(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	for (unsigned i = 0; i < 16; i++) {
		side_fill(pair->a, pair->a->mem[0], 10000, i);
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 0), i);
		post_quiet(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 4096, 10000), 0);
		post(pair->a, 0, wr_send(&wr, pair->a, 0, 0), i);
		expect_wc(pair, pair->b, RECV_CQ, i, IBV_WC_SUCCESS);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 4096, 10000, i), 10000);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	}
}

static void a_success_says_that_all_before_it_executed(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	side_fill(pair->a, pair->a->mem[0], ROUNDS * 3000, 9);
	for (unsigned i = 0; i + 1 < ROUNDS; i++)
		post_quiet(pair->a, 0, wr_write(&wr, pair->a, pair->b, i * 3000, i * 3000, 3000), i);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, (ROUNDS - 1) * 3000, (ROUNDS - 1) * 3000, 3000), ROUNDS);
	expect_wc(pair, pair->a, SEND_CQ, ROUNDS, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], ROUNDS * 3000, 9), ROUNDS * 3000);
	expect_no_wc(pair, pair->a, SEND_CQ);
}

static void a_qp_that_signals_all_completes_unsignaled_wrs(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.sq_sig_all = true});
	struct wr wr;

	for (unsigned i = 0; i < 8; i++)
		post_quiet(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), i);
	for (unsigned i = 0; i < 8; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
}

static void a_fenced_wr_waits_for_the_reads_before_it(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	for (unsigned i = 1; i <= 16; i++) {
		side_fill(pair->b, pair->b->mem[0], 20000, i);
		post_quiet(pair->a, 0, wr_read(&wr, pair->a, pair->b, 0, 0, 20000), 0);
		wr_write(&wr, pair->a, pair->b, 0, 65536, 20000);
		wr.wr.send_flags = IBV_SEND_FENCE;
		post(pair->a, 0, &wr, i);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 65536, 20000, i), 20000);
	}
}

static void more_reads_and_atomics_than_the_peer_takes_at_once_complete(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.rd_atomic = 1});
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	for (unsigned i = 0; i < ROUNDS; i++)
		post(pair->a, 0,
			i % 3 == 0 ? wr_read(&wr, pair->a, pair->b, 65536 + 8 * i, 0, 8)
				   : wr_faa(&wr, pair->a, pair->b, 65536 + 8 * i, 0, 1),
			i);
	for (unsigned i = 0; i < ROUNDS; i++) {
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
		assert_int_equal(side_load(pair->a, pair->a->mem[0] + 65536 + 8 * i), i - (i + 2) / 3);
	}
}

static void psns_count_packets(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.psn_a = 50});
	struct recv recv;
	struct wr wr;

	assert_int_equal(side_next_psn(pair->a, 0), 50);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 0), 0);
	assert_int_equal(side_next_psn(pair->a, 0), 51);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 1024), 1);
	assert_int_equal(side_next_psn(pair->a, 0), 52);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 1025), 2);
	assert_int_equal(side_next_psn(pair->a, 0), 54);
	post(pair->a, 0, wr_read(&wr, pair->a, pair->b, 0, 0, 10 * 1024), 3);
	assert_int_equal(side_next_psn(pair->a, 0), 64);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 0, 0, 1), 4);
	assert_int_equal(side_next_psn(pair->a, 0), 65);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 4096), 0);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 3000), 5);
	assert_int_equal(side_next_psn(pair->a, 0), 68);
	for (unsigned i = 0; i < 6; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	assert_int_equal(side_next_psn(pair->b, 0), 2000);
}

static void operations_go_on_when_the_psn_wraps(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.psn_a = PSN_MASK - 20, .psn_b = PSN_MASK});
	struct recv recv;
	uint32_t psn;
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	for (unsigned i = 0; i < 16; i++) {
		side_fill(pair->a, pair->a->mem[0], 5000, i);
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 8192, 5000), i);
		post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 65536, 5000), 4 * i);
		post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 8192, 0, 1), 4 * i + 1);
		post(pair->a, 0, wr_read(&wr, pair->a, pair->b, 16384, 65536, 5000), 4 * i + 2);
		post(pair->a, 0, wr_send(&wr, pair->a, 0, 5000), 4 * i + 3);
		for (unsigned k = 0; k < 4; k++)
			expect_wc(pair, pair->a, SEND_CQ, 4 * i + k, IBV_WC_SUCCESS);
		expect_wc(pair, pair->b, RECV_CQ, i, IBV_WC_SUCCESS);
		assert_int_equal(side_mismatch(pair->a, pair->a->mem[0] + 16384, 5000, i), 5000);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 8192, 5000, i), 5000);
		assert_int_equal(side_load(pair->a, pair->a->mem[0] + 8192), i);
	}
	assert_int_equal(side_next_psn(pair->a, 0), (PSN_MASK - 20 + 16 * 16) & PSN_MASK);
	if ((pair->b->attr.caps & HF_DEV_EXECUTED_PSN) == 0)
		return;
	fence(pair, pair->b, 0);
	assert_int_equal(side_executed_psn(pair->b, 0, &psn), 0);
	assert_int_equal(psn, (PSN_MASK - 20 + 16 * 16) & PSN_MASK);
}

const struct CMUnitTest order_tests[] = {
	CONFORMS(wrs_execute_in_post_order),
	CONFORMS(different_operations_keep_their_order),
	CONFORMS(data_written_before_a_send_is_there_when_its_receive_completes),
	CONFORMS(a_success_says_that_all_before_it_executed),
	CONFORMS(a_qp_that_signals_all_completes_unsignaled_wrs),
	CONFORMS(a_fenced_wr_waits_for_the_reads_before_it),
	CONFORMS(more_reads_and_atomics_than_the_peer_takes_at_once_complete),
	CONFORMS(psns_count_packets),
	CONFORMS(operations_go_on_when_the_psn_wraps),
};
const size_t order_tests_count = sizeof(order_tests) / sizeof(order_tests[0]);
