/* Runs of a replicated log. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/disk.h"
#include "sim/smr/smr_changes.h"
#include "sim/smr/smr_damage.h"
#include "sim/smr/smr_gaps.h"
#include "sim/smr/smr_hits.h"
#include "smr/elect.h"
#include "smr/smr.h"

#define QUIET_NS         (1 * NS_S)
#define LIVE_NS          (8 * NS_S)
#define LIVE_DECIDED     20u
#define GAP_NS           (1 * NS_S)    /* half the budget for which a vqp without a path waits */
#define DISK_GAP_NS      (400 * NS_MS) /* twice the patience */
#define SETTLE_NS        (2 * NS_S)
#define FIRST_LEAD_NS    (500 * NS_MS)
#define FAILOVER_NS      (10 * NS_MS)  /* a NIC that repeats a packet takes 1 ms */
#define UNORDERED_NS     (20 * NS_MS)  /* added where packets overtake: the NIC repeats all behind */
#define CUT_OFF_NS       (100 * NS_MS) /* stuck, and its counter is seen to stand still over vqps that fail over */
#define FOUNDERS         3u
#define STOP_NS_MAX      (6 * NS_MS)
#define STOPPED_NS       (150 * NS_MS) /* longer than the leader's patience */
#define HOLDUP_NS        (60 * NS_MS)
#define LAPS_MAX         4u
#define NEWCOMER_NS      (300 * NS_MS)
#define LARGE_PPM        50000u
#define TORN_LARGE_PPM   600000u
#define TORN_WAIT_NS     (30 * NS_MS)
#define WAL_BYTES_MIN    (1u << 10)
#define WAL_BYTES_MAX    (64u << 10)
#define LATE_NS_MAX      (350 * NS_MS) /* of three processes beside four that compute, on two cores */
#define DAMAGES_MAX      3u
#define DAMAGE_AFTER_NS  (60 * NS_MS)
#define LATE_FOR_NS      (20 * NS_S)
#define SHARED_PULSE_NS  (50 * NS_MS)
#define SLOW_CALL_NS_MIN (3 * NS_MS)
#define SLOW_CALL_NS_MAX (30 * NS_MS)
#define HANGS_PPM        500000u
#define HANG_NS_MIN      (300 * NS_MS) /* longer than patience */
#define HANG_NS_MAX      (2500 * NS_MS)
#define SMR_FAULTS                                                                                                     \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_RAIL_DOWN) |                        \
		FAULT_BIT(FAULT_ACKS_LOST) | FAULT_BIT(FAULT_RESPONSES_LOST) | FAULT_BIT(FAULT_CONTROL_HELD) |         \
		FAULT_BIT(FAULT_CLOG) | FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) |                       \
		FAULT_BIT(FAULT_FENCE_SLOW) | FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_FENCE_FAILS))

static void set_up(struct smr_sim *sim, struct world *world, struct outcome *outcome, unsigned count)
{
	sim->world = world;
	sim->outcome = outcome;
	sim->count = sim->founders = count;
	sim->replicas = malloc(sizeof(*sim->replicas));
	ensure(sim->replicas != NULL);
	replicas_init(sim->replicas, world);
	sim->config = (struct hf_smr_config){.cluster = "sim",
		.pulse_ns = world_range(world, 200 * NS_US, 1 * NS_MS),
		.silent_ns = 60 * NS_MS,
		.stuck_ns = 60 * NS_MS,
		.patience_ns = 200 * NS_MS,
		.idle_ns = 5 * NS_MS,
		.slots = 16u << world_range(world, 0, 2),
		.slot_bytes = 256,
		.window = (uint32_t)world_range(world, 1, HF_SMR_WINDOW_MAX)};
	log_memory_init(&sim->logs, world, count, sim->config.slots, sim->config.slot_bytes, sim->config.cluster);
	sim->bytes_max = sim->config.slots / 4 * 200;
	sim->large_ppm = LARGE_PPM;
	network_init(&sim->network, world);
	sim->network.stream_limit_ns = 8 * NS_S;
	for (unsigned i = 0; i < count; i++) {
		struct smr_sim_member *member = &sim->members[i];
		const char name[2] = {(char)('a' + i), '\0'};

		member->sim = sim;
		member->id = i;
		host_init(&member->endpoint.host, world, &sim->network, name);
		smr_sim_member_init(member);
		member->endpoint.process = process_create(&member->endpoint.host, name, &smr_sim_program, member);
	}
	for (unsigned rail = 0; rail < SMR_SIM_RAILS; rail++)
		for (unsigned i = 0; i < count; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&sim->network, &sim->members[i].endpoint.host, rail, address);
		}
}

