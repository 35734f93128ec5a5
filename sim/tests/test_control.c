/* The control channel of processes that seldom get a core, that answer late, or whose addresses lead elsewhere. */
#include "sim/tests/fixture.h"

#include "net/control.h"
#include "net/peer_table.h"

#define STARVED_NS (1500 * NS_MS) /* longer than an introduction may take */
#define CORE_NS    (100 * NS_US)
#define TURNS      20u
#define PAUSE_NS   (1 * NS_S)   /* that between two tries without an answer grows to this */
#define SOON_NS    (10 * NS_MS) /* less than the shortest one */
#define RAILS      2u
#define DEATH_NS   (60 * NS_MS) /* less than heartbeats take */

struct node {
	struct control *control;
	struct hf_loop *loop;
	struct secret secret;
	unsigned ups, downs, paths, deaths;
};

static void on_up(struct control_peer *peer, void *context)
{
	struct node *node = context;

	(void)peer;
	node->ups++;
}

static void on_down(struct control_peer *peer, void *context)
{
	struct node *node = context;

	(void)peer;
	node->downs++;
}

static void on_died(struct control_peer *peer, void *context)
{
	struct node *node = context;

	assert_true(control_peer_died(peer));
	node->deaths++;
}

static void on_path(struct control_peer *peer, unsigned endpoint, bool up, void *context)
{
	struct node *node = context;

	(void)peer, (void)endpoint;
	node->paths += up ? 1u : -1u;
}

static void on_message(struct control_peer *peer, const void *data, uint32_t bytes, void *context)
{
	(void)peer, (void)data, (void)bytes, (void)context;
}

static const struct control_events events = {
	.up = on_up, .down = on_down, .path = on_path, .message = on_message, .died = on_died};

static void node_open(struct fixture *f, unsigned i, unsigned rails, struct node *node)
{
	static const char *const addresses[3][RAILS] = {{"10.0.0.1:18500", "10.0.0.1:18501"},
		{"10.0.0.2:18500", "10.0.0.2:18501"}, {"10.0.0.2:18502", "10.0.0.2:18503"}};
	static const char *const names[3] = {"a", "b", "c"};
	const struct frame_endpoint endpoints[RAILS] = {{.label = "r0", .addr = fixture_addr(addresses[i][0])},
		{.label = "r1", .addr = fixture_addr(addresses[i][1])}};
	struct control_config config = {.name = names[i],
		.incarnation = i + 1,
		.heartbeat_ns = 20 * NS_MS,
		.misses = 4,
		.dead_ns = 5 * NS_S,
		.endpoint_count = rails,
		.endpoints = endpoints,
		.secret = &node->secret};
	struct hf_error error = {0};

	*node = (struct node){0};
	assert_int_equal(secret_set("every node knows this", 21, &node->secret, &error), 0);
	assert_int_equal(hf_loop_create(fixture_env(f, i == 0 ? 0 : 1), &node->loop), 0);
	if (control_open(node->loop, &config, &events, node, &node->control, &error) != 0)
		fail_msg("%s", error.text);
}

static void node_close(struct node *node)
{
	control_close(node->control);
	hf_loop_destroy(node->loop);
	*node = (struct node){0};
}

/* Whoever has the core for a moment finds that much time has passed, and what the other one said in it. That was not
 * silence, or each would hang up before it reads the other's answer, for ever. */
static void processes_that_seldom_get_a_core_meet_nevertheless(void **state)
{
	struct hf_addr there = fixture_addr("10.0.0.2:18500");
	struct control_peer *peer;
	struct node nodes[2];
	struct fixture f;

	(void)state;
	fixture_open(&f, 7, NULL, NULL);
	node_open(&f, 0, 1, &nodes[0]);
	node_open(&f, 1, 1, &nodes[1]);
	assert_int_equal(control_connect(nodes[0].control, &there, 1, NULL, &peer), 0);
	for (unsigned i = 0; i < 2; i++)
		process_pause(f.processes[i], false);
	for (unsigned turn = 0; turn < TURNS && nodes[0].paths + nodes[1].paths < 2; turn++) {
		fixture_run(&f, STARVED_NS);
		process_resume(f.processes[turn % 2]);
		fixture_run(&f, CORE_NS);
		process_pause(f.processes[turn % 2], false);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(nodes[i].ups, 1);
		assert_int_equal(nodes[i].downs, 0);
		assert_int_equal(nodes[i].paths, 1);
		node_close(&nodes[i]);
	}
	fixture_close(&f);
}

static void answer_late(uint64_t absent_ns)
{
	struct hf_addr there = fixture_addr("10.0.0.2:18500");
	struct control_peer *peer;
	struct node nodes[2];
	struct fixture f;

	fixture_open(&f, 8, NULL, NULL);
	node_open(&f, 0, RAILS, &nodes[0]);
	assert_int_equal(control_connect(nodes[0].control, &there, 1, NULL, &peer), 0);
	fixture_run(&f, absent_ns);
	node_open(&f, 1, RAILS, &nodes[1]);
	for (unsigned i = 0; i < PAUSE_NS / NS_MS && nodes[0].ups == 0; i++)
		fixture_run(&f, NS_MS);
	fixture_run(&f, SOON_NS);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(nodes[i].paths, RAILS);
		node_close(&nodes[i]);
	}
	fixture_close(&f);
}

