/* The way back from standby qps to qps of their own, and which rails it takes: pauses, and what a program's own
 * detectors say; over soft or shm, as the argument says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "fleet.h"

/* A tick goes by the time at which its turn began, which may be before a swap that the turn has begun. Were that taken
 * for one that has waited too long, it would break the standby qp of all. */
static void a_swap_that_began_in_the_turn_of_a_tick_is_not_late(void **state)
{
	struct recovery_event swap = {.type = RECOVERY_EVENT_RETURN};
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	fleet_hold_rebuilds(&pair);
	pair_cut(&pair, 0, false);
	assert_true(pair_until(&pair, fleet_is_shared));
	failover_event(ours[0], &swap);
	assert_int_equal(ours[0]->recovery.state, RECOVERY_QUIET);
	failover_tick(ours[0], ours[0]->recovery.since_ns - 1);
	assert_int_equal(ours[0]->recovery.state, RECOVERY_QUIET);
	assert_int_equal(ours[0]->recovery.kind, RECOVERY_FAILBACK);
	assert_false(ours[0]->path_broken);
	assert_true(pair_until(&pair, fleet_is_up));
	pair_close(&pair);
}

/* They share a core, and that one stands still. */
static void nothing_is_rebuilt_while_another_vqp_fails_over(void **state)
{
	struct hf_vqp *stands_still;
	struct rebuilds *rebuilds;
	struct pair pair;
	uint64_t now_ns;

	(void)state;
	fleet_open_on_standby(&pair);
	stands_still = ours[0];
	rebuilds = &vqps_of(pair.a.node)->rebuilds;
	now_ns = hf_env_now_ns(pair.a.node->env);
	fleet_let_rebuild(&pair, FLEET_MAX);
	stands_still->state = HF_VQP_RECOVERING;
	stands_still->recovery.since_ns = now_ns + 1; /* begun since the turn */
	list_push_back(&vqps_of(pair.a.node)->recovering, &stands_still->recovering_link);
	assert_false(rebuild_turn(pair.a.node, now_ns));
	assert_int_equal(rebuilds->running_count, 0);
	assert_true(rebuild_turn(pair.a.node, now_ns + 1000000000ull)); /* one that finds no path is not waited for */
	assert_true(rebuilds->running_count > 0);
	list_remove(&stands_still->recovering_link);
	stands_still->state = HF_VQP_UP;
	pair_close(&pair);
}

/* A message waits for a qp of its own, and nothing before it is in flight. */
static void a_probe_that_fails_on_the_rail_in_use_is_a_failure_of_it(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_on_standby(&pair);
	list_remove(&ours[0]->rebuild.link);
	list_push_back(&vqps_of(pair.a.node)->rebuilds.running, &ours[0]->rebuild.link);
	vqps_of(pair.a.node)->rebuilds.running_count++;
	ours[0]->rebuild.rail = ours[0]->path->rail;
	ours[0]->rebuild.state = REBUILD_PROBING;
	marks_probed(ours[0], false);
	assert_true(failover_drain(pair.a.node));
	assert_true(ours[0]->path_broken);
	assert_int_equal(hf_vqp_state(ours[0]), HF_VQP_RECOVERING);
	assert_true(pair_until(&pair, fleet_is_up));
	pair_close(&pair);
}

