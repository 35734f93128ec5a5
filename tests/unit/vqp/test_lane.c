/* Vqps that are pinned to a rail and hand back, and why a vqp ended. a posts to b. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "pair.h"
#include "vqp/objects.h"

#define WRS   32u
#define PIECE 16384u

static void open_lane(struct pair *pair, unsigned rail)
{
	pair_open(pair, HF_POLICY_VARUNA);
	pair->hand_back = true;
	pair->rail = rail;
	pair_connect(pair);
	memset(pair->a.memory, 0x11, PAIR_BYTES);
}

static bool both_ended(struct pair *pair)
{
	return hf_vqp_state(pair->a.vqp) == HF_VQP_ERROR && !vqp_is_ending(pair->a.vqp) &&
	       hf_vqp_state(pair->b.vqp) == HF_VQP_ERROR && !vqp_is_ending(pair->b.vqp);
}

static void post_writes(struct pair *pair)
{
	for (unsigned i = 0; i < WRS; i++)
		assert_int_equal(pair_write(pair, i, i * PIECE, PIECE, true), 0);
}

static unsigned count_landed(const struct pair *pair, unsigned wr)
{
	unsigned landed = 0;

	for (unsigned i = 0; i < PIECE; i++)
		landed += pair->b.memory[wr * PIECE + i] != 0;
	return landed;
}

/* What is told is what the memory holds; and that nothing is told to be unknown of which nothing is there. */
static void check_outcomes(struct pair *pair)
{
	struct ibv_wc wc[WRS];

	pair_collect(pair, &pair->a, WRS, wc);
	for (unsigned i = 0; i < WRS; i++) {
		unsigned landed = count_landed(pair, i);

		assert_int_equal(wc[i].wr_id, i);
		if (wc[i].status == IBV_WC_SUCCESS)
			assert_int_equal(landed, PIECE);
		else if (wc[i].vendor_err == HF_WC_NOT_EXECUTED)
			assert_int_equal(landed, 0);
		else
			assert_in_range(landed, 1, PIECE - 1);
	}
}

static void what_a_cut_left_undone_is_handed_back(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 4; turns++) {
		struct pair pair;

		open_lane(&pair, 1);
		assert_int_equal(hf_vqp_rail(pair.a.vqp), 1);
		post_writes(&pair);
		pair_turn(&pair, turns, 0);
		pair_cut(&pair, 1, false);
		assert_true(pair_until(&pair, both_ended));
		check_outcomes(&pair);
		assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_PORT_HERE);
		assert_int_equal(hf_vqp_end(pair.b.vqp, NULL), HF_VQP_END_PORT_THERE);
		assert_int_equal(pair.a.vqp->counters.failovers, 0);
		assert_int_equal(pair.a.vqp->counters.resent_wrs, 0);
		pair_close(&pair);
	}
}

/* Answers are lost: only the evidence can tell, and does. */
static void what_executed_unanswered_is_completed(void **state)
{
	struct pair pair;

	(void)state;
	open_lane(&pair, 0);
	assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, 0), HF_LINK_RX, false), 0);
	post_writes(&pair);
	assert_true(pair_until(&pair, both_ended));
	check_outcomes(&pair);
	assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_PATH);
	assert_int_equal(hf_vqp_end(pair.b.vqp, NULL), HF_VQP_END_PATH);
	pair_close(&pair);
}

static void a_lane_that_is_withdrawn_ends_by_its_evidence(void **state)
{
	(void)state;
	for (unsigned turns = 0; turns < 4; turns++) {
		struct pair pair;

		open_lane(&pair, 0);
		assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_NONE);
		post_writes(&pair);
		pair_turn(&pair, turns, 0);
		assert_int_equal(hf_vqp_withdraw(pair.a.vqp), 0);
		assert_true(pair_until(&pair, both_ended));
		check_outcomes(&pair);
		assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_ASKED);
		assert_int_equal(hf_vqp_end(pair.b.vqp, NULL), HF_VQP_END_PEER);
		assert_true(hf_node_rail_up(pair.a.node, 0));
		assert_int_equal(pair.a.peer->rails[0].state, RAIL_UP);
		assert_int_equal(hf_vqp_withdraw(pair.a.vqp), 0);
		pair_close(&pair);
	}
}

/* One wr has a wrong key; those behind it did not execute, and say so. */
static void a_program_error_hands_back_what_others_posted(void **state)
{
	enum ibv_wc_status status;
	struct ibv_wc wc[WRS];
	struct pair pair;
	uint32_t key;

	(void)state;
	open_lane(&pair, 0);
	key = pair.b.mr->rkey;
	for (unsigned i = 0; i < WRS; i++) {
		pair.b.mr->rkey = i == WRS / 2 ? key ^ 1u << 31 : key;
		assert_int_equal(pair_write(&pair, i, i * PIECE, PIECE, true), 0);
	}
	pair.b.mr->rkey = key;
	pair_collect(&pair, &pair.a, WRS, wc);
	for (unsigned i = 0; i < WRS; i++) {
		assert_int_equal(wc[i].status, i < WRS / 2    ? IBV_WC_SUCCESS
					       : i == WRS / 2 ? IBV_WC_REM_ACCESS_ERR
							      : IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc[i].vendor_err, i < WRS / 2 ? HF_WC_SUCCEEDED : HF_WC_NOT_EXECUTED);
		assert_int_equal(count_landed(&pair, i), i < WRS / 2 ? PIECE : 0);
	}
	assert_int_equal(hf_vqp_end(pair.a.vqp, &status), HF_VQP_END_PROGRAM);
	assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
	pair_close(&pair);
}

