/* Brokers under faults: the runs, and the verdict. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/broker/brokers.h"
#include "sim/broker/groups.h"
#include "sim/broker/split.h"
#include "sim/checkers/replica_files.h"
#include "sim/endpoint.h"

#define LIVE_NS      (20 * NS_S)
#define LIVE_BATCHES 5u
#define KILL_NS_MAX  (200 * NS_MS)
#define WORK_NS_MAX  (300 * NS_US)
#define DOWN_NS_MAX  (60 * NS_MS)
#define LATE_NS_MAX  (350 * NS_MS) /* of three processes beside four that compute, on two cores */
#define LATE_FOR_NS  (20 * NS_S)
#define POWER_SEEDS  3u /* of so many seeds one has losses of power instead of kills */
#define BROKER_FAULTS                                                                                                  \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_DELAY) |           \
		FAULT_BIT(FAULT_CLOG) | FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) |                       \
		FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_CONTROL_HELD))
#define RAIL_FAULTS                                                                                                    \
	(BROKER_FAULTS | FAULT_BIT(FAULT_PORT_DOWN) | FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) |                  \
		FAULT_BIT(FAULT_DUPLICATE) | FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) |                        \
		FAULT_BIT(FAULT_RAIL_DOWN) | FAULT_BIT(FAULT_ACKS_LOST) | FAULT_BIT(FAULT_FENCE_SLOW) |                \
		FAULT_BIT(FAULT_NIC_CRASH))

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
	sim_client_address(i, address);
	host_init(&client->host, all->world, &all->network, name);
	client->process = process_create(&client->host, name, &sim_client_program, client);
	network_add_port(&all->network, &client->host, 0, address);
}

enum extra { WITH_NOTHING, WITH_GROUP, WITH_OUR_GROUP, WITH_SYNC, WITH_SPLITS, WITH_SHARED_CORES };

static void set_up(
	struct broker_sim *all, struct world *world, struct outcome *outcome, unsigned count, enum extra extra)
{
	static const char *const names[SIM_BROKER_PARTITIONS] = {"t-0", "t-1"};

	all->world = world;
	all->outcome = outcome;
	all->flushes = extra == WITH_SYNC;
	all->splits = extra == WITH_SPLITS;
	all->shared = extra == WITH_SHARED_CORES;
	all->rails = count > 1 || extra == WITH_OUR_GROUP;
	network_init(&all->network, world);
	all->network.stream_limit_ns = 2 * NS_S;
	sim_brokers_set_up(all, count);
	for (unsigned i = 0; i < SIM_BROKER_PARTITIONS; i++)
		partition_account_init(&all->accounts[i], world, names[i]);
	for (unsigned i = 0; i < SIM_BROKER_CLIENTS; i++)
		set_up_client(all, i);
	if (extra == WITH_GROUP || extra == WITH_OUR_GROUP)
		sim_group_set_up(all, extra == WITH_GROUP ? SIM_GROUP_STOCK : SIM_GROUP_OURS);
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
	for (unsigned i = 0; i < all->count; i++) {
		struct sim_broker *broker = &all->brokers[i];

		if (broker->host_stopped)
			host_start(&broker->host);
		else if (broker->killed)
			process_start(broker->process);
		broker->host_stopped = broker->killed = false;
	}
}

static bool picks_power(const struct broker_sim *all)
{
	if (all->count > 1)
		return world_chance(all->world, 400000);
	/* What a group read is not there any more when the one broker has lost its power. */
	return all->flushes || (all->group == NULL && all->world->seed % POWER_SEEDS == 0);
}

static void kill_process(struct sim_broker *broker)
{
	world_count_fault(broker->all->world, FAULT_PROCESS_CRASH);
	sim_broker_count(broker);
	broker->killed = true;
	process_crash(broker->process);
}

static void stop_host(struct sim_broker *broker)
{
	world_count_fault(broker->all->world, FAULT_HOST_STOP);
	sim_broker_count(broker);
	broker->host_stopped = true;
	host_stop(&broker->host);
}

static void kill_now(struct broker_sim *all, struct sim_broker *broker)
{
	bool power = picks_power(all);

	all->outcome->in_doubt++;
	all->down = true;
	if (!power) {
		kill_process(broker);
		return;
	}
	stop_host(broker);
	if (all->count > 1 || all->flushes)
		return; /* the others, or its disk, have it all */
	all->losses++;
	for (unsigned i = 0; i < SIM_BROKER_PARTITIONS; i++)
		partition_lost(&all->accounts[i]);
}

