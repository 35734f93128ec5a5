#include "sim/smr/smr_hits.h"

#include <string.h>

#include "sim/disk.h"

enum kind {
	HIT_PAUSE,
	HIT_PAUSE_NICS,
	HIT_CRASH,
	HIT_DATA,
	HIT_TX,
	HIT_KINDS,
	/* durable logs */
	HIT_POWER = HIT_KINDS, /* of one host */
	HIT_POWER_ALL,         /* of all hosts at once */
	HIT_DISK,              /* syncs fail */
	HIT_FULL,              /* the disk is full */
	HIT_KINDS_DURABLE,
};

#define WAITS_MAX      400u
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

static uint64_t incarnation_of(const struct smr_sim_member *member)
{
	struct hf_smr_status status = {0};

	if (member->smr != NULL)
		hf_smr_status(member->smr, &status);
	return status.incarnation;
}

/* Memory is lost with a process: who crashes is one of members that all have theirs. */
static bool may_crash(struct smr_sim *sim)
{
	const struct smr_sim_member *leader = leader_of(sim);
	struct hf_smr_status status;

	if (sim->durable)
		return true;
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

static void end(struct world_event *event)
{
	struct smr_hit *hit = container_of(event, struct smr_hit, end);
	struct smr_sim *sim = hit->hits->sim;
	struct process *process = sim->members[hit->victim].endpoint.process;

	hit->on = false;
	if (hit->kind == HIT_POWER || hit->kind == HIT_POWER_ALL)
		for (unsigned i = 0; i < sim->count; i++)
			power_on(sim, &sim->members[i]);
	else if (hit->kind == HIT_DISK)
		sim->members[hit->victim].endpoint.host.disk->sync_fails_ppm = 0;
	else if (hit->kind == HIT_FULL)
		sim->members[hit->victim].endpoint.host.disk->bytes = DISK_BYTES;
	else if (hit->kind == HIT_CRASH && !process->running && !process->host->stopped)
		process_start(process);
	else if (hit->kind == HIT_DATA || hit->kind == HIT_TX)
		switch_ports(hit, -1);
	else if (hit->kind != HIT_CRASH && process->paused)
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
	if (!process->running || process->paused || (hit->kind == HIT_CRASH && !may_crash(sim)))
		return false;
	if (hit->kind == HIT_CRASH)
		process_crash(process);
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

static enum fault_kind fault_of(unsigned kind)
{
	switch (kind) {
	case HIT_CRASH:
		return FAULT_PROCESS_CRASH;
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

static void begin(struct world_event *event)
{
	struct smr_hit *hit = container_of(event, struct smr_hit, begin);
	struct smr_sim *sim = hit->hits->sim;
	struct smr_sim_member *leader = leader_of(sim);
	bool doubt = leader != NULL && smr_sim_has_proposed(leader);

	if (!doubt && hit->waited++ < WAITS_MAX) {
		world_schedule(sim->world, event, sim->world->now_ns + world_range(sim->world, 1, WAIT_NS_MAX));
		return;
	}
	if (leader != NULL && world_chance(sim->world, 700000))
		hit->victim = leader->id;
	if (!strike(hit))
		return;
	hit->on = true;
	hit->hits->on_leader += leader != NULL && leader->id == hit->victim;
	hit->hits->crashes += hit->kind == HIT_CRASH;
	hit->hits->powers += hit->kind == HIT_POWER_ALL;
	hit->hits->in_doubt += doubt;
	world_count_fault(sim->world, fault_of(hit->kind));
	world_trace(sim->world, "  hit %u on member %u for %.3f ms", hit->kind, hit->victim,
		(double)hit->duration_ns / 1e6);
	world_schedule(sim->world, &hit->end, sim->world->now_ns + hit->duration_ns);
}

bool smr_hits_impede(const struct smr_hits *hits)
{
	for (unsigned i = 0; i < hits->count; i++) {
		const struct smr_hit *hit = &hits->plan[i];

		if (hit->on && (hit->kind == HIT_DATA || hit->kind == HIT_TX || hit->kind == HIT_PAUSE_NICS ||
				       hit->kind == HIT_DISK || hit->kind == HIT_FULL))
			return true;
	}
	return false;
}

void smr_hits_plan(struct smr_hits *hits, struct smr_sim *sim, unsigned count, uint64_t quiet_ns)
{
	struct world *world = sim->world;

	*hits = (struct smr_hits){.sim = sim, .count = count};
	for (unsigned i = 0; i < count; i++) {
		struct smr_hit *hit = &hits->plan[i];
		uint64_t at_ns = world_range(world, world->now_ns, quiet_ns - NS_MS);

		hit->hits = hits;
		hit->kind = (unsigned)world_range(world, 0, (sim->durable ? HIT_KINDS_DURABLE : HIT_KINDS) - 1);
		hit->victim = (unsigned)world_range(world, 0, sim->count - 1);
		hit->duration_ns = world_range(world, 100 * NS_US, 300 * NS_MS) >> world_range(world, 0, 6);
		if (hit->duration_ns > quiet_ns - at_ns)
			hit->duration_ns = quiet_ns - at_ns;
		hit->begin.what = "hit";
		hit->begin.fire = begin;
		hit->end.what = "hit-ends";
		hit->end.fire = end;
		hit->begin.outermost = hit->end.outermost = true;
		world_schedule(world, &hit->begin, at_ns);
	}
}
