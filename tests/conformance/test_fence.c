/* D3 and D4: after the fence nothing arrives, and the executed psn is true to the packet. */
#include "pair.h"

#include <errno.h>
#include <stdio.h>

#define PACKET 1024u
#define STREAM (1u << 20)

/* Starts a stream of WRITEs of seed 1 over memory of seed 2, and lets some of it happen. */
static void start_stream(struct pair *pair, unsigned turns)
{
	struct wr wr;

	side_fill(pair->a, pair->a->mem[0], STREAM, 1);
	side_fill(pair->b, pair->b->mem[0], STREAM, 2);
	for (unsigned i = 0; i < 16; i++)
		post(pair->a, 0, wr_write(&wr, pair->a, pair->b, i << 16, i << 16, 1u << 16), i);
	for (unsigned i = 0; i < turns; i++)
		turn(pair);
}

static void expect_unchanged(struct pair *pair, struct side *side, uint64_t digest)
{
	turns_for(pair, 5 * MS);
	assert_int_equal(side_digest(side, side->mem[0], STREAM), digest);
}

static void nothing_arrives_after_the_fence(void **state)
{
	struct pair *pair = pair_of(state);

	for (uint32_t i = 0; i < 8; i++) {
		pair_connect(pair, 0, impatient);
		start_stream(pair, i);
		fence(pair, pair->b, 0);
		expect_unchanged(pair, pair->b, side_digest(pair->b, pair->b->mem[0], STREAM));
		assert_int_equal(side_qp_destroy(pair->a, 0), 0);
		assert_int_equal(side_qp_destroy(pair->b, 0), 0);
	}
}

/* What landed is a whole number of packets, and the psn says which. */
static void the_executed_psn_is_true_to_the_packet(void **state)
{
	struct pair *pair = pair_of(state);

	require_cap(pair, HF_DEV_EXECUTED_PSN, "the device does not tell executed psns");
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t psn = 0, packets, rest;

		pair_connect(pair, 0, impatient);
		start_stream(pair, i);
		fence(pair, pair->b, 0);
		assert_int_equal(side_executed_psn(pair->b, 0, &psn), 0);
		packets = (psn - 1000) & PSN_MASK;
		assert_in_range(packets, 0, STREAM / PACKET);
		assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], packets * PACKET, 1), packets * PACKET);
		rest = STREAM - packets * PACKET;
		assert_int_equal(
			side_mismatch_from(pair->b, pair->b->mem[0] + packets * PACKET, rest, 2, packets * PACKET),
			rest);
		assert_int_equal(side_qp_destroy(pair->a, 0), 0);
		assert_int_equal(side_qp_destroy(pair->b, 0), 0);
	}
}

/* A wr completed with success lies before the executed psn, whatever the fence cut off. */
static void what_completed_before_the_fence_counts_as_executed(void **state)
{
	struct pair *pair = connected_with(state, impatient);
	unsigned completed = 0;
	struct ibv_wc wc;
	uint32_t psn = 0;

	require_cap(pair, HF_DEV_EXECUTED_PSN, "the device does not tell executed psns");
	start_stream(pair, 3);
	fence(pair, pair->b, 0);
	assert_int_equal(side_executed_psn(pair->b, 0, &psn), 0);
	for (unsigned i = 0; i < 16; i++) {
		wc = next_wc(pair, pair->a, SEND_CQ);
		completed += wc.status == IBV_WC_SUCCESS;
	}
	assert_in_range((psn - 1000) & PSN_MASK, completed * (65536 / PACKET), STREAM / PACKET);
}

/* D3: every message that executed has its receive completion at the first poll after the fence. */
static void receives_that_executed_are_in_the_queue_after_the_fence(void **state)
{
	struct pair *pair = pair_of(state);
	struct recv recv;
	struct wr wr;

	require_cap(pair, HF_DEV_EXECUTED_PSN, "the device does not tell executed psns");
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t psn = 0, received = 0;
		struct ibv_wc wc;

		pair_connect(pair, 0, impatient);
		for (unsigned k = 0; k < 16; k++)
			post_receive(pair->b, 0, recv_into(&recv, pair->b, k * PACKET, PACKET), k);
		for (unsigned k = 0; k < 16; k++)
			post(pair->a, 0, wr_send(&wr, pair->a, k * PACKET, PACKET), k);
		for (unsigned k = 0; k < i; k++)
			turn(pair);
		fence(pair, pair->b, 0);
		while (side_cq_poll(pair->b, RECV_CQ, 1, &wc) == 1)
			received += wc.status == IBV_WC_SUCCESS;
		assert_int_equal(side_executed_psn(pair->b, 0, &psn), 0);
		assert_int_equal((psn - 1000) & PSN_MASK, received);
		assert_int_equal(side_qp_destroy(pair->a, 0), 0);
		assert_int_equal(side_qp_destroy(pair->b, 0), 0);
		while (side_cq_poll(pair->a, SEND_CQ, 1, &wc) == 1)
			continue;
	}
}

