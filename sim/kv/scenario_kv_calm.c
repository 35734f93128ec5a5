/* One fault while all is well, at the defaults, in virtual time: only the protocol counts.
 *
 *   kv-failover   a member's process is killed: how long the others answer no write
 *   kv-late       all members wait for a core, for hundreds of milliseconds, again and again: nobody is excluded
 *   kv-takeovers  the same with a lease that lasts longer than any member decides who is one
 *   kv-leave      a member leaves, or its process is killed and replaced at once: nobody waits for the end of its lease
 *   kv-rails      one rail of a member after the other is cut silently: the epoch stays, and no operation fails
 *   kv-device     the device of one rail of a member dies: the member stays, and the list of members changes as before
 *   kv-room       a member's disk is full for a while: all members refuse SETs meanwhile, and answer them afterwards
 *   kv-hang       a member's disk hangs for a while: the others write without it; or the disks of all hang */
#include <stdlib.h>

#include "base/ensure.h"
#include "kv/engine.h"
#include "sim/device.h"
#include "sim/disk.h"
#include "sim/kv/kv.h"

#define LEASE_NS  (100 * NS_MS) /* the default, as all that follows */
#define BUDGET_NS (5 * NS_S)
#define REPLAY_NS (50 * NS_MS)
#define MORE_NS   (20 * NS_MS) /* than a lease, in which writes go on (K6) */
#define BEGIN_NS  (12 * NS_S)
#define CALM_NS   (100 * NS_MS) /* at least, before the kill */
#define AFTER_NS  (2 * LEASE_NS)
/* The election of the log comes first where who decided is killed. Silence alone is noticed after half a lease. */
#define NOTICE_NS (2 * LEASE_NS / 5)

#define LONG_LEASE_NS (1 * NS_S)
#define DECIDES_NS    (100 * NS_MS) /* at least, before it stands still */
#define STANDS_NS     (40 * NS_MS)  /* at least: another one decides */

#define LATE_NS_MAX (350 * NS_MS) /* of three processes beside four that compute, on two cores */
#define LATE_FOR_NS (10 * NS_S)

#define LEAVES  4u
#define AWAY_NS (200 * NS_MS) /* at most */
/* Without an answered write, at most: a quarter of a lease when a member leaves; three of them when it is killed,
 * perhaps while it decides who is a member, and replaced. */
#define LEAVE_NS   (25 * NS_MS)
#define REPLACE_NS (75 * NS_MS)
#define LOOK_NS    (100 * NS_US)
#define RETURN_NS  (10 * NS_S)
#define SOON_NS    (10 * NS_MS)

#define CUTS    4u
#define CUT_NS  (300 * NS_MS) /* three leases, at most */
#define MEND_NS (300 * NS_MS) /* until the rail carries data again */

#define DEVICE_NS (1 * NS_S)      /* until a replica is there in place of the one that was lost with the device */
#define RETRY_NS  (20 * LEASE_NS) /* until it is tried again */

#define HANG_NS  (3 * NS_S)                          /* at least */
#define HANGS_NS (2 * NS_S + 2 * LEASE_NS + MORE_NS) /* without an answered write then, at most */

#define FREE_BYTES_MIN (1u << 20)  /* of a full disk: what was begun finds room there */
#define FREE_BYTES_MAX (64u << 20) /* less than two segments */

void kv_calm_set_up(
	struct kv_cluster *all, struct world *world, struct outcome *outcome, uint64_t lease_ns, enum kv_keep least)
{
	all->world = world;
	all->outcome = outcome;
	all->count = world_chance(world, 700000) ? 3 : 5;
	all->lease_ns = lease_ns;
	all->op_budget_ns = BUDGET_NS;
	all->replay_ns = REPLAY_NS;
	all->keep = (enum kv_keep)world_range(world, least, KV_KEEP_FILE);
	all->standard = true;
	kv_nodes_make(all);
}

static bool decides(const struct kv_cluster *all, unsigned i)
{
	struct hf_kv_status status;

	hf_kv_status(all->nodes[i].kv, &status);
	return status.decides;
}

/* By turns the member that decides who is one, and another. */
static unsigned pick_victim(struct kv_cluster *all)
{
	unsigned victim = (unsigned)world_range(all->world, 0, all->count - 1);

	while (decides(all, victim) != (all->world->seed % 2 == 0))
		victim = (victim + 1) % all->count;
	return victim;
}

/* The end of the longest time without an answered write at any other member. */
static uint64_t last_gap_end(const struct kv_cluster *all, unsigned victim)
{
	const struct kv_node *longest = NULL;

	for (unsigned i = 0; i < all->count; i++)
		if (i != victim && (longest == NULL || all->nodes[i].gap_ns > longest->gap_ns))
			longest = &all->nodes[i];
	return longest->gap_end_ns;
}

