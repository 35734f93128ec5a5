/* D6: a DC initiator reaches any target whose key it presents, and none other. */
#include "pair.h"

#include <errno.h>

#define KEY 0x0123456789abcdefull

static const struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .min_rnr_timer = 1};

static void initiator_to_rts(struct pair *pair)
{
	const struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};

	assert_int_equal(qp_to_init(pair->a, 0, 0), 0);
	assert_int_equal(side_qp_modify(pair->a, 0, &rtr, IBV_QP_STATE | IBV_QP_PATH_MTU), 0);
	assert_int_equal(
		side_qp_modify(pair->a, 0, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY),
		0);
}

static void make_target(struct pair *pair, uint32_t i, uint32_t lease_plus1)
{
	struct side_qp target = {.send_cq = SEND_CQ,
		.recv_cq = RECV_CQ,
		.srq = 0,
		.dc = HF_DC_TARGET,
		.dc_key = KEY + i,
		.lease_plus1 = lease_plus1};

	assert_int_equal(side_qp_create(pair->b, i, &target), 0);
	assert_int_equal(qp_to_init(pair->b, i, REMOTE_ACCESS), 0);
	assert_int_equal(side_qp_modify(pair->b, i, &rtr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER), 0);
}

/* Initiator 0 at a, and targets 0 to n - 1 at b with keys KEY, KEY + 1, ... */
static struct pair *dc_pair(void **state, uint32_t targets)
{
	struct pair *pair = pair_of(state);
	struct side_qp initiator = {.send_cq = SEND_CQ,
		.recv_cq = RECV_CQ,
		.srq = ACTOR_NONE,
		.dc = HF_DC_INITIATOR,
		.cap = {64, 0, ACTOR_SGES, 0, 64}};

	require_cap(pair, HF_DEV_DC, "the device has no DC");
	assert_int_equal(side_srq_create(pair->b, 0, 0, 32), 0);
	assert_int_equal(side_qp_create(pair->a, 0, &initiator), 0);
	initiator_to_rts(pair);
	for (uint32_t i = 0; i < targets; i++)
		make_target(pair, i, 0);
	return pair;
}

static struct hf_dc_dest dest(struct pair *pair, uint32_t target)
{
	return (struct hf_dc_dest){.gid = pair->b->gid, .dct_num = pair->b->qp_num[target], .dc_key = KEY + target};
}

static void post_dc(struct pair *pair, struct hf_dc_dest to, struct wr *wr, uint64_t wr_id)
{
	wr->wr.wr_id = wr_id;
	wr->wr.send_flags |= IBV_SEND_SIGNALED;
	assert_int_equal(side_post_send_dc(pair->a, 0, &to, &wr->wr), 0);
}

static void an_initiator_reaches_one_target_after_the_other(void **state)
{
	struct pair *pair = dc_pair(state, 3);
	struct wr wr;

	side_fill(pair->a, pair->a->mem[0], 10000, 1);
	side_store(pair->b, pair->b->mem[0], 0);
	for (unsigned i = 0; i < 12; i++) {
		if (i % 2 == 0)
			wr_write(&wr, pair->a, pair->b, 0, 65536 + i * 10000, 10000);
		else
			wr_faa(&wr, pair->a, pair->b, 32768, 0, 1);
		post_dc(pair, dest(pair, i % 3), &wr, i);
	}
	for (unsigned i = 0; i < 12; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 12; i += 2)
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0] + 65536 + i * 10000, 10000, 1), 10000);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 6);
}

static void a_target_executes_nothing_outside_its_lease(void **state)
{
	struct pair *pair = dc_pair(state, 0);
	struct wr wr;

	require_cap(pair, HF_DEV_LEASE, "the device has no leases");
	assert_int_equal(side_lease_open(pair->b, 0), 0);
	assert_int_equal(side_lease_extend(pair->b, 0, 60000 * MS), 0);
	make_target(pair, 0, 1);
	side_store(pair->b, pair->b->mem[0], 0);
	post_dc(pair, dest(pair, 0), wr_faa(&wr, pair->a, pair->b, 8, 0, 1), 1);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	side_lease_close(pair->b, 0);
	post_dc(pair, dest(pair, 0), wr_faa(&wr, pair->a, pair->b, 8, 0, 1), 2);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 1);
}

