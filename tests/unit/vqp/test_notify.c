/* Calls at the next completion: hf_vcq_req_notify; and what polls read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pair.h"
#include "vqp/objects.h"

#define TURNS_MAX 100000000u

static unsigned notified;

static void count_notice(struct hf_vcq *cq, void *context)
{
	(void)cq, (void)context;
	notified++;
}

/* Both read completions as in a turn of the loop, which would tell. */
static void until_ready(struct pair *pair)
{
	for (unsigned turns = 0; !vcq_ready(pair->a.cq); turns++) {
		assert_true(turns < TURNS_MAX);
		(void)completions_turn(pair->a.node);
		(void)completions_turn(pair->b.node);
	}
}

static void who_polls_what_came_after_his_request_is_told_in_the_poll(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	notified = 0;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	until_ready(&pair);
	hf_vcq_req_notify(pair.a.cq, count_notice);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 1);
	assert_int_equal(notified, 0); /* that was there before */
	assert_int_equal(pair_write(&pair, 2, 0, 64, true), 0);
	until_ready(&pair);
	assert_int_equal(notified, 0);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(notified, 1);
	assert_int_equal(pair_write(&pair, 3, 0, 64, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(notified, 1); /* once a request */
	pair_close(&pair);
}

/* perftest -e polls once for each call and takes it that there is a completion. */
static void what_was_ready_before_the_request_or_is_silent_causes_no_call(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	notified = 0;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	until_ready(&pair);
	hf_vcq_req_notify(pair.a.cq, count_notice);
	pair_turn(&pair, 100, 0);
	assert_int_equal(notified, 0);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 1);
	assert_int_equal(pair_write(&pair, 2, 0, 64, false), 0);
	pair_turn(&pair, 100, 0);
	assert_int_equal(notified, 0);
	assert_int_equal(pair_write(&pair, 3, 0, 64, true), 0);
	until_ready(&pair);
	pair_turn(&pair, 1, 0);
	assert_int_equal(notified, 1);
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 3);
	pair_close(&pair);
}

/* What an idle poll costs: once a turn it reads no queue. */
static void an_idle_poll_reads_queues_only_where_no_turn_did(void **state)
{
	struct pair pair;
	struct ibv_wc wc;
	uint64_t before;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	for (unsigned i = 0; i < 3; i++) {
		pair_turn(&pair, 1, 0);
		before = vqps_of(pair.a.node)->readings;
		assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 0);
		assert_int_equal(vqps_of(pair.a.node)->readings, before);
	}
	assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 0);
	assert_int_equal(vqps_of(pair.a.node)->readings, before + 1);
	assert_int_equal(hf_vcq_poll_vqp(pair.a.cq, pair.a.vqp, 1, &wc), 0);
	assert_int_equal(vqps_of(pair.a.node)->readings, before + 2);
	pair_close(&pair);
}

static void a_poll_reads_queues_while_a_wr_is_in_flight(void **state)
{
	struct pair pair;
	struct ibv_wc wc;
	uint64_t before;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	pair_turn(&pair, 1, 0);
	before = vqps_of(pair.a.node)->readings;
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	(void)hf_vcq_poll(pair.a.cq, 1, &wc);
	assert_int_equal(vqps_of(pair.a.node)->readings, before + 1);
	assert_true(pair.a.cq->awaited <= 1);
	hf_vqp_abort(pair.a.vqp);
	for (unsigned i = 0; pair.a.cq->awaited > 0; i++) {
		assert_true(i < TURNS_MAX);
		pair_turn(&pair, 1, 0);
		(void)hf_vcq_poll(pair.a.cq, 1, &wc);
	}
	pair_close(&pair);
}

static void a_full_post_reads_queues_only_where_no_turn_did(void **state)
{
	struct pair pair;
	uint64_t before;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_ask(&pair); /* not connected yet: nothing leaves the log */
	for (unsigned i = 0; i < PAIR_DEPTH; i++)
		assert_int_equal(pair_write(&pair, i, 0, 64, false), 0);
	before = ++vqps_of(pair.a.node)->readings; /* as in a turn */
	assert_int_equal(pair_write(&pair, 77, 0, 64, false), -ENOMEM);
	assert_int_equal(vqps_of(pair.a.node)->readings, before);
	assert_int_equal(pair_write(&pair, 77, 0, 64, false), -ENOMEM);
	assert_int_equal(vqps_of(pair.a.node)->readings, before + 1);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_polls_what_came_after_his_request_is_told_in_the_poll),
		cmocka_unit_test(what_was_ready_before_the_request_or_is_silent_causes_no_call),
		cmocka_unit_test(an_idle_poll_reads_queues_only_where_no_turn_did),
		cmocka_unit_test(a_poll_reads_queues_while_a_wr_is_in_flight),
		cmocka_unit_test(a_full_post_reads_queues_only_where_no_turn_did),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