static void forget_gaps(struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		all->nodes[i].gap_ns = 0;
}

static void kill_one(struct kv_cluster *all, unsigned victim)
{
	forget_gaps(all);
	world_count_fault(all->world, FAULT_PROCESS_CRASH);
	process_crash(all->nodes[victim].endpoint.process);
}

/* Whoever decides has proposed it, and all others have applied it (R-G5). */
static bool is_suspected(const struct kv_cluster *all, unsigned victim)
{
	for (unsigned i = 0; i < all->count; i++)
		if (i != victim && all->nodes[i].kv->cm.nodes[victim].suspicion == 0)
			return false;
	return true;
}

static void kill_in_calm(struct kv_cluster *all)
{
	struct world *world = all->world;
	unsigned victim = pick_victim(all);
	bool decider = decides(all, victim);
	uint64_t killed_ns = world->now_ns, took_ns;

	kill_one(all, victim);
	world_run_until(world, killed_ns + NOTICE_NS);
	if (!is_suspected(all, victim))
		world_violate(world, "detection", "%s was killed, and is not suspected %.1f ms after that",
			all->nodes[victim].endpoint.host.name, (double)NOTICE_NS / 1e6);
	world_run_until(world, killed_ns + AFTER_NS);
	for (unsigned i = 0; i < all->count; i++)
		if (i != victim && all->nodes[i].written_ns < killed_ns + LEASE_NS)
			world_violate(world, "failover", "%s has answered no write since the kill",
				all->nodes[i].endpoint.host.name);
	took_ns = last_gap_end(all, victim) - killed_ns;
	world_note(world, "kv-failover", took_ns);
	if (took_ns > LEASE_NS + MORE_NS)
		world_violate(world, "failover", "writes went on %.1f ms after %s was killed, which %s who is a member",
			(double)took_ns / 1e6, all->nodes[victim].endpoint.host.name,
			decider ? "decided" : "did not decide");
}

/* Whoever decides stands still after a while. */
static void stall_decider(struct kv_cluster *all, unsigned victim)
{
	struct world *world = all->world;

	world_run_until(world, world->now_ns + world_range(world, DECIDES_NS, 4 * DECIDES_NS));
	for (unsigned i = 0; i < all->count; i++)
		if (i != victim && decides(all, i)) {
			world_count_fault(world, FAULT_PAUSE);
			process_pause(all->nodes[i].endpoint.process, false);
			world_run_until(world, world->now_ns + world_range(world, STANDS_NS, 2 * STANDS_NS));
			process_resume(all->nodes[i].endpoint.process);
			return;
		}
}

/* It is suspected after half a lease, and excluded a lease after that, by whoever decides then. */
static void kill_and_stall(struct kv_cluster *all)
{
	struct world *world = all->world;
	uint64_t killed_ns = world->now_ns, end_ns = killed_ns + 2 * LONG_LEASE_NS;
	unsigned victim = pick_victim(all);

	kill_one(all, victim);
	while (world->now_ns < end_ns)
		stall_decider(all, victim);
	world_note(world, "kv-takeovers", last_gap_end(all, victim) - killed_ns);
	for (unsigned i = 0; i < all->count; i++)
		if (i != victim && all->nodes[i].written_ns < killed_ns + LONG_LEASE_NS)
			world_violate(world, "failover", "%s answers no write while those that decide take turns",
				all->nodes[i].endpoint.host.name);
}

static void leave(struct kv_cluster *all, unsigned leaver)
{
	struct world *world = all->world;
	struct kv_node *node = &all->nodes[leaver];
	struct hf_kv_status status;

	forget_gaps(all);
	hf_kv_leave(node->kv);
	while (world->violations == 0 && !hf_kv_has_left(node->kv)) {
		world_run_until(world, world->now_ns + LOOK_NS);
		hf_kv_status(node->kv, &status);
		if (status.lease_left_ns > 0)
			world_violate(world, "leave", "%s leaves, and has a lease", node->endpoint.host.name);
	}
	if (status.members[leaver].role != HF_KV_ROLE_ABSENT)
		world_violate(
			world, "leave", "%s is a member a lease after it asked to leave", node->endpoint.host.name);
	world_count_fault(world, FAULT_PROCESS_CRASH);
	process_crash(node->endpoint.process);
	world_run_until(world, world->now_ns + world_range(world, NS_US, AWAY_NS));
}

