/* Stores under faults of the network and pauses: the run, and what it is held to. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "sim/kv/kv.h"

#define LIVE_NS          (12 * NS_S)
#define LIVE_OPERATIONS  5u
#define TEARS_PPM        300u
#define FEW_MISSED_SEEDS 8u /* one of so many has a list of what was missed that overflows: */
#define FEW_MISSED       8u /* of so many changes, or a few times more */
#define OLDER_SEEDS      5u /* in one of so many the log of a member that was killed is an older copy */
#define KV_FAULTS                                                                                                      \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_DUPLICATE) |  \
		FAULT_BIT(FAULT_REORDER) | FAULT_BIT(FAULT_LATE) | FAULT_BIT(FAULT_RAIL_DOWN) |                        \
		FAULT_BIT(FAULT_ACKS_LOST) | FAULT_BIT(FAULT_CONTROL_HELD) | FAULT_BIT(FAULT_CLOG) |                   \
		FAULT_BIT(FAULT_STREAM_RESET) | FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_PARTITION) |                  \
		FAULT_BIT(FAULT_FENCE_SLOW))

/* What a scenario is about; of so many seeds one has it, 0: none. */
struct plan {
	unsigned kill_seeds;          /* members that are killed and come back */
	unsigned disk_seeds;          /* disks that fail, or are full, for a while */
	unsigned stall_seeds, stalls; /* processes that stand still for longer than a lease, so often */
	unsigned faults_max;          /* of the network and others */
	bool recoveries;              /* kills are for those that return, and for who helps them */
	bool colds;                   /* all members end at once, and one may come back with an older log */
	bool damages;                 /* logs are damaged while their members are down */
	bool tears;                   /* turns are torn for longer than a lease */
	bool aims;                    /* faults are aimed at steps of the protocol, on few keys */
};

static enum kv_keep pick_keep(struct world *world, const struct plan *plan)
{
	if (!plan->colds && !plan->damages && world_chance(world, plan->recoveries ? 150000 : 300000))
		return KV_KEEP_NOTHING;
	return world_chance(world, 300000) ? KV_KEEP_MEMORY : KV_KEEP_FILE;
}

static enum hf_kv_recovery pick_recovery(struct world *world, const struct plan *plan)
{
	if (!plan->recoveries || world_chance(world, 750000))
		return HF_KV_HEAL;
	return world_chance(world, 500000) ? HF_KV_COPY : HF_KV_STOP;
}

static void set_up(struct kv_cluster *all, struct world *world, struct outcome *outcome, const struct plan *plan)
{
	all->world = world;
	all->outcome = outcome;
	all->count = world_chance(world, 800000) ? 3 : 5;
	all->node_budget_ns = world_range(world, 300 * NS_MS, 2 * NS_S);
	all->op_budget_ns = world_range(world, 500 * NS_MS, 3 * NS_S);
	all->lease_ns = world_range(world, 60 * NS_MS, 200 * NS_MS);
	all->replay_ns = world_range(world, 2 * NS_MS, 60 * NS_MS);
	all->keep = pick_keep(world, plan);
	all->recovery = pick_recovery(world, plan);
	all->recoveries = plan->recoveries;
	all->colds = plan->colds || (plan->damages && world->seed % 2 == 0);
	all->damages = plan->damages;
	all->segment_bytes = 1024u << world_range(world, 0, 6);
	if (world->seed % FEW_MISSED_SEEDS == FEW_MISSED_SEEDS - 2)
		all->missed_entries = FEW_MISSED << world->seed / FEW_MISSED_SEEDS % 4;
	all->image.wanted = (plan->colds || world->seed % OLDER_SEEDS == OLDER_SEEDS - 1) &&
			    all->keep != KV_KEEP_NOTHING && !plan->damages;
	all->aims = plan->aims;
	if (plan->aims) {
		all->missed_entries = 0;
		all->count = 3;
		all->keep = kv_aims_keep(world, all->keep);
		all->recovery = world_chance(world, 850000) ? HF_KV_HEAL : HF_KV_COPY;
		all->lease_ns = world_range(world, 15 * NS_MS, 50 * NS_MS);
		if (world_chance(world, 500000))
			all->replay_ns = 500 * NS_MS;
	}
	kv_nodes_make(all);
}

