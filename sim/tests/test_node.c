/* When a peer's death is told, in virtual time; rails without ports; devices that die. */
#include "sim/tests/fixture.h"

#include <errno.h>
#include <stdio.h>

#include <holdfast/channel.h>

#include "sim/device.h"
#include "sim/endpoint.h"

#define CONTROL_PORT 7000
#define HTTP_PORT    80
#define HEARTBEAT_NS (5 * NS_MS)
#define LEASE_NS     (200 * NS_MS)
#define BUDGET_NS    (10 * NS_S)

struct side {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_node_listener listener;
	struct hf_channel *channel;
	unsigned up, down, ended, died, heard_died;
	uint64_t down_ns;
	enum hf_rail_cause cause; /* as told last, of rail 0 */
	struct hf_peer *peer;
};

static struct fixture f;
static struct side sides[2];
static uint64_t leases[2]; /* that a layer of each side wants */
static bool without_rails;

static void on_up(struct hf_peer *peer, void *context)
{
	struct side *side = context;

	side->up++;
	side->peer = peer;
}

static void on_down(struct hf_peer *peer, void *context)
{
	struct side *side = context;

	assert_ptr_equal(peer, side->peer);
	side->peer = NULL;
	side->down++;
	side->down_ns = f.world.now_ns;
}

static void on_rail(struct hf_peer *peer, unsigned rail, enum hf_rail_cause cause, void *context)
{
	struct side *side = context;

	assert_ptr_equal(peer, side->peer);
	assert_int_equal(rail, 0);
	assert_int_equal(cause, hf_peer_rail(peer, rail));
	side->cause = cause;
}

static void on_died(struct hf_node *node, unsigned rail, void *context)
{
	struct side *side = context;

	assert_false(hf_node_rail_up(node, rail));
	side->died++;
}

static void layer_down(struct hf_peer *peer, void *context)
{
	struct side *side = context;

	(void)peer;
	assert_int_equal(side->ended, 1); /* channels end before */
}

static void layer_died(struct hf_node *node, unsigned rail, void *context)
{
	struct side *side = context;

	(void)rail;
	side->heard_died++;
	hf_node_unlisten(node, &side->listener); /* from its own callback */
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct side *side = context;

	(void)channel, (void)peer;
	side->ended++;
}

static int start(struct process *process, void *context)
{
	static const struct hf_node_events events = {
		.peer_up = on_up, .peer_down = on_down, .peer_rail = on_rail, .device_died = on_died};
	static const struct hf_channel_events channel_events = {.end = on_end};
	struct side *side = &sides[process == f.processes[1]];
	struct hf_node_config config = {.rail_count = without_rails ? 0 : 1,
		.heartbeat_ns = HEARTBEAT_NS,
		.heartbeat_misses = 4,
		.budget_ns = BUDGET_NS};
	struct hf_addr address = f.ports[side - sides]->address;

	(void)context;
	snprintf(config.name, sizeof(config.name), "%s", process->name);
	snprintf(config.secret, sizeof(config.secret), "%s", ENDPOINT_SECRET);
	snprintf(config.rails[0].name, HF_NAME_BYTES, "r0");
	snprintf(config.rails[0].kind, HF_NAME_BYTES, "soft");
	config.rails[0].address = address;
	hf_addr_set_port(&address, CONTROL_PORT);
	config.rails[0].control = address;
	if (without_rails)
		config.management[config.management_count++] = address;
	config.http = f.ports[side - sides]->address;
	hf_addr_set_port(&config.http, HTTP_PORT);
	*side = (struct side){.cause = HF_RAIL_PEER};
	assert_int_equal(hf_loop_create(&process->env, &side->loop), 0);
	assert_int_equal(hf_node_open(side->loop, &config, &events, side, &side->node, NULL), 0);
	assert_int_equal(hf_channel_register(side->node, "test", &channel_events, side, &side->channel, NULL), 0);
	side->listener = (struct hf_node_listener){.events = {.peer_down = layer_down, .device_died = layer_died},
		.context = side,
		.lease_ns = leases[side - sides]};
	assert_int_equal(hf_node_listen(side->node, &side->listener, NULL), 0);
	return 0;
}

