/* Members that are killed, one or all of them, and started again; disks that fail or are full for a while. */
#include "sim/disk.h"
#include "sim/kv/kv.h"

#define KILL_NS_MAX    (300 * NS_MS)
#define LOOK_NS_MAX    (200 * NS_US)
#define REST_NS        NS_MS
#define SYNC_FAILS_PPM 500u
#define FULL_NS_MAX    (100 * NS_MS)
#define FULL_BYTES_MAX (16u << 10)
#define EARLY_PPM      300000u /* of the kills of all members are so soon after the last one: */
#define EARLY_NS_MAX   (20 * NS_MS)
#define SLOW_NS_MAX    (2 * NS_MS) /* what a call of a disk takes where all members end */

/* ---- how the members are ---- */

bool kv_kills_status(const struct kv_node *node, struct hf_kv_status *status_out)
{
	if (node->kv == NULL)
		return false;
	hf_kv_status(node->kv, status_out);
	return true;
}

bool kv_kills_all_serve(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++) {
		struct hf_kv_status status;

		if (!kv_kills_status(&all->nodes[i], &status) || !status.serving)
			return false;
	}
	return true;
}

/* Else it may be the last member, and its records are nowhere else. */
bool kv_kills_is_one_of_all(const struct kv_node *node)
{
	struct hf_kv_status status;
	bool all = kv_kills_status(node, &status);

	for (unsigned i = 0; all && i < status.member_count; i++)
		all = status.members[i].role == HF_KV_ROLE_MEMBER;
	return all;
}

static bool returns_some(const struct hf_kv_status *status)
{
	for (unsigned i = 0; i < status->member_count; i++)
		if (status->members[i].role == HF_KV_ROLE_SHADOW)
			return true;
	return false;
}

/* What was begun before goes on. */
static void check_stopped(struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++) {
		struct kv_node *node = &all->nodes[i];
		struct hf_kv_status status;

		if (!kv_kills_status(node, &status) || !returns_some(&status)) {
			node->stopped_epoch = 0;
			continue;
		}
		if (node->stopped_epoch == status.epoch && node->stopped_writes != status.writes)
			world_violate(all->world, "stop", "a write was begun while a member returned");
		node->stopped_epoch = status.epoch;
		node->stopped_writes = status.writes;
	}
}

static bool covers(const struct hf_kv_status *returning, unsigned other)
{
	const struct hf_kv_member_status *member = &returning->members[other];

	return other != returning->self && member->role == HF_KV_ROLE_MEMBER &&
	       member->join < returning->members[returning->self].absent_since;
}

/* A copy that was begun is begun again by the next process: the log does not count any more. Nor does that of a member
 * which founded the cluster and lost its power before it was durable that it did: until then it answers no write. */
static void check_copies(struct kv_cluster *all)
{
	bool serves[KV_NODES_MAX];

	for (unsigned i = 0; i < all->count; i++) {
		struct kv_node *node = &all->nodes[i];
		struct hf_kv_status status = {0};
		bool begins = kv_kills_status(node, &status) && status.copies && !node->copies && node->logged;

		for (unsigned k = 0; begins && k < all->count; k++)
			if (all->nodes[k].serves && covers(&status, k))
				world_violate(all->world, "heals",
					"%u copies all records, and %u was there while it was not", i, k);
		node->copies = (node->copies || status.copies) && !status.serving;
		serves[i] = status.serving;
	}
	for (unsigned i = 0; i < all->count; i++)
		all->nodes[i].serves = serves[i];
}

bool kv_kills_has_work(const struct kv_node *node)
{
	for (unsigned k = 0; k < KV_CLIENTS; k++)
		for (unsigned n = 0; n < KV_OPS; n++)
			if (node->clients[k].calls[n].busy)
				return true;
	return false;
}

/* ---- killing ---- */

/* With the power of its host, where the log is on a disk: what was not synced is lost, or half of it. */
void kv_kills_kill(struct kv_cluster *all, unsigned i, bool power)
{
	struct process *process = all->nodes[i].endpoint.process;

	world_count_fault(all->world, power ? FAULT_HOST_STOP : FAULT_PROCESS_CRASH);
	all->calm &= all->nodes[i].logged;
	kv_images_kills(all, &all->nodes[i]);
	kv_damage_kills(all, &all->nodes[i], power);
	if (power && all->colds)
		kv_images_tears(&all->nodes[i]);
	if (power)
		host_stop(process->host);
	else
		process_crash(process);
	all->killed |= 1u << i;
}