static bool all_follow(const struct smr_sim *sim)
{
	struct hf_smr_status status;
	unsigned confirmed = 0;

	for (unsigned i = 0; i < sim->count; i++) {
		if (sim->members[i].smr == NULL || !hf_smr_is_leader(sim->members[i].smr))
			continue;
		hf_smr_status(sim->members[i].smr, &status);
		for (unsigned k = 0; k < status.member_count; k++)
			confirmed += status.members[k].confirmed;
		if (sim->moving && confirmed == status.member_count)
			return true;
	}
	return confirmed == sim->count;
}

/* By the newest configuration that anybody has applied. */
static bool is_member(const struct smr_sim *sim, unsigned id)
{
	struct hf_smr_status status, newest = {0};

	if (!sim->moving)
		return true;
	for (unsigned i = 0; i < sim->count; i++)
		if (sim->members[i].smr != NULL) {
			hf_smr_status(sim->members[i].smr, &status);
			newest = status.config_index > newest.config_index ? status : newest;
		}
	for (unsigned k = 0; k < newest.member_count; k++)
		if (newest.members[k].id == id)
			return true;
	return false;
}

static void run_until_led(struct smr_sim *sim)
{
	struct world *world = sim->world;

	while (world->violations == 0 && world->now_ns < FIRST_LEAD_NS && !all_follow(sim))
		world_run_until(world, world->now_ns + 100 * NS_US);
	if (world->violations == 0 && !all_follow(sim))
		world_violate(
			world, "liveness", "not all follow a leader after %u ms", (unsigned)(FIRST_LEAD_NS / NS_MS));
	sim->working = true;
}

/* Without faults, until one of them leads. `processes`: of all members. */
static void start_founders(struct smr_sim *sim, struct process *processes[SMR_SIM_MEMBERS_MAX])
{
	for (unsigned i = 0; i < sim->count; i++)
		processes[i] = sim->members[i].endpoint.process;
	faults_plan(&sim->faults, &sim->network, processes, 0, 0, 0, QUIET_NS);
	for (unsigned i = 0; i < sim->founders; i++)
		process_start(sim->members[i].endpoint.process);
	run_until_led(sim);
}

static void run_until_alive(struct smr_sim *sim)
{
	struct world *world = sim->world;
	uint64_t limit_ns = sim->faults.quiet_ns + LIVE_NS;

	world_run_until(world, sim->faults.quiet_ns);
	while (world->violations == 0 && world->now_ns < limit_ns && sim->decided_since_quiet < LIVE_DECIDED &&
		sim->replicas->proposed < REPLICAS_OPS_MAX)
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && sim->decided_since_quiet < LIVE_DECIDED &&
		sim->replicas->proposed < REPLICAS_OPS_MAX)
		world_violate(world, "liveness", "nothing is decided after the faults have healed");
}

static bool is_settled(const struct smr_sim *sim)
{
	for (unsigned i = 0; i < sim->count; i++)
		if (sim->members[i].smr != NULL && is_member(sim, i) &&
			sim->replicas->next[i] < sim->replicas->answered_end)
			return false;
	return true;
}

