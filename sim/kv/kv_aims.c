/* Faults that are aimed at steps of the protocol: acts, one after the other, in a run of one kind. In each a member
 * goes and returns, and what happens meanwhile is what breaks a store without one of the rules. Clients are silent
 * while they would overwrite a record that one member alone has. */
#include "sim/disk.h"
#include "sim/kv/kv.h"

#define LOOK_NS     (50 * NS_US)
#define REST_NS_MAX (4 * NS_MS)
#define HELD_NS     (2200 * NS_US) /* before which no vqp leaves its rail */
#define ASKS_NS     (200 * NS_US)  /* within which a member that was admitted asks its buddy */

struct kv_act {
	const char *name;
	bool durable, forgetful;              /* only where members keep a log; only where they do not */
	bool (*turn)(struct kv_cluster *all); /* false: it is over */
};

/* ---- what the acts do ---- */

static void cut(struct kv_cluster *all, unsigned from, unsigned to, int by)
{
	for (unsigned rail = 0; rail < KV_RAILS; rail++) {
		struct port *ports = &all->network.ports[(size_t)rail * all->count];

		network_path(&all->network, &ports[from], &ports[to])->cuts += (unsigned)by;
	}
}

static void cut_off(struct kv_cluster *all, unsigned from, unsigned to)
{
	all->aim.cut[from] |= 1u << to;
	cut(all, from, to, 1);
}

static void isolate(struct kv_cluster *all, unsigned member)
{
	for (unsigned i = 0; i < all->count; i++)
		if (i != member) {
			cut_off(all, member, i);
			cut_off(all, i, member);
		}
}

static void join_all(struct kv_cluster *all)
{
	for (unsigned i = 0; i < all->count; i++)
		for (unsigned k = 0; k < all->count; k++)
			if ((all->aim.cut[i] & 1u << k) != 0)
				cut(all, i, k, -1);
	for (unsigned i = 0; i < all->count; i++)
		all->aim.cut[i] = 0;
	network_healed(&all->network);
}

static void hold_back(struct kv_cluster *all, unsigned from, unsigned to, uint64_t ns)
{
	for (unsigned rail = 0; rail < KV_RAILS; rail++) {
		struct port *ports = &all->network.ports[(size_t)rail * all->count];

		network_path(&all->network, &ports[from], &ports[to])->clogged_until_ns = all->world->now_ns + ns;
	}
}

static bool any_power(const struct kv_cluster *all)
{
	return all->keep == KV_KEEP_FILE && world_chance(all->world, 500000);
}

static bool due(const struct kv_cluster *all)
{
	return all->world->now_ns >= all->aim.at_ns;
}

static bool next(struct kv_cluster *all, uint64_t least_ns, uint64_t most_ns)
{
	all->aim.step++;
	all->aim.at_ns = all->world->now_ns + world_range(all->world, least_ns, most_ns);
	return true;
}

/* ---- what they see ---- */

static uint64_t last_epoch(const struct kv_cluster *all)
{
	struct hf_kv_status status;
	uint64_t epoch = 0;

	for (unsigned i = 0; i < all->count; i++)
		if (kv_kills_status(&all->nodes[i], &status) && status.epoch > epoch)
			epoch = status.epoch;
	return epoch;
}

/* By the last epoch that anybody has installed. */
static enum hf_kv_role role_of(const struct kv_cluster *all, unsigned member)
{
	struct hf_kv_status status;
	enum hf_kv_role role = HF_KV_ROLE_ABSENT;
	uint64_t epoch = 0;

	for (unsigned i = 0; i < all->count; i++)
		if (kv_kills_status(&all->nodes[i], &status) && status.epoch > epoch) {
			epoch = status.epoch;
			role = status.members[member].role;
		}
	return role;
}

static bool serves(const struct kv_cluster *all, unsigned member)
{
	struct hf_kv_status status;

	return kv_kills_status(&all->nodes[member], &status) && status.serving;
}