static void list_brokers(const struct broker_sim *all, const struct broker *brokers[SIM_BROKERS_MAX])
{
	for (unsigned i = 0; i < all->count; i++)
		brokers[i] = all->brokers[i].broker;
}

static bool all_are_whole(const struct broker_sim *all)
{
	const struct broker *brokers[SIM_BROKERS_MAX];

	list_brokers(all, brokers);
	return sim_brokers_are_whole(brokers, all->count, SIM_BROKER_TOPIC) &&
	       (all->group == NULL || sim_brokers_are_whole(brokers, all->count, GROUPS_TOPIC));
}

/* Of several brokers one at a time, once every replica is in sync again: the controller's log, and what one replica
 * has, live in the memory of a majority. */
static bool may_kill(const struct broker_sim *all, const struct sim_broker *broker)
{
	return broker->process->running && !broker->process->paused && has_work(all) &&
	       (all->count == 1 || (all_are_whole(all) && !all->nic_dead && all->apart.broker == NULL));
}

/* A broker whose NIC has died is started anew: it is the one that is out. */
static bool may_begin(const struct faults *faults, const struct fault *fault)
{
	const struct broker_sim *all = container_of(faults, const struct broker_sim, faults);

	return fault->kind != FAULT_NIC_CRASH || all->count == 1 ||
	       (!all->down && !all->nic_dead && all->apart.broker == NULL);
}

static void fault_changed(struct faults *faults, const struct fault *fault, bool begins)
{
	if (fault->kind == FAULT_NIC_CRASH)
		container_of(faults, struct broker_sim, faults)->nic_dead = begins;
}

/* All at once, whoever is in sync: the disks have it, or the memory of the hosts. */
static bool kill_all(struct broker_sim *all)
{
	bool power = all->flushes && world_chance(all->world, 500000);

	if (all->count == 1 || !has_work(all) || !world_chance(all->world, 300000))
		return false;
	for (unsigned i = 0; i < all->count; i++)
		if (!all->brokers[i].process->running || all->brokers[i].process->paused)
			return false;
	for (unsigned i = 0; i < all->count; i++)
		(power ? stop_host : kill_process)(&all->brokers[i]);
	all->outcome->in_doubt++;
	return all->down = true;
}

static void kill_next(struct world_event *event)
{
	struct broker_sim *all = container_of(event, struct broker_sim, killer);
	struct world *world = all->world;
	uint64_t next_ns = all->count > 1 ? 4 * KILL_NS_MAX : KILL_NS_MAX;

	if (all->down) {
		start_again(all);
	} else if (world->now_ns < all->faults.quiet_ns && kill_all(all)) {
		next_ns = NS_S;
	} else if (world->now_ns < all->faults.quiet_ns) {
		struct sim_broker *broker = &all->brokers[all->count > 1 ? world_range(world, 0, all->count - 1) : 0];

		if (!may_kill(all, broker)) {
			next_ns = WORK_NS_MAX; /* until something is in doubt */
		} else {
			kill_now(all, broker);
			next_ns = all->count > 1 ? NS_S : DOWN_NS_MAX;
		}
	}
	if (all->down || world->now_ns < all->faults.quiet_ns)
		world_schedule(world, event, world->now_ns + world_range(world, NS_US, next_ns));
}

/* ---- a broker apart ---- */

/* The coordinator of the group, or one that leads a partition. */
static struct process *choose_apart(struct apart *apart)
{
	struct broker_sim *all = container_of(apart, struct broker_sim, apart);
	const struct broker *brokers[SIM_BROKERS_MAX];
	int at;

	list_brokers(all, brokers);
	at = sim_brokers_leading(brokers, all->count, all->group != NULL ? GROUPS_TOPIC : SIM_BROKER_TOPIC);
	if (at < 0 || all->down || all->nic_dead || !all_are_whole(all) || all->brokers[at].process->paused)
		return NULL;
	return all->brokers[at].process;
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
	if (all->group != NULL && all->world->violations == 0)
		run_until(all, sim_group_is_at_end, "the group did not come to the end");
}

/* The logs on the disks, once nothing is written any more. */
static bool all_are_equal(const struct broker_sim *all)
{
	struct process *processes[SIM_BROKERS_MAX];

	for (unsigned i = 0; i < all->count; i++)
		processes[i] = all->brokers[i].process;
	return replica_files_equal(processes, all->count, "logs", SIM_BROKER_TOPIC, SIM_BROKER_PARTITIONS);
}