static void run_until_settled(struct smr_sim *sim)
{
	struct world *world = sim->world;
	uint64_t limit_ns = world->now_ns + SETTLE_NS;

	sim->stopping = true;
	while (world->violations == 0 && world->now_ns < limit_ns && !(is_settled(sim) && all_follow(sim)))
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && !all_follow(sim))
		world_violate(world, "liveness", "a member is not taken in again after the faults have healed");
	for (unsigned i = 0; i < sim->count && world->violations == 0; i++)
		if (sim->members[i].smr != NULL && is_member(sim, i))
			replicas_settled(sim->replicas, i);
}

static void tear_down(struct smr_sim *sim)
{
	for (unsigned i = 0; i < sim->count; i++)
		host_free(&sim->members[i].endpoint.host);
	network_free(&sim->network);
	log_memory_free(&sim->logs);
	free(sim->replicas);
}

enum kind { PLAIN, DURABLE, SLOW_DISK, CLIENTS, CALM, MEMBERS, MEMBERS_DISKS, FENCED };

static void configure(struct smr_sim *sim, enum kind kind)
{
	struct world *world = sim->world;

	sim->durable = kind == DURABLE || kind == SLOW_DISK || kind == MEMBERS_DISKS;
	sim->power_only = kind == SLOW_DISK;
	sim->sessions = kind == CLIENTS;
	sim->moving = kind == MEMBERS || kind == MEMBERS_DISKS;
	if (sim->moving)
		sim->founders = FOUNDERS;
	if (sim->durable)
		sim->config.wal_bytes = world_range(world, WAL_BYTES_MIN, WAL_BYTES_MAX);
	sim->config.snapshots_pause = kind == DURABLE && sim->config.wal_bytes % 4 == 0; /* drawn already */
	if (kind == CALM)
		sim->config.pulse_ns = sim->config.silent_ns = sim->config.stuck_ns = sim->config.patience_ns =
			sim->config.idle_ns = 0;
	for (unsigned i = 0; kind == FENCED && i < sim->count; i++)
		sim->members[i].endpoint.host.caps_masked = HF_DEV_ACCESS_IN_RTS;
}

/* Nothing but a fault of a process, or of all rails to one, changes a leader. */
static void check_calm(const struct smr_sim *sim)
{
	if (sim->led != 1 || sim->aborts + sim->unknown + sim->restored != 0)
		world_violate(sim->world, "calm", "%u leaders, %u aborts, %u unknown, %u snapshots without a reason",
			sim->led, sim->aborts, sim->unknown, sim->restored);
}

static void fault_changed(struct faults *faults, const struct fault *fault, bool begins)
{
	struct smr_sim *sim = container_of(faults, struct smr_sim, faults);

	(void)fault;
	sim->faults_on += begins ? 1 : -1u;
}

/* The others decide what it does not have on its disk yet, and cover that with snapshots. */
static void slow_a_disk(struct smr_sim *sim)
{
	struct disk *disk = sim->members[world_range(sim->world, 0, sim->count - 1)].endpoint.host.disk;

	if (world_chance(sim->world, HANGS_PPM)) {
		disk->hangs_until_ns = sim->world->now_ns + world_range(sim->world, HANG_NS_MIN, HANG_NS_MAX);
		return;
	}
	disk->call_ns_min = SLOW_CALL_NS_MIN;
	disk->call_ns_max = SLOW_CALL_NS_MAX;
}

static void run(
	struct world *world, struct outcome *outcome, enum kind kind, uint32_t allowed, unsigned faults, unsigned hits)
{
	struct smr_sim *sim = calloc(1, sizeof(*sim));
	struct smr_hits plan = {0};
	struct smr_changes changes = {0};
	struct smr_gaps gaps = {0};
	struct process *processes[SMR_SIM_MEMBERS_MAX];

