/* Stores under faults of the network and pauses: the run, and what it is held to. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/kv/kv.h"

#define LIVE_NS         (12 * NS_S)
#define LIVE_OPERATIONS 5u
#define KILL_SEEDS      2u /* of so many seeds one has members that are killed and come back */
#define KILL_NS_MAX     (300 * NS_MS)
#define WORK_NS_MAX     (200 * NS_US)
#define STALL_SEEDS     3u /* of so many seeds one has a process that stands still for longer than a lease */
#define KV_FAULTS                                                                                                      \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_RAIL_DOWN) |                        \
		FAULT_BIT(FAULT_ACKS_LOST) | FAULT_BIT(FAULT_CONTROL_HELD) | FAULT_BIT(FAULT_CLOG) |                   \
		FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_PARTITION) |                  \
		FAULT_BIT(FAULT_FENCE_SLOW))

static void set_up(struct kv_cluster *all, struct world *world, struct outcome *outcome)
{
	static const char *const names[KV_NODES_MAX] = {"a", "b", "c", "d", "e"};

	all->world = world;
	all->outcome = outcome;
	all->count = world_chance(world, 800000) ? 3 : 5;
	all->node_budget_ns = world_range(world, 300 * NS_MS, 2 * NS_S);
	all->op_budget_ns = world_range(world, 500 * NS_MS, 3 * NS_S);
	all->lease_ns = world_range(world, 60 * NS_MS, 200 * NS_MS);
	all->replay_ns = world_range(world, 2 * NS_MS, 60 * NS_MS);
	network_init(&all->network, world);
	all->network.stream_limit_ns = 8 * NS_S;
	for (unsigned i = 0; i < all->count; i++) {
		struct kv_node *node = &all->nodes[i];

		node->all = all;
		node->index = i;
		host_init(&node->endpoint.host, world, &all->network, names[i]);
		node->endpoint.process = process_create(&node->endpoint.host, names[i], &kv_program, node);
	}
	for (unsigned rail = 0; rail < KV_RAILS; rail++)
		for (unsigned i = 0; i < all->count; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&all->network, &all->nodes[i].endpoint.host, rail, address);
		}
}

/* ---- kills ---- */

static bool all_serve(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++) {
		struct hf_kv_status status;

		if (all->nodes[i].kv == NULL)
			return false;
		hf_kv_status(all->nodes[i].kv, &status);
		if (!status.serving)
			return false;
	}
	return true;
}

static bool has_work(const struct kv_node *node)
{
	for (unsigned k = 0; k < KV_CLIENTS; k++)
		for (unsigned n = 0; n < KV_OPS; n++)
			if (node->clients[k].calls[n].busy)
				return true;
	return false;
}

/* One at a time: the log of the members lives in the memory of a majority, and a copy in that of a member. */
static void kill_next(struct world_event *event)
{
	struct kv_cluster *all = container_of(event, struct kv_cluster, killer);
	struct world *world = all->world;
	uint64_t next_ns = KILL_NS_MAX;

	if (all->killed != NULL) {
		process_start(all->killed->endpoint.process);
		all->killed = NULL;
	} else if (world->now_ns < all->faults.quiet_ns && all_serve(all)) {
		struct kv_node *node = &all->nodes[world_range(world, 0, all->count - 1)];

		next_ns = WORK_NS_MAX; /* until it finds one with work in doubt */
		if (!node->endpoint.process->paused && has_work(node)) {
			next_ns = KILL_NS_MAX;
			all->outcome->in_doubt++;
			world_count_fault(world, FAULT_PROCESS_CRASH);
			process_crash(node->endpoint.process);
			all->killed = node;
		}
	}
	if (all->killed != NULL || world->now_ns < all->faults.quiet_ns)
		world_schedule(world, event, world->now_ns + world_range(world, NS_US, next_ns));
}

/* ---- the end of a run ---- */

