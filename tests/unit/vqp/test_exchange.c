/* What the two ends of many vqps say to each other when a rail is lost; over soft or shm, as the argument says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "fleet.h"
#include "vqp/recovery/exchange.h"
#include "net/peer_table.h"
#include "vqp/path/pool.h"

#define ASKED 12u /* more than begin at once by themselves */

static struct log_ring next_ring;
static uint64_t *former_entries;

/* b has said what executed, a goes on at once, and b's vqp ends before it hears where. */
static void end_theirs(struct hf_vqp *vqp, void *context)
{
	struct pair *pair = context;
	struct log_slab *slab = theirs[0]->log_ring.slab;

	if (hf_vqp_state(vqp) != HF_VQP_UP || former_entries != NULL)
		return;
	former_entries = theirs[0]->log_ring.entries;
	hf_vqp_destroy(theirs[0]);
	theirs[0] = NULL;
	assert_int_equal(log_slab_take(pair->b.pd, slab->ring_entries, &next_ring), 0);
}

static bool theirs_has_ended(struct pair *pair)
{
	(void)pair;
	return former_entries != NULL;
}

static void a_log_that_strays_may_write_is_given_to_no_other_vqp(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	fleet_hold_rebuilds(&pair);
	former_entries = NULL;
	ours[0]->context = &pair;
	ours[0]->changed = end_theirs;
	pair_cut(&pair, 0, false);
	assert_int_equal(fleet_write(&pair, 0, pair.b.mr->rkey), 0);
	assert_true(pair_until(&pair, theirs_has_ended));
	assert_ptr_not_equal(next_ring.entries, former_entries);
	log_slab_give(&next_ring, 0);
	ours[0]->changed = NULL;
	pair_close(&pair);
}

/* It waits for all of them: one that was asked about first must not be answered last. */
static void vqps_that_the_other_side_asks_about_are_fenced_in_one_turn_in_that_order(void **state)
{
	struct pair pair;
	struct list *at;

	(void)state;
	fleet_open_with_pool(&pair);
	for (unsigned i = 0; i < ASKED; i++)
		fleet_hear_fence(theirs[i], false);
	at = vqps_of(pair.b.node)->fence_asked.next;
	for (unsigned i = 0; i < ASKED; i++, at = at->next)
		assert_ptr_equal(container_of(at, struct hf_vqp, fence_link), theirs[i]);
	(void)fence_queue_turn(pair.b.node);
	assert_true(list_empty(&vqps_of(pair.b.node)->fence_asked));
	assert_true(pair_until(&pair, fleet_is_up));
	pair_close(&pair);
}

/* The picker may be on its second path before the other side was on its first, which is when that joins its pool. */
static void who_is_told_of_a_standby_qp_before_it_joined_the_pool_finds_it(void **state)
{
	struct hf_vqp_counters counters;
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	for (unsigned i = 0; i < FLEET_MAX / 2; i++) /* the others keep the pool */
		pool_forget(theirs[i]);
	fleet_lose_rail_0(&pair);
	for (unsigned i = 0; i < FLEET_MAX; i++) {
		hf_vqp_counters(theirs[i], &counters);
		assert_int_equal(counters.failovers, 1);
		assert_non_null(theirs[i]->pool);
	}
	pair_close(&pair);
}

/* a picks, and its own wrs have not failed. */
static void who_picks_hears_of_a_failed_wr_of_the_other_side(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	assert_true(ours[0]->recovery.picks);
	fleet_hear_fence(ours[0], true);
	assert_int_equal(fleet_write(&pair, 0, pair.b.mr->rkey), 0);
	fleet_collect(&pair, 1);
	assert_int_equal(hf_vqp_rail(ours[0]), 1);
	pair_close(&pair);
}

static bool some_are_through_while_others_wait(struct pair *pair)
{
	bool through = false, waits = false;

	(void)pair;
	for (unsigned i = 0; i < FLEET_MAX; i++) {
		through = through || hf_vqp_rail(ours[i]) == 1;
		waits = waits || ours[i]->path_cut;
	}
	return through && waits;
}

static void the_first_vqps_are_through_the_exchange_while_others_wait_for_their_turn(void **state)
{
	struct pair pair;

	(void)state;
	fleet_open_with_pool(&pair);
	fleet_hold_rebuilds(&pair);
	pair_cut(&pair, 0, false);
	assert_true(pair_until(&pair, some_are_through_while_others_wait));
	assert_true(pair_until(&pair, fleet_is_shared));
	fleet_write_all(&pair);
	fleet_collect(&pair, FLEET_MAX);
	pair_close(&pair);
}

static uint64_t messages_of(const struct pair *pair)
{
	const struct hf_peer *theirs_of_us = container_of(pair->b.node->peers.next, struct hf_peer, node_link);

	return pair->a.peer->control->session.queued + theirs_of_us->control->session.queued;
}