	ensure(sim != NULL);
	set_up(sim, world, outcome, kind == MEMBERS || kind == MEMBERS_DISKS || !world_chance(world, 700000) ? 5 : 3);
	configure(sim, kind);
	start_founders(sim, processes);
	if (faults + hits > 0)
		faults_plan(
			&sim->faults, &sim->network, processes, sim->count, allowed, faults, world->now_ns + QUIET_NS);
	if (kind == SLOW_DISK)
		slow_a_disk(sim);
	smr_hits_plan(&plan, sim, hits, sim->faults.quiet_ns);
	sim->faults.changed = fault_changed;
	if (sim->durable && !sim->moving)
		smr_gaps_watch(&gaps, sim, &plan, kind == SLOW_DISK ? DISK_GAP_NS : GAP_NS);
	if (sim->moving)
		smr_changes_begin(&changes, sim, sim->faults.quiet_ns);
	run_until_alive(sim);
	smr_gaps_end(&gaps);
	run_until_settled(sim);
	if (world->violations == 0 && ((kind == PLAIN && faults + hits == 0) || kind == CALM))
		check_calm(sim);
	if (world->violations == 0 && kind == CLIENTS && sim->repeated == 0)
		world_violate(world, "vacuous", "no request was sent again");
	if (world->violations == 0 && sim->unknown > 0 && sim->aborts == 0)
		world_violate(
			world, "vacuous", "%u requests are unknown although nobody stopped to lead", sim->unknown);
	if (world->violations == 0 && sim->logs.seen < sim->decided / HF_SMR_BATCH_MAX)
		world_violate(world, "vacuous", "the buses showed %llu slots", (unsigned long long)sim->logs.seen);
	if (world->violations == 0 && sim->moving && changes.added == 0)
		world_violate(world, "vacuous", "no member was added");
	if (world->violations == 0 && sim->logs.members.chosen_count < 1 + changes.added + changes.removed)
		world_violate(world, "vacuous", "the buses showed fewer configurations than the log has");
	outcome->failovers += sim->led - 1;
	outcome->in_doubt += plan.in_doubt;
	world_cancel(world, &changes.event);
	tear_down(sim);
	free(sim);
}

static void run_faults(struct world *world, struct outcome *outcome)
{
	run(world, outcome, PLAIN, SMR_FAULTS, (unsigned)world_range(world, 0, 5),
		(unsigned)world_range(world, 1, SMR_HITS_MAX));
}

const struct scenario scenario_smr = {
	.name = "smr",
	.what = "a replicated log of three or five members under faults of rails and processes",
	.run = run_faults,
};

static void run_fenced(struct world *world, struct outcome *outcome)
{
	run(world, outcome, FENCED, SMR_FAULTS, (unsigned)world_range(world, 0, 3),
		(unsigned)world_range(world, 1, SMR_HITS_MAX));
}

const struct scenario scenario_smr_fenced = {
	.name = "smr-fenced",
	.only_when_named = true, /* as `smr`, but for the NICs */
	.what = "a replicated log over NICs that take access by a fence: the holder before writes until that ends",
	.run = run_fenced,
};

static void run_durable(struct world *world, struct outcome *outcome)
{
	run(world, outcome, DURABLE, SMR_FAULTS, (unsigned)world_range(world, 0, 3),
		(unsigned)world_range(world, 1, SMR_HITS_MAX));
}

const struct scenario scenario_smr_durable = {
	.name = "smr-durable",
	.only_when_named = true, /* waits for disks are long */
	.what = "a replicated log on disks whose members lose power, one or all at once: what was answered is there",
	.run = run_durable,
};

static void run_slow_disk(struct world *world, struct outcome *outcome)
{
	run(world, outcome, SLOW_DISK, 0, 0, (unsigned)world_range(world, 0, SMR_HITS_MAX / 2));
}

const struct scenario scenario_smr_slow_disk = {
	.name = "smr-slow-disk",
	.only_when_named = true, /* `smr-durable` has the other faults */
	.what = "a replicated log of which one member's disk is slow; all lose power, and that member may lead then",
	.run = run_slow_disk,
};

static void run_clients(struct world *world, struct outcome *outcome)
{
	run(world, outcome, CLIENTS, SMR_FAULTS, (unsigned)world_range(world, 0, 3),
		(unsigned)world_range(world, 1, SMR_HITS_MAX));
}