/* The pauses between tries without an answer grow, and the first rail does not wait for the last of them. The tries use
 * the rails in turn. */
static void a_peer_that_answers_late_is_reached_on_all_rails_at_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < RAILS; i++)
		answer_late(3 * PAUSE_NS + i * PAUSE_NS);
}

/* One of the peer's addresses leads to a node that is connected too, by its own addresses. */
static void another_node_at_an_address_of_a_peer_costs_that_path_only(void **state)
{
	struct hf_addr there[2] = {fixture_addr("10.0.0.2:18500"), fixture_addr("10.0.0.2:18502")};
	struct control_peer *peers[2];
	struct node nodes[3];
	struct fixture f;

	(void)state;
	fixture_open(&f, 9, NULL, NULL);
	node_open(&f, 0, RAILS, &nodes[0]);
	node_open(&f, 1, 1, &nodes[1]);
	node_open(&f, 2, 1, &nodes[2]);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(control_connect(nodes[0].control, &there[i], 1, NULL, &peers[i]), 0);
	fixture_run(&f, PAUSE_NS);
	assert_int_equal(nodes[0].ups, 2);
	peers[0]->remote[peers[0]->remote_count++] = (struct frame_endpoint){.label = "r1", .addr = there[1]};
	fixture_run(&f, 3 * PAUSE_NS);
	assert_int_equal(nodes[0].downs, 0);
	assert_int_equal(nodes[0].paths, 2);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(nodes[i].downs, 0);
		node_close(&nodes[i]);
	}
	fixture_close(&f);
}

/* The second process. */
static void stop_second(struct process *process, void *context)
{
	struct node *nodes = context;

	if (nodes[1].loop != NULL && strcmp(process->name, "b") == 0)
		node_close(&nodes[1]);
}

static const struct program second_program = {.name = "node", .start = fixture_start, .stop = stop_second};

static void two_nodes_meet(struct fixture *f, uint64_t seed, unsigned dialer, struct node nodes[2])
{
	struct hf_addr there = fixture_addr(dialer == 0 ? "10.0.0.2:18500" : "10.0.0.1:18500");
	struct control_peer *peer;

	memset(nodes, 0, 2 * sizeof(*nodes));
	fixture_open(f, seed, &second_program, nodes);
	for (unsigned i = 0; i < 2; i++)
		node_open(f, i, RAILS, &nodes[i]);
	assert_int_equal(control_connect(nodes[dialer].control, &there, 1, NULL, &peer), 0);
	fixture_run(f, PAUSE_NS);
	assert_int_equal(nodes[0].paths, RAILS);
}

/* R-G5: by either side, within milliseconds, long before a time-out. */
static void the_death_of_a_process_is_noticed_at_once(void **state)
{
	struct node nodes[2];
	struct fixture f;

	(void)state;
	for (unsigned dialer = 0; dialer < 2; dialer++) {
		two_nodes_meet(&f, 10 + dialer, dialer, nodes);
		process_crash(f.processes[1]);
		fixture_run(&f, DEATH_NS);
		assert_int_equal(nodes[0].deaths, 1);
		assert_int_equal(nodes[0].downs, 0);
		node_close(&nodes[0]);
		fixture_close(&f);
	}
}

static void a_process_that_stands_still_has_not_died(void **state)
{
	struct node nodes[2];
	struct fixture f;

	(void)state;
	two_nodes_meet(&f, 12, 0, nodes);
	process_pause(f.processes[1], false);
	fixture_run(&f, 3 * NS_S);
	assert_int_equal(nodes[0].paths, 0);
	assert_int_equal(nodes[0].deaths, 0);
	process_resume(f.processes[1]);
	fixture_run(&f, PAUSE_NS);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(nodes[i].deaths, 0);
		node_close(&nodes[i]);
	}
	fixture_close(&f);
}

/* Every stream is reset by what lies between: the listeners answer. */
static void streams_that_are_reset_are_no_death(void **state)
{
	struct node nodes[2];
	struct fixture f;

	(void)state;
	two_nodes_meet(&f, 13, 0, nodes);
	assert_int_equal(network_reset_streams(&f.network, f.ports[0], f.ports[1]), RAILS);
	fixture_run(&f, PAUSE_NS);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(nodes[i].paths, RAILS);
		assert_int_equal(nodes[i].deaths, 0);
		assert_int_equal(nodes[i].downs, 0);
		node_close(&nodes[i]);
	}
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_that_seldom_get_a_core_meet_nevertheless),
		cmocka_unit_test(a_peer_that_answers_late_is_reached_on_all_rails_at_once),
		cmocka_unit_test(the_death_of_a_process_is_noticed_at_once),
		cmocka_unit_test(a_process_that_stands_still_has_not_died),
		cmocka_unit_test(streams_that_are_reset_are_no_death),
		cmocka_unit_test(another_node_at_an_address_of_a_peer_costs_that_path_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