/* Pauses are for choosing among rails. */
static void a_paused_rail_takes_a_lane(void **state)
{
	struct rail_actions actions;
	struct pair pair;

	(void)state;
	open_lane(&pair, 0);
	for (unsigned i = 0; i < 2; i++) {
		struct end *end = i == 0 ? &pair.a : &pair.b;

		rail_step(&end->peer->rails[1], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(pair.loop), &actions);
		assert_int_equal(end->peer->rails[1].state, RAIL_PAUSED);
		end->peer->rails[1].resume_at_ns = UINT64_MAX; /* for good */
		hf_vqp_destroy(end->vqp);
		end->vqp = NULL;
	}
	pair.rail = 1;
	pair_make_vqp(&pair, &pair.a);
	assert_int_equal(hf_vqp_connect(pair.a.vqp, pair.a.peer, "test", NULL, 0), 0);
	while (hf_vqp_state(pair.a.vqp) == HF_VQP_CONNECTING)
		pair_turn(&pair, 1, 0);
	assert_int_equal(hf_vqp_rail(pair.a.vqp), 1);
	assert_int_equal(pair.a.peer->rails[1].state, RAIL_PAUSED);
	pair_close(&pair);
}

static bool a_ended(struct pair *pair)
{
	return hf_vqp_state(pair->a.vqp) == HF_VQP_ERROR;
}

static void both_ends_are_lanes_of_one_rail_or_neither(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair.hand_back = true;
	pair_ask(&pair);
	pair.rail = 1; /* of b's */
	assert_true(pair_until(&pair, a_ended));
	assert_string_equal(hf_vqp_reason(pair.a.vqp),
		"node b refused: its policy is 'varuna by both on r1', that of "
		"this node a is 'varuna by both on r0'; both must have the same");
	assert_string_equal(hf_vqp_reason(pair.b.vqp),
		"node a asked for a vqp with 'varuna by both on r0', and this one has 'varuna by both on r1'");
	assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_REFUSED);
	assert_int_equal(hf_vqp_end(pair.b.vqp, NULL), HF_VQP_END_REFUSED);
	pair_close(&pair);
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_ask(&pair);
	pair.hand_back = true;
	assert_true(pair_until(&pair, a_ended));
	assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_REFUSED);
	pair_close(&pair);
}

static void a_lane_needs_a_rail_and_a_policy_that_has_evidence(void **state)
{
	struct hf_vqp_init init = {.cap = {.max_send_wr = 1}, .hand_back = true, .rail = 2};
	struct hf_vqp *vqp;
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	init.send_cq = init.recv_cq = pair.a.cq;
	assert_int_equal(hf_vqp_create(pair.a.pd, &init, &vqp), -EINVAL);
	init.rail = 1;
	init.revocable = true;
	assert_int_equal(hf_vqp_create(pair.a.pd, &init, &vqp), -EINVAL);
	init.revocable = init.hand_back = false;
	assert_int_equal(hf_vqp_create(pair.a.pd, &init, &vqp), 0);
	assert_int_equal(hf_vqp_withdraw(vqp), -EINVAL);
	pair_close(&pair);
	pair_open(&pair, HF_POLICY_RESEND);
	init.send_cq = init.recv_cq = pair.a.cq;
	init.hand_back = true;
	assert_int_equal(hf_vqp_create(pair.a.pd, &init, &vqp), -EINVAL);
	pair_close(&pair);
}

/* ---- why other vqps end ---- */

static void a_vqp_that_was_aborted_ended_as_asked_and_its_peer_for_its_peer(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	hf_vqp_abort(pair.a.vqp);
	assert_true(pair_until(&pair, both_ended));
	assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_ASKED);
	assert_int_equal(hf_vqp_end(pair.b.vqp, NULL), HF_VQP_END_PEER);
	pair_close(&pair);
}

static void a_peer_that_leaves_is_gone(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	hf_peer_close(pair.b.peer);
	assert_true(pair_until(&pair, a_ended));
	assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_PEER_GONE);
	assert_int_equal(hf_vqp_end(pair.b.vqp, NULL), HF_VQP_END_ASKED);
	pair_close(&pair);
}

static void under_none_the_port_is_named(void **state)
{
	struct ibv_wc wc[1];
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_NONE);
	pair_connect(&pair);
	pair_cut(&pair, 0, false);
	assert_int_equal(pair_write(&pair, 0, 0, 64, true), 0);
	pair_collect(&pair, &pair.a, 1, wc);
	assert_int_not_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(hf_vqp_end(pair.a.vqp, NULL), HF_VQP_END_PORT_HERE);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_cut_left_undone_is_handed_back),
		cmocka_unit_test(what_executed_unanswered_is_completed),
		cmocka_unit_test(a_lane_that_is_withdrawn_ends_by_its_evidence),
		cmocka_unit_test(a_program_error_hands_back_what_others_posted),
		cmocka_unit_test(a_paused_rail_takes_a_lane),
		cmocka_unit_test(both_ends_are_lanes_of_one_rail_or_neither),
		cmocka_unit_test(a_lane_needs_a_rail_and_a_policy_that_has_evidence),
		cmocka_unit_test(a_vqp_that_was_aborted_ended_as_asked_and_its_peer_for_its_peer),
		cmocka_unit_test(a_peer_that_leaves_is_gone),
		cmocka_unit_test(under_none_the_port_is_named),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