static bool picks_power(const struct kv_cluster *all)
{
	return all->keep == KV_KEEP_FILE && world_chance(all->world, 600000);
}

static bool any_suspended(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->nodes[i].endpoint.host.suspended)
			return true;
	return false;
}

static void kill_all(struct kv_cluster *all)
{
	bool power = picks_power(all);

	for (unsigned i = 0; i < all->count; i++)
		if ((all->killed & 1u << i) == 0)
			kv_kills_kill(all, i, power);
}

void kv_kills_revive(struct kv_cluster *all, uint32_t members)
{
	for (unsigned i = 0; i < all->count; i++) {
		struct process *process = all->nodes[i].endpoint.process;

		if ((all->killed & members & 1u << i) == 0)
			continue;
		all->killed &= ~(1u << i);
		if (process->host->stopped)
			host_start(process->host);
		else
			process_start(process);
	}
}

/* Those that ended by themselves, because of their disks. */
static void find_ended(struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++) {
		struct process *process = all->nodes[i].endpoint.process;
		struct hf_kv_status status = {0};

		if ((all->killed & 1u << i) != 0 || process->paused || process->host->suspended)
			continue;
		if (kv_kills_status(&all->nodes[i], &status) && !status.failed)
			continue;
		process_crash(process);
		all->killed |= 1u << i;
	}
}

/* One at a time, because without logs a majority of the others remembers who is a member; or all, when each has one. */
static bool kill_at_work(struct kv_cluster *all)
{
	struct kv_node *node = &all->nodes[world_range(all->world, 0, all->count - 1)];

	if (all->early && !any_suspended(all)) {
		all->calm = false;
		kill_all(all);
		return true;
	}
	if (!kv_kills_all_serve(all) || node->endpoint.process->paused || !kv_kills_has_work(node))
		return false;
	all->outcome->in_doubt++;
	if (all->keep != KV_KEEP_NOTHING && !any_suspended(all) &&
		world_chance(all->world, all->colds ? 700000 : 250000))
		kill_all(all);
	else
		kv_kills_kill(all, node->index, picks_power(all));
	return true;
}

/* The member that returns, its buddy, who decides, or any other. */
static bool kill_in_recovery(struct kv_cluster *all)
{
	struct world *world = all->world;
	struct outcome *outcome = all->outcome;
	unsigned victim = (unsigned)world_range(world, 0, all->count - 1);
	uint64_t role = world_range(world, 0, 3);
	struct hf_kv_status status, other;

	for (unsigned i = 0; i < all->count; i++) {
		if (!kv_kills_status(&all->nodes[i], &status) || !status.recovering || !world_chance(world, 50000))
			continue;
		if (role == 0)
			victim = i;
		else if (role == 1 && status.buddy >= 0)
			victim = (unsigned)status.buddy;
		for (unsigned k = 0; role == 2 && k < all->count; k++)
			if (kv_kills_status(&all->nodes[k], &other) && other.decides)
				victim = k;
		if (all->nodes[victim].endpoint.process->paused || !kv_kills_status(&all->nodes[victim], &other))
			return false;
		outcome->hit_returning += victim == i;
		outcome->hit_buddies += (int)victim == status.buddy;
		outcome->hit_deciders += other.decides;
		outcome->hit_recoveries++;
		if (!any_suspended(all) && world_chance(world, 100000))
			kill_all(all);
		else
			kv_kills_kill(all, victim, picks_power(all));
		return true;
	}
	return false;
}

/* Without logs: one member returns, all others serve, and one of those is killed. Who returns has a vote again in the
 * log of who is a member, or else that would have lost its majority. */
static bool kill_beside_shadow(struct kv_cluster *all)
{
	unsigned victim = (unsigned)world_range(all->world, 0, all->count - 1), serve = 0, recover = 0;
	struct hf_kv_status status;

	for (unsigned i = 0; i < all->count; i++) {
		if (!kv_kills_status(&all->nodes[i], &status))
			return false;
		serve += status.serving;
		recover += status.recovering;
	}
	(void)kv_kills_status(&all->nodes[victim], &status);
	if (serve + 1 != all->count || recover != 1 || !status.serving || all->nodes[victim].endpoint.process->paused)
		return false;
	all->outcome->hit_recoveries++;
	kv_kills_kill(all, victim, false);
	return true;
}

/* ---- disks ---- */

