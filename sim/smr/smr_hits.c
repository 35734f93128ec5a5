#include "sim/smr/smr_hits.h"

#include <string.h>

#include "sim/device.h"
#include "sim/disk.h"
#include "smr/smr.h"

enum kind {
	HIT_PAUSE,
	HIT_PAUSE_NICS,
	HIT_DATA,
	HIT_TX,
	HIT_KINDS_KEEPING, /* memory stays */
	HIT_CRASH = HIT_KINDS_KEEPING,
	HIT_NIC, /* dies */
	HIT_KINDS,
	/* durable logs */
	HIT_POWER = HIT_KINDS, /* of one host */
	HIT_POWER_ALL,         /* of all hosts at once */
	HIT_DISK,              /* syncs fail */
	HIT_FULL,              /* the disk is full */
	HIT_KINDS_DURABLE,
};

#define WAITS_MAX      400u
#define FOLLOWS_PPM    350000u /* of the hits */
#define FOLLOWS_WAITS  12000u
#define FOLLOWS_NS_MAX (10 * NS_US)
#define SLOW_PPM       200000u /* of members whose fences take long when another one is hit */
#define SLOW_NS_MAX    (60 * NS_MS)
#define SYNC_FAILS_PPM 300000u
#define DISK_BYTES     (1ull << 30)
#define WAIT_NS_MAX    (20 * NS_US)
#define START_NS_MAX   (30 * NS_MS) /* by which hosts start apart */

bool smr_sim_has_proposed(const struct smr_sim_member *member)
{
	for (unsigned i = 0; i < SMR_SIM_CALLS; i++)
		if (member->calls[i].busy && !member->calls[i].reads)
			return true;
	return false;
}

static struct smr_sim_member *leader_of(struct smr_sim *sim)
{
	for (unsigned i = 0; i < sim->count; i++)
		if (sim->members[i].smr != NULL && hf_smr_is_leader(sim->members[i].smr))
			return &sim->members[i];
	return NULL;
}

/* Who is about to write into the logs of others, or does. */
static struct smr_sim_member *successor_of(struct smr_sim *sim, const struct smr_hit *first)
{
	for (unsigned i = 0; i < sim->count; i++)
		if (i != first->victim && sim->members[i].smr != NULL && sim->members[i].smr->phase >= SMR_PHASE_ASK)
			return &sim->members[i];
	return NULL;
}

static uint64_t incarnation_of(const struct smr_sim_member *member)
{
	struct hf_smr_status status = {0};

	if (member->smr != NULL)
		hf_smr_status(member->smr, &status);
	return status.incarnation;
}

/* Memory is lost with a process: who crashes is one of members that all have theirs. */
static bool may_crash(const struct smr_hits *hits)
{
	struct smr_sim *sim = hits->sim;
	const struct smr_sim_member *leader = leader_of(sim);
	struct hf_smr_status status;

	if (sim->durable)
		return true;
	for (unsigned i = 0; i < sim->count; i++)
		if (hits->restarts[i])
			return false;
	if (leader == NULL)
		return false;
	hf_smr_status(leader->smr, &status);
	for (unsigned i = 0; i < status.member_count; i++)
		if (!status.members[i].confirmed ||
			status.members[i].incarnation != incarnation_of(&sim->members[status.members[i].id]))
			return false;
	return sim->moving ? !sim->changing && status.member_count > 2 : status.member_count == sim->count;
}

static void switch_ports(struct smr_hit *hit, int by)
{
	struct smr_sim *sim = hit->hits->sim;

	for (unsigned i = 0; i < sim->network.port_count; i++) {
		struct port *port = &sim->network.ports[i];

		if (port->host != &sim->members[hit->victim].endpoint.host)
			continue;
		if (hit->kind == HIT_DATA)
			port->data_lost += (unsigned)by;
		else
			port->cut_tx += (unsigned)by;
	}
}

static void power_off(struct smr_sim_member *member)
{
	if (!member->endpoint.host.stopped)
		host_stop(&member->endpoint.host);
}

static void power_on(struct smr_sim *sim, struct smr_sim_member *member)
{
	if (member->endpoint.host.stopped)
		world_schedule(
			sim->world, &member->restart, sim->world->now_ns + world_range(sim->world, 1, START_NS_MAX));
}