static uint64_t writes_of(const struct kv_cluster *all, unsigned member)
{
	struct hf_kv_status status = {0};

	(void)kv_kills_status(&all->nodes[member], &status);
	return status.writes;
}

/* Clients are silent, and nothing that they began before is in flight. */
static bool are_idle(struct kv_cluster *all)
{
	all->aim.hushed = UINT32_MAX;
	for (unsigned i = 0; i < all->count; i++)
		if (kv_kills_has_work(&all->nodes[i]))
			return false;
	return true;
}

/* Those of one member write, until the act says otherwise. */
static bool let_write(struct kv_cluster *all, unsigned member)
{
	all->aim.writes = writes_of(all, member);
	all->aim.hushed = ~(1u << member);
	return next(all, 0, 0);
}

/* ---- acts ---- */

/* A member dies when one other has heard of its last writes, or nobody has; and again, soon after it serves. What it
 * writes then is read by all before it is overwritten. */
static bool told_few(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;

	switch (aim->step) {
	case 0:
		if (!are_idle(all))
			return true;
		for (unsigned i = 0; i < all->count; i++)
			if (i != aim->returns && (i != aim->other || aim->alone))
				cut_off(all, aim->returns, i);
		return let_write(all, aim->returns);
	case 1:
		if (writes_of(all, aim->returns) == aim->writes)
			return all->world->now_ns < aim->at_ns + REST_NS_MAX;
		return next(all, 10 * NS_US, NS_MS);
	case 2:
		aim->hushed = UINT32_MAX;
		kv_kills_kill(all, aim->returns, any_power(all));
		join_all(all);
		return next(all, NS_US, 3 * all->lease_ns / 2);
	case 3:
		kv_kills_revive(all, 1u << aim->returns);
		return next(all, 0, 0);
	case 4:
		if (!serves(all, aim->returns))
			return true;
		if (!aim->alone)
			aim->hushed = ~(1u << aim->returns);
		return next(all, 0, 3 * NS_MS);
	case 5:
		if (aim->left == 0) {
			aim->hushed = 0;
			aim->reads = true;
			return next(all, 0, 4 * NS_MS);
		}
		aim->left--;
		kv_kills_kill(all, aim->returns, any_power(all));
		aim->step = 2;
		return next(all, NS_US, all->lease_ns);
	default:
		return false;
	}
}

/* A member that nobody hears is excluded, and comes back to writes of the same keys, which its buddy hears of late. */
static bool isolated(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;
	unsigned buddy = aim->returns == 0; /* the first of the others */

	switch (aim->step) {
	case 0:
		if (!are_idle(all))
			return true;
		isolate(all, aim->returns);
		return let_write(all, aim->returns);
	case 1:
		if (writes_of(all, aim->returns) == aim->writes)
			return all->world->now_ns < aim->at_ns + REST_NS_MAX;
		return next(all, 0, NS_MS);
	case 2:
		aim->hushed = UINT32_MAX;
		if (role_of(all, aim->returns) != HF_KV_ROLE_ABSENT)
			return true;
		join_all(all);
		return next(all, 0, 0);
	case 3:
		if (role_of(all, aim->returns) != HF_KV_ROLE_SHADOW)
			return true;
		hold_back(all, 3 - aim->returns - buddy, buddy, HELD_NS);
		hold_back(all, buddy, aim->returns, HELD_NS);
		aim->hushed = ~(1u << (3 - aim->returns - buddy));
		return next(all, HELD_NS, HELD_NS);
	case 4:
		aim->hushed = UINT32_MAX;
		return serves(all, aim->returns) ? next(all, 0, NS_MS) : true;
	default:
		return false;
	}
}

static bool decides(const struct kv_cluster *all, unsigned member)
{
	struct hf_kv_status status;

	return kv_kills_status(&all->nodes[member], &status) && status.decides;
}

/* A member returns while a third one writes what it missed. The buddy stands still until it has been asked and has the
 * INVs too; they reach who returns late, and it could be promoted without them. */