static bool all_progress(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->nodes[i].done_since_quiet < LIVE_OPERATIONS)
			return false;
	return true;
}

static bool all_idle(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		for (unsigned k = 0; k < KV_CLIENTS; k++)
			for (unsigned n = 0; n < KV_OPS; n++)
				if (all->nodes[i].clients[k].calls[n].busy)
					return false;
	return true;
}

static bool all_equal(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->nodes[i].kv == NULL)
			return false;
	for (unsigned i = 1; i < all->count; i++)
		if (hf_kv_digest(all->nodes[i].kv) != hf_kv_digest(all->nodes[0].kv))
			return false;
	return true;
}

static void run_until(
	struct kv_cluster *all, bool (*reached)(const struct kv_cluster *all), const char *claim, const char *words)
{
	struct world *world = all->world;
	uint64_t limit_ns = world->now_ns + LIVE_NS;

	while (world->violations == 0 && world->now_ns < limit_ns && !reached(all))
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && !reached(all))
		world_violate(world, claim, "%s", words);
}

static void check_histories(struct kv_cluster *all)
{
	const char *wrong;

	for (unsigned i = 0; i < KV_REGISTERS; i++)
		if ((wrong = registers_check(&all->registers[i])) != NULL)
			world_violate(all->world, "linear", "register%u: %s", i, wrong);
	for (unsigned i = 0; i < KV_COUNTERS; i++)
		if ((wrong = linear_check(&all->counters[i])) != NULL)
			world_violate(all->world, "linear", "counter%u: %s", i, wrong);
}

static void run(struct world *world, struct outcome *outcome)
{
	struct kv_cluster *all = calloc(1, sizeof(*all));
	struct process *processes[KV_NODES_MAX];
	uint64_t quiet_ns = world_range(world, 300 * NS_MS, 1000 * NS_MS);

	ensure(all != NULL);
	set_up(all, world, outcome);
	for (unsigned i = 0; i < all->count; i++)
		process_start(processes[i] = all->nodes[i].endpoint.process);
	faults_plan(&all->faults, &all->network, processes, all->count, KV_FAULTS, (unsigned)world_range(world, 0, 10),
		quiet_ns);
	all->killer = (struct world_event){.fire = kill_next, .what = "killer", .outermost = true};
	if (world->seed % KILL_SEEDS == 0)
		world_schedule(world, &all->killer, world_range(world, 50 * NS_MS, quiet_ns));
	if (world->seed % STALL_SEEDS == 1)
		faults_plan_stall(
			&all->faults, world_chance(world, 700000) ? FAULT_PAUSE : FAULT_SUSPEND, all->lease_ns);
	world_run_until(world, quiet_ns);
	run_until(all, all_progress, "liveness", "no progress after the faults had healed");
	all->stopping = true;
	run_until(all, all_idle, "liveness", "an operation never ended");
	run_until(all, all_equal, "replicas", "members keep different records though all is quiet");
	if (world->violations == 0)
		check_histories(all);
	world_cancel(world, &all->killer);
	for (unsigned i = 0; i < all->count; i++) {
		struct hf_kv_status status;

		if (all->nodes[i].kv == NULL)
			continue;
		hf_kv_status(all->nodes[i].kv, &status);
		outcome->excluded += status.excluded;
		outcome->copied += status.copied;
		outcome->healed += status.healed;
	}
	for (unsigned i = 0; i < all->count; i++)
		host_free(&all->nodes[i].endpoint.host);
	network_free(&all->network);
	for (unsigned i = 0; i < KV_REGISTERS; i++)
		registers_free(&all->registers[i]);
	for (unsigned i = 0; i < KV_COUNTERS; i++)
		linear_free(&all->counters[i]);
	free(all);
}

const struct scenario scenario_kv = {
	.name = "kv",
	.only_when_named = true, /* a test of its own */
	.what = "stores of three to five nodes, whose links fail and whose processes pause",
	.run = run,
};