static bool loses_memory(const struct smr_hit *hit)
{
	return hit->kind == HIT_CRASH || hit->kind == HIT_NIC;
}

/* A NIC that died works again when it is opened anew. */
static void start_again(struct process *process)
{
	if (process->running)
		process_crash(process);
	process_start(process);
}

static void end(struct world_event *event)
{
	struct smr_hit *hit = container_of(event, struct smr_hit, end);
	struct smr_sim *sim = hit->hits->sim;
	struct process *process = sim->members[hit->victim].endpoint.process;

	hit->on = false;
	if (loses_memory(hit))
		hit->hits->restarts[hit->victim] = false;
	if (hit->kind == HIT_POWER || hit->kind == HIT_POWER_ALL)
		for (unsigned i = 0; i < sim->count; i++)
			power_on(sim, &sim->members[i]);
	else if (hit->kind == HIT_DISK)
		sim->members[hit->victim].endpoint.host.disk->sync_fails_ppm = 0;
	else if (hit->kind == HIT_FULL)
		sim->members[hit->victim].endpoint.host.disk->bytes = DISK_BYTES;
	else if (loses_memory(hit) && !process->host->stopped)
		start_again(process);
	else if (hit->kind == HIT_DATA || hit->kind == HIT_TX)
		switch_ports(hit, -1);
	else if (process->paused)
		process_resume(process);
	network_healed(&hit->hits->sim->network);
}

static bool strike(struct smr_hit *hit)
{
	struct smr_sim *sim = hit->hits->sim;
	struct process *process = sim->members[hit->victim].endpoint.process;

	if (hit->kind == HIT_POWER_ALL) {
		for (unsigned i = 0; i < sim->count; i++)
			power_off(&sim->members[i]);
		return true;
	}
	if (!process->running || process->paused || hit->hits->restarts[hit->victim] ||
		(loses_memory(hit) && !may_crash(hit->hits)))
		return false;
	hit->hits->restarts[hit->victim] = loses_memory(hit);
	if (hit->kind == HIT_CRASH)
		process_crash(process);
	else if (hit->kind == HIT_NIC)
		nic_crash(nic_of(hf_node_dev(sim->members[hit->victim].endpoint.node, 0)), true);
	else if (hit->kind == HIT_POWER)
		power_off(&sim->members[hit->victim]);
	else if (hit->kind == HIT_DISK)
		process->host->disk->sync_fails_ppm = SYNC_FAILS_PPM;
	else if (hit->kind == HIT_FULL)
		process->host->disk->bytes = 0;
	else if (hit->kind == HIT_DATA || hit->kind == HIT_TX)
		switch_ports(hit, 1);
	else
		process_pause(process, hit->kind == HIT_PAUSE_NICS);
	return true;
}

/* The hit one's access to their logs takes long to end: it may write meanwhile. */
static void slow_fences(const struct smr_hit *hit)
{
	struct smr_sim *sim = hit->hits->sim;

	for (unsigned i = 0; i < sim->count; i++) {
		uint64_t ns = world_range(sim->world, 0, SLOW_NS_MAX);

		if (i == hit->victim || !world_chance(sim->world, SLOW_PPM) || sim->members[i].smr == NULL)
			continue;
		for (unsigned rail = 0; rail < SMR_SIM_RAILS; rail++)
			nic_of(hf_node_dev(sim->members[i].endpoint.node, rail))->fence_slow_until_ns =
				sim->world->now_ns + ns;
		world_count_fault(sim->world, FAULT_FENCE_SLOW);
	}
}

static enum fault_kind fault_of(unsigned kind)
{
	switch (kind) {
	case HIT_CRASH:
		return FAULT_PROCESS_CRASH;
	case HIT_NIC:
		return FAULT_NIC_CRASH;
	case HIT_DATA:
		return FAULT_DATA_LOST;
	case HIT_TX:
		return FAULT_CUT_TX;
	case HIT_POWER:
	case HIT_POWER_ALL:
		return FAULT_HOST_STOP;
	case HIT_DISK:
		return FAULT_SYNC_FAILS;
	case HIT_FULL:
		return FAULT_DISK_FULL;
	default:
		return FAULT_PAUSE;
	}
}