/* All, one soon after the other: a majority is not excluded, so each of these may begin again. */
static void leave_together(struct kv_cluster *all)
{
	struct world *world = all->world;
	struct hf_kv_status status;
	unsigned members = 0;

	for (unsigned i = 0; i < all->count; i++) {
		hf_kv_leave(all->nodes[i].kv);
		world_run_until(world, world->now_ns + world_range(world, 0, SOON_NS));
	}
	world_run_until(world, world->now_ns + LEASE_NS + SOON_NS);
	if (world->violations > 0)
		return;
	for (unsigned i = 0; i < all->count; i++) {
		hf_kv_status(all->nodes[i].kv, &status);
		members += status.members[i].role == HF_KV_ROLE_MEMBER;
		if (!hf_kv_has_left(all->nodes[i].kv))
			world_violate(world, "leave", "%s has not left", all->nodes[i].endpoint.host.name);
	}
	if (members <= all->count / 2)
		world_violate(world, "leave", "all have left, and %u of %u are members", members, all->count);
}

static void run_until_all_serve(struct kv_cluster *all, uint64_t end_ns)
{
	struct world *world = all->world;

	while (world->violations == 0 && world->now_ns < end_ns && !kv_kills_all_serve(all))
		world_run_until(world, world->now_ns + NS_MS);
}

/* By turns, and all in the end. */
static void leave_in_calm(struct kv_cluster *all)
{
	struct world *world = all->world;

	for (unsigned n = 0; n < LEAVES && world->violations == 0; n++) {
		unsigned leaver = pick_victim(all);
		struct kv_node *node = &all->nodes[leaver];
		bool replaced = all->keep != KV_KEEP_NOTHING && world_chance(world, 500000);
		uint64_t since_ns = world->now_ns;

		if (replaced)
			kill_one(all, leaver);
		else
			leave(all, leaver);
		process_start(node->endpoint.process);
		run_until_all_serve(all, since_ns + RETURN_NS);
		world_run_until(world, world->now_ns + CALM_NS);
		for (unsigned i = 0; i < all->count; i++) {
			if (i == leaver)
				continue;
			world_note(world, "kv-leave", all->nodes[i].gap_ns);
			if (all->nodes[i].gap_ns > (replaced ? REPLACE_NS : LEAVE_NS) ||
				all->nodes[i].written_ns < since_ns)
				world_violate(world, "leave", "%s answered no write for %.1f ms when %s %s",
					all->nodes[i].endpoint.host.name, (double)all->nodes[i].gap_ns / 1e6,
					node->endpoint.host.name, replaced ? "was replaced" : "left");
		}
	}
	leave_together(all);
}

/* Every member has answered a write since then, or none has. */
static void check_written(const struct kv_cluster *all, uint64_t since_ns, bool written, const char *what)
{
	for (unsigned i = 0; i < all->count; i++)
		if ((all->nodes[i].written_ns >= since_ns) != written)
			world_violate(all->world, "room", "%s %s", all->nodes[i].endpoint.host.name, what);
}

static uint64_t epoch_of(const struct kv_node *node)
{
	struct hf_kv_status status;

	hf_kv_status(node->kv, &status);
	return status.epoch;
}

/* No port event tells of it. */
static void cut_rails(struct kv_cluster *all)
{
	struct world *world = all->world;
	uint64_t epoch = epoch_of(&all->nodes[0]), failed = all->outcome->refused + all->outcome->unknown;

	for (unsigned n = 0; n < CUTS && world->violations == 0; n++) {
		struct port *port = &all->network.ports[world_range(world, 0, all->network.port_count - 1)];

		world_count_fault(world, FAULT_CUT);
		world_note(world, port->host->name, port->rail);
		port->cut_tx++;
		port->cut_rx++;
		world_run_until(world, world->now_ns + world_range(world, NS_MS, CUT_NS));
		port->cut_tx--;
		port->cut_rx--;
		world_run_until(world, world->now_ns + MEND_NS);
		for (unsigned i = 0; i < all->count; i++) {
			if (epoch_of(&all->nodes[i]) != epoch)
				world_violate(world, "rails", "a rail of %s was cut, and there is another epoch",
					port->host->name);
			if (all->nodes[i].written_ns + LEASE_NS < world->now_ns)
				world_violate(world, "rails", "%s answers no write after a rail was cut",
					all->nodes[i].endpoint.host.name);
		}
	}
	if (all->outcome->refused + all->outcome->unknown != failed)
		world_violate(world, "rails", "operations failed while rails were cut one after the other");
}

/* Another member is killed then: of three, the list of members needs the replica at the one that lost its device. Where
 * the records are in memory, the first one that takes its place does not start. */
