/* Brokers with rails under faults: the runs, and the verdict. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/broker/broker_rdma.h"
#include "sim/broker/brokers.h"
#include "sim/broker/holders.h"
#include "sim/broker/liar.h"
#include "sim/disk.h"
#include "sim/checkers/replica_files.h"

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
#define SESSION_NS    (500 * NS_MS)
#define PIECE_BYTES   8u   /* less than a leader epoch may lie in */
#define REJOIN_NS_MAX NS_S /* one of several brokers is down for longer than its session, or not */

static void set_up_end(struct rdma_sim *all, struct rdma_sim_end *end, unsigned index, const struct program *program)
{
	char name[16];

	*end = (struct rdma_sim_end){.all = all, .index = index};
	snprintf(name, sizeof(name), "%s%u", program->name, index);
	host_init(&end->host, all->world, &all->network, name);
	end->process = process_create(&end->host, name, program, end);
}

static struct host *host_at(struct rdma_sim *all, unsigned i)
{
	if (i == all->count + RDMA_SIM_CLIENTS)
		return &all->liar->end.host;
	return i < all->count ? &all->brokers[i].end.host : &all->clients[i - all->count].end.host;
}

static unsigned hosts(const struct rdma_sim *all)
{
	return all->count + RDMA_SIM_CLIENTS + (all->liar != NULL);
}

static void set_up(struct rdma_sim *all, struct world *world, struct outcome *outcome, unsigned count)
{
	static const char *const names[RDMA_SIM_PARTITIONS] = {"t-0", "t-1"};

	all->world = world;
	all->outcome = outcome;
	all->count = count;
	all->power = count == 1 && (all->flushes || world->seed % POWER_SEEDS == 0);
	network_init(&all->network, world);
	all->network.stream_limit_ns = 2 * NS_S;
	for (unsigned i = 0; i < count; i++)
		set_up_end(all, &all->brokers[i].end, i, &rdma_sim_broker_program);
	for (unsigned i = 0; i < RDMA_SIM_CLIENTS; i++) {
		struct rdma_sim_client *client = &all->clients[i];

		client->reads = i >= RDMA_SIM_PRODUCERS;
		client->over_tcp = i == RDMA_SIM_PRODUCERS - 1 || i == RDMA_SIM_CLIENTS - 1;
		client->partition = (int32_t)(i % RDMA_SIM_PARTITIONS);
		set_up_end(all, &client->end, i + count, &rdma_sim_client_program);
	}
	if (all->liar != NULL)
		set_up_end(all, &all->liar->end, count + RDMA_SIM_CLIENTS, &rdma_liar_program);
	for (unsigned rail = 0; rail < RDMA_SIM_RAILS; rail++)
		for (unsigned i = 0; i < hosts(all); i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&all->network, host_at(all, i), rail, address);
		}
	for (unsigned i = 0; i < count; i++)
		rdma_sim_configure(&all->brokers[i]);
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

static void list_brokers(const struct rdma_sim *all, const struct broker *brokers[RDMA_SIM_BROKERS])
{
	for (unsigned i = 0; i < all->count; i++)
		brokers[i] = all->brokers[i].broker;
}

static bool brokers_are_whole(const struct rdma_sim *all)
{
	const struct broker *brokers[RDMA_SIM_BROKERS];

	list_brokers(all, brokers);
	return sim_brokers_are_whole(brokers, all->count, RDMA_SIM_TOPIC);
}

/* Several brokers go one at a time, once every replica is in sync again: what one of them has, and the controller's
 * log, live in the memory of a majority. */
static bool may_kill(const struct rdma_sim *all, const struct rdma_sim_end *end)
{
	if (!end->process->running || end->process->paused)
		return false;
	return end->index >= all->count || all->count == 1 || (brokers_are_whole(all) && all->apart.broker == NULL);
}

/* One that leads a partition. */
static struct process *choose_apart(struct apart *apart)
{
	struct rdma_sim *all = container_of(apart, struct rdma_sim, apart);
	const struct broker *brokers[RDMA_SIM_BROKERS];
	int at;

	list_brokers(all, brokers);
	at = sim_brokers_leading(brokers, all->count, RDMA_SIM_TOPIC);
	if (at < 0 || !brokers_are_whole(all) || all->brokers[at].end.process->paused)
		return NULL;
	return all->brokers[at].end.process;
}

/* A broker, or a client with something in doubt, or that reads. NULL: nobody now. */
static struct rdma_sim_end *victim(struct rdma_sim *all)
{
	unsigned which = (unsigned)world_range(all->world, 0, 2 * RDMA_SIM_CLIENTS - 1);
	struct rdma_sim_client *client = which < RDMA_SIM_CLIENTS ? &all->clients[which] : NULL;
	struct rdma_sim_end *end = client != NULL ? &client->end : &all->brokers[which % all->count].end;