static void set_disks(struct kv_cluster *all, bool fail)
{
	for (unsigned i = 0; i < all->count; i++)
		all->nodes[i].endpoint.host.disk->sync_fails_ppm = fail ? SYNC_FAILS_PPM : 0;
}

/* A flush then has many entries, and a power loss tears it. */
static void slow_disks(struct kv_cluster *all)
{
	uint64_t ns = world_range(all->world, NS_US, SLOW_NS_MAX);

	for (unsigned i = 0; i < all->count; i++)
		all->nodes[i].endpoint.host.disk->call_ns_max += ns;
}

static void empty_disk(struct world_event *event)
{
	struct kv_cluster *all = container_of(event, struct kv_cluster, filler);

	all->full->bytes = all->full_bytes;
	all->full = NULL;
}

/* For a while there is little room, if any. */
static void fill_disk(struct world_event *event)
{
	struct kv_cluster *all = container_of(event, struct kv_cluster, filler);
	struct world *world = all->world;
	struct disk *disk = all->nodes[world_range(world, 0, all->count - 1)].endpoint.host.disk;

	all->full = disk;
	all->full_bytes = disk->bytes;
	disk->bytes = disk_used_bytes(disk) + world_range(world, 0, FULL_BYTES_MAX);
	event->fire = empty_disk;
	world_schedule(world, event, world->now_ns + world_range(world, NS_MS, FULL_NS_MAX));
}

/* ---- the event ---- */

static void look_at_damage(struct kv_cluster *all)
{
	struct hf_kv_status status;

	for (unsigned i = 0; i < all->count; i++)
		if (kv_kills_status(&all->nodes[i], &status))
			kv_damage_look(&all->nodes[i], &status);
}

static void look(struct world_event *event)
{
	struct kv_cluster *all = container_of(event, struct kv_cluster, killer);
	struct world *world = all->world;
	bool quiet = world->now_ns >= all->faults.quiet_ns, killed = false;

	if (quiet)
		set_disks(all, false);
	find_ended(all);
	look_at_damage(all);
	kv_images_look(all);
	if (all->recovery == HF_KV_STOP)
		check_stopped(all);
	if (all->recovery != HF_KV_COPY && all->keep != KV_KEEP_NOTHING && !all->disks && all->missed_entries == 0)
		check_copies(all);
	if (all->killed != 0 && !all->aim.holds && (quiet || world->now_ns >= all->revive_ns))
		kv_kills_revive(all, UINT32_MAX);
	if (!quiet && all->kills && all->recoveries && all->keep != KV_KEEP_NOTHING)
		killed = kill_in_recovery(all);
	if (!quiet && all->kills && all->killed == 0 && all->keep == KV_KEEP_NOTHING && world_chance(world, 200000))
		killed |= kill_beside_shadow(all);
	if (!quiet && all->kills && all->killed == 0 && world->now_ns >= all->kill_ns)
		killed |= kill_at_work(all);
	if (killed) {
		all->revive_ns = world->now_ns + world_range(world, NS_US, KILL_NS_MAX);
		all->early = all->colds && world_chance(world, EARLY_PPM);
		all->kill_ns = all->recoveries ? 0
					       : all->revive_ns + world_range(world, NS_US,
									  all->early ? EARLY_NS_MAX : KILL_NS_MAX);
	}
	world_schedule(world, event, world->now_ns + (quiet ? REST_NS : world_range(world, NS_US, LOOK_NS_MAX)));
}

void kv_kills_start(struct kv_cluster *all, bool kills, bool disks)
{
	struct world *world = all->world;

	all->kills = kills;
	all->disks = disks;
	all->kill_ns = world_range(world, 50 * NS_MS, all->faults.quiet_ns);
	if (all->recoveries)
		all->kill_ns = 50 * NS_MS;
	all->killer = (struct world_event){.fire = look, .what = "killer", .outermost = true};
	all->filler = (struct world_event){.fire = fill_disk, .what = "disk", .outermost = true};
	if (disks)
		set_disks(all, true);
	if (disks && world_chance(world, 500000))
		world_schedule(world, &all->filler, world_range(world, 50 * NS_MS, all->faults.quiet_ns - FULL_NS_MAX));
	if (all->colds && world_chance(world, 500000))
		slow_disks(all);
	if (all->aims)
		all->revive_ns = UINT64_MAX;
	if (kills || disks || all->aims)
		world_schedule(world, &all->killer, 50 * NS_MS);
}

void kv_kills_stop(struct kv_cluster *all)
{
	world_cancel(all->world, &all->killer);
	world_cancel(all->world, &all->filler);
}