static void lose_device(struct kv_cluster *all)
{
	struct world *world = all->world;
	const struct port *port = &all->network.ports[world_range(world, 0, all->network.port_count - 1)];
	uint64_t killed_ns;
	struct disk *disk;
	unsigned loser = 0;
	struct hf_kv_status status;

	while (&all->nodes[loser].endpoint.host != port->host)
		loser++;
	disk = all->nodes[loser].endpoint.host.disk;
	world_count_fault(world, FAULT_NIC_CRASH);
	nic_crash(nic_at(port), true);
	if (all->keep == KV_KEEP_MEMORY) { /* nothing but a replica that starts waits for a sync */
		disk->sync_fails_ppm = 1000000;
		world_run_until(world, world->now_ns + SOON_NS);
		disk->sync_fails_ppm = 0;
		world_run_until(world, world->now_ns + RETRY_NS);
	}
	world_run_until(world, world->now_ns + DEVICE_NS);
	hf_kv_status(all->nodes[loser].kv, &status);
	if (status.failed || !kv_kills_all_serve(all))
		world_violate(world, "device", "%s lost the device of a rail, and %s", port->host->name,
			status.failed ? "has left" : "not all members serve");
	killed_ns = world->now_ns;
	kill_one(all, (loser + 1) % all->count);
	world_run_until(world, killed_ns + AFTER_NS + LEASE_NS);
	for (unsigned i = 0; i < all->count; i++)
		if (i != (loser + 1) % all->count && all->nodes[i].written_ns < killed_ns + AFTER_NS)
			world_violate(world, "device", "%s answers no write since another member was killed",
				all->nodes[i].endpoint.host.name);
}

/* Clients write and delete nothing: no DEL flushes the log and so finds the room again. */
static void fill_disk(struct kv_cluster *all)
{
	struct world *world = all->world;
	struct disk *disk = all->nodes[world_range(world, 0, all->count - 1)].endpoint.host.disk;
	uint64_t bytes = disk->bytes, since_ns;

	world_count_fault(world, FAULT_DISK_FULL);
	disk->bytes = disk_used_bytes(disk) + world_range(world, FREE_BYTES_MIN, FREE_BYTES_MAX);
	since_ns = world->now_ns + LEASE_NS;
	world_run_until(world, since_ns + world_range(world, LEASE_NS, 4 * LEASE_NS));
	check_written(all, since_ns, false, "answers writes while the disk of a member is full");
	disk->bytes = bytes;
	since_ns = world->now_ns + LEASE_NS;
	world_run_until(world, since_ns + LEASE_NS);
	check_written(all, since_ns, true, "answers no write though the disks have room again");
}

/* Processes and links live. By turns one disk hangs, or all: then nobody can be excluded. */
static void hang_disks(struct kv_cluster *all)
{
	struct world *world = all->world;
	unsigned victim = pick_victim(all);
	bool one = world->seed % 4 != 3;
	uint64_t since_ns = world->now_ns, until_ns = since_ns + world_range(world, HANG_NS, 2 * HANG_NS);

	for (unsigned i = 0; i < all->count; i++)
		if (!one || i == victim)
			all->nodes[i].endpoint.host.disk->hangs_until_ns = until_ns;
	world_note(world, all->nodes[victim].endpoint.host.name, until_ns);
	world_run_until(world, since_ns + HANGS_NS);
	for (unsigned i = 0; one && i < all->count; i++)
		if (i != victim && all->nodes[i].written_ns + LEASE_NS < world->now_ns)
			world_violate(world, "hang", "%s answers no write while the disk of %s hangs",
				all->nodes[i].endpoint.host.name, all->nodes[victim].endpoint.host.name);
	world_run_until(world, until_ns);
	run_until_all_serve(all, until_ns + RETURN_NS);
	if (!kv_kills_all_serve(all))
		world_violate(world, "hang", "not all members serve after the disk of %s went on",
			one ? all->nodes[victim].endpoint.host.name : "each");
}

bool kv_calm_begin(struct kv_cluster *all)
{
	struct world *world = all->world;

	for (unsigned i = 0; i < all->count; i++)
		process_start(all->nodes[i].endpoint.process);
	while (world->now_ns < BEGIN_NS && !kv_kills_all_serve(all))
		world_run_until(world, world->now_ns + NS_MS);
	if (!kv_kills_all_serve(all)) {
		world_violate(world, "liveness", "the members do not begin");
		return false;
	}
	world_run_until(world, world->now_ns + CALM_NS + world_range(world, 0, CALM_NS));
	return true;
}

