/* Two-sided operations and their receives: RNR, lengths, order, shared receive queues, flushes. */
#include "pair.h"

#include <errno.h>

static void a_send_waits_for_a_later_receive(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	side_fill(pair->a, pair->a->mem[0], 3000, 4);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 3000), 1);
	expect_no_wc(pair, pair->a, SEND_CQ);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 4096), 2);
	expect_wc(pair, pair->b, RECV_CQ, 2, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], 3000, 4), 3000);
}

static void wrs_behind_a_waiting_send_do_not_overtake_it(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	side_store(pair->a, pair->a->mem[0], 5);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 8), 1);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 2);
	expect_no_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 0);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 64, 8), 3);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 5);
}

static void a_write_with_immediate_waits_for_a_receive_too(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	side_fill(pair->a, pair->a->mem[0], 5000, 4);
	post(pair->a, 0, wr_imm(wr_write(&wr, pair->a, pair->b, 0, 0, 5000), 9), 1);
	expect_no_wc(pair, pair->a, SEND_CQ);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 0), 2);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	expect_wc(pair, pair->b, RECV_CQ, 2, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], 5000, 4), 5000);
}

static void a_send_gives_up_when_its_rnr_retries_are_spent(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.rnr_retry_plus1 = 2});
	struct wr wr;

	post(pair->a, 0, wr_send(&wr, pair->a, 0, 8), 1);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 2);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(qp_state(pair->a, 0), IBV_QPS_ERR);
	assert_int_equal(qp_state(pair->b, 0), IBV_QPS_RTS);
}

/* With a timer of half a second nothing is sent again before it: the first answer ends the qp. */
static void a_message_without_a_receive_fails_at_once_when_it_has_no_retries(void **state)
{
	struct pair *pair = pair_of(state);
	struct recv recv;
	struct wr wr;

	for (uint32_t qp = 0; qp < 2; qp++) {
		pair_connect(pair, qp, (struct link_options){.rnr_retry_plus1 = 1, .min_rnr_timer = 31});
		if (qp == 0)
			wr_send(&wr, pair->a, 0, 8);
		else
			wr_imm(wr_write(&wr, pair->a, pair->b, 0, 0, 8), 9);
		post(pair->a, qp, &wr, 1);
		expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		assert_int_equal(qp_state(pair->a, qp), IBV_QPS_ERR);
		post_receive(pair->b, qp, recv_into(&recv, pair->b, 0, 64), 2);
		expect_no_wc(pair, pair->b, RECV_CQ);
	}
}

static void a_message_with_a_receive_needs_no_retries(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.rnr_retry_plus1 = 1});
	struct recv recv;
	struct wr wr;

	for (uint64_t id = 0; id < 20; id++) {
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 64), 100 + id);
		post(pair->a, 0, wr_send(&wr, pair->a, 0, 8), id);
		expect_wc(pair, pair->a, SEND_CQ, id, IBV_WC_SUCCESS);
		expect_wc(pair, pair->b, RECV_CQ, 100 + id, IBV_WC_SUCCESS);
	}
}

static void a_send_that_is_too_long_for_its_receive_fails_at_both_ends(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	side_fill(pair->b, pair->b->mem[0] + 4096, 64, 5);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 4096 - 100, 100), 1);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 101), 2);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(pair, pair->b, RECV_CQ, 1, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(qp_state(pair->a, 0), IBV_QPS_ERR);
	assert_int_equal(qp_state(pair->b, 0), IBV_QPS_ERR);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 4096, 64, 5), 64);
}

static void a_receive_into_memory_that_may_not_be_written_fails_at_both_ends(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	assert_int_equal(side_mr_reg(pair->b, 1, 0, pair->b->mem[0], 4096, pair->b->mem[0], 0), 0);
	side_fill(pair->b, pair->b->mem[0], 64, 3);
	recv_into(&recv, pair->b, 0, 64);
	recv.sge[0].lkey = pair->b->lkey[1];
	post_receive(pair->b, 0, &recv, 1);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), 2);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_REM_OP_ERR);
	expect_wc(pair, pair->b, RECV_CQ, 1, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], 64, 3), 64);
}

static void the_kth_message_goes_into_the_kth_receive(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	for (unsigned i = 0; i < 32; i++)
		post_receive(pair->b, 0, recv_into(&recv, pair->b, i * 64, 64), i);
	for (unsigned i = 0; i < 32; i++) {
		side_fill(pair->a, pair->a->mem[0] + i * 64, i, i);
		post(pair->a, 0, wr_send(&wr, pair->a, i * 64, i), i);
	}
	for (unsigned i = 0; i < 32; i++) {
		struct ibv_wc wc = next_wc(pair, pair->b, RECV_CQ);

		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, i);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + i * 64, i, i), i);
	}
}

static void receives_can_be_posted_from_init_on(void **state)
{
	struct pair *pair = pair_of(state);
	struct recv recv;
	struct wr wr;

	pair_create_qp(pair, 0, (struct link_options){0});
	recv_into(&recv, pair->b, 0, 64);
	assert_int_equal(side_post_recv(pair->b, 0, &recv.wr, NULL), -EINVAL);
	assert_int_equal(qp_to_init(pair->b, 0, REMOTE_ACCESS), 0);
	post_receive(pair->b, 0, &recv, 5);
	pair_connect_qp(pair, 0, (struct link_options){0});
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 8), 1);
	expect_wc(pair, pair->b, RECV_CQ, 5, IBV_WC_SUCCESS);
}

