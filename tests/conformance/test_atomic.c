/* Atomics: their values, their evidence (D4b) and what they are atomic with (D7). */
#include "pair.h"

static void compare_and_swap_swaps_only_what_it_compared(void **state)
{
	struct pair *pair = connected(state);
	struct ibv_wc wc;
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 10);
	post(pair->a, 0, wr_cas(&wr, pair->a, pair->b, 0, 0, 10, 0xfedcba9876543210), 1);
	wc = next_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_COMP_SWAP);
	assert_int_equal(wc.byte_len, 8);
	assert_int_equal(side_load(pair->a, pair->a->mem[0]), 10);
	assert_true(side_load(pair->b, pair->b->mem[0]) == 0xfedcba9876543210);
	post(pair->a, 0, wr_cas(&wr, pair->a, pair->b, 0, 0, 10, 11), 2);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	assert_true(side_load(pair->a, pair->a->mem[0]) == 0xfedcba9876543210);
	assert_true(side_load(pair->b, pair->b->mem[0]) == 0xfedcba9876543210);
}

static void fetch_and_add_adds_and_wraps(void **state)
{
	struct pair *pair = connected(state);
	struct ibv_wc wc;
	struct wr wr;

	side_store(pair->b, pair->b->mem[0] + 8, UINT64_MAX - 1);
	side_store(pair->b, pair->b->mem[0], 3);
	side_store(pair->b, pair->b->mem[0] + 16, 4);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 0, 8, 5), 1);
	wc = next_wc(pair, pair->a, SEND_CQ);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_FETCH_ADD);
	assert_true(side_load(pair->a, pair->a->mem[0]) == UINT64_MAX - 1);
	assert_int_equal(side_load(pair->b, pair->b->mem[0] + 8), 3);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 3);
	assert_int_equal(side_load(pair->b, pair->b->mem[0] + 16), 4);
}

/* Executes n additions whose answers are lost. */
static struct pair *after_lost_answers(void **state, unsigned n)
{
	struct pair *pair = connected_with(state, impatient);
	struct wr wr;

	require_cap(pair, HF_DEV_ATOMIC_RESULTS, "the device does not keep atomic results");
	side_store(pair->b, pair->b->mem[0], 100);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, false), 0);
	for (unsigned i = 0; i < n; i++)
		post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64 + 8 * i, 0, 10), i);
	until_word(pair, pair->b, pair->b->mem[0], 100 + 10 * n);
	fence(pair, pair->b, 0);
	return pair;
}

static void atomics_whose_answers_were_lost_left_their_results(void **state)
{
	struct pair *pair = after_lost_answers(state, 3);
	struct hf_atomic_result results[8];

	assert_int_equal(side_atomic_results(pair->b, 0, results, 8), 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(results[i].psn, 1002 - i);
		assert_int_equal(results[i].original, 120 - 10 * i);
	}
	assert_int_equal(side_atomic_results(pair->b, 0, results, 2), 2);
	assert_int_equal(results[0].psn, 1002);
}

static void the_last_results_are_kept_among_many(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.psn_a = PSN_MASK - 10});
	struct hf_atomic_result results[4];
	struct wr wr;

	require_cap(pair, HF_DEV_ATOMIC_RESULTS, "the device does not keep atomic results");
	side_store(pair->b, pair->b->mem[0], 0);
	for (unsigned i = 0; i < 20; i++) {
		post_quiet(pair->a, 0, wr_write(&wr, pair->a, pair->b, 512, 512, 8), 0);
		post(pair->a, 0,
			i % 2 == 0 ? wr_faa(&wr, pair->a, pair->b, 64, 0, 1)
				   : wr_cas(&wr, pair->a, pair->b, 64, 0, i, i + 1),
			i);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	}
	fence(pair, pair->b, 0);
	assert_int_equal(side_atomic_results(pair->b, 0, results, 4), 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(results[i].original, 19 - i);
		assert_int_equal(results[i].psn, (PSN_MASK - 10 + 39 - 2 * i) & PSN_MASK);
	}
}

static void a_repeated_atomic_gets_its_first_answer(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 5);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, false), 0);
	post(pair->a, 0, wr_cas(&wr, pair->a, pair->b, 64, 0, 5, 6), 1);
	until_word(pair, pair->b, pair->b->mem[0], 6);
	side_store(pair->b, pair->b->mem[0], 5); /* a second execution would swap again */
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, true), 0);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->a, pair->a->mem[0] + 64), 5);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 5);
}

#define ADDITIONS 3000u

static void atomics_are_atomic_with_the_cpus_own(void **state)
{
	struct pair *pair = connected(state);
	unsigned posted = 0, done = 0;
	struct ibv_wc wc;
	struct wr wr;

	require_cap(pair, HF_DEV_ATOMIC_GLOBAL, "atomics are atomic within one HCA only");
	if (!pair->bed->cpu_threads)
		skip_because("no thread runs beside this world");
	side_store(pair->b, pair->b->mem[0], 0);
	side_add_start(pair->b, pair->b->mem[0], 2000000);
	while (done < ADDITIONS) {
		for (; posted < ADDITIONS && posted - done < 32; posted++)
			post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), posted);
		wc = next_wc(pair, pair->a, SEND_CQ);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		done++;
	}
	side_add_join(pair->b);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 2000000 + ADDITIONS);
}

static void atomics_of_several_qps_and_both_ends_are_atomic_with_each_other(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	pair_connect(pair, 1, (struct link_options){0});
	pair_connect(pair, 2, (struct link_options){0});
	side_store(pair->b, pair->b->mem[0], 0);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 30; i++)
			post(pair->a, i % 3, wr_faa(&wr, pair->a, pair->b, 64 + 8 * i, 0, 1), i);
		for (unsigned i = 0; i < 30; i++)
			assert_int_equal(next_wc(pair, pair->a, SEND_CQ).status, IBV_WC_SUCCESS);
	}
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 600);
}

const struct CMUnitTest atomic_tests[] = {
	CONFORMS(compare_and_swap_swaps_only_what_it_compared),
	CONFORMS(fetch_and_add_adds_and_wraps),
	CONFORMS(atomics_whose_answers_were_lost_left_their_results),
	CONFORMS(the_last_results_are_kept_among_many),
	CONFORMS(a_repeated_atomic_gets_its_first_answer),
	CONFORMS(atomics_are_atomic_with_the_cpus_own),
	CONFORMS(atomics_of_several_qps_and_both_ends_are_atomic_with_each_other),
};
const size_t atomic_tests_count = sizeof(atomic_tests) / sizeof(atomic_tests[0]);