static bool overtaken(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;
	unsigned buddy = aim->returns == 0, third = 3 - aim->returns - buddy;
	struct process *process = all->nodes[buddy].endpoint.process;

	switch (aim->step) {
	case 0:
		if (!are_idle(all))
			return true;
		isolate(all, aim->returns);
		return let_write(all, third);
	case 1:
		if (role_of(all, aim->returns) != HF_KV_ROLE_ABSENT)
			return true;
		return next(all, 4 * NS_MS, 8 * NS_MS);
	case 2:
		if (!are_idle(all))
			return true;
		join_all(all);
		return next(all, 0, 0);
	case 3:
		if (role_of(all, aim->returns) != HF_KV_ROLE_SHADOW)
			return true;
		if (!decides(all, buddy) || process->paused)
			return false;
		process_pause(process, false);
		hold_back(all, aim->returns, buddy, ASKS_NS);
		hold_back(all, third, aim->returns, 2 * HELD_NS);
		return next(all, ASKS_NS, 2 * ASKS_NS);
	case 4:
		return let_write(all, third);
	case 5:
		if (writes_of(all, third) == aim->writes && all->world->now_ns < aim->at_ns + HELD_NS)
			return true;
		return next(all, 0, ASKS_NS);
	case 6:
		process_resume(process);
		aim->hushed = ~(1u << aim->returns);
		aim->reads = true;
		return next(all, 0, 0);
	case 7:
		return serves(all, aim->returns) ? next(all, 0, 4 * NS_MS) : true;
	default:
		return false;
	}
}

/* All end; one of those that come back as members ends again before the others have replayed what they doubt. */
static bool cold(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;
	bool power;

	switch (aim->step) {
	case 0:
		aim->epoch = last_epoch(all);
		power = any_power(all);
		for (unsigned i = 0; i < all->count; i++)
			kv_kills_kill(all, i, power);
		return next(all, NS_US, 5 * NS_MS);
	case 1:
		kv_kills_revive(all, UINT32_MAX);
		return next(all, 0, 0);
	case 2:
		if (last_epoch(all) <= aim->epoch)
			return true;
		kv_kills_kill(all, aim->returns, any_power(all));
		return next(all, NS_US, 2 * all->lease_ns);
	default:
		kv_kills_revive(all, 1u << aim->returns);
		return false;
	}
}

static void set_disk(struct kv_cluster *all, unsigned member, uint64_t least_ns, uint64_t most_ns)
{
	struct disk *disk = all->nodes[member].endpoint.host.disk;

	disk->call_ns_min = least_ns;
	disk->call_ns_max = most_ns;
}

/* While one returns, another one ends; then the third: who returned is the only one that knows what was missed. */
static bool witness(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;

	switch (aim->step) {
	case 0:
		kv_kills_kill(all, aim->returns, any_power(all));
		return next(all, NS_US, 2 * all->lease_ns);
	case 1:
		kv_kills_revive(all, 1u << aim->returns);
		return next(all, 0, 0);
	case 2:
		if (role_of(all, aim->returns) != HF_KV_ROLE_SHADOW)
			return true;
		set_disk(all, aim->returns, all->lease_ns / 2, all->lease_ns);
		kv_kills_kill(all, aim->other, any_power(all));
		return next(all, 0, 0);
	case 3:
		if (role_of(all, aim->other) != HF_KV_ROLE_ABSENT)
			return true;
		set_disk(all, aim->returns, aim->call_ns_min, aim->call_ns_max);
		return next(all, 0, 0);
	case 4:
		if (!serves(all, aim->returns))
			return true;
		kv_kills_kill(all, aim->third, any_power(all));
		kv_kills_revive(all, 1u << aim->other);
		return next(all, 0, 0);
	case 5:
		if (!serves(all, aim->other))
			return true;
		kv_kills_revive(all, 1u << aim->third);
		return false;
	default:
		return false;
	}
}