static void stop(struct process *process, void *context)
{
	struct side *side = &sides[process == f.processes[1]];

	(void)context;
	hf_node_close(side->node);
	hf_loop_destroy(side->loop);
	side->node = NULL;
}

static const struct program node_program = {.name = "node", .start = start, .stop = stop};

/* fixture_open starts the processes before it returns. */
static void open_nodes(uint64_t lease_a, uint64_t lease_b)
{
	struct hf_addr address;
	struct hf_peer *peer;

	leases[0] = lease_a;
	leases[1] = lease_b;
	fixture_open(&f, 1, &idle_program, NULL);
	for (unsigned i = 0; i < 2; i++) {
		process_crash(f.processes[i]);
		f.processes[i]->program = &node_program;
	}
	for (unsigned i = 0; i < 2; i++)
		process_start(f.processes[i]);
	address = f.ports[1]->address;
	hf_addr_set_port(&address, CONTROL_PORT);
	assert_int_equal(hf_peer_connect(sides[0].node, &address, 1, &peer, NULL), 0);
	fixture_run(&f, 500 * NS_MS);
	assert_int_equal(sides[0].up + sides[1].up, 2);
	assert_int_equal(sides[0].down + sides[1].down, 0);
}

static uint64_t least(void)
{
	return LEASE_NS + LEASE_NS / 8 + 50 * NS_MS;
}

static void a_dead_peer_is_told_when_the_shortest_lease_is_over(void **state)
{
	(void)state;
	for (unsigned who = 0; who < 2; who++) { /* whose layer wants it */
		uint64_t died_ns;

		open_nodes(who == 0 ? LEASE_NS : 4 * LEASE_NS, who == 0 ? 0 : LEASE_NS);
		died_ns = f.world.now_ns;
		process_crash(f.processes[1]);
		fixture_run(&f, least() + 100 * NS_MS);
		assert_int_equal(sides[0].down, 1);
		assert_int_equal(sides[0].ended, 1);
		/* Its last stamp was heard an eighth of the lease, or a tick, before it died. */
		assert_true(sides[0].down_ns - died_ns >= least() - LEASE_NS / 4);
		fixture_close(&f);
	}
}

static void without_a_lease_the_budget_counts(void **state)
{
	(void)state;
	open_nodes(0, 0);
	process_crash(f.processes[1]);
	fixture_run(&f, BUDGET_NS);
	assert_int_equal(sides[0].down, 0);
	fixture_run(&f, 2 * NS_S);
	assert_int_equal(sides[0].down, 1);
	fixture_close(&f);
}

/* What it did not hear while it stood still it hears now: the peer lives. */
static void a_node_that_stood_still_does_not_take_its_peer_for_dead(void **state)
{
	(void)state;
	open_nodes(LEASE_NS, 0); /* the other end has no layer that tells a death */
	process_pause(f.processes[0], true);
	fixture_run(&f, 10 * LEASE_NS);
	process_resume(f.processes[0]);
	fixture_run(&f, 1 * NS_S);
	assert_int_equal(sides[0].down, 0);
	assert_int_equal(sides[1].down, 0);
	fixture_close(&f);
}

static void a_peer_that_stood_still_for_longer_is_dead(void **state)
{
	(void)state;
	open_nodes(LEASE_NS, LEASE_NS);
	process_pause(f.processes[1], true);
	fixture_run(&f, 10 * LEASE_NS);
	assert_int_equal(sides[0].down, 1);
	process_resume(f.processes[1]);
	fixture_run(&f, 1 * NS_S);
	assert_int_equal(sides[1].down, 1); /* its channels ended too */
	assert_int_equal(sides[1].ended, 1);
	fixture_close(&f);
}

static void a_lease_that_a_layer_gives_back_counts_no_more(void **state)
{
	(void)state;
	open_nodes(LEASE_NS, 0);
	hf_node_unlisten(sides[0].node, &sides[0].listener);
	fixture_run(&f, 500 * NS_MS);
	process_crash(f.processes[1]);
	fixture_run(&f, BUDGET_NS);
	assert_int_equal(sides[0].down, 0);
	fixture_close(&f);
}