static void a_target_refuses_a_wrong_key(void **state)
{
	struct pair *pair = dc_pair(state, 1);
	struct hf_dc_dest to = dest(pair, 0);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 7);
	to.dc_key ^= 1;
	post_dc(pair, to, wr_write(&wr, pair->a, pair->b, 8, 0, 8), 1);
	assert_int_not_equal(next_wc(pair, pair->a, SEND_CQ).status, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 7);
}

static void a_send_to_a_target_arrives_in_its_shared_receive_queue(void **state)
{
	struct pair *pair = dc_pair(state, 1);
	struct recv recv;
	struct wr wr;

	recv_into(&recv, pair->b, 0, 4096)->wr.wr_id = 3;
	assert_int_equal(side_srq_post_recv(pair->b, 0, &recv.wr, NULL), 0);
	side_fill(pair->a, pair->a->mem[0], 3000, 5);
	post_dc(pair, dest(pair, 0), wr_send(&wr, pair->a, 0, 3000), 1);
	expect_wc(pair, pair->b, RECV_CQ, 3, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], 3000, 5), 3000);
}

static void fence_dc(struct pair *pair, uint32_t target, const struct hf_dc_source *source)
{
	uint64_t end_ns = pair_now_ns(pair) + LIMIT_NS;
	int rc;

	while ((rc = side_fence_dc(pair->b, target, source)) == -EINPROGRESS && pair_now_ns(pair) < end_ns)
		turn(pair);
	assert_int_equal(rc, 0);
}

/* Three FAAs execute; two more are posted when nothing of the initiator arrives. Fences both ends. */
static struct hf_dc_source five_of_which_three_execute(struct pair *pair, uint32_t psn[5])
{
	struct hf_dc_source source;
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 100);
	for (unsigned i = 0; i < 5; i++) {
		if (i == 3)
			assert_int_equal(side_set_link(pair->a, HF_LINK_TX, false), 0);
		psn[i] = side_next_psn(pair->a, 0);
		post_dc(pair, dest(pair, i == 1 ? 1 : 0), wr_faa(&wr, pair->a, pair->b, 8 * i, 0, 1), i);
		if (i < 3)
			expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	}
	fence(pair, pair->a, 0);
	assert_int_equal(side_dc_source(pair->a, 0, &source), 0);
	fence_dc(pair, 0, &source);
	assert_int_equal(side_set_link(pair->a, HF_LINK_TX, true), 0);
	return source;
}

static void a_fenced_target_tells_what_of_an_initiator_executed(void **state)
{
	struct pair *pair = dc_pair(state, 3);
	struct hf_atomic_result results[4];
	struct hf_dc_source source;
	uint32_t psn[5], executed;

	require_cap(pair, HF_DEV_DC_EVIDENCE, "the device's DC targets do not tell what executed");
	source = five_of_which_three_execute(pair, psn);
	assert_int_equal(side_executed_psn_dc(pair->b, 0, &source, &executed), 0);
	assert_int_equal(executed, psn[3]);
	assert_int_equal(side_atomic_results_dc(pair->b, 0, &source, results, 4), 2);
	assert_int_equal(results[0].psn, psn[2]);
	assert_int_equal(results[0].original, 102);
	assert_int_equal(results[1].psn, psn[0]);
	fence_dc(pair, 2, &source);
	assert_int_equal(side_executed_psn_dc(pair->b, 2, &source, &executed), -ENOENT);
	assert_int_equal(side_executed_psn(pair->b, 0, &executed), -EOPNOTSUPP);
}