const struct scenario scenario_smr_clients = {
	.name = "smr-clients",
	.only_when_named = true, /* as `smr`, but for the clients */
	.what = "a replicated log whose clients have sessions: a request that is sent again takes effect once",
	.run = run_clients,
};

static void run_members(struct world *world, struct outcome *outcome)
{
	run(world, outcome, MEMBERS, SMR_FAULTS, (unsigned)world_range(world, 0, 3),
		(unsigned)world_range(world, 0, SMR_HITS_MAX / 2));
}

const struct scenario scenario_smr_members = {
	.name = "smr-members",
	.only_when_named = true,
	.what = "a replicated log whose members are added, removed and replaced under faults",
	.run = run_members,
};

static void run_members_disks(struct world *world, struct outcome *outcome)
{
	run(world, outcome, MEMBERS_DISKS, SMR_FAULTS, (unsigned)world_range(world, 0, 3),
		(unsigned)world_range(world, 0, SMR_HITS_MAX / 2));
}

const struct scenario scenario_smr_members_disks = {
	.name = "smr-member-disks",
	.only_when_named = true,
	.what = "a replicated log on disks whose members are added, removed and replaced while hosts lose power",
	.run = run_members_disks,
};

/* Half of the runs lose a rail. */
static void run_calm(struct world *world, struct outcome *outcome)
{
	run(world, outcome, CALM, FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_PORT_DOWN) | FAULT_BIT(FAULT_RAIL_DOWN),
		(unsigned)world_range(world, 0, 1), 0);
}

const struct scenario scenario_smr_calm = {
	.name = "smr-calm",
	.only_when_named = true, /* few seeds suffice: nothing may happen */
	.what = "a replicated log with the preset `calm` under load, which may lose a rail: nobody else leads",
	.run = run_calm,
};

/* On the defaults for shared cores. Each wait for a core ends with a turn, so a heartbeat changes once in LATE_NS_MAX:
 * that is half the time after which a member has failed, and what READs find does not add up (R-S18, R-G4). */
_Static_assert(2 * LATE_NS_MAX <= SMR_ELECT_STILL * SHARED_PULSE_NS, "a member that is late has not failed");
static void run_late(struct world *world, struct outcome *outcome)
{
	struct smr_sim *sim = calloc(1, sizeof(*sim));
	struct process *processes[SMR_SIM_MEMBERS_MAX];

	ensure(sim != NULL);
	set_up(sim, world, outcome, 3);
	configure(sim, CALM);
	sim->config.cores = HF_CORES_SHARED;
	start_founders(sim, processes);
	world->late_ns_max = LATE_NS_MAX;
	world_run_until(world, world->now_ns + LATE_FOR_NS);
	world->late_ns_max = 0;
	run_until_alive(sim);
	run_until_settled(sim);
	if (world->violations == 0 && sim->led != 1)
		world_violate(world, "late", "%u members led in turn, and none had failed", sim->led);
	for (unsigned i = 0; i < SMR_SIM_MEMBERS_MAX; i++)
		endpoint_check_calm(world, sim->members[i].endpoint.node);
	outcome->failovers += sim->led - 1;
	tear_down(sim);
	free(sim);
}

const struct scenario scenario_smr_late = {
	.name = "smr-late",
	.only_when_named = true, /* few seeds suffice: nothing may happen */
	.what = "a replicated log on busy machines, whose members wait for a core now and then: nobody else leads",
	.run = run_late,
};

static void run_damage(struct world *world, struct outcome *outcome)
{
	struct smr_sim *sim = calloc(1, sizeof(*sim));
	struct process *processes[SMR_SIM_MEMBERS_MAX];
	unsigned rounds = (unsigned)world_range(world, 1, DAMAGES_MAX), damaged = 0;

	ensure(sim != NULL);
	set_up(sim, world, outcome, 3);
	configure(sim, DURABLE);
	start_founders(sim, processes);
	for (unsigned i = 0; i < rounds && world->violations == 0; i++) {
		world_run_until(world, world->now_ns + world_range(world, NS_MS, DAMAGE_AFTER_NS));
		damaged += smr_damage_round(sim);
	}
	sim->faults.quiet_ns = world->now_ns;
	run_until_alive(sim);
	run_until_settled(sim);
	if (world->violations == 0 && damaged == 0)
		world_violate(world, "vacuous", "no file was damaged");
	outcome->failovers += sim->led - 1;
	tear_down(sim);
	free(sim);
}