static void settle_replicas(struct broker_sim *all)
{
	if (all->count == 1)
		return;
	run_until(all, all_are_whole, "a replica did not come into sync");
	if (all->world->violations == 0)
		run_until(all, all_are_equal, "replicas have different logs on their disks");
}

/* What goes wrong, and when. */
static void plan(struct broker_sim *all, struct process *const *processes, unsigned n, uint64_t quiet_ns)
{
	struct world *world = all->world;

	faults_plan(&all->faults, &all->network, processes, n, all->rails ? RAIL_FAULTS : BROKER_FAULTS,
		all->splits ? 0 : (unsigned)world_range(world, 0, 6), quiet_ns);
	if (all->splits) {
		split_start(all);
		return;
	}
	all->faults.may_begin = may_begin;
	all->faults.changed = fault_changed;
	if ((all->count > 1 || all->group != NULL) && world_chance(world, 300000)) /* for longer than a session */
		faults_plan_stall(&all->faults, FAULT_PAUSE, 500 * NS_MS);
	all->killer = (struct world_event){.fire = kill_next, .what = "killer", .outermost = true};
	world_schedule(world, &all->killer, world_range(world, 20 * NS_MS, 200 * NS_MS));
	if (all->group != NULL)
		sim_group_start(all);
	all->apart = (struct apart){.network = &all->network,
		.brokers = (const struct process *const *)processes,
		.count = all->count,
		.quiet_ns = quiet_ns,
		.choose = choose_apart};
	apart_plan(&all->apart);
}

static void free_all(struct broker_sim *all)
{
	for (unsigned i = 0; i < all->count; i++)
		host_free(&all->brokers[i].host);
	for (unsigned i = 0; i < SIM_BROKER_CLIENTS; i++)
		host_free(&all->clients[i].host);
	network_free(&all->network);
	free(all);
}

static void run_brokers(
	struct world *world, struct outcome *outcome, unsigned count, uint64_t quiet_ns, enum extra extra)
{
	struct broker_sim *all = calloc(1, sizeof(*all));
	struct process *processes[SIM_BROKERS_MAX + SIM_BROKER_CLIENTS + SIM_MEMBERS];
	unsigned n = 0;

	ensure(all != NULL);
	set_up(all, world, outcome, count, extra);
	for (unsigned i = 0; i < count; i++)
		processes[n++] = all->brokers[i].process;
	for (unsigned i = 0; i < SIM_BROKER_CLIENTS; i++)
		processes[n++] = all->clients[i].process;
	for (unsigned i = 0; all->group != NULL && i < SIM_MEMBERS; i++)
		processes[n++] = all->group->processes[i];
	for (unsigned i = 0; i < n; i++)
		process_start(processes[i]);
	plan(all, processes, n, quiet_ns);
	world_run_until(world, quiet_ns);
	settle(all);
	settle_replicas(all);
	world_cancel(world, &all->killer);
	world_cancel(world, &all->apart.event);
	split_end(all);
	for (unsigned i = 0; i < count; i++)
		sim_broker_count(&all->brokers[i]);
	outcome->failovers += count > 1 && all->led > SIM_BROKER_PARTITIONS ? all->led - SIM_BROKER_PARTITIONS : 0;
	outcome->truncated += all->truncations;
	if (all->group != NULL)
		sim_group_free(all);
	free_all(all);
}

/* ---- late ---- */

static const struct controller_partition *known(const struct broker_sim *all, unsigned partition)
{
	return &controller_find(&all->brokers[0].broker->controller, request_text(SIM_BROKER_TOPIC))->at[partition];
}

/* No leader and no isr changes, and nobody else leads the controller. */
static void wait_for_cores(struct broker_sim *all)
{
	struct world *world = all->world;
	int32_t epochs[SIM_BROKER_PARTITIONS], now;
	bool leads[SIM_BROKERS_MAX];

	for (unsigned i = 0; i < SIM_BROKER_PARTITIONS; i++)
		epochs[i] = known(all, i)->epoch;
	for (unsigned i = 0; i < all->count; i++)
		leads[i] = all->brokers[i].broker->quorum.leads;
	world->late_ns_max = LATE_NS_MAX;
	world_run_until(world, world->now_ns + LATE_FOR_NS);
	world->late_ns_max = 0;
	world_run_until(world, world->now_ns + LATE_NS_MAX);
	for (unsigned i = 0; i < SIM_BROKER_PARTITIONS; i++)
		if ((now = known(all, i)->epoch) != epochs[i])
			world_violate(world, "late",
				"partition %u has epoch %d, no longer %d, and no broker had failed", i, now, epochs[i]);
	for (unsigned i = 0; i < all->count; i++)
		endpoint_check_calm(world, all->brokers[i].node);
	for (unsigned i = 0; i < all->count; i++)
		if (all->brokers[i].broker->quorum.leads != leads[i])
			world_violate(world, "late",
				"another broker leads the controller than broker %u, which had not failed",
				leads[i] ? i + 1 : 0);
}

