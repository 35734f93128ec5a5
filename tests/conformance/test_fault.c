/* Links that are cut: what was not executed, what was executed but not acknowledged, and what comes back in time. */
#include "pair.h"

#include <errno.h>

/* The four ways to cut the path of requests, and the two that lose only what comes back. */
struct cut {
	bool at_a;
	enum hf_link direction;
};
static const struct cut request_cuts[] = {
	{true, HF_LINK_BOTH}, {true, HF_LINK_TX}, {false, HF_LINK_BOTH}, {false, HF_LINK_RX}};
static const struct cut answer_cuts[] = {{true, HF_LINK_RX}, {false, HF_LINK_TX}};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void switch_link(struct pair *pair, struct cut cut, bool up)
{
	assert_int_equal(side_set_link(cut.at_a ? pair->a : pair->b, cut.direction, up), 0);
}

static void expect_executed_psn(struct pair *pair, struct side *side, uint32_t qp, uint32_t expected)
{
	uint32_t psn = 0;

	fence(pair, side, qp);
	if ((side->attr.caps & HF_DEV_EXECUTED_PSN) == 0)
		return;
	assert_int_equal(side_executed_psn(side, qp, &psn), 0);
	assert_int_equal(psn, expected);
}

static void a_request_that_was_cut_off_is_not_executed(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	for (uint32_t i = 0; i < COUNT(request_cuts); i++) {
		pair_connect(pair, i, impatient);
		side_store(pair->a, pair->a->mem[0], 4711);
		side_store(pair->b, pair->b->mem[0], 1);
		switch_link(pair, request_cuts[i], false);
		post(pair->a, i, wr_write(&wr, pair->a, pair->b, 0, 0, 8), i);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(side_load(pair->b, pair->b->mem[0]), 1);
		assert_int_equal(qp_state(pair->a, i), IBV_QPS_ERR);
		expect_executed_psn(pair, pair->b, i, 1000);
		switch_link(pair, request_cuts[i], true);
	}
}

static void a_request_whose_acknowledgement_was_cut_off_is_executed_and_its_psn_says_so(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	for (uint32_t i = 0; i < COUNT(answer_cuts); i++) {
		pair_connect(pair, i, impatient);
		side_store(pair->a, pair->a->mem[0], 4711);
		side_store(pair->b, pair->b->mem[0], 1);
		switch_link(pair, answer_cuts[i], false);
		post(pair->a, i, wr_write(&wr, pair->a, pair->b, 0, 0, 8), i);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(side_load(pair->b, pair->b->mem[0]), 4711);
		expect_executed_psn(pair, pair->b, i, 1001);
		switch_link(pair, answer_cuts[i], true);
	}
}

static void the_executed_psn_counts_every_kind_of_operation(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	struct recv recv;
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	side_store(pair->b, pair->b->mem[0] + 8, 0);
	side_store(pair->a, pair->a->mem[0], 99);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 4096, 4096), 1);
	post_receive(pair->b, 0, recv_into(&recv, pair->b, 4096, 4096), 2);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, false), 0);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 65536, 2500), 0); /* 3 packets */
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 8192, 0, 5), 1);       /* 1 */
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 2000), 2);                  /* 2 */
	post(pair->a, 0, wr_imm(wr_write(&wr, pair->a, pair->b, 0, 8, 8), 9), 3);
	expect_wc(pair, pair->b, RECV_CQ, 1, IBV_WC_SUCCESS);
	expect_wc(pair, pair->b, RECV_CQ, 2, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 0, IBV_WC_RETRY_EXC_ERR);
	for (unsigned i = 1; i < 4; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 5);
	assert_int_equal(side_load(pair->b, pair->b->mem[0] + 8), 99);
	expect_executed_psn(pair, pair->b, 0, 1007);
}

static void nothing_of_a_read_lands_after_it_failed(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	struct wr wr;

	side_fill(pair->b, pair->b->mem[0], 50000, 1);
	side_fill(pair->a, pair->a->mem[0], 50000, 2);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, false), 0);
	post(pair->a, 0, wr_read(&wr, pair->a, pair->b, 0, 0, 50000), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, true), 0);
	turns_for(pair, 5 * MS);
	assert_int_equal(side_mismatch(pair->a, pair->a->mem[0], 50000, 2), 50000);
}