const struct scenario scenario_smr_damage = {
	.name = "smr-damage",
	.only_when_named = true, /* `smr-durable` has the other faults */
	.what = "a replicated log of which a byte on a disk changes: that member has no vote, and nothing is lost",
	.run = run_damage,
};

static void run_plain(struct world *world, struct outcome *outcome)
{
	run(world, outcome, PLAIN, 0, 0, 0);
}

const struct scenario scenario_smr_plain = {
	.name = "smr-plain",
	.only_when_named = true, /* `smr` has its worlds, and faults */
	.what = "a replicated log of three or five members without faults: one leader, everything decided",
	.run = run_plain,
};

/* ---- how long nobody leads ---- */

static unsigned leader_but(const struct smr_sim *sim, unsigned stopped)
{
	for (unsigned i = 0; i < sim->count; i++)
		if (i != stopped && hf_smr_is_leader(sim->members[i].smr))
			return i;
	return SMR_SIM_MEMBERS_MAX;
}

static void switch_writes(struct smr_sim *sim, unsigned id, int by)
{
	for (unsigned i = 0; i < sim->network.port_count; i++)
		if (sim->network.ports[i].host == &sim->members[id].endpoint.host)
			sim->network.ports[i].writes_lost += (unsigned)by;
}

/* Soon after the cluster was founded the leader stands still: its counter is read, and does not change. Or it is cut
 * off towards its followers only: its counter is read, but no entry of it arrives (R-S19). */
static void stop_leader(struct smr_sim *sim, bool cut_off)
{
	struct world *world = sim->world;
	unsigned stopped = leader_but(sim, SMR_SIM_MEMBERS_MAX);
	uint64_t from_ns = world->now_ns, limit_ns = from_ns + (cut_off ? CUT_OFF_NS : FAILOVER_NS) +
						     (sim->network.unordered ? UNORDERED_NS : 0);

	if (cut_off)
		switch_writes(sim, stopped, 1);
	else
		process_pause(sim->members[stopped].endpoint.process, false);
	while (world->violations == 0 && world->now_ns < limit_ns && leader_but(sim, stopped) == SMR_SIM_MEMBERS_MAX)
		world_run_until(world, world->now_ns + 10 * NS_US);
	world_trace(world, "  another member leads after %.3f ms", (double)(world->now_ns - from_ns) / 1e6);
	if (world->violations == 0 && leader_but(sim, stopped) == SMR_SIM_MEMBERS_MAX)
		world_violate(world, "failover", "nobody leads %.1f ms after member %u %s",
			(double)(world->now_ns - from_ns) / 1e6, stopped,
			cut_off ? "was cut off towards its followers" : "stopped");
	if (cut_off)
		switch_writes(sim, stopped, -1);
	else
		process_resume(sim->members[stopped].endpoint.process);
}

static void stop_or_cut_leader(struct smr_sim *sim)
{
	stop_leader(sim, world_chance(sim->world, 300000));
}

/* A follower stands still: its log is full soon, and the leader does not wait until its patience ends. */
static void stop_follower(struct smr_sim *sim)
{
	struct world *world = sim->world;
	unsigned stopped = leader_but(sim, SMR_SIM_MEMBERS_MAX) == 0 ? 1 : 0;
	uint64_t end_ns = world->now_ns + STOPPED_NS, since_ns = world->now_ns;

	process_pause(sim->members[stopped].endpoint.process, false);
	while (world->violations == 0 && world->now_ns < end_ns) {
		uint32_t before = sim->decided;

		world_run_until(world, world->now_ns + NS_MS);
		if (sim->decided != before)
			since_ns = world->now_ns;
		if (world->now_ns - since_ns > HOLDUP_NS)
			world_violate(world, "holdup", "nothing is decided for %.1f ms, since member %u stopped",
				(double)(world->now_ns - since_ns) / 1e6, stopped);
	}
	process_resume(sim->members[stopped].endpoint.process);
}