/* ---- the end of a run ---- */

static bool all_progress(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->nodes[i].done_since_quiet < LIVE_OPERATIONS)
			return false;
	return true;
}

static bool all_idle(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		for (unsigned k = 0; k < KV_CLIENTS; k++)
			for (unsigned n = 0; n < KV_OPS; n++)
				if (all->nodes[i].clients[k].calls[n].busy)
					return false;
	return true;
}

static bool all_equal(const struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->nodes[i].kv == NULL)
			return false;
	for (unsigned i = 1; i < all->count; i++)
		if (hf_kv_digest(all->nodes[i].kv) != hf_kv_digest(all->nodes[0].kv))
			return false;
	return true;
}

static void run_until(
	struct kv_cluster *all, bool (*reached)(const struct kv_cluster *all), const char *claim, const char *words)
{
	struct world *world = all->world;
	uint64_t limit_ns = world->now_ns + LIVE_NS;

	while (world->violations == 0 && world->now_ns < limit_ns && !reached(all))
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && !reached(all))
		world_violate(world, claim, "%s", words);
}

static void check_histories(struct kv_cluster *all)
{
	const char *wrong;

	for (unsigned i = 0; i < KV_REGISTERS; i++)
		if ((wrong = registers_check(&all->registers[i])) != NULL)
			world_violate(all->world, "linear", "register%u: %s", i, wrong);
	for (unsigned i = 0; i < KV_COUNTERS; i++)
		if ((wrong = linear_check(&all->counters[i])) != NULL)
			world_violate(all->world, "linear", "counter%u: %s", i, wrong);
}

/* A member that was one returns with what it missed when another one was there all the time. */
static void check_recoveries(struct kv_cluster *all)
{
	if (all->recovery == HF_KV_COPY && all->outcome->healed > 0)
		world_violate(all->world, "heals", "%" PRIu64 " members were to copy all records, and did not",
			all->outcome->healed);
	if (all->calm && all->keep != KV_KEEP_NOTHING && all->outcome->copied > 0)
		world_violate(all->world, "heals", "%" PRIu64 " members copied all records, and each had its log",
			all->outcome->copied);
}

static void plan_faults(struct kv_cluster *all, struct process **processes, uint64_t quiet_ns, const struct plan *plan)
{
	struct world *world = all->world;
	unsigned faults = (unsigned)world_range(world, 0, plan->faults_max);
	bool kills = plan->kill_seeds != 0 && world->seed % plan->kill_seeds == 0;
	bool stalls = plan->stall_seeds != 0 && world->seed % plan->stall_seeds == 1 % plan->stall_seeds;
	bool disks = plan->disk_seeds != 0 && world->seed % plan->disk_seeds == 2 && all->keep == KV_KEEP_FILE;

	faults_plan(&all->faults, &all->network, processes, all->count, KV_FAULTS, faults, quiet_ns);
	for (unsigned i = 0; stalls && i < plan->stalls; i++)
		faults_plan_stall(
			&all->faults, world_chance(world, 700000) ? FAULT_PAUSE : FAULT_SUSPEND, all->lease_ns);
	if (plan->tears) {
		world->tears_ppm = TEARS_PPM;
		world->tear_ns_max = 2 * all->lease_ns;
		all->stands_ns = 5 * world->tear_ns_max;
	}
	all->calm = faults == 0 && !stalls && !disks && !plan->recoveries && !plan->tears && !plan->aims &&
		    all->missed_entries == 0;
	kv_kills_start(all, kills, disks);
	if (plan->aims)
		kv_aims_start(all);
}

