/* One broker under faults: the run, and the verdict. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/broker/broker_one.h"

#define LIVE_NS      (20 * NS_S)
#define LIVE_BATCHES 5u
#define KILL_NS_MAX  (200 * NS_MS)
#define WORK_NS_MAX  (300 * NS_US)
#define DOWN_NS_MAX  (60 * NS_MS)
#define POWER_SEEDS  3u /* of so many seeds one has losses of power instead of kills */
#define BROKER_FAULTS                                                                                                  \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_DELAY) |           \
		FAULT_BIT(FAULT_CLOG) | FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) |                       \
		FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_CONTROL_HELD))

static void set_up_client(struct broker_sim *all, unsigned i)
{
	struct sim_client *client = &all->clients[i];
	char name[16], address[HF_ADDR_TEXT];

	*client = (struct sim_client){.all = all,
		.index = i,
		.reads = i >= SIM_BROKER_PRODUCERS,
		.partition = (int32_t)(i % SIM_BROKER_PARTITIONS),
		.idempotent = i != 0,
		.producer_id = -1};
	snprintf(name, sizeof(name), "client%u", i);
	snprintf(address, sizeof(address), "10.0.0.%u", i + 2);
	host_init(&client->host, all->world, &all->network, name);
	client->process = process_create(&client->host, name, &sim_client_program, client);
	network_add_port(&all->network, &client->host, 0, address);
}

static void set_up(struct broker_sim *all, struct world *world, struct outcome *outcome)
{
	static const char *const names[SIM_BROKER_PARTITIONS] = {"t-0", "t-1"};

	all->world = world;
	all->outcome = outcome;
	network_init(&all->network, world);
	all->network.stream_limit_ns = 2 * NS_S;
	host_init(&all->host, world, &all->network, "broker");
	all->process = process_create(&all->host, "broker", &broker_program, all);
	network_add_port(&all->network, &all->host, 0, "10.0.0.1");
	broker_config_default(&all->config);
	all->config.node_id = 1;
	all->config.listeners =
		(struct broker_endpoints){.at = {{.name = "PLAINTEXT", .host = "10.0.0.1", .port = 9092}}, .count = 1};
	snprintf(all->config.log_dirs, sizeof(all->config.log_dirs), "logs");
	all->config.segment_bytes = 16384;
	all->config.index_interval_bytes = (uint32_t)world_range(world, 0, 1000);
	for (unsigned i = 0; i < SIM_BROKER_PARTITIONS; i++)
		partition_account_init(&all->accounts[i], world, names[i]);
	for (unsigned i = 0; i < SIM_BROKER_CLIENTS; i++)
		set_up_client(all, i);
}

/* ---- kills ---- */

static bool has_work(const struct broker_sim *all)
{
	for (unsigned i = 0; i < SIM_BROKER_PRODUCERS; i++)
		if (all->clients[i].in_doubt)
			return true;
	return false;
}

static void start_again(struct broker_sim *all)
{
	all->down = false;
	if (all->host_stopped)
		host_start(&all->host);
	else
		process_start(all->process);
	all->host_stopped = false;
}

static void kill_now(struct broker_sim *all)
{
	bool power = all->world->seed % POWER_SEEDS == 0;

	all->outcome->in_doubt++;
	all->down = true;
	world_count_fault(all->world, power ? FAULT_HOST_STOP : FAULT_PROCESS_CRASH);
	if (!power) {
		process_crash(all->process);
		return;
	}
	all->host_stopped = true;
	all->losses++;
	host_stop(&all->host);
	for (unsigned i = 0; i < SIM_BROKER_PARTITIONS; i++)
		partition_lost(&all->accounts[i]);
}

static void kill_next(struct world_event *event)
{
	struct broker_sim *all = container_of(event, struct broker_sim, killer);
	struct world *world = all->world;
	uint64_t next_ns = KILL_NS_MAX;

	if (all->down) {
		start_again(all);
	} else if (world->now_ns < all->faults.quiet_ns) {
		if (all->process->paused || !has_work(all)) {
			next_ns = WORK_NS_MAX; /* until something is in doubt */
		} else {
			kill_now(all);
			next_ns = DOWN_NS_MAX;
		}
	}
	if (all->down || world->now_ns < all->faults.quiet_ns)
		world_schedule(world, event, world->now_ns + world_range(world, NS_US, next_ns));
}

/* ---- the end of a run ---- */

static bool all_go_on(const struct broker_sim *all)
{
	for (unsigned i = 0; i < SIM_BROKER_PRODUCERS; i++)
		if (all->clients[i].done_since_quiet < LIVE_BATCHES)
			return false;
	return true;
}

static bool all_are_idle(const struct broker_sim *all)
{
	return !has_work(all);
}

static bool all_are_at_end(const struct broker_sim *all)
{
	for (unsigned i = SIM_BROKER_PRODUCERS; i < SIM_BROKER_CLIENTS; i++)
		if (!all->clients[i].at_end)
			return false;
	return true;
}

static void run_until(struct broker_sim *all, bool (*reached)(const struct broker_sim *all), const char *words)
{
	uint64_t limit_ns = all->world->now_ns + LIVE_NS;

	while (all->world->violations == 0 && all->world->now_ns < limit_ns && !reached(all))
		world_run_until(all->world, all->world->now_ns + NS_MS);
	if (all->world->violations == 0 && !reached(all))
		world_violate(all->world, "liveness", "%s", words);
}

static void settle(struct broker_sim *all)
{
	run_until(all, all_go_on, "a producer did not go on after the faults had healed");
	all->stopping = true;
	run_until(all, all_are_idle, "a batch was never answered");
	all->settling = true;
	for (unsigned i = SIM_BROKER_PRODUCERS; i < SIM_BROKER_CLIENTS; i++)
		all->clients[i].anew = true;
	run_until(all, all_are_at_end, "a reader did not come to the end");
	for (unsigned i = 0; i < SIM_BROKER_PARTITIONS && all->world->violations == 0; i++)
		partition_settled(&all->accounts[i]);
}

static void run(struct world *world, struct outcome *outcome)
{
	struct broker_sim *all = calloc(1, sizeof(*all));
	struct process *processes[1 + SIM_BROKER_CLIENTS];
	uint64_t quiet_ns = world_range(world, 300 * NS_MS, 1500 * NS_MS);

	ensure(all != NULL);
	set_up(all, world, outcome);
	processes[0] = all->process;
	for (unsigned i = 0; i < SIM_BROKER_CLIENTS; i++)
		processes[1 + i] = all->clients[i].process;
	for (unsigned i = 0; i < 1 + SIM_BROKER_CLIENTS; i++)
		process_start(processes[i]);
	faults_plan(&all->faults, &all->network, processes, 1 + SIM_BROKER_CLIENTS, BROKER_FAULTS,
		(unsigned)world_range(world, 0, 6), quiet_ns);
	all->killer = (struct world_event){.fire = kill_next, .what = "killer", .outermost = true};
	world_schedule(world, &all->killer, world_range(world, 20 * NS_MS, 200 * NS_MS));
	world_run_until(world, quiet_ns);
	settle(all);
	world_cancel(world, &all->killer);
	host_free(&all->host);
	for (unsigned i = 0; i < SIM_BROKER_CLIENTS; i++)
		host_free(&all->clients[i].host);
	network_free(&all->network);
	free(all);
}

const struct scenario scenario_broker_one = {
	.name = "broker-one",
	.what = "a Kafka broker that is killed and loses its power, with producers and readers over TCP",
	.run = run,
};