/* `leaders`: how many lead in turn, without another reason (R-S17); 0: any number. */
static void run_stop(struct world *world, struct outcome *outcome, unsigned count, void (*stop)(struct smr_sim *sim),
	unsigned leaders)
{
	struct smr_sim *sim = calloc(1, sizeof(*sim));
	struct process *processes[SMR_SIM_MEMBERS_MAX];

	ensure(sim != NULL);
	set_up(sim, world, outcome, count);
	sim->config.preset = HF_SMR_FAST;
	sim->config.pulse_ns = sim->config.silent_ns = sim->config.stuck_ns = sim->config.patience_ns =
		sim->config.idle_ns = 0;
	start_founders(sim, processes);
	if (world->violations == 0) {
		world_run_until(world, world->now_ns + world_range(world, NS_MS, STOP_NS_MAX));
		stop(sim);
	}
	sim->faults.quiet_ns = world->now_ns;
	run_until_alive(sim);
	run_until_settled(sim);
	if (world->violations == 0 && leaders != 0 && sim->led != leaders)
		world_violate(world, "stay", "%u members led in turn, and %u had a reason", sim->led, leaders);
	outcome->failovers += sim->led - 1;
	tear_down(sim);
	free(sim);
}

static unsigned three_or_five(struct world *world)
{
	return world_chance(world, 700000) ? 3 : 5;
}

static void run_failover(struct world *world, struct outcome *outcome)
{
	run_stop(world, outcome, three_or_five(world), stop_or_cut_leader, 2);
}

const struct scenario scenario_smr_failover = {
	.name = "smr-failover",
	.what = "a replicated log whose leader stops, or cannot write, with the preset `fast`: another one leads soon",
	.run = run_failover,
};

static void run_holdup(struct world *world, struct outcome *outcome)
{
	run_stop(world, outcome, three_or_five(world), stop_follower, 1);
}

const struct scenario scenario_smr_holdup = {
	.name = "smr-holdup",
	.only_when_named = true,
	.what = "a replicated log whose follower stops, with the preset `fast` and a small ring: the leader goes on",
	.run = run_holdup,
};

/* ---- a snapshot while the ring goes round ---- */

static bool may_go_on(const struct world *world, uint64_t limit_ns)
{
	return world->violations == 0 && world->now_ns < limit_ns;
}

/* A process takes a member's place, and what is decided while its snapshot is read is more than a ring holds. */
static void replace_follower(struct smr_sim *sim)
{
	struct world *world = sim->world;
	struct smr_sim_member *member;
	uint64_t end_ns = world->now_ns + NEWCOMER_NS;
	uint32_t before;

	while (may_go_on(world, end_ns) &&
		!all_follow(sim)) /* where one was left behind, the leader has a reason to end */
		world_run_until(world, world->now_ns + 10 * NS_US);
	member = &sim->members[leader_but(sim, SMR_SIM_MEMBERS_MAX) == 0 ? 1 : 0];
	sim->laps = (unsigned)world_range(world, 1, LAPS_MAX);
	before = sim->restored; /* by members that were left behind */
	process_crash(member->endpoint.process);
	process_start(member->endpoint.process);
	while (world->violations == 0 && world->now_ns < end_ns && (sim->restored == before || !all_follow(sim)))
		world_run_until(world, world->now_ns + NS_MS);
	if (sim->restored != before + 1 || !all_follow(sim))
		world_violate(world, "newcomer", "member %u has taken %u snapshots, and does %s", member->id,
			sim->restored - before, all_follow(sim) ? "follow" : "not follow yet");
}