static void run_plan(struct world *world, struct outcome *outcome, const struct plan *plan)
{
	struct kv_cluster *all = calloc(1, sizeof(*all));
	struct process *processes[KV_NODES_MAX];
	uint64_t quiet_ns = world_range(world, 300 * NS_MS, 1000 * NS_MS) *
			    (plan->recoveries || plan->colds || plan->damages ? 2 : 1);

	ensure(all != NULL);
	set_up(all, world, outcome, plan);
	for (unsigned i = 0; i < all->count; i++)
		process_start(processes[i] = all->nodes[i].endpoint.process);
	if (plan->tears || plan->aims) /* the founding of the cluster is not what it is about */
		run_until(all, kv_kills_all_serve, "liveness", "the members do not begin");
	quiet_ns += world->now_ns;
	plan_faults(all, processes, quiet_ns, plan);
	world_run_until(world, quiet_ns);
	world->tears_ppm = 0;
	run_until(all, all_progress, "liveness", "no progress after the faults had healed");
	all->stopping = true;
	run_until(all, all_idle, "liveness", "an operation never ended");
	run_until(all, all_equal, "replicas", "members keep different records though all is quiet");
	if (world->violations == 0)
		check_histories(all);
	kv_kills_stop(all);
	kv_aims_stop(all);
	kv_nodes_free(all);
	if (world->violations == 0)
		check_recoveries(all);
	free(all);
}

static void run_kv(struct world *world, struct outcome *outcome)
{
	run_plan(world, outcome,
		&(struct plan){.kill_seeds = 2, .disk_seeds = 6, .stall_seeds = 3, .stalls = 1, .faults_max = 10});
}

static void run_heal(struct world *world, struct outcome *outcome)
{
	run_plan(world, outcome,
		&(struct plan){.kill_seeds = 1, .stall_seeds = 3, .stalls = 3, .faults_max = 2, .recoveries = true});
}

static void run_lease(struct world *world, struct outcome *outcome)
{
	run_plan(world, outcome, &(struct plan){.stall_seeds = 1, .stalls = 4, .faults_max = 6, .tears = true});
}

static void run_cold(struct world *world, struct outcome *outcome)
{
	run_plan(world, outcome,
		&(struct plan){.kill_seeds = 1, .stall_seeds = 3, .stalls = 1, .faults_max = 2, .colds = true});
}

static void run_damage(struct world *world, struct outcome *outcome)
{
	run_plan(world, outcome,
		&(struct plan){.kill_seeds = 1, .stall_seeds = 3, .stalls = 1, .faults_max = 2, .damages = true});
}

static void run_aim(struct world *world, struct outcome *outcome)
{
	run_plan(world, outcome, &(struct plan){.aims = true});
}

const struct scenario scenario_kv = {
	.name = "kv",
	.only_when_named = true, /* a test of its own, like the others */
	.what = "stores of three to five nodes, whose links fail and whose processes pause and end",
	.run = run_kv,
};

const struct scenario scenario_kv_heal = {
	.name = "kv-heal",
	.only_when_named = true,
	.what = "the same; members are killed while one returns: it, its buddy, who decides, or another one",
	.run = run_heal,
};

const struct scenario scenario_kv_lease = {
	.name = "kv-lease",
	.only_when_named = true,
	.what = "the same; processes stand still for longer than a lease, also within a turn",
	.run = run_lease,
};

const struct scenario scenario_kv_cold = {
	.name = "kv-cold",
	.only_when_named = true,
	.what = "the same; all members end at once, and one may come back with an older copy of its log",
	.run = run_cold,
};

const struct scenario scenario_kv_damage = {
	.name = "kv-damage",
	.only_when_named = true,
	.what = "the same; the log of a member is damaged while its process is down",
	.run = run_damage,
};

const struct scenario scenario_kv_aim = {
	.name = "kv-aim",
	.only_when_named = true,
	.what = "stores with few keys, whose members are killed and cut off at chosen steps of the protocol",
	.run = run_aim,
};