/* Two of three return one after the other; the last that knows what the second missed ends before it says so. */
static bool last_buddy(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;

	switch (aim->step) {
	case 0:
		kv_kills_kill(all, aim->returns, any_power(all));
		return next(all, 0, 0);
	case 1:
		if (role_of(all, aim->returns) != HF_KV_ROLE_ABSENT)
			return true;
		kv_kills_kill(all, aim->other, any_power(all));
		return next(all, NS_US, NS_MS);
	case 2:
		kv_kills_revive(all, 1u << aim->other);
		return next(all, 0, 0);
	case 3:
		if (!serves(all, aim->other))
			return true;
		kv_kills_revive(all, 1u << aim->returns);
		return next(all, 0, 0);
	case 4:
		if (role_of(all, aim->returns) != HF_KV_ROLE_SHADOW)
			return true;
		kv_kills_kill(all, aim->third, any_power(all));
		aim->holds = true;
		return next(all, 0, 0);
	default:
		if (!serves(all, aim->returns))
			return true;
		aim->holds = false;
		kv_kills_revive(all, 1u << aim->third);
		return false;
	}
}

/* A member that has nothing yet of what it returns to is excluded, and its process goes on. */
static bool half_copy(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;

	switch (aim->step) {
	case 0:
		if (!are_idle(all))
			return true;
		kv_kills_kill(all, aim->returns, any_power(all));
		return next(all, NS_US, 2 * all->lease_ns);
	case 1:
		kv_kills_revive(all, 1u << aim->returns);
		return next(all, 0, 0);
	case 2:
		if (role_of(all, aim->returns) != HF_KV_ROLE_SHADOW)
			return true;
		isolate(all, aim->returns);
		return next(all, 0, 0);
	case 3:
		if (role_of(all, aim->returns) != HF_KV_ROLE_ABSENT)
			return true;
		join_all(all);
		return next(all, 0, 0);
	default:
		return !serves(all, aim->returns);
	}
}

/* Without logs: as soon as one returns another one ends. Who returns has a vote, or nobody decides any more. */
static bool vote(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;

	switch (aim->step) {
	case 0:
		kv_kills_kill(all, aim->returns, false);
		return next(all, NS_US, 2 * all->lease_ns);
	case 1:
		kv_kills_revive(all, 1u << aim->returns);
		return next(all, 0, 0);
	case 2:
		if (role_of(all, aim->returns) != HF_KV_ROLE_SHADOW)
			return true;
		kv_kills_kill(all, aim->other, false);
		return next(all, NS_US, all->lease_ns);
	default:
		kv_kills_revive(all, 1u << aim->other);
		return false;
	}
}

/* Two write one register on one base. A third one receives the older write alone, appends to it, and dies when the
 * writer of the older one has its INV: that one replays it, over the newer write (R-K30). */
static bool obsolete(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;
	unsigned older = aim->other < aim->third ? aim->other : aim->third, newer = aim->other + aim->third - older;

	switch (aim->step) {
	case 0:
		if (!are_idle(all))
			return true;
		aim->one = true;
		hold_back(all, older, newer, NS_MS);
		hold_back(all, newer, aim->returns, HELD_NS);
		cut_off(all, aim->returns, newer);
		aim->writes = writes_of(all, aim->returns);
		aim->hushed = ~(1u << older | 1u << newer);
		return next(all, NS_MS / 2, NS_MS);
	case 1:
		aim->hushed = ~(1u << aim->returns);
		return next(all, 0, 0);
	case 2:
		if (writes_of(all, aim->returns) == aim->writes)
			return all->world->now_ns < aim->at_ns + HELD_NS;
		return next(all, 10 * NS_US, 100 * NS_US);
	case 3:
		kv_kills_kill(all, aim->returns, any_power(all));
		join_all(all);
		aim->hushed = 0;
		aim->reads = true;
		return next(all, 0, 0);
	case 4:
		if (role_of(all, aim->returns) != HF_KV_ROLE_ABSENT)
			return true;
		return next(all, NS_MS, 4 * NS_MS);
	default:
		kv_kills_revive(all, 1u << aim->returns);
		return false;
	}
}