/* Additions show a second execution, which a WRITE would hide. */
static void a_request_cut_off_for_a_while_is_executed_once(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	for (uint32_t i = 0, round = 0; i < COUNT(request_cuts); i++) {
		if (pair->bed->real && request_cuts[i].at_a && request_cuts[i].direction == HF_LINK_BOTH)
			continue; /* a NIC may fail at once what it posts to a port that is down */
		switch_link(pair, request_cuts[i], false);
		for (unsigned k = 0; k < 4; k++)
			post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64 + 8 * k, 0, 1), k);
		expect_no_wc(pair, pair->a, SEND_CQ);
		assert_int_equal(side_load(pair->b, pair->b->mem[0]), 4 * round);
		switch_link(pair, request_cuts[i], true);
		for (unsigned k = 0; k < 4; k++) {
			expect_wc(pair, pair->a, SEND_CQ, k, IBV_WC_SUCCESS);
			assert_int_equal(side_load(pair->a, pair->a->mem[0] + 64 + 8 * k), 4 * round + k);
		}
		assert_int_equal(side_load(pair->b, pair->b->mem[0]), 4 * round + 4);
		round++;
	}
}

static void an_acknowledgement_cut_off_for_a_while_does_not_repeat_the_request(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	for (uint32_t i = 0; i < 6; i++) {
		switch_link(pair, answer_cuts[i % 2], false);
		for (unsigned k = 0; k < 4; k++)
			post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64 + 8 * k, 0, 1), k);
		until_word(pair, pair->b, pair->b->mem[0], 4 * i + 4);
		expect_no_wc(pair, pair->a, SEND_CQ);
		switch_link(pair, answer_cuts[i % 2], true);
		for (unsigned k = 0; k < 4; k++) {
			expect_wc(pair, pair->a, SEND_CQ, k, IBV_WC_SUCCESS);
			assert_int_equal(side_load(pair->a, pair->a->mem[0] + 64 + 8 * k), 4 * i + k);
		}
		assert_int_equal(side_load(pair->b, pair->b->mem[0]), 4 * i + 4);
	}
}

/* A responder may acknowledge the WRITE that arrives again by its newest psn: that of the READ or atomic behind it. */
static void an_acknowledgement_is_not_the_answer_of_what_is_behind_it(void **state)
{
	static const uint32_t read_bytes[] = {1, 7, 8, 4096, 0}; /* 0: an atomic */
	struct pair *pair = pair_of(state);
	uint64_t landing = pair->a->mem[0] + 65536;

	side_fill(pair->a, pair->a->mem[0], 8192, 1);
	for (uint32_t i = 0; i < COUNT(read_bytes); i++) {
		uint32_t bytes = read_bytes[i];
		struct ibv_wc wc;
		struct wr wr;

		pair_connect(pair, i, (struct link_options){0});
		side_fill(pair->b, pair->b->mem[0], 8192, 2 + i);
		side_store(pair->b, pair->b->mem[0] + 65536, 40);
		side_fill(pair->a, landing, 8192, 100);
		assert_int_equal(side_set_link(pair->b, HF_LINK_TX, false), 0);
		post_quiet(pair->a, i, wr_write(&wr, pair->a, pair->b, 0, 131072 + 8 * i, 8), 0);
		post(pair->a, i,
			bytes == 0 ? wr_faa(&wr, pair->a, pair->b, 65536, 65536, 2)
				   : wr_read(&wr, pair->a, pair->b, 65536, 0, bytes),
			1);
		expect_no_wc(pair, pair->a, SEND_CQ); /* by now both were executed */
		assert_int_equal(side_set_link(pair->b, HF_LINK_TX, true), 0);
		wc = next_wc(pair, pair->a, SEND_CQ);
		assert_int_equal(wc.wr_id, 1);
		if (wc.status != IBV_WC_SUCCESS)
			assert_true(status_is(pair, wc.status, IBV_WC_RETRY_EXC_ERR));
		else if (bytes == 0)
			assert_int_equal(side_load(pair->a, landing), 40);
		else
			assert_int_equal(side_mismatch(pair->a, landing, bytes, 2 + i), bytes);
	}
}