static void responses_do_not_land_after_the_requester_fenced(void **state)
{
	struct pair *pair = pair_of(state);
	struct wr wr;

	for (uint32_t i = 0; i < 8; i++) {
		pair_connect(pair, 0, impatient);
		side_fill(pair->b, pair->b->mem[0], STREAM, 1);
		side_fill(pair->a, pair->a->mem[0], STREAM, 2);
		for (unsigned k = 0; k < 16; k++)
			post(pair->a, 0, wr_read(&wr, pair->a, pair->b, k << 16, k << 16, 1u << 16), k);
		for (unsigned k = 0; k < i; k++)
			turn(pair);
		fence(pair, pair->a, 0);
		expect_unchanged(pair, pair->a, side_digest(pair->a, pair->a->mem[0], STREAM));
		assert_int_equal(side_qp_destroy(pair->a, 0), 0);
		assert_int_equal(side_qp_destroy(pair->b, 0), 0);
		for (struct ibv_wc wc; side_cq_poll(pair->a, SEND_CQ, 1, &wc) == 1;)
			continue;
	}
}

static void a_fence_flushes_what_was_posted_and_can_be_repeated(void **state)
{
	struct pair *pair = connected(state);
	struct recv recv;
	struct wr wr;

	assert_int_equal(side_set_link(pair->b, HF_LINK_BOTH, false), 0);
	post_receive(pair->a, 0, recv_into(&recv, pair->a, 0, 8), 9);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 1);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 8), 2);
	fence(pair, pair->a, 0);
	assert_int_equal(qp_state(pair->a, 0), IBV_QPS_ERR);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_WR_FLUSH_ERR);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_WR_FLUSH_ERR);
	expect_wc(pair, pair->a, RECV_CQ, 9, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(side_fence(pair->a, 0), 0);
	assert_int_equal(side_fence(pair->a, 0), 0);
}

static void a_qp_that_never_received_executed_nothing(void **state)
{
	struct pair *pair = connected_with(state, (struct link_options){.psn_a = 0xabcde});
	uint32_t psn = 0;

	require_cap(pair, HF_DEV_EXECUTED_PSN, "the device does not tell executed psns");
	fence(pair, pair->b, 0);
	assert_int_equal(side_executed_psn(pair->b, 0, &psn), 0);
	assert_int_equal(psn, 0xabcde);
}

static void a_fence_concerns_its_own_qp_only(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	pair_connect(pair, 1, (struct link_options){0});
	side_fill(pair->a, pair->a->mem[0], STREAM, 1);
	for (unsigned i = 0; i < 16; i++)
		post(pair->a, 1, wr_write(&wr, pair->a, pair->b, i << 16, i << 16, 1u << 16), i);
	fence(pair, pair->b, 0);
	for (unsigned i = 0; i < 16; i++)
		expect_wc(pair, pair->a, SEND_CQ, i, IBV_WC_SUCCESS);
	assert_int_equal(side_mismatch(pair->b, pair->b->mem[0], STREAM, 1), STREAM);
}

/* Retransmissions of the old connection meet the qp connected anew, and must not execute in it. */
static void late_requests_do_not_execute_in_the_next_connection(void **state)
{
	struct pair *pair = connected(state);
	struct wr wr;

	side_store(pair->b, pair->b->mem[0], 0);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, false), 0);
	for (unsigned i = 0; i < 4; i++)
		post(pair->a, 0, wr_faa(&wr, pair->a, pair->b, 64, 0, 1), i);
	until_word(pair, pair->b, pair->b->mem[0], 4);
	fence(pair, pair->b, 0);
	assert_int_equal(side_set_link(pair->b, HF_LINK_TX, true), 0);
	assert_int_equal(qp_to(pair->b, 0, IBV_QPS_RESET), 0);
	assert_int_equal(qp_to_init(pair->b, 0, REMOTE_ACCESS), 0);
	assert_int_equal(qp_to_rtr(pair->b, 0, pair->a, (struct link_options){.psn_a = 500000}), 0);
	turns_for(pair, 150 * MS);
	assert_int_equal(side_load(pair->b, pair->b->mem[0]), 4);
	fence(pair, pair->a, 0);
}

