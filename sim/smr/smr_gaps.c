#include "sim/smr/smr_gaps.h"

#define LOOK_NS NS_MS

static bool runs(const struct smr_sim_member *member)
{
	const struct process *process = member->endpoint.process;

	return process->running && !process->paused && member->smr != NULL && !member->out;
}

static bool could_go_on(const struct smr_gaps *gaps)
{
	const struct smr_sim *sim = gaps->sim;
	unsigned running = 0;

	for (unsigned i = 0; i < sim->count; i++)
		running += runs(&sim->members[i]);
	return 2 * running > sim->count && !smr_hits_impede(gaps->hits) && sim->faults_on == 0;
}

/* Something was decided, or there is nothing to decide. */
static bool goes_on(struct smr_gaps *gaps)
{
	const struct smr_sim *sim = gaps->sim;
	uint32_t before = gaps->decided;

	gaps->decided = sim->decided;
	if (sim->decided != before)
		return true;
	for (unsigned i = 0; i < sim->count; i++)
		if (runs(&sim->members[i]) && hf_smr_is_leader(sim->members[i].smr))
			return !smr_sim_has_proposed(&sim->members[i]);
	return false;
}

static void look(struct world_event *event)
{
	struct smr_gaps *gaps = container_of(event, struct smr_gaps, event);
	struct world *world = gaps->sim->world;

	if (!could_go_on(gaps) || goes_on(gaps))
		gaps->since_ns = world->now_ns;
	if (world->now_ns - gaps->since_ns > gaps->longest_ns)
		gaps->longest_ns = world->now_ns - gaps->since_ns;
	if (gaps->longest_ns > gaps->limit_ns && world->violations == 0)
		world_violate(world, "liveness", "a majority is up, and nothing is decided for %.0f ms",
			(double)gaps->longest_ns / 1e6);
	world_schedule(world, event, world->now_ns + LOOK_NS);
}

void smr_gaps_watch(struct smr_gaps *gaps, struct smr_sim *sim, const struct smr_hits *hits, uint64_t limit_ns)
{
	*gaps = (struct smr_gaps){.sim = sim, .hits = hits, .since_ns = sim->world->now_ns, .limit_ns = limit_ns};
	gaps->event.what = "gap";
	gaps->event.fire = look;
	world_schedule(sim->world, &gaps->event, sim->world->now_ns + LOOK_NS);
}

void smr_gaps_end(struct smr_gaps *gaps)
{
	if (gaps->sim == NULL)
		return;
	world_cancel(gaps->sim->world, &gaps->event);
	world_trace(gaps->sim->world, "  longest gap %.3f ms", (double)gaps->longest_ns / 1e6);
}