static void a_message_is_received_once_when_its_acknowledgement_was_late(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	for (unsigned i = 0; i < 4; i++)
		post_receive(pair->b, 0, recv_into(&recv, pair->b, 64 * i, 64), i);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, false), 0);
	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), 1);
	expect_wc(pair, pair->b, RECV_CQ, 0, IBV_WC_SUCCESS);
	expect_no_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, true), 0);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	expect_no_wc(pair, pair->b, RECV_CQ);
}

static void what_took_effect_is_counted_once_however_often_it_was_sent(void **state)
{
	struct pair *pair = connected(state);
	struct hf_dev_counters before, after;
	struct wr wr;

	if (pair->bed->real)
		skip_because("the NIC counts for itself");
	side_store(pair->b, pair->b->mem[0] + 64, 0);
	side_counters(pair->b, &before);
	switch_link(pair, answer_cuts[0], false);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 64), 0);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 64, 1), 1);
	until_word(pair, pair->b, pair->b->mem[0] + 64, 1);
	expect_no_wc(pair, pair->a, SEND_CQ);
	switch_link(pair, answer_cuts[0], true);
	expect_wc(pair, pair->a, SEND_CQ, 0, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	side_counters(pair->b, &after);
	assert_int_equal(after.executed_bytes - before.executed_bytes, 64 + 8);
}

static void reads_and_big_writes_survive_a_flapping_link(void **state)
{
	/* Retries are to be needed, and to suffice: a machine may stand still for longer than those of 2 ms take. */
	struct pair *pair = connected_with(state, (struct link_options){.timeout = 12, .mtu = IBV_MTU_4096});
	struct wr wr;

	side_fill(pair->a, pair->a->mem[0], 1u << 20, 1);
	for (unsigned i = 0; i < 4; i++) {
		post(pair->a, 0, wr_write(&wr, pair->a, pair->b, i << 18, i << 18, 1u << 18), 2 * i);
		post(pair->a, 0, wr_read(&wr, pair->a, pair->b, (1u << 20) + (i << 18), i << 18, 1u << 18), 2 * i + 1);
		assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, false), 0);
		turns_for(pair, MS / 2);
		assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, true), 0);
		turn(pair);
	}
	for (unsigned i = 0; i < 8; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->a, pair->a->mem[0] + (1u << 20), 1u << 20, 1), 1u << 20);
}

static void wrs_behind_one_that_failed_are_flushed_in_order(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	assert_int_equal(side_set_link(pair->a, HF_LINK_BOTH, false), 0);
	for (unsigned i = 0; i < 16; i++)
		post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), i);
	expect_wc(pair, pair->a, SEND_CQ, 0, IBV_WC_RETRY_EXC_ERR);
	for (unsigned i = 1; i < 16; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(side_set_link(pair->a, HF_LINK_BOTH, true), 0);
	turns_for(pair, 5 * MS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 0);
}

static void an_unsignaled_wr_that_fails_completes_all_the_same(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	struct wr wr;

	assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, false), 0);
	post_quiet(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 1);
	post_quiet(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 2);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_RETRY_EXC_ERR);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_WR_FLUSH_ERR);
}

static void a_qp_in_error_flushes_whatever_is_posted(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	assert_int_equal(qp_to(pair->a, 0, IBV_QPS_ERR), 0);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), 5);
	expect_wc(pair, pair->a, SEND_CQ, 5, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 0);
}

static void requests_to_a_qp_in_error_time_out(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	assert_int_equal(qp_to(pair->b, 0, IBV_QPS_ERR), 0);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), 5);
	expect_wc(pair, pair->a, SEND_CQ, 5, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 0);
}

static void requests_to_a_destroyed_qp_time_out(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	assert_int_equal(side_qp_destroy(pair->b, 0), 0);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), 5);
	expect_wc(pair, pair->a, SEND_CQ, 5, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 0);
}

