/* The run of bulk transfers, and its verdict. */
#include "sim/transfer/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "sim/disk.h"
#include "transfer/engine.h"

#define LIVE_NS        (8 * NS_S)
#define LIVE_REQUESTS  3u /* of each node to each */
#define STALL_SEEDS    6u /* of so many seeds one has a process that stands still for longer than a lease */
#define LEASE_NS_MIN   (60 * NS_MS)
#define LEASE_NS_MAX   (400 * NS_MS)
#define SILENCE_NS_MIN (40 * NS_MS) /* all rails of a node at once, in a third of the seeds */
#define STALL_NS_MIN   (500 * NS_MS)
#define STALL_NS_MAX   (2 * NS_S)
#define TR_FAULTS      (FAULT_BIT(FAULT_KINDS) - 1)

/* ---- what engines say ---- */

/* Turns nest where one is torn: the innermost is the one that goes on. */
static struct tr_node *speaker(struct tr *tr)
{
	for (unsigned i = 0; i < TR_NODES; i++) {
		const struct process *process = tr->nodes[i].endpoint.process;

		if (process->in_turn != NULL && !process->torn)
			return &tr->nodes[i];
	}
	return NULL;
}

static void judge(struct tr_node *node, const char *claim, const char *why)
{
	if (claim != NULL)
		world_violate(node->tr->world, claim, "%s: %s", node->endpoint.host.name, why);
}

static void hear_log(enum log_level level, const char *line, void *context)
{
	struct tr *tr = context;
	struct tr_node *node = speaker(tr);
	uint64_t before;
	char why[TRIPS_WORDS];

	(void)level;
	world_trace(tr->world, "  %s", line);
	if (node == NULL || node->stopped)
		return;
	before = node->trips.switches;
	judge(node, trips_hear(&node->trips, line, tr->world->now_ns, why), why);
	tr->outcome->failovers += node->trips.switches - before;
}

/* ---- how they judge their rails ---- */

void tr_look_at_rails(struct tr_node *node)
{
	uint64_t now_ns = hf_loop_now_ns(node->endpoint.loop);

	list_for_each (at, &node->engine->peers) {
		const struct peer *peer = container_of(at, struct peer, link);
		unsigned other = peer->node_peer == NULL ? TR_NODES : tr_node_named(peer->node_peer);

		for (unsigned rail = 0; rail < TR_RAILS && other < TR_NODES; rail++) {
			const struct rail_monitor *monitor = &peer->rails[1].lanes[rail].monitor;
			const struct trip_sight sight = {.peer = peer,
				.life = monitor->life,
				.open = rail_monitor_available(monitor),
				.left_ns = monitor->resume_ns > now_ns ? monitor->resume_ns - now_ns : 0};
			const struct trip_path path = tr_path_now(node, other, rail);
			char why[TRIPS_WORDS];

			judge(node,
				trips_see(&node->trips, other * TR_RAILS + rail, &sight, &path, node->tr->world->now_ns,
					why),
				why);
		}
	}
}

/* ---- the run ---- */

static void make_areas(struct tr *tr)
{
	for (unsigned i = 0; i < TR_NODES; i++)
		for (unsigned other = 0; other < TR_NODES; other++) {
			struct tr_node *node = &tr->nodes[i];
			struct tr_side *side = &node->sides[other];
			uint8_t *local, *target;

			if (i == other)
				continue;
			local = memory_take(TR_AREA_BYTES);
			target = memory_take(TR_AREA_BYTES);
			ensure(local != NULL && target != NULL);
			side->owner = &tr->nodes[other];
			side->local = moves_add_area(&tr->moves, node->endpoint.host.name, local, TR_AREA_BYTES, true);
			side->target = moves_add_area(
				&tr->moves, tr->nodes[other].endpoint.host.name, target, TR_AREA_BYTES, false);
		}
}

static void make_config(struct tr *tr)
{
	static const enum ibv_mtu mtus[] = {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_4096};
	static const int attempts[] = {-1, 1, 3};
	struct world *world = tr->world;

	tr->mtu = mtus[world_range(world, 0, 2)];
	tr->config = (struct hf_transfer_config){.max_failover_attempts = attempts[world_range(world, 0, 2)],
		.rail_error_threshold = (unsigned)world_range(world, 1, 3),
		.rail_error_window_ns = 200 * NS_MS,
		.rail_cooldown_ns = world_range(world, 20, 200) * NS_MS, /* as precise as it is said */
		.rail_probe_interval_ns = world_range(world, 10 * NS_MS, 40 * NS_MS),
		.block_bytes = 4096u << world_range(world, 0, 1),
		.max_timeout_ns = world_range(world, 20 * NS_MS, 200 * NS_MS),
		.cancel_grace_ns = world_range(world, 100 * NS_US, 4 * NS_MS),
		.lease_ns = world_range(world, LEASE_NS_MIN, LEASE_NS_MAX),
		.streams = (unsigned)world_range(world, 1, 2),
		.keep_requests_apart = world_chance(world, 300000)};
	tr->forgets = world_chance(world, 300000);
}

void tr_set_up(struct tr *tr, struct world *world, struct outcome *outcome)
{
	static const char *const names[TR_NODES] = {"a", "b", "c"};

	tr->world = world;
	tr->outcome = outcome;
	make_config(tr);
	network_init(&tr->network, world);
	moves_init(&tr->moves, world, &tr->network);
	for (unsigned i = 0; i < TR_NODES; i++) {
		struct tr_node *node = &tr->nodes[i];

		node->tr = tr;
		node->index = i;
		host_init(&node->endpoint.host, world, &tr->network, names[i]);
		node->endpoint.process = process_create(&node->endpoint.host, names[i], &tr_program, node);
	}
	for (unsigned path = 0; path < TR_PATHS; path++)
		for (unsigned i = 0; i < TR_NODES; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", path, i + 1);
			network_add_port(&tr->network, &tr->nodes[i].endpoint.host, path, address);
		}
	make_areas(tr);
	log_set_sink(hear_log, tr);
}