/* The second target is not fenced; the first one hears the initiator again when it comes with a new use. */
static void an_initiator_that_was_fenced_and_reset_is_heard_again(void **state)
{
	struct pair *pair = dc_pair(state, 2);
	struct hf_dc_source source, again;
	uint32_t psn[5], executed;
	struct wr wr;

	require_cap(pair, HF_DEV_DC_EVIDENCE, "the device's DC targets do not tell what executed");
	source = five_of_which_three_execute(pair, psn);
	for (unsigned i = 3; i < 5; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(qp_to(pair->a, 0, IBV_QPS_RESET), 0);
	initiator_to_rts(pair);
	for (unsigned i = 0; i < 4; i++) {
		post_dc(pair, dest(pair, i % 2), wr_faa(&wr, pair->a, pair->b, 8, 0, 1), i);
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	}
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 107);
	assert_int_equal(side_dc_source(pair->a, 0, &again), 0);
	assert_true(again.use > source.use);
	assert_int_equal(side_executed_psn_dc(pair->b, 0, &source, &executed), -ENODATA);
	assert_int_equal(side_executed_psn_dc(pair->b, 0, &again, &executed), 0);
}

static void evidence_of_dc_belongs_to_targets_and_sources_to_initiators(void **state)
{
	struct pair *pair = dc_pair(state, 1);
	struct hf_dc_source source;
	uint32_t executed;
	int rc;

	require_cap(pair, HF_DEV_DC_EVIDENCE, "the device's DC targets do not tell what executed");
	assert_int_equal(side_dc_source(pair->b, 0, &source), -EINVAL);
	assert_int_equal(side_dc_source(pair->a, 0, &source), 0);
	while ((rc = side_fence_dc(pair->a, 0, &source)) == -EINPROGRESS)
		continue; /* a simulated NIC may be asked several times before it looks */
	assert_int_equal(rc, -EINVAL);
	assert_int_equal(side_executed_psn_dc(pair->a, 0, &source, &executed), -EINVAL);
}

static void a_footer_reaches_a_target_too(void **state)
{
	struct pair *pair = dc_pair(state, 1);
	struct hf_footer footer = {.remote_addr = iova_of(pair->b, 64), .value = 99, .rkey = pair->b->rkey[0]};
	struct hf_dc_dest to = dest(pair, 0);
	struct wr wr;

	require_cap(pair, HF_DEV_FOOTER, "the device has no footers");
	wr_faa(&wr, pair->a, pair->b, 8, 0, 1)->wr.send_flags |= IBV_SEND_SIGNALED;
	assert_int_equal(side_post_send_footed(pair->a, 0, &to, &wr.wr, &footer), 0);
	assert_int_equal(next_wc(pair, pair->a, SEND_CQ).status, IBV_WC_SUCCESS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0] + 64), 99);
}

static void a_device_without_dc_says_so(void **state)
{
	struct pair *pair = pair_of(state);
	struct side_qp initiator = {.srq = ACTOR_NONE, .dc = HF_DC_INITIATOR, .cap = {64, 0, 1, 0, 0}};

	if (pair->a->attr.caps & HF_DEV_DC)
		skip_because("the device has DC");
	assert_int_equal(side_qp_create(pair->a, 0, &initiator), -EOPNOTSUPP);
}

const struct CMUnitTest dc_tests[] = {
	CONFORMS(an_initiator_reaches_one_target_after_the_other),
	CONFORMS(a_target_executes_nothing_outside_its_lease),
	CONFORMS(a_target_refuses_a_wrong_key),
	CONFORMS(a_send_to_a_target_arrives_in_its_shared_receive_queue),
	CONFORMS(a_fenced_target_tells_what_of_an_initiator_executed),
	CONFORMS(an_initiator_that_was_fenced_and_reset_is_heard_again),
	CONFORMS(evidence_of_dc_belongs_to_targets_and_sources_to_initiators),
	CONFORMS(a_footer_reaches_a_target_too),
	CONFORMS(a_device_without_dc_says_so),
};
const size_t dc_tests_count = sizeof(dc_tests) / sizeof(dc_tests[0]);