/* The moment has come; NULL: it has not, or there is nobody. */
static struct smr_sim_member *sought(struct smr_hit *hit, bool *doubt_out)
{
	struct smr_sim *sim = hit->hits->sim;
	struct smr_sim_member *found = hit->follows ? successor_of(sim, hit - 1) : leader_of(sim);

	*doubt_out = found != NULL && (hit->follows || smr_sim_has_proposed(found));
	return found;
}

static void begin(struct world_event *event)
{
	struct smr_hit *hit = container_of(event, struct smr_hit, begin);
	struct smr_hits *hits = hit->hits;
	struct smr_sim *sim = hits->sim;
	bool doubt;
	struct smr_sim_member *found = sought(hit, &doubt);

	if (!doubt && hit->waited++ < (hit->follows ? FOLLOWS_WAITS : WAITS_MAX)) {
		world_schedule(sim->world, event,
			sim->world->now_ns + world_range(sim->world, 1, hit->follows ? FOLLOWS_NS_MAX : WAIT_NS_MAX));
		return;
	}
	if (found != NULL && world_chance(sim->world, 700000))
		hit->victim = found->id;
	if (sim->world->now_ns >= hits->quiet_ns || !strike(hit))
		return;
	hit->on = true;
	if (hit->duration_ns > hits->quiet_ns - sim->world->now_ns)
		hit->duration_ns = hits->quiet_ns - sim->world->now_ns;
	slow_fences(hit);
	hits->on_leader += !hit->follows && found != NULL && found->id == hit->victim;
	hits->on_successor += hit->follows && doubt;
	hits->crashes += hit->kind == HIT_CRASH;
	hits->powers += hit->kind == HIT_POWER_ALL;
	hits->in_doubt += doubt;
	world_count_fault(sim->world, fault_of(hit->kind));
	world_trace(sim->world, "  hit %u on member %u for %.3f ms", hit->kind, hit->victim,
		(double)hit->duration_ns / 1e6);
	world_schedule(sim->world, &hit->end, sim->world->now_ns + hit->duration_ns);
	if (hit + 1 < &hits->plan[hits->count] && hit[1].follows)
		world_schedule(sim->world, &hit[1].begin, sim->world->now_ns + 1);
}

static unsigned kinds(const struct smr_sim *sim, const struct smr_hit *hit)
{
	if (sim->durable)
		return HIT_KINDS_DURABLE;
	return hit->follows ? HIT_KINDS_KEEPING : HIT_KINDS; /* one memory at a time */
}

bool smr_hits_impede(const struct smr_hits *hits)
{
	for (unsigned i = 0; i < hits->count; i++) {
		const struct smr_hit *hit = &hits->plan[i];

		if (hit->on && (hit->kind == HIT_DATA || hit->kind == HIT_TX || hit->kind == HIT_PAUSE_NICS ||
				       hit->kind == HIT_NIC || hit->kind == HIT_DISK || hit->kind == HIT_FULL))
			return true;
	}
	return false;
}

void smr_hits_plan(struct smr_hits *hits, struct smr_sim *sim, unsigned count, uint64_t quiet_ns)
{
	struct world *world = sim->world;

	*hits = (struct smr_hits){.sim = sim, .count = count, .quiet_ns = quiet_ns};
	for (unsigned i = 0; i < count; i++) {
		struct smr_hit *hit = &hits->plan[i];
		uint64_t at_ns = world_range(world, world->now_ns, quiet_ns - NS_MS);

		hit->hits = hits;
		hit->follows = i > 0 && !sim->power_only && world_chance(world, FOLLOWS_PPM);
		hit->kind = sim->power_only ? HIT_POWER_ALL : (unsigned)world_range(world, 0, kinds(sim, hit) - 1);
		hit->victim = (unsigned)world_range(world, 0, sim->count - 1);
		hit->duration_ns = world_range(world, 100 * NS_US, 300 * NS_MS) >> world_range(world, 0, 6);
		hit->begin.what = "hit";
		hit->begin.fire = begin;
		hit->end.what = "hit-ends";
		hit->end.fire = end;
		hit->begin.outermost = hit->end.outermost = true;
		if (!hit->follows)
			world_schedule(world, &hit->begin, at_ns);
	}
}
