/* The control channel when all rails are gone (docs/protocol.md, R4): over a network that is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <holdfast/grant.h>

#include "net/control.h"
#include "pair.h"
#include "vqp/objects.h"

#define ADDS       40u /* more than a device has in flight: some have executed at the cut, and some not */
#define MANAGEMENT 2u  /* the endpoint behind those of the rails */

static bool management_is_up(struct pair *pair)
{
	return control_path_up(pair->a.peer->control, MANAGEMENT) && control_path_up(pair->b.peer->control, MANAGEMENT);
}

static bool no_rail_is_up(struct pair *pair)
{
	for (unsigned i = 0; i < MANAGEMENT; i++)
		if (control_path_up(pair->a.peer->control, i) || control_path_up(pair->b.peer->control, i))
			return false;
	return true;
}

static bool only_management_is_up(struct pair *pair)
{
	return no_rail_is_up(pair) && management_is_up(pair);
}

static void open_managed(struct pair *pair, bool revocable)
{
	pair_management = true;
	pair_open(pair, HF_POLICY_VARUNA);
	pair->revocable = revocable;
	pair_connect(pair);
	assert_true(pair_until(pair, management_is_up));
	pair_management = false;
}

/* Answers are lost, and then all rails. Returns how many have executed. */
static uint64_t add_and_lose_the_rails(struct pair *pair, bool (*lost)(struct pair *pair), struct ibv_wc wc[ADDS])
{
	pair_add_unanswered(pair, ADDS);
	pair_cut(pair, 0, false);
	pair_cut(pair, 1, false);
	assert_true(pair_until(pair, lost));
	pair_collect(pair, &pair->a, ADDS, wc);
	return pair_word(pair->b.memory);
}

/* Which have executed, and what they found. The others wait for a rail, and do not execute. */
static void what_executed_is_told_without_any_rail(void **state)
{
	struct hf_vqp_counters counters;
	struct ibv_wc wc[ADDS];
	struct pair pair;
	uint64_t executed;

	(void)state;
	open_managed(&pair, false);
	executed = add_and_lose_the_rails(&pair, only_management_is_up, wc);
	assert_in_range(executed, 1, ADDS);
	for (unsigned i = 0; i < ADDS; i++) {
		assert_int_equal(wc[i].wr_id, i);
		assert_int_equal(wc[i].status == IBV_WC_SUCCESS, i < executed);
		if (i < executed)
			assert_int_equal(pair_word(pair.a.memory + PAIR_RESULTS + 8 * i), i);
		else
			assert_int_equal(wc[i].vendor_err, HF_WC_NOT_EXECUTED);
	}
	hf_vqp_counters(pair.a.vqp, &counters);
	assert_int_equal(counters.unknown, 0);
	assert_int_equal(pair.a.peers_down + pair.b.peers_down, 0);
	pair_close(&pair);
}

/* The same without: that nobody could say is not what the test above sees. */
static void without_such_a_network_nobody_can_say_what_executed(void **state)
{
	struct hf_vqp_counters counters;
	struct ibv_wc wc[ADDS];
	struct pair pair;
	uint64_t executed;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	executed = add_and_lose_the_rails(&pair, no_rail_is_up, wc);
	for (unsigned i = 0; i < ADDS; i++)
		assert_int_not_equal(wc[i].status, IBV_WC_SUCCESS);
	hf_vqp_counters(pair.a.vqp, &counters);
	assert_true(counters.unknown >= executed);
	pair_close(&pair);
}

/* The fence of a revocation: what is in flight ends long before the budget does, and never lands. */
static void a_revocation_is_told_without_any_rail(void **state)
{
	struct ibv_wc wc[2];
	struct pair pair;

	(void)state;
	open_managed(&pair, true);
	pair_cut(&pair, 0, false);
	pair_cut(&pair, 1, false);
	memset(pair.a.memory, 7, 128);
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	assert_int_equal(pair_write(&pair, 2, 64, 64, true), 0);
	(void)hf_vqp_set_access(pair.b.vqp, 0, NULL, NULL);
	pair_collect(&pair, &pair.a, 2, wc);
	assert_int_equal(wc[0].status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wc[1].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc[0].vendor_err, HF_WC_NOT_EXECUTED);
	assert_int_not_equal(hf_vqp_state(pair.a.vqp), HF_VQP_ERROR);
	pair_close(&pair);
}

/* Requests are lost on every rail, and control works: each failover finds a rail whose ports are up. */
static void a_wr_that_no_rail_carries_fails(void **state)
{
	struct pair pair;
	struct ibv_wc wc;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	for (unsigned rail = 0; rail < 2; rail++)
		assert_int_equal(hf_dev_set_link(hf_node_dev(pair.a.node, rail), HF_LINK_TX, false), 0);
	assert_int_equal(pair_write(&pair, 1, 0, 64, true), 0);
	pair_collect(&pair, &pair.a, 1, &wc);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wr_that_no_rail_carries_fails),
		cmocka_unit_test(what_executed_is_told_without_any_rail),
		cmocka_unit_test(without_such_a_network_nobody_can_say_what_executed),
		cmocka_unit_test(a_revocation_is_told_without_any_rail),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