static void run_late(struct world *world, struct outcome *outcome)
{
	struct broker_sim *all = calloc(1, sizeof(*all));

	ensure(all != NULL);
	set_up(all, world, outcome, SIM_BROKERS_MAX, WITH_SHARED_CORES);
	for (unsigned i = 0; i < all->count; i++)
		process_start(all->brokers[i].process);
	run_until(all, all_are_whole, "a replica did not come into sync");
	for (unsigned i = 0; i < SIM_BROKER_CLIENTS; i++)
		process_start(all->clients[i].process);
	if (world->violations == 0)
		wait_for_cores(all);
	for (unsigned i = 0; i < all->count; i++)
		sim_broker_count(&all->brokers[i]);
	free_all(all);
}

static void run_one(struct world *world, struct outcome *outcome)
{
	run_brokers(world, outcome, 1, world_range(world, 300 * NS_MS, 1500 * NS_MS), WITH_NOTHING);
}

static void run_three(struct world *world, struct outcome *outcome)
{
	run_brokers(world, outcome, 3, world_range(world, 1500 * NS_MS, 6000 * NS_MS), WITH_NOTHING);
}

/* Of two seeds one has one broker. */
static void run_group(struct world *world, struct outcome *outcome)
{
	run_brokers(world, outcome, world->seed % 2 == 0 ? 1 : 3, world_range(world, 1500 * NS_MS, 5000 * NS_MS),
		WITH_GROUP);
}

/* Likewise. */
static void run_our_group(struct world *world, struct outcome *outcome)
{
	run_brokers(world, outcome, world->seed % 2 == 0 ? 1 : 3, world_range(world, 1500 * NS_MS, 5000 * NS_MS),
		WITH_OUR_GROUP);
}

/* Likewise. */
static void run_sync(struct world *world, struct outcome *outcome)
{
	run_brokers(world, outcome, world->seed % 2 == 0 ? 1 : 3, world_range(world, 1000 * NS_MS, 4000 * NS_MS),
		WITH_SYNC);
}

static void run_isr(struct world *world, struct outcome *outcome)
{
	run_brokers(world, outcome, 3, world_range(world, 2000 * NS_MS, 6000 * NS_MS), WITH_SPLITS);
}

const struct scenario scenario_broker_one = {
	.name = "broker-one",
	.what = "a Kafka broker that is killed and loses its power, with producers and readers over TCP",
	.run = run_one,
};

const struct scenario scenario_broker_repl = {
	.name = "broker-repl",
	.only_when_named = true, /* a test of its own */
	.what = "three Kafka brokers that replicate, are killed, stand still and lose their power",
	.run = run_three,
};

const struct scenario scenario_broker_group = {
	.name = "broker-group",
	.only_when_named = true, /* a test of its own */
	.what = "a consumer group at one Kafka broker or three; members are killed, stand still and leave, brokers too",
	.run = run_group,
};

const struct scenario scenario_broker_our_group = {
	.name = "broker-our-group",
	.only_when_named = true, /* a test of its own */
	.what = "the same with consumers of our library as members, over RDMA and TCP",
	.run = run_our_group,
};

const struct scenario scenario_broker_sync = {
	.name = "broker-sync",
	.only_when_named = true, /* a test of its own */
	.what = "a Kafka broker or three with flush.messages=1 that lose their power, one or all at once: nothing is "
		"lost",
	.run = run_sync,
};

const struct scenario scenario_broker_isr = {
	.name = "broker-isr",
	.only_when_named = true, /* a test of its own */
	.what = "three Kafka brokers whose leader one follower cannot reach, and is killed then",
	.run = run_isr,
};

const struct scenario scenario_broker_late = {
	.name = "broker-late",
	.only_when_named = true, /* few seeds suffice: nothing may happen */
	.what = "three Kafka brokers on busy machines, which wait for a core now and then: no leader and no isr "
		"changes",
	.run = run_late,
};