static void a_full_receive_queue_refuses_the_first_that_does_not_fit(void **state)
{
	struct pair *pair = connected(state);
	uint32_t room = pair->b->qp_cap[0].max_recv_wr;
	struct recv recv[2];
	unsigned bad = 7;

	if (pair->bed->real)
		skip_because("a NIC may have more room than it says");
	recv_into(&recv[0], pair->b, 0, 8);
	recv_into(&recv[1], pair->b, 0, 8);
	for (uint32_t i = 0; i + 1 < room; i++)
		post_receive(pair->b, 0, &recv[0], i);
	recv[0].wr.next = &recv[1].wr;
	assert_int_equal(side_post_recv(pair->b, 0, &recv[0].wr, &bad), -ENOMEM);
	assert_int_equal(bad, 1);
}

static void an_error_flushes_receives_in_order(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;

	for (unsigned i = 0; i < 8; i++)
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 0, 8), i);
	assert_int_equal(qp_to(pair->b, 0, IBV_QPS_ERR), 0);
	for (unsigned i = 0; i < 8; i++)
		expect_wc(pair, pair->b, RECV_CQ, i, IBV_WC_WR_FLUSH_ERR);
	post_receive(pair->b, 0, &recv, 9);
	expect_wc(pair, pair->b, RECV_CQ, 9, IBV_WC_WR_FLUSH_ERR);
}

/* ---- shared receive queues ---- */

static struct pair *sharing(void **state, uint32_t qps)
{
	struct pair *pair = pair_of(state);

	require_cap(pair, HF_DEV_SRQ, "the device has no shared receive queues");
	assert_int_equal(side_srq_create(pair->a, 0, 0, 32), 0);
	assert_int_equal(side_srq_create(pair->b, 0, 0, 32), 0);
	for (uint32_t i = 0; i < qps; i++)
		pair_connect(pair, i, (struct link_options){.srq_plus1 = 1});
	return pair;
}

static void a_shared_receive_queue_feeds_several_qps_in_its_order(void **state)
{
	struct pair *pair = sharing(state, 3);
	struct recv recv;
	struct wr wr;

	for (unsigned i = 0; i < 12; i++) {
		recv_into(&recv, pair->b, i * 64, 64)->wr.wr_id = i;
		assert_int_equal(side_srq_post_recv(pair->b, 0, &recv.wr, NULL), 0);
	}
	for (unsigned i = 0; i < 12; i++) {
		struct ibv_wc wc;

		side_fill(pair->a, pair->a->mem[0], 32, i);
		post(pair->a, i % 3, wr_send(&wr, pair->a, 0, 32), i);
		wc = next_wc(pair, pair->b, RECV_CQ);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.qp_num, pair->b->qp_num[i % 3]);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + i * 64, 32, i), 32);
	}
}

static void an_empty_shared_receive_queue_makes_senders_wait(void **state)
{
	struct pair *pair = sharing(state, 2);
	struct recv recv;
	struct wr wr;

	post(pair->a, 0, wr_send(&wr, pair->a, 0, 8), 1);
	expect_no_wc(pair, pair->a, SEND_CQ);
	recv_into(&recv, pair->b, 0, 8)->wr.wr_id = 3;
	assert_int_equal(side_srq_post_recv(pair->b, 0, &recv.wr, NULL), 0);
	expect_wc(pair, pair->b, RECV_CQ, 3, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
}

static void a_qp_of_a_shared_receive_queue_takes_no_receives_of_its_own(void **state)
{
	struct pair *pair = sharing(state, 1);
	struct recv recv;

	recv_into(&recv, pair->b, 0, 8);
	assert_int_equal(side_post_recv(pair->b, 0, &recv.wr, NULL), -EINVAL);
}

static void an_error_leaves_the_receives_of_a_shared_queue_to_its_other_qps(void **state)
{
	struct pair *pair = sharing(state, 2);
	struct recv recv;
	struct wr wr;

	recv_into(&recv, pair->b, 0, 8)->wr.wr_id = 3;
	assert_int_equal(side_srq_post_recv(pair->b, 0, &recv.wr, NULL), 0);
	assert_int_equal(qp_to(pair->b, 0, IBV_QPS_ERR), 0);
	expect_no_wc(pair, pair->b, RECV_CQ);
	post(pair->a, 1, wr_send(&wr, pair->a, 0, 8), 1);
	expect_wc(pair, pair->b, RECV_CQ, 3, IBV_WC_SUCCESS);
}

const struct CMUnitTest receive_tests[] = {
	CONFORMS(a_send_waits_for_a_later_receive),
	CONFORMS(wrs_behind_a_waiting_send_do_not_overtake_it),
	CONFORMS(a_write_with_immediate_waits_for_a_receive_too),
	CONFORMS(a_send_gives_up_when_its_rnr_retries_are_spent),
	CONFORMS(a_message_without_a_receive_fails_at_once_when_it_has_no_retries),
	CONFORMS(a_message_with_a_receive_needs_no_retries),
	CONFORMS(a_send_that_is_too_long_for_its_receive_fails_at_both_ends),
	CONFORMS(a_receive_into_memory_that_may_not_be_written_fails_at_both_ends),
	CONFORMS(the_kth_message_goes_into_the_kth_receive),
	CONFORMS(receives_can_be_posted_from_init_on),
	CONFORMS(a_full_receive_queue_refuses_the_first_that_does_not_fit),
	CONFORMS(an_error_flushes_receives_in_order),
	CONFORMS(a_shared_receive_queue_feeds_several_qps_in_its_order),
	CONFORMS(an_empty_shared_receive_queue_makes_senders_wait),
	CONFORMS(a_qp_of_a_shared_receive_queue_takes_no_receives_of_its_own),
	CONFORMS(an_error_leaves_the_receives_of_a_shared_queue_to_its_other_qps),
};
const size_t receive_tests_count = sizeof(receive_tests) / sizeof(receive_tests[0]);