static void capabilities_can_be_hidden(void **state)
{
	struct pair *pair = pair_of(state);
	struct hf_atomic_result result;
	struct actor_config config = {.node = "c", .rail = "r0", .caps_masked = UINT32_MAX};
	struct side *c;
	uint32_t psn;

	if (pair->bed->world_open != NULL)
		skip_because("this world has two hosts only");
	if (pair->bed->a_is_there)
		skip_because("a third NIC of a's kind is in another network");
	snprintf(config.kind, sizeof(config.kind), "%s", pair->bed->kind);
	snprintf(config.fabric, sizeof(config.fabric), "%s", bed_fabric());
	snprintf(config.address, sizeof(config.address), "%s", bed_address(pair->bed, BED_THIRD));
	c = side_local(hf_env_host(), NULL, NULL);
	assert_int_equal(side_open(c, &config), 0);
	assert_int_equal(c->attr.caps, 0);
	assert_int_equal(side_pd_alloc(c, 0), 0);
	assert_int_equal(side_cq_create(c, 0, 16), 0);
	assert_int_equal(side_qp_create(c, 0, &(struct side_qp){.srq = ACTOR_NONE, .cap = {8, 8, 1, 1, 0}}), 0);
	assert_int_equal(qp_to_init(c, 0, 0), 0);
	fence(pair, c, 0);
	assert_int_equal(side_executed_psn(c, 0, &psn), -EOPNOTSUPP);
	assert_int_equal(side_atomic_results(c, 0, &result, 1), -EOPNOTSUPP);
	side_free(c);
}

static void the_responder_tells_which_request_it_refused(void **state)
{
	struct pair *pair = connected(state);
	struct hf_refusal refusal = {0};
	struct wr wr;

	pair_connect(pair, 1, (struct link_options){0});
	fence(pair, pair->b, 1);
	if (side_refusal(pair->b, 1, &refusal) == -EOPNOTSUPP)
		skip_because("the device does not tell what it refused");
	assert_int_equal(side_refusal(pair->b, 1, &refusal), 0);
	post(pair->a, 0, wr_write(&wr, pair->a, pair->b, 0, 0, 2 * PACKET), 1);
	wr_write(&wr, pair->a, pair->b, 0, 0, 64);
	wr.wr.wr.rdma.rkey ^= 1u << 31;
	post(pair->a, 0, &wr, 2);
	expect_wc(pair, pair->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	expect_wc(pair, pair->a, SEND_CQ, 2, IBV_WC_REM_ACCESS_ERR);
	fence(pair, pair->b, 0);
	assert_int_equal(side_refusal(pair->b, 0, &refusal), 1);
	assert_int_equal(refusal.psn, 1002);
	assert_int_equal(refusal.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(qp_to(pair->b, 0, IBV_QPS_RESET), 0);
	assert_int_equal(side_refusal(pair->b, 0, &refusal), 0);
}

const struct CMUnitTest fence_tests[] = {
	CONFORMS(the_responder_tells_which_request_it_refused),
	CONFORMS(nothing_arrives_after_the_fence),
	CONFORMS(the_executed_psn_is_true_to_the_packet),
	CONFORMS(what_completed_before_the_fence_counts_as_executed),
	CONFORMS(receives_that_executed_are_in_the_queue_after_the_fence),
	CONFORMS(responses_do_not_land_after_the_requester_fenced),
	CONFORMS(a_fence_flushes_what_was_posted_and_can_be_repeated),
	CONFORMS(a_qp_that_never_received_executed_nothing),
	CONFORMS(a_fence_concerns_its_own_qp_only),
	CONFORMS(late_requests_do_not_execute_in_the_next_connection),
	CONFORMS(capabilities_can_be_hidden),
};
const size_t fence_tests_count = sizeof(fence_tests) / sizeof(fence_tests[0]);