static void run_newcomer(struct world *world, struct outcome *outcome)
{
	run_stop(world, outcome, three_or_five(world), replace_follower, 1);
}

const struct scenario scenario_smr_newcomer = {
	.name = "smr-newcomer",
	.only_when_named = true, /* few seeds suffice */
	.what = "a replicated log whose ring goes round while a newcomer takes a snapshot: one is enough",
	.run = run_newcomer,
};

/* ---- a WRITE that is torn between two slots ---- */

static void cut_off(struct smr_sim *sim, unsigned id, int by)
{
	for (unsigned i = 0; i < sim->network.port_count; i++)
		if (sim->network.ports[i].host == &sim->members[id].endpoint.host)
			sim->network.ports[i].cut_rx += (unsigned)by;
}

/* Slots that this leader has in the log of that member, behind the last one that was decided when it began. */
static unsigned slots_of(const struct smr_sim *sim, unsigned leader, unsigned id)
{
	const struct hf_smr *smr = sim->members[leader].smr;
	struct smr_slot slot;
	unsigned n = 0;

	for (uint64_t i = smr->noop_index; i < smr->tail; i++)
		n += smr_own_slot(sim->members[id].smr, i, &slot) == SMR_SLOT_VALID &&
		     smr_slot_number(&slot) == smr->number;
	return n;
}

/* The first leader leaves entries in its log that no other log has. The third member stops once the second one leads,
 * so the entries of that one are undecided. A part of them reaches the first leader, over its own entries. Then the
 * first and the third member decide what is there. */
static void tear_entry(struct smr_sim *sim)
{
	struct world *world = sim->world;
	unsigned first = leader_but(sim, SMR_SIM_MEMBERS_MAX), second, third;
	const struct hf_smr *smr = sim->members[first].smr;
	uint64_t limit_ns = world->now_ns + TORN_WAIT_NS;

	sim->large_ppm = TORN_LARGE_PPM;
	switch_writes(sim, first, 1);
	while (smr->tail - smr->commit <= smr->geometry.span / 2 && may_go_on(world, limit_ns))
		world_run_until(world, world->now_ns + NS_US);
	process_pause(sim->members[first].endpoint.process, true);
	switch_writes(sim, first, -1);
	while ((second = leader_but(sim, first)) == SMR_SIM_MEMBERS_MAX && may_go_on(world, limit_ns))
		world_run_until(world, world->now_ns + NS_US / 10);
	if (second == SMR_SIM_MEMBERS_MAX)
		return;
	third = 3 - first - second;
	process_pause(sim->members[third].endpoint.process, true);
	world_run_until(world, world->now_ns + 100 * NS_US);
	process_resume(sim->members[first].endpoint.process);
	while (slots_of(sim, second, first) < 2 && may_go_on(world, limit_ns))
		world_run_until(world, world->now_ns + NS_US / 10);
	world_trace(world, "  member %u has %u of %u slots of member %u", first, slots_of(sim, second, first),
		(unsigned)(sim->members[second].smr->tail - sim->members[second].smr->noop_index), second);
	cut_off(sim, first, 1);
	process_pause(sim->members[second].endpoint.process, true);
	world_run_until(world, world->now_ns + NS_MS);
	cut_off(sim, first, -1);
	process_resume(sim->members[third].endpoint.process);
	network_healed(&sim->network);
	while (leader_but(sim, second) == SMR_SIM_MEMBERS_MAX && may_go_on(world, limit_ns + TORN_WAIT_NS))
		world_run_until(world, world->now_ns + NS_US);
	process_resume(sim->members[second].endpoint.process);
}

static void run_torn(struct world *world, struct outcome *outcome)
{
	run_stop(world, outcome, 3, tear_entry, 0);
}

const struct scenario scenario_smr_torn = {
	.name = "smr-torn",
	.only_when_named = true, /* few worlds have what it looks for */
	.what = "a replicated log whose leaders stop in turn, one in mid-WRITE, over entries that nobody decided",
	.run = run_torn,
};
