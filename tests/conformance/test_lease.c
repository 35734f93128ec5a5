/* D9: requests execute while the lease of their qp runs, and at no other time. */
#include "pair.h"

#include <errno.h>

#define LONG_NS  (60000 * MS)
#define SHORT_NS (2 * MS)

/* b has lease 0, which has not begun. */
static struct pair *leased(void **state)
{
	struct pair *pair = pair_of(state);

	require_cap(pair, HF_DEV_LEASE, "the device has no leases");
	assert_int_equal(side_lease_open(pair->b, 0), 0);
	return pair;
}

static void connect_leased(struct pair *pair, uint32_t qp)
{
	struct link_options options = impatient;

	options.lease_plus1 = 1;
	pair_connect(pair, qp, options);
}

/* Of the word 0 of b's memory, which is 0 before. */
static void expect_write(struct pair *pair, uint32_t qp, enum ibv_wc_status status)
{
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	side_store(pair->a, pair->a->mem[0], 7);
	post(pair->a, qp, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, status);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), status == IBV_WC_SUCCESS ? 7 : 0);
}

static void nothing_executes_before_the_lease_begins(void **state)
{
	struct pair *pair = leased(state);

	connect_leased(pair, 0);
	expect_write(pair, 0, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(side_lease_extend(pair->b, 0, LONG_NS), 0);
	connect_leased(pair, 1);
	expect_write(pair, 1, IBV_WC_SUCCESS);
}

static void nor_after_it_is_over(void **state)
{
	struct pair *pair = leased(state);

	connect_leased(pair, 0);
	assert_int_equal(side_lease_extend(pair->b, 0, LONG_NS), 0);
	expect_write(pair, 0, IBV_WC_SUCCESS);
	side_lease_close(pair->b, 0);
	expect_write(pair, 0, IBV_WC_RETRY_EXC_ERR);
}

static void a_lease_that_is_over_stays_over(void **state)
{
	struct pair *pair = leased(state);

	connect_leased(pair, 0);
	assert_int_equal(side_lease_extend(pair->b, 0, SHORT_NS), 0);
	turns_for(pair, SHORT_NS);
	assert_int_equal(side_lease_extend(pair->b, 0, LONG_NS), -ETIMEDOUT);
	expect_write(pair, 0, IBV_WC_RETRY_EXC_ERR);
}

static void an_earlier_end_changes_nothing(void **state)
{
	struct pair *pair = leased(state);

	connect_leased(pair, 0);
	assert_int_equal(side_lease_extend(pair->b, 0, LONG_NS), 0);
	assert_int_equal(side_lease_extend(pair->b, 0, 0), 0);
	expect_write(pair, 0, IBV_WC_SUCCESS);
}

static void a_lease_concerns_requests_alone(void **state)
{
	struct pair *pair = leased(state);
	struct wr wr;

	connect_leased(pair, 0);
	side_store(pair->a, pair->a->mem[0], 7);
	post(pair->b, 0, wr_read(&wr, pair->b, pair->a, 0, 0, 8), 1); /* its answer comes to the qp with the lease */
	expect_wc(pair, pair->b, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 7);
}

static void atomics_and_messages_do_not_execute_either(void **state)
{
	struct pair *pair = leased(state);
	struct recv recv;
	struct wr wr;

	connect_leased(pair, 0);
	side_store(pair->b, pair->b->mem[0], 5);
	post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 0, 0, 1), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 5);
	connect_leased(pair, 1);
	post_receive(pair->b, 1, recv_into(&recv, pair->b, 0, 64), 2);
	post(pair->a, 1, wr_send(&wr, pair->a, 0, 8), 3);
	expect_wc(pair, pair->a, SEND_CQ, 3, IBV_WC_RETRY_EXC_ERR);
	expect_no_wc(pair, pair->b, RECV_CQ);
}

const struct CMUnitTest lease_tests[] = {
	CONFORMS(nothing_executes_before_the_lease_begins),
	CONFORMS(nor_after_it_is_over),
	CONFORMS(a_lease_that_is_over_stays_over),
	CONFORMS(an_earlier_end_changes_nothing),
	CONFORMS(a_lease_concerns_requests_alone),
	CONFORMS(atomics_and_messages_do_not_execute_either),
};
const size_t lease_tests_count = sizeof(lease_tests) / sizeof(lease_tests[0]);
