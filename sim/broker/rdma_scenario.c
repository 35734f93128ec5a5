/* A broker with rails under faults: the run, and the verdict. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/broker/broker_rdma.h"

#define LIVE_NS      (30 * NS_S)
#define LIVE_RECORDS 10u
#define KILL_NS_MAX  (200 * NS_MS)
#define WORK_NS_MAX  (300 * NS_US)
#define DOWN_NS_MAX  (100 * NS_MS)
#define POWER_SEEDS  4u /* of so many seeds one has losses of power instead of kills */
#define RDMA_FAULTS                                                                                                    \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_CLOG) |                             \
		FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_PARTITION) |                  \
		FAULT_BIT(FAULT_CONTROL_HELD) | FAULT_BIT(FAULT_ACKS_LOST) | FAULT_BIT(FAULT_RESPONSES_LOST) |         \
		FAULT_BIT(FAULT_RAIL_DOWN) | FAULT_BIT(FAULT_FENCE_SLOW))

static void set_up_end(struct rdma_sim *all, struct rdma_sim_end *end, unsigned index, const struct program *program)
{
	char name[16];

	*end = (struct rdma_sim_end){.all = all, .index = index};
	snprintf(name, sizeof(name), "%s%u", program->name, index);
	host_init(&end->host, all->world, &all->network, name);
	end->process = process_create(&end->host, name, program, end);
}

static void set_up(struct rdma_sim *all, struct world *world, struct outcome *outcome)
{
	static const char *const names[RDMA_SIM_PARTITIONS] = {"t-0", "t-1"};

	all->world = world;
	all->outcome = outcome;
	all->power = world->seed % POWER_SEEDS == 0;
	network_init(&all->network, world);
	all->network.stream_limit_ns = 2 * NS_S;
	set_up_end(all, &all->broker_end, 0, &rdma_sim_broker);
	for (unsigned i = 0; i < RDMA_SIM_CLIENTS; i++) {
		struct rdma_sim_client *client = &all->clients[i];

		client->reads = i >= RDMA_SIM_PRODUCERS;
		client->over_tcp = i == RDMA_SIM_PRODUCERS - 1 || i == RDMA_SIM_CLIENTS - 1;
		client->partition = (int32_t)(i % RDMA_SIM_PARTITIONS);
		set_up_end(all, &client->end, i + 1, &rdma_sim_client);
	}
	for (unsigned rail = 0; rail < RDMA_SIM_RAILS; rail++)
		for (unsigned i = 0; i <= RDMA_SIM_CLIENTS; i++) {
			struct host *host = i == 0 ? &all->broker_end.host : &all->clients[i - 1].end.host;
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&all->network, host, rail, address);
		}
	broker_config_default(&all->config);
	all->config.node_id = 1;
	all->config.listeners =
		(struct broker_endpoints){.at = {{.name = "PLAINTEXT", .host = "10.0.0.1", .port = 9092}}, .count = 1};
	snprintf(all->config.log_dirs, sizeof(all->config.log_dirs), "logs");
	all->config.segment_bytes = 16384;
	all->config.extent_bytes = (uint32_t)world_range(world, 4096, 20000);
	all->config.index_interval_bytes = (uint32_t)world_range(world, 0, 1000);
	for (unsigned i = 0; i < RDMA_SIM_PARTITIONS; i++)
		partition_account_init(&all->accounts[i], world, names[i]);
}

/* ---- kills ---- */

static uint64_t pending(const struct rdma_sim_client *client)
{
	return client->producer == NULL ? 0 : hf_producer_pending(client->producer);
}

static bool has_work(const struct rdma_sim *all)
{
	for (unsigned i = 0; i < RDMA_SIM_PRODUCERS; i++)
		if (pending(&all->clients[i]) > 0)
			return true;
	return false;
}

static void start_again(struct rdma_sim *all)
{
	struct rdma_sim_end *end = all->down;

	all->down = NULL;
	if (end->host.stopped)
		host_start(&end->host);
	else
		process_start(end->process);
}

/* The broker, or a client with something in doubt, or that reads. NULL: nobody now. */
static struct rdma_sim_end *victim(struct rdma_sim *all)
{
	unsigned which = (unsigned)world_range(all->world, 0, 2 * RDMA_SIM_CLIENTS - 1);
	struct rdma_sim_client *client = which < RDMA_SIM_CLIENTS ? &all->clients[which] : NULL;

	if (!has_work(all) || (client != NULL && !client->reads && pending(client) == 0))
		return NULL;
	return client == NULL ? &all->broker_end : &client->end;
}