	if (!has_work(all) || (client != NULL && !client->reads && pending(client) == 0))
		return NULL;
	return may_kill(all, end) ? end : NULL;
}

static void kill_now(struct rdma_sim *all, struct rdma_sim_end *end)
{
	bool is_broker = end->index < all->count;
	bool power = is_broker && (all->power || (all->count > 1 && world_chance(all->world, 400000)));

	all->outcome->in_doubt++;
	all->down = end;
	if (is_broker)
		rdma_sim_count(&all->brokers[end->index]);
	world_count_fault(all->world, power ? FAULT_HOST_STOP : FAULT_PROCESS_CRASH);
	if (!power) {
		process_crash(end->process);
		return;
	}
	host_stop(&end->host);
	if (all->count > 1 || all->flushes)
		return; /* the others, or its disk, have it all */
	all->losses++;
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

		if (end == NULL) {
			next_ns = WORK_NS_MAX; /* until something is in doubt */
		} else {
			kill_now(all, end);
			next_ns = end->index < all->count && all->count > 1 ? REJOIN_NS_MAX : DOWN_NS_MAX;
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

/* NULL: nobody leads it now. */
static const struct partition *leading(const struct rdma_sim *all, int32_t index)
{
	for (unsigned i = 0; i < all->count; i++) {
		const struct broker *broker = all->brokers[i].broker;
		const struct partition *partition =
			broker == NULL
				? NULL
				: topics_partition(&broker->topics, (struct codec_string){RDMA_SIM_TOPIC, 1}, index);

		if (partition != NULL && partition->leads)
			return partition;
	}
	return NULL;
}

static bool all_are_at_end(const struct rdma_sim *all)
{
	for (unsigned i = RDMA_SIM_PRODUCERS; i < RDMA_SIM_CLIENTS; i++) {
		const struct rdma_sim_client *client = &all->clients[i];
		const struct partition *partition = leading(all, client->partition);

		if (client->anew || partition == NULL ||
			hf_consumer_position(client->consumer, RDMA_SIM_TOPIC, client->partition) != partition->hw)
			return false;
	}
	return true;
}

static bool all_are_whole(const struct rdma_sim *all)
{
	const struct broker *brokers[RDMA_SIM_BROKERS];

	for (unsigned i = 0; i < all->count; i++)
		brokers[i] = all->brokers[i].broker;
	return sim_brokers_are_whole(brokers, all->count, RDMA_SIM_TOPIC);
}

/* The logs on the disks, once nothing is written any more. */
static bool all_are_equal(const struct rdma_sim *all)
{
	struct process *processes[RDMA_SIM_BROKERS];

	for (unsigned i = 0; i < all->count; i++)
		processes[i] = all->brokers[i].end.process;
	return replica_files_equal(processes, all->count, "logs", RDMA_SIM_TOPIC, RDMA_SIM_PARTITIONS);
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
	if (all->world->violations == 0 &&
		(all->rdma_batches == 0 || all->writes == 0 || (all->liar != NULL && all->lies == 0)))
		world_violate(all->world, "liveness", "nothing went over RDMA");
}

static void settle_replicas(struct rdma_sim *all)
{
	run_until(all, all_are_whole, "a replica did not come into sync");
	if (all->world->violations == 0)
		run_until(all, all_are_equal, "replicas have different logs on their disks");
	if (all->world->violations == 0)
		run_until(all, rdma_sim_knows_hw, "a follower was not told the high watermark");
	if (all->world->violations == 0) {
		rdma_sim_delete_records(all);
		run_until(all, rdma_sim_has_deleted, "a follower kept records that its leader had deleted");
	}
}

static void tear_down(struct rdma_sim *all)
{
	for (unsigned i = 0; i < all->count; i++)
		rdma_sim_count(&all->brokers[i]);
	holders_end(all);
	all->outcome->failovers += all->led > RDMA_SIM_PARTITIONS ? all->led - RDMA_SIM_PARTITIONS : 0;
	all->outcome->truncated += all->truncations;
	for (unsigned i = hosts(all); i > 0; i--)
		host_free(host_at(all, i - 1));
	free(all->liar);
	network_free(&all->network);
	free(all);
}

enum extra { WITH_NOTHING, WITH_LIAR, WITH_SYNC, WITH_HOLDERS };

/* What goes wrong, and when. */
static void plan(struct rdma_sim *all, struct process *const *processes, unsigned n, uint64_t quiet_ns, bool holders)
{
	struct world *world = all->world;

	faults_plan(&all->faults, &all->network, processes, n, RDMA_FAULTS,
		holders ? 0 : (unsigned)world_range(world, 0, 10), quiet_ns);
	if (holders) {
		holders_start(all);
		return;
	}
	if (all->count > 1 && world_chance(world, 300000)) /* somebody stands still for longer than a session */
		faults_plan_stall(&all->faults, FAULT_PAUSE, SESSION_NS);
	all->apart = (struct apart){.network = &all->network,
		.brokers = (const struct process *const *)processes,
		.count = all->count,
		.quiet_ns = quiet_ns,
		.choose = choose_apart};
	apart_plan(&all->apart);
	all->killer = (struct world_event){.fire = kill_next, .what = "killer", .outermost = true};
}

static void run(struct world *world, struct outcome *outcome, unsigned count, uint64_t quiet_ns, enum extra extra)
{
	bool hostile = extra == WITH_LIAR;
	struct rdma_sim *all = calloc(1, sizeof(*all));
	struct process *processes[RDMA_SIM_BROKERS + RDMA_SIM_CLIENTS];
	unsigned n = count + RDMA_SIM_CLIENTS;

	ensure(all != NULL);
	if (hostile)
		ensure((all->liar = calloc(1, sizeof(*all->liar))) != NULL);
	all->flushes = extra == WITH_SYNC;
	all->writes_back = all->flushes && world_chance(world, 500000);
	set_up(all, world, outcome, count);
	for (unsigned i = 0; all->writes_back && i < count; i++)
		all->brokers[i].end.host.disk->piece_bytes = PIECE_BYTES;
	for (unsigned i = 0; i < n; i++)
		processes[i] = i < count ? all->brokers[i].end.process : all->clients[i - count].end.process;
	for (unsigned i = 0; i < n; i++)
		process_start(processes[i]);
	if (hostile)
		process_start(all->liar->end.process);
	plan(all, processes, n, quiet_ns, extra == WITH_HOLDERS);
	rdma_sim_look(all);
	if (all->holders == NULL)
		world_schedule(world, &all->killer, world_range(world, 20 * NS_MS, 200 * NS_MS));
	world_run_until(world, quiet_ns);
	settle(all);
	if (count > 1)
		settle_replicas(all);
	world_cancel(world, &all->killer);
	world_cancel(world, &all->looker);
	world_cancel(world, &all->apart.event);
	tear_down(all);
}

static void run_one(struct world *world, struct outcome *outcome)
{
	run(world, outcome, 1, world_range(world, 300 * NS_MS, 1500 * NS_MS), WITH_NOTHING);
}

static void run_hostile(struct world *world, struct outcome *outcome)
{
	run(world, outcome, 1, world_range(world, 300 * NS_MS, 1500 * NS_MS), WITH_LIAR);
}

/* Of two seeds one has one broker. */
static void run_sync(struct world *world, struct outcome *outcome)
{
	if (world->seed % 2 == 0)
		run(world, outcome, 1, world_range(world, 300 * NS_MS, 1500 * NS_MS), WITH_SYNC);
	else
		run(world, outcome, 3, world_range(world, 1500 * NS_MS, 4000 * NS_MS), WITH_SYNC);
}

static void run_three(struct world *world, struct outcome *outcome)
{
	run(world, outcome, 3, world_range(world, 1500 * NS_MS, 4000 * NS_MS), WITH_NOTHING);
}

/* Of two seeds one has one broker. */
static void run_holders(struct world *world, struct outcome *outcome)
{
	run(world, outcome, world->seed % 2 == 0 ? 1 : 3, world_range(world, 3000 * NS_MS, 6000 * NS_MS), WITH_HOLDERS);
}

const struct scenario scenario_broker_rdma = {
	.name = "broker-rdma",
	.what = "a Kafka broker under one-sided producers and readers that are killed and stopped, as it is itself",
	.run = run_one,
};

const struct scenario scenario_broker_rdma_repl = {
	.name = "broker-rdma-repl",
	.only_when_named = true, /* a test of its own */
	.what = "three Kafka brokers that replicate, under one-sided producers and readers, all of which are killed",
	.run = run_three,
};

const struct scenario scenario_broker_hostile = {
	.name = "broker-hostile",
	.only_when_named = true, /* a test of its own */
	.what = "the same, of one broker, with a client that writes and says over RDMA what no client may",
	.run = run_hostile,
};

const struct scenario scenario_broker_rdma_sync = {
	.name = "broker-rdma-sync",
	.only_when_named = true, /* a test of its own */
	.what = "one-sided producers and readers of brokers with flush.messages=1 that lose their power: nothing is "
		"lost",
	.run = run_sync,
};

const struct scenario scenario_broker_holders = {
	.name = "broker-holders",
	.only_when_named = true, /* a test of its own */
	.what = "one-sided producers of one broker or three that are killed or stand still: no partition stands for "
		"long",
	.run = run_holders,
};