/* Each side: that the rail is down; 1, 2, 4, 8, 16, 32 and the rest, a message each; and an answer to each of
 * these. Some of them come together. */
static void many_vqps_settle_a_failure_in_few_messages(void **state)
{
	struct pair pair;
	uint64_t before;

	(void)state;
	fleet_open_with_pool(&pair);
	fleet_hold_rebuilds(&pair);
	before = messages_of(&pair);
	pair_cut(&pair, 0, false);
	assert_true(pair_until(&pair, fleet_is_shared));
	assert_true(messages_of(&pair) - before <= 2 * (1 + 7 + 7));
	pair_close(&pair);
}

static bool has_failed(struct pair *pair)
{
	(void)pair;
	return ours[0]->state == HF_VQP_ERROR && !vqp_is_ending(ours[0]);
}

/* The other side's vqp ended before it heard that ours is on a standby qp; 2: when ours was about to ask it to end. */
static void what_the_other_side_fenced_nowhere_is_not_over_before_it_cannot_execute(void **state)
{
	struct closed_message closed = {0};
	struct pair pair;
	struct ibv_wc wc;
	uint64_t told_ns;

	(void)state;
	for (unsigned how = 0; how < 3; how++) {
		fleet_open_on_standby(&pair);
		pair.a.peer->lease.ours_ns = pair.a.peer->lease.told_ns = 100000000;
		assert_int_equal(fleet_write(&pair, 0, pair.b.mr->rkey), 0);
		closed.about_qp = how == 1 ? ours[0]->path->our_key : 0;
		told_ns = hf_env_now_ns(hf_loop_env(pair.loop));
		if (how == 2)
			hf_vqp_abort(ours[0]);
		(how == 2 ? exchange_ended : exchange_closed)(ours[0], &closed.head);
		assert_true(pair_until(&pair, has_failed));
		assert_int_equal(hf_vcq_poll(pair.a.cq, 1, &wc), 1);
		assert_int_equal(
			ours[0]->ending.state == ENDING_LEASE || ours[0]->ending.next == ENDING_LEASE, how != 1);
		if (how != 1)
			assert_true(hf_env_now_ns(hf_loop_env(pair.loop)) - told_ns >= 100000000);
		pair_close(&pair);
	}
}

static bool asks_for_the_end(struct pair *pair)
{
	(void)pair;
	return ours[0]->ending.state == ENDING_ANSWER;
}

/* Nothing has left since it was fenced, so that time counts, however late the answer is. */
static void a_late_answer_does_not_begin_the_wait_for_the_lease_anew(void **state)
{
	const struct closed_message closed = {0};
	struct pair pair;
	uint64_t fenced_ns;

	(void)state;
	fleet_open_on_standby(&pair);
	assert_int_equal(fleet_write(&pair, 0, pair.b.mr->rkey), 0);
	hf_vqp_abort(ours[0]);
	assert_true(pair_until(&pair, asks_for_the_end));
	fenced_ns = ours[0]->strays_ns;
	assert_true(fenced_ns > 0);
	exchange_ended(ours[0], &closed.head);
	assert_int_equal(ours[0]->ending.next, ENDING_LEASE);
	assert_int_equal(ours[0]->strays_ns, fenced_ns);
	pair_close(&pair);
}

/* The end that does not pick the rail. */
static void a_rail_on_which_an_end_can_make_no_qp_is_not_picked_again(void **state)
{
	struct pair pair;

	(void)state;
	for (unsigned rail = 0; rail < 2; rail++) {
		pair_open(&pair, HF_POLICY_VARUNA);
		hf_node_dev(pair.b.node, rail)->attr.max_cqe = 1;
		pair_connect(&pair);
		assert_int_equal(hf_vqp_rail(pair.a.vqp), 1 - rail);
		assert_int_equal(hf_vqp_rail(pair.b.vqp), 1 - rail);
		assert_in_range(pair.a.vqp->recovery.epoch, 1, 4);
		pair_close(&pair);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rail_on_which_an_end_can_make_no_qp_is_not_picked_again),
		cmocka_unit_test(a_late_answer_does_not_begin_the_wait_for_the_lease_anew),
		cmocka_unit_test(a_log_that_strays_may_write_is_given_to_no_other_vqp),
		cmocka_unit_test(vqps_that_the_other_side_asks_about_are_fenced_in_one_turn_in_that_order),
		cmocka_unit_test(who_is_told_of_a_standby_qp_before_it_joined_the_pool_finds_it),
		cmocka_unit_test(who_picks_hears_of_a_failed_wr_of_the_other_side),
		cmocka_unit_test(the_first_vqps_are_through_the_exchange_while_others_wait_for_their_turn),
		cmocka_unit_test(many_vqps_settle_a_failure_in_few_messages),
		cmocka_unit_test(what_the_other_side_fenced_nowhere_is_not_over_before_it_cannot_execute),
	};

	pair_kind = argc > 1 ? argv[1] : "soft";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