static void a_lease_shorter_than_what_tells_a_lost_path_is_refused(void **state)
{
	struct hf_node_listener listener = {.lease_ns = 2 * 4 * HEARTBEAT_NS - 1};
	struct hf_error error = {0};

	(void)state;
	open_nodes(0, 0);
	assert_int_equal(hf_node_listen(sides[0].node, &listener, &error), -EINVAL);
	assert_non_null(strstr(error.text, "heartbeat"));
	listener.lease_ns++;
	assert_int_equal(hf_node_listen(sides[0].node, &listener, &error), 0);
	hf_node_unlisten(sides[0].node, &listener);
	fixture_close(&f);
}

static void a_device_that_died_is_told_to_every_layer_once(void **state)
{
	(void)state;
	open_nodes(0, 0);
	assert_int_equal(sides[0].cause, HF_RAIL_UP);
	nic_crash(nic_of(hf_node_dev(sides[0].node, 0)), true);
	fixture_run(&f, 100 * NS_MS);
	assert_int_equal(sides[0].died, 1);
	assert_int_equal(sides[0].heard_died, 1);
	assert_int_equal(sides[1].died, 0);
	assert_int_equal(sides[0].cause, HF_RAIL_PORT_HERE);
	fixture_close(&f);
}

/* What node a answers. */
static void ask_health(char *answer, size_t bytes)
{
	static const char request[] = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
	struct hf_addr there = f.ports[0]->address;
	struct hf_io *io;
	size_t used;

	hf_addr_set_port(&there, HTTP_PORT);
	assert_int_equal(hf_stream_connect(fixture_env(&f, 1), &f.ports[1]->address, &there, &io, NULL), 0);
	fixture_run(&f, 10 * NS_MS);
	assert_int_equal(hf_stream_write(io, request, strlen(request)), strlen(request));
	fixture_run(&f, 10 * NS_MS);
	used = (size_t)hf_stream_read(io, answer, bytes - 1);
	assert_in_range(used, 1, bytes - 1);
	answer[used] = '\0';
	hf_io_close(io);
}

static void nodes_without_rails_have_peers_and_channels(void **state)
{
	const struct hf_node_config nothing = {.name = "c"};
	struct hf_error error = {0};
	struct hf_node *node;
	struct hf_vpd *pd;
	char answer[1024];

	(void)state;
	without_rails = true;
	open_nodes(LEASE_NS, 0);
	without_rails = false;
	assert_int_equal(hf_node_rails(sides[0].node), 0);
	assert_true(hf_channel_is_open(sides[0].channel, sides[0].peer));
	assert_int_equal(hf_channel_send(sides[0].channel, sides[0].peer, "x", 1), 0);
	assert_int_equal(hf_peer_rail(sides[0].peer, 0), HF_RAIL_PEER);
	assert_int_equal(hf_vpd_alloc(sides[0].node, &pd), -ENODEV);
	ask_health(answer, sizeof(answer));
	assert_non_null(strstr(answer, "HTTP/1.1 200"));
	assert_non_null(strstr(answer, "\"status\":\"ok\",\"rails\":{},\"peers\":1"));
	assert_int_equal(hf_node_open(sides[0].loop, &nothing, NULL, NULL, &node, &error), -EINVAL);
	assert_non_null(strstr(error.text, "management"));
	process_crash(f.processes[1]);
	fixture_run(&f, least() + 100 * NS_MS);
	assert_int_equal(sides[0].down, 1);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dead_peer_is_told_when_the_shortest_lease_is_over),
		cmocka_unit_test(without_a_lease_the_budget_counts),
		cmocka_unit_test(a_node_that_stood_still_does_not_take_its_peer_for_dead),
		cmocka_unit_test(a_peer_that_stood_still_for_longer_is_dead),
		cmocka_unit_test(a_lease_that_a_layer_gives_back_counts_no_more),
		cmocka_unit_test(a_lease_shorter_than_what_tells_a_lost_path_is_refused),
		cmocka_unit_test(a_device_that_died_is_told_to_every_layer_once),
		cmocka_unit_test(nodes_without_rails_have_peers_and_channels),
	};

	device_register();
	return cmocka_run_group_tests_name("nodes", tests, NULL, NULL);
}