/* Every node's requests to every other complete, and every rail carries. */
static bool is_alive(struct tr *tr)
{
	for (unsigned i = 0; i < TR_NODES; i++) {
		struct tr_node *node = &tr->nodes[i];
		struct hf_transfer_counters now;

		if (node->engine == NULL)
			return false;
		hf_transfer_counters(node->engine, &now);
		for (unsigned rail = 0; rail < TR_RAILS; rail++)
			if (now.rail_bytes[rail] <= node->before.rail_bytes[rail])
				return false;
		for (unsigned other = 0; other < TR_NODES; other++)
			if (other != i && node->sides[other].completed < LIVE_REQUESTS)
				return false;
	}
	return true;
}

static bool is_idle(struct tr *tr)
{
	return tr_pending(tr) == 0;
}

static void run_until(struct tr *tr, bool (*holds)(struct tr *tr), uint64_t limit_ns, const char *what)
{
	struct world *world = tr->world;

	while (world->violations == 0 && !holds(tr) && world->now_ns < limit_ns) {
		world_run_until(world, world->now_ns + NS_MS);
		tr_check_bounds(tr);
	}
	if (world->violations == 0 && !holds(tr))
		world_violate(world, "liveness", "all has healed, and %s", what);
}

static void run_faulty(struct tr *tr)
{
	struct world *world = tr->world;

	while (world->violations == 0 && world->now_ns < tr->quiet_ns) {
		world_run_until(world, world->now_ns + 10 * NS_MS);
		tr_check_bounds(tr);
	}
	for (unsigned i = 0; i < TR_NODES; i++)
		if (tr->nodes[i].engine != NULL)
			hf_transfer_counters(tr->nodes[i].engine, &tr->nodes[i].before);
}

/* ---- at rest ---- */

static void check_memory(struct tr *tr)
{
	for (unsigned i = 0; i < TR_NODES; i++)
		tr_drain(&tr->nodes[i]);
	list_for_each (at, &tr->moves.areas) {
		const struct move_area *area = container_of(at, struct move_area, node);

		if (area->registered)
			moves_check(&tr->moves, area, 0, area->bytes);
	}
}

static void check_counters(struct tr *tr)
{
	for (unsigned i = 0; i < TR_NODES; i++) {
		const struct tr_node *node = &tr->nodes[i];
		struct hf_transfer_counters now;
		uint64_t sum = 0;

		if (node->engine == NULL)
			continue;
		hf_transfer_counters(node->engine, &now);
		for (unsigned from = 0; from < HF_TRANSPORTS; from++)
			for (unsigned to = 0; to < HF_TRANSPORTS; to++)
				sum += now.failovers[from][to];
		if (sum < node->trips.switches || (node->trips.switches == 0 && sum > 0))
			world_violate(tr->world, "budget", "%s says %" PRIu64 " switches and counts %" PRIu64,
				node->endpoint.host.name, node->trips.switches, sum);
	}
}

void tr_tear_down(struct tr *tr)
{
	for (unsigned i = 0; i < TR_NODES; i++)
		host_free(&tr->nodes[i].endpoint.host);
	moves_free(&tr->moves);
	network_free(&tr->network);
	free(tr);
}

static void run(struct world *world, struct outcome *outcome)
{
	struct tr *tr = calloc(1, sizeof(*tr));
	struct process *processes[TR_NODES];
	bool stalls = world->seed % STALL_SEEDS == 1;
	unsigned fault_count = (unsigned)world_range(world, 0, 8);

	ensure(tr != NULL);
	if (world->seed % STALL_SEEDS == 5)
		fault_count = 0; /* tcp is well all the time, and nothing excuses a request that fails */
	tr_set_up(tr, world, outcome);
	tr->quiet_ns = world_range(world, 100 * NS_MS, 600 * NS_MS) + (stalls ? STALL_NS_MAX : 0);
	for (unsigned i = 0; i < TR_NODES; i++)
		process_start(processes[i] = tr->nodes[i].endpoint.process);
	faults_plan(&tr->faults, &tr->network, processes, TR_NODES, TR_FAULTS, fault_count, tr->quiet_ns);
	tr->faults.changed = tr_fault_changed;
	tr->faults.flapped = tr_paths_switched;
	if (stalls)
		faults_plan_stall(&tr->faults, FAULT_PAUSE, STALL_NS_MIN);
	if (world->seed % STALL_SEEDS == 3 || world->seed % STALL_SEEDS == 5)
		faults_plan_silence(&tr->faults, SILENCE_NS_MIN);
	run_faulty(tr);
	run_until(tr, is_alive, tr->quiet_ns + LIVE_NS, "a node's requests do not complete over all rails");
	tr->stopping = true;
	run_until(tr, is_idle, world->now_ns + LIVE_NS, "a request never ends");
	if (world->violations == 0)
		check_memory(tr);
	if (world->violations == 0)
		check_counters(tr);
	tr_tear_down(tr);
}

const struct scenario scenario_transfer = {
	.name = "transfer",
	.what = "bulk transfers between three nodes over two rails and tcp",
	.run = run,
};