static void run(struct world *world, struct outcome *outcome, uint64_t lease_ns, enum kv_keep least,
	void (*fault)(struct kv_cluster *all))
{
	struct kv_cluster *all = calloc(1, sizeof(*all));

	ensure(all != NULL);
	kv_calm_set_up(all, world, outcome, lease_ns, least);
	if (kv_calm_begin(all))
		fault(all);
	all->stopping = true;
	kv_nodes_free(all);
	free(all);
}

/* No member is excluded, and no operation fails. */
static void wait_for_cores(struct kv_cluster *all)
{
	struct world *world = all->world;
	uint64_t epoch = epoch_of(&all->nodes[0]);

	world->late_ns_max = LATE_NS_MAX;
	world_run_until(world, world->now_ns + LATE_FOR_NS);
	world->late_ns_max = 0;
	world_run_until(world, world->now_ns + LATE_NS_MAX);
	for (unsigned i = 0; i < all->count; i++)
		if (epoch_of(&all->nodes[i]) != epoch)
			world_violate(world, "late", "there is another epoch, and no member had failed");
	for (unsigned i = 0; i < all->count; i++)
		endpoint_check_calm(world, all->nodes[i].endpoint.node);
}

/* On the defaults for shared cores. */
static void run_late(struct world *world, struct outcome *outcome)
{
	struct kv_cluster *all = calloc(1, sizeof(*all));

	ensure(all != NULL);
	kv_calm_set_up(all, world, outcome, 0, KV_KEEP_NOTHING);
	all->cores = HF_CORES_SHARED;
	if (kv_calm_begin(all))
		wait_for_cores(all);
	all->stopping = true;
	kv_nodes_free(all);
	free(all);
}

static void run_failover(struct world *world, struct outcome *outcome)
{
	run(world, outcome, LEASE_NS, KV_KEEP_NOTHING, kill_in_calm);
}

static void run_takeovers(struct world *world, struct outcome *outcome)
{
	run(world, outcome, LONG_LEASE_NS, KV_KEEP_NOTHING, kill_and_stall);
}

static void run_leave(struct world *world, struct outcome *outcome)
{
	run(world, outcome, LEASE_NS, KV_KEEP_NOTHING, leave_in_calm);
}

static void run_rails(struct world *world, struct outcome *outcome)
{
	run(world, outcome, LEASE_NS, KV_KEEP_NOTHING, cut_rails);
}

static void run_device(struct world *world, struct outcome *outcome)
{
	run(world, outcome, LEASE_NS, KV_KEEP_NOTHING, lose_device);
}

static void run_room(struct world *world, struct outcome *outcome)
{
	run(world, outcome, LEASE_NS, KV_KEEP_MEMORY, fill_disk);
}

static void run_hang(struct world *world, struct outcome *outcome)
{
	run(world, outcome, LEASE_NS, KV_KEEP_FILE, hang_disks);
}

const struct scenario scenario_kv_failover = {
	.name = "kv-failover",
	.only_when_named = true,
	.what = "stores of three to five nodes with their defaults, of which one is killed: writes go on in time",
	.run = run_failover,
};

const struct scenario scenario_kv_late = {
	.name = "kv-late",
	.only_when_named = true, /* few seeds suffice: nothing may happen */
	.what = "stores on busy machines, whose members wait for a core now and then: nobody is excluded",
	.run = run_late,
};

const struct scenario scenario_kv_takeovers = {
	.name = "kv-takeovers",
	.only_when_named = true,
	.what = "the same; then whoever decides who is a member stands still, again and again, and another one decides",
	.run = run_takeovers,
};

const struct scenario scenario_kv_leave = {
	.name = "kv-leave",
	.only_when_named = true,
	.what = "the same; members leave, or are killed and replaced at once: nobody waits for the end of a lease",
	.run = run_leave,
};

const struct scenario scenario_kv_rails = {
	.name = "kv-rails",
	.only_when_named = true,
	.what = "the same; one rail after the other is cut silently: the epoch stays, and no operation fails",
	.run = run_rails,
};

const struct scenario scenario_kv_device = {
	.name = "kv-device",
	.only_when_named = true,
	.what = "the same; the device of a rail dies: its member stays, and the list of members changes as before",
	.run = run_device,
};

const struct scenario scenario_kv_room = {
	.name = "kv-room",
	.only_when_named = true,
	.what = "the same; the disk of a member is full for a while: SETs are refused at all, and answered afterwards",
	.run = run_room,
};

const struct scenario scenario_kv_hang = {
	.name = "kv-hang",
	.only_when_named = true,
	.what = "the same; the disk of a member hangs for a while: the others write without it; or the disks of all "
		"hang",
	.run = run_hang,
};