static void kill_now(struct rdma_sim *all, struct rdma_sim_end *end)
{
	bool power = all->power && end == &all->broker_end;

	all->outcome->in_doubt++;
	all->down = end;
	world_count_fault(all->world, power ? FAULT_HOST_STOP : FAULT_PROCESS_CRASH);
	if (!power) {
		process_crash(end->process);
		return;
	}
	all->losses++;
	host_stop(&end->host);
	for (unsigned i = 0; i < RDMA_SIM_PARTITIONS; i++)
		partition_lost(&all->accounts[i]);
}

static void kill_next(struct world_event *event)
{
	struct rdma_sim *all = container_of(event, struct rdma_sim, killer);
	struct world *world = all->world;
	uint64_t next_ns = KILL_NS_MAX;

	if (all->down != NULL) {
		start_again(all);
	} else if (world->now_ns < all->faults.quiet_ns) {
		struct rdma_sim_end *end = victim(all);

		if (end == NULL || end->process->paused) {
			next_ns = WORK_NS_MAX; /* until something is in doubt */
		} else {
			kill_now(all, end);
			next_ns = DOWN_NS_MAX;
		}
	}
	if (all->down != NULL || world->now_ns < all->faults.quiet_ns)
		world_schedule(world, event, world->now_ns + world_range(world, NS_US, next_ns));
}

/* ---- the end of a run ---- */

static bool all_go_on(const struct rdma_sim *all)
{
	for (unsigned i = 0; i < RDMA_SIM_PRODUCERS; i++)
		if (all->clients[i].done_since_quiet < LIVE_RECORDS)
			return false;
	return true;
}

static bool all_are_idle(const struct rdma_sim *all)
{
	return !has_work(all);
}

static bool all_are_at_end(const struct rdma_sim *all)
{
	for (unsigned i = RDMA_SIM_PRODUCERS; i < RDMA_SIM_CLIENTS; i++) {
		const struct rdma_sim_client *client = &all->clients[i];
		const struct partition *partition = topics_partition(
			&all->broker->topics, (struct codec_string){RDMA_SIM_TOPIC, 1}, client->partition);

		if (client->anew ||
			hf_consumer_position(client->consumer, RDMA_SIM_TOPIC, client->partition) != partition->hw)
			return false;
	}
	return true;
}

static void run_until(struct rdma_sim *all, bool (*reached)(const struct rdma_sim *all), const char *words)
{
	uint64_t limit_ns = all->world->now_ns + LIVE_NS;

	while (all->world->violations == 0 && all->world->now_ns < limit_ns && !reached(all))
		world_run_until(all->world, all->world->now_ns + NS_MS);
	if (all->world->violations == 0 && !reached(all))
		world_violate(all->world, "liveness", "%s", words);
}

static void settle(struct rdma_sim *all)
{
	run_until(all, all_go_on, "a producer did not go on after the faults had healed");
	all->stopping = true;
	run_until(all, all_are_idle, "a record was never answered");
	all->settling = true;
	for (unsigned i = RDMA_SIM_PRODUCERS; i < RDMA_SIM_CLIENTS; i++)
		all->clients[i].anew = true;
	run_until(all, all_are_at_end, "a reader did not come to the end");
	for (unsigned i = 0; i < RDMA_SIM_PARTITIONS && all->world->violations == 0; i++)
		partition_settled(&all->accounts[i]);
	if (all->world->violations == 0 && (all->rdma_batches == 0 || all->writes == 0))
		world_violate(all->world, "liveness", "nothing went over RDMA");
}

static void run(struct world *world, struct outcome *outcome)
{
	struct rdma_sim *all = calloc(1, sizeof(*all));
	struct process *processes[1 + RDMA_SIM_CLIENTS];
	uint64_t quiet_ns = world_range(world, 300 * NS_MS, 1500 * NS_MS);

	ensure(all != NULL);
	set_up(all, world, outcome);
	processes[0] = all->broker_end.process;
	for (unsigned i = 0; i < RDMA_SIM_CLIENTS; i++)
		processes[1 + i] = all->clients[i].end.process;
	for (unsigned i = 0; i < 1 + RDMA_SIM_CLIENTS; i++)
		process_start(processes[i]);
	faults_plan(&all->faults, &all->network, processes, 1 + RDMA_SIM_CLIENTS, RDMA_FAULTS,
		(unsigned)world_range(world, 0, 10), quiet_ns);
	all->killer = (struct world_event){.fire = kill_next, .what = "killer", .outermost = true};
	world_schedule(world, &all->killer, world_range(world, 20 * NS_MS, 200 * NS_MS));
	world_run_until(world, quiet_ns);
	settle(all);
	world_cancel(world, &all->killer);
	for (unsigned i = 0; i < RDMA_SIM_CLIENTS; i++)
		host_free(&all->clients[i].end.host);
	host_free(&all->broker_end.host);
	network_free(&all->network);
	free(all);
}

const struct scenario scenario_broker_rdma = {
	.name = "broker-rdma",
	.what = "a Kafka broker under one-sided producers and readers that are killed and stopped, as it is itself",
	.run = run,
};