static const struct kv_act acts[] = {
	{.name = "told few", .turn = told_few},
	{.name = "isolated", .turn = isolated},
	{.name = "cold", .durable = true, .turn = cold},
	{.name = "witness", .durable = true, .turn = witness},
	{.name = "last buddy", .durable = true, .turn = last_buddy},
	{.name = "half copy", .turn = half_copy},
	{.name = "vote", .forgetful = true, .turn = vote},
	{.name = "overtaken", .turn = overtaken},
	{.name = "obsolete", .turn = obsolete},
};
#define ACTS (sizeof(acts) / sizeof(*acts))

/* ---- one after the other ---- */

/* A run has acts of one kind. */
static const struct kv_act *act_of(const struct world *world)
{
	return &acts[world->seed % ACTS];
}

enum kv_keep kv_aims_keep(const struct world *world, enum kv_keep picked)
{
	const struct kv_act *act = act_of(world);

	if (act->forgetful)
		return KV_KEEP_NOTHING;
	return act->durable && picked == KV_KEEP_NOTHING ? KV_KEEP_FILE : picked;
}

static void begin(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;
	struct world *world = all->world;

	aim->hushed = 0;
	if (!due(all) || !kv_kills_all_serve(all))
		return;
	aim->act = act_of(world);
	aim->step = 0;
	aim->left = (unsigned)world_range(world, 0, 2);
	aim->alone = world_chance(world, 500000);
	aim->returns = (unsigned)world_range(world, 0, all->count - 1);
	aim->other = (aim->returns + 1 + (unsigned)world_range(world, 0, all->count - 2)) % all->count;
	do
		aim->third = (unsigned)world_range(world, 0, all->count - 1);
	while (aim->third == aim->returns || aim->third == aim->other);
	world_trace(world, "  %s: %u, %u, %u, %u left%s", aim->act->name, aim->returns, aim->other, aim->third,
		aim->left, aim->alone ? ", alone" : "");
}

static void end(struct kv_cluster *all)
{
	struct kv_aim *aim = &all->aim;

	join_all(all);
	for (unsigned i = 0; i < all->count; i++) {
		struct process *process = all->nodes[i].endpoint.process;

		set_disk(all, i, aim->call_ns_min, aim->call_ns_max);
		if (process->paused)
			process_resume(process);
	}
	aim->act = NULL;
	aim->hushed = 0;
	aim->reads = aim->one = false;
	aim->at_ns = all->world->now_ns + world_range(all->world, 0, REST_NS_MAX);
}

static void look(struct world_event *event)
{
	struct kv_aim *aim = container_of(event, struct kv_aim, event);
	struct kv_cluster *all = container_of(aim, struct kv_cluster, aim);
	struct world *world = all->world;
	bool quiet = world->now_ns >= all->faults.quiet_ns;

	if (aim->act == NULL && !quiet)
		begin(all);
	else if (aim->act != NULL && due(all) && ((quiet && !aim->holds) || !aim->act->turn(all)))
		end(all);
	if (!quiet || aim->act != NULL)
		world_schedule(world, event, world->now_ns + LOOK_NS);
}

void kv_aims_start(struct kv_cluster *all)
{
	const struct disk *disk = all->nodes[0].endpoint.host.disk;

	all->aim.call_ns_min = disk->call_ns_min;
	all->aim.call_ns_max = disk->call_ns_max;
	all->aim.event = (struct world_event){.fire = look, .what = "aim", .outermost = true};
	world_schedule(all->world, &all->aim.event, all->world->now_ns + LOOK_NS);
}

void kv_aims_stop(struct kv_cluster *all)
{
	world_cancel(all->world, &all->aim.event);
}