/* Without a receive it is tried for ever, but only while somebody says that there is none. */
static void a_send_that_waits_for_a_receive_times_out_when_the_other_qp_ends(void **state)
{
	/* A process that gets no core for a moment has said nothing meanwhile. */
	struct pair *pair = connected_with(state, (struct link_options){.timeout = impatient.timeout, .retry_cnt = 7});
	struct wr wr;

	post(pair->a, 0, wr_send(&wr, pair->a, 0, 64), 5);
	expect_no_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(side_qp_destroy(pair->b, 0), 0);
	expect_wc(pair, pair->a, SEND_CQ, 5, IBV_WC_RETRY_EXC_ERR);
}

static void requests_to_a_closed_port_time_out(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	struct wr wr;

	wr_write(&wr, pair->a, pair->b, 0, 0, 8);
	side_close(pair->b);
	wr.wr.wr_id = 5;
	wr.wr.send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(side_post_send(pair->a, 0, &wr.wr, NULL), 0);
	for (struct ibv_wc wc; side_cq_poll(pair->a, SEND_CQ, 1, &wc) == 0;)
		if (pair->bed->pass != NULL)
			pair->bed->pass(MS);
	assert_int_equal(qp_state(pair->a, 0), IBV_QPS_ERR);
}

static void a_qp_can_be_reset_and_connected_again_after_an_error(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, false), 0);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, true), 0);
	assert_int_equal(qp_to(pair->a, 0, IBV_QPS_RESET), 0);
	assert_int_equal(qp_to(pair->b, 0, IBV_QPS_RESET), 0);
	pair_connect_qp(pair, 0, (struct link_options){.psn_a = 77777});
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), 2);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 1);
	expect_executed_psn(pair, pair->b, 0, 77778);
}

static void an_error_on_one_qp_leaves_the_others_alone(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	pair_connect(pair, 1, (struct link_options){0});
	post(pair->a, 1, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	wr.wr.wr.rdma.rkey ^= 0x5a5a5a5a;
	post(pair->a, 0, &wr, 2);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_REM_ACCESS_ERR);
	post(pair->a, 1, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 3);
	expect_wc(pair, pair->a, SEND_CQ, 3, IBV_WC_SUCCESS);
}

const struct CMUnitTest fault_tests[] = {
	CONFORMS(a_request_that_was_cut_off_is_not_executed),
	CONFORMS(a_request_whose_acknowledgement_was_cut_off_is_executed_and_its_psn_says_so),
	CONFORMS(the_executed_psn_counts_every_kind_of_operation),
	CONFORMS(nothing_of_a_read_lands_after_it_failed),
	CONFORMS(a_request_cut_off_for_a_while_is_executed_once),
	CONFORMS(an_acknowledgement_cut_off_for_a_while_does_not_repeat_the_request),
	CONFORMS(an_acknowledgement_is_not_the_answer_of_what_is_behind_it),
	CONFORMS(a_message_is_received_once_when_its_acknowledgement_was_late),
	CONFORMS(what_took_effect_is_counted_once_however_often_it_was_sent),
	CONFORMS(reads_and_big_writes_survive_a_flapping_link),
	CONFORMS(wrs_behind_one_that_failed_are_flushed_in_order),
	CONFORMS(an_unsignaled_wr_that_fails_completes_all_the_same),
	CONFORMS(a_qp_in_error_flushes_whatever_is_posted),
	CONFORMS(requests_to_a_qp_in_error_time_out),
	CONFORMS(requests_to_a_destroyed_qp_time_out),
	CONFORMS(a_send_that_waits_for_a_receive_times_out_when_the_other_qp_ends),
	CONFORMS(requests_to_a_closed_port_time_out),
	CONFORMS(a_qp_can_be_reset_and_connected_again_after_an_error),
	CONFORMS(an_error_on_one_qp_leaves_the_others_alone),
};
const size_t fault_tests_count = sizeof(fault_tests) / sizeof(fault_tests[0]);
