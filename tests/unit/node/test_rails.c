/* Rails to a peer: whether they can be used, and why not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include "../vqp/pair.h"
#include "vqp/objects.h"

struct heard {
	struct hf_node_listener listener;
	enum hf_rail_cause cause[2]; /* by rail, as told last */
	unsigned told;
	bool unlistens;
	struct hf_node *node;
};

static struct heard heard[2];

static void on_rail(struct hf_peer *peer, unsigned rail, enum hf_rail_cause cause, void *context)
{
	struct heard *side = context;

	assert_int_equal(hf_peer_rail(peer, rail), cause);
	side->cause[rail] = cause;
	side->told++;
	if (side->unlistens)
		hf_node_unlisten(side->node, &side->listener);
}

static void hear_at(struct pair *pair, unsigned which)
{
	heard[which] = (struct heard){.listener = {.events = {.peer_rail = on_rail}, .context = &heard[which]},
		.cause = {HF_RAIL_PEER, HF_RAIL_PEER},
		.node = which == 0 ? pair->a.node : pair->b.node};
	assert_int_equal(hf_node_listen(heard[which].node, &heard[which].listener, NULL), 0);
}

static void a_node_tells_where_peers_connect_to(void **state)
{
	struct hf_addr addresses[4];
	struct pair pair;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	assert_int_equal(hf_node_addresses(pair.b.node, addresses, 4), 2);
	assert_true(hf_addr_equal(&addresses[0], &pair.control[1][0]));
	assert_true(hf_addr_equal(&addresses[1], &pair.control[1][1]));
	assert_int_equal(hf_node_addresses(pair.b.node, addresses, 1), 1);
	pair_close(&pair);
}

static enum hf_rail_cause wanted[2]; /* of rail 0, at a and at b */

static bool is_so(struct pair *pair)
{
	(void)pair;
	return heard[0].cause[0] == wanted[0] && heard[1].cause[0] == wanted[1] && heard[0].cause[1] == HF_RAIL_UP &&
	       heard[1].cause[1] == HF_RAIL_UP;
}

static void expect(struct pair *pair, enum hf_rail_cause at_a, enum hf_rail_cause at_b)
{
	wanted[0] = at_a;
	wanted[1] = at_b;
	assert_true(pair_until(pair, is_so));
}

static void open_listening(struct pair *pair)
{
	pair_open(pair, HF_POLICY_VARUNA);
	hear_at(pair, 0);
	hear_at(pair, 1);
	assert_int_equal(hf_peer_connect(pair->a.node, pair->control[1], 2, &pair->a.peer, NULL), 0);
	expect(pair, HF_RAIL_UP, HF_RAIL_UP);
}

static void a_port_that_is_down_is_here_for_one_and_there_for_the_other(void **state)
{
	struct pair pair;

	(void)state;
	open_listening(&pair);
	pair_cut(&pair, 0, false);
	expect(&pair, HF_RAIL_PORT_HERE, HF_RAIL_PORT_THERE);
	pair_cut(&pair, 0, true);
	expect(&pair, HF_RAIL_UP, HF_RAIL_UP);
	pair_close(&pair);
}

static void what_the_program_asks_for_is_told_as_that(void **state)
{
	struct pair pair;

	(void)state;
	open_listening(&pair);
	assert_int_equal(hf_peer_report(pair.a.peer, 0), 0);
	expect(&pair, HF_RAIL_ASKED, HF_RAIL_PORT_THERE);
	assert_int_equal(hf_peer_revoke(pair.a.peer, 0), 0);
	expect(&pair, HF_RAIL_UP, HF_RAIL_UP);
	pair_close(&pair);
}

/* A wr failed there, though the ports are up: the rail pauses, and is tried again. */
static void a_path_that_fails_is_told_until_its_pause_is_over(void **state)
{
	struct rail_actions ignored;
	struct pair pair;

	(void)state;
	open_listening(&pair);
	rail_step(&pair.a.peer->rails[0], RAIL_EVENT_WC_ERROR, hf_loop_now_ns(pair.loop), &ignored);
	pair.a.peer->rails[0].resume_at_ns = UINT64_MAX; /* until it was told, however late that is */
	expect(&pair, HF_RAIL_PATH, HF_RAIL_UP);
	pair.a.peer->rails[0].resume_at_ns = 0;
	expect(&pair, HF_RAIL_UP, HF_RAIL_UP);
	pair_close(&pair);
}

static void a_listener_that_leaves_in_its_callback_hears_nothing_more(void **state)
{
	struct pair pair;

	(void)state;
	open_listening(&pair);
	heard[0].unlistens = true;
	heard[0].told = 0;
	pair_cut(&pair, 0, false);
	expect(&pair, HF_RAIL_PORT_HERE, HF_RAIL_PORT_THERE);
	pair_cut(&pair, 0, true);
	expect(&pair, HF_RAIL_PORT_HERE, HF_RAIL_UP);
	assert_int_equal(heard[0].told, 1);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_tells_where_peers_connect_to),
		cmocka_unit_test(a_port_that_is_down_is_here_for_one_and_there_for_the_other),
		cmocka_unit_test(what_the_program_asks_for_is_told_as_that),
		cmocka_unit_test(a_path_that_fails_is_told_until_its_pause_is_over),
		cmocka_unit_test(a_listener_that_leaves_in_its_callback_hears_nothing_more),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name("rails", tests, NULL, NULL);
}