static bool second_done(struct pair *pair)
{
	struct ibv_wc wc;

	return hf_vcq_poll(pair->b.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 9;
}

static void send_a_letter(struct pair *pair)
{
	struct ibv_sge sge = {.addr = (uintptr_t)pair->a.memory, .length = 8, .lkey = pair->a.mr->lkey};
	struct ibv_sge into = {.addr = (uintptr_t)pair->b.memory + 4096, .length = 8, .lkey = pair->b.mr->lkey};
	struct ibv_send_wr send = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr recv = {.wr_id = 9, .sg_list = &into, .num_sge = 1}, *bad_recv;

	memcpy(pair->a.memory, "a letter", 8);
	assert_int_equal(hf_vqp_post_recv(theirs[3], &recv, &bad_recv), 0);
	assert_int_equal(hf_vqp_post_send(ours[3], &send, &bad), 0);
}

/* R7: a standby qp has no receives, or messages of vqps would be mixed up. */
static void messages_wait_for_a_qp_of_their_own(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_on_standby(&pair);
	send_a_letter(&pair);
	pair_turn(&pair, 100, 0);
	assert_memory_not_equal(pair.b.memory + 4096, "a letter", 8);
	fleet_let_rebuild(&pair, 3);
	assert_true(pair_until(&pair, second_done));
	assert_memory_equal(pair.b.memory + 4096, "a letter", 8);
	assert_null(ours[3]->path->shared);
	assert_non_null(ours[4]->path->shared);
	pair_close(&pair);
}

/* The devices have no qps left, and nothing else would end the wait. */
static void a_message_for_which_no_qp_can_be_made_fails_after_the_budget(void **state)
{
	struct pair pair;
	uint64_t now_ns;

	(void)state;
	fleet_open_on_standby(&pair);
	send_a_letter(&pair);
	ours[3]->rebuild.message = ours[3]->sends.next;
	ours[3]->rebuild.message_ns = 0; /* no tick has come since it was made */
	ours[4]->messages = 1;           /* one that has completed */
	now_ns = hf_loop_now_ns(pair.loop);
	for (unsigned i = 3; i <= 4; i++) {
		failover_tick(ours[i], now_ns);
		ours[i]->state = HF_VQP_RECOVERING; /* its standby qp was lost, and it goes to another one */
		assert_false(rebuild_despairs(ours[i], now_ns + pair.a.node->config.budget_ns));
		ours[i]->state = HF_VQP_UP;
		failover_tick(ours[i], now_ns + pair.a.node->config.budget_ns - 1);
		assert_int_equal(hf_vqp_state(ours[i]), HF_VQP_UP);
	}
	failover_tick(ours[4], now_ns + pair.a.node->config.budget_ns);
	assert_int_equal(hf_vqp_state(ours[4]), HF_VQP_UP);
	failover_tick(ours[3], now_ns + pair.a.node->config.budget_ns);
	assert_int_equal(hf_vqp_state(ours[3]), HF_VQP_ERROR);
	assert_int_equal(hf_vqp_end(ours[3], NULL), HF_VQP_END_NO_PATH);
	pair_close(&pair);
}

/* As if its wrs had failed there for long. */
static void pause_for_good(struct pair *pair, unsigned rail)
{
	struct rail_actions ignored;

	rail_step(&pair->a.peer->rails[rail], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(pair->loop), &ignored);
	assert_int_equal(pair->a.peer->rails[rail].state, RAIL_PAUSED);
	pair->a.peer->rails[rail].resume_at_ns = UINT64_MAX;
}

static bool rail_0_up(struct pair *pair)
{
	return peer_usable(pair->a.peer) == 3;
}

/* Nobody makes a qp on such a rail, and the way back to a better one is closed to who waits for a qp of its own. */
static void a_message_does_not_wait_for_the_end_of_its_rails_pause(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_on_standby(&pair);
	pair_cut(&pair, 0, true);
	assert_true(pair_until(&pair, rail_0_up));
	assert_true(fleet_is_shared(&pair));
	pause_for_good(&pair, 1);
	send_a_letter(&pair);
	fleet_let_rebuild(&pair, 3);
	assert_true(pair_until(&pair, second_done));
	assert_int_equal(hf_vqp_rail(ours[3]), 0);
	assert_null(ours[3]->path->shared);
	assert_int_equal(pair.a.peer->rails[1].state, RAIL_PAUSED);
	pair_close(&pair);
}

/* Else one that is whole again and was paused for long waits until the other has been tried for as long. */
static void paused_rails_take_turns_where_no_other_is_left(void **state)
{
	struct rail_actions ignored;
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	pause_for_good(&pair, 0);
	assert_int_equal(peer_usable(pair.a.peer), 2);
	rail_step(&pair.a.peer->rails[1], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(pair.loop) + 1, &ignored);
	assert_int_equal(peer_usable(pair.a.peer), 1);
	rail_step(&pair.a.peer->rails[0], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(pair.loop) + 2, &ignored);
	assert_int_equal(peer_usable(pair.a.peer), 2);
	pair_close(&pair);
}

static void a_rail_that_the_program_reports_is_left_until_that_is_revoked(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	assert_int_equal(hf_peer_report(pair.b.peer, 0), 0); /* by the side that does not pick */
	fleet_write_all(&pair);
	fleet_collect(&pair, FLEET_MAX);
	assert_true(pair_until(&pair, fleet_is_on_1));
	assert_int_equal(hf_peer_revoke(pair.b.peer, 0), 0);
	assert_true(pair_until(&pair, fleet_is_on_0));
	assert_int_equal(hf_peer_report(pair.a.peer, 2), -EINVAL);
	pair_close(&pair);
}

static bool has_been_on_1(struct pair *pair)
{
	struct hf_vqp_counters counters;

	(void)pair;
	hf_vqp_counters(ours[0], &counters);
	return counters.failovers == 1;
}

static void a_triggered_failover_lasts_a_moment(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	assert_int_equal(hf_peer_trigger(pair.a.peer, 0), 0);
	assert_true(pair_until(&pair, has_been_on_1));
	assert_true(pair_until(&pair, fleet_is_on_0));
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_swap_that_began_in_the_turn_of_a_tick_is_not_late),
		cmocka_unit_test(nothing_is_rebuilt_while_another_vqp_fails_over),
		cmocka_unit_test(a_probe_that_fails_on_the_rail_in_use_is_a_failure_of_it),
		cmocka_unit_test(messages_wait_for_a_qp_of_their_own),
		cmocka_unit_test(a_message_for_which_no_qp_can_be_made_fails_after_the_budget),
		cmocka_unit_test(a_message_does_not_wait_for_the_end_of_its_rails_pause),
		cmocka_unit_test(paused_rails_take_turns_where_no_other_is_left),
		cmocka_unit_test(a_rail_that_the_program_reports_is_left_until_that_is_revoked),
		cmocka_unit_test(a_triggered_failover_lasts_a_moment),
	};

	pair_kind = argc > 1 ? argv[1] : "soft";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
