/* A leader apart from one follower. */
#include "sim/broker/split.h"

#include <stdlib.h>

#include "base/ensure.h"

#define WHOLE_NS_MAX (50 * NS_MS)
#define AGAIN_NS_MAX (2 * NS_MS)
#define SPLIT_NS_MAX (400 * NS_MS) /* less than a session, which takes the follower out of the isr */
#define DOWN_NS_MIN  (600 * NS_MS) /* beyond one: another broker leads */
#define DOWN_NS_MAX  (900 * NS_MS)

static void cut(struct split *split, int by)
{
	struct network *network = &split->all->network;
	const struct host *leader = &split->leader->host, *follower = &split->follower->host;

	for (unsigned i = 0; i < network->port_count; i++)
		for (unsigned k = 0; k < network->port_count; k++) {
			const struct host *from = network->ports[i].host, *to = network->ports[k].host;

			if ((from == leader && to == follower) || (from == follower && to == leader))
				network->paths[i][k].cuts += (unsigned)by;
		}
}

/* false: not now. */
static bool choose(struct split *split)
{
	struct broker_sim *all = split->all;
	const struct broker *brokers[SIM_BROKERS_MAX];
	unsigned next = (unsigned)world_range(all->world, 1, all->count - 1);
	int at;

	for (unsigned i = 0; i < all->count; i++)
		brokers[i] = all->brokers[i].broker;
	at = sim_brokers_leading(brokers, all->count, SIM_BROKER_TOPIC);
	if (at < 0 || !sim_brokers_are_whole(brokers, all->count, SIM_BROKER_TOPIC))
		return false;
	split->leader = &all->brokers[at];
	split->follower = &all->brokers[((unsigned)at + next) % all->count];
	return true;
}

static void kill_leader(struct split *split)
{
	struct broker_sim *all = split->all;

	all->outcome->in_doubt++;
	all->down = true;
	world_count_fault(all->world, FAULT_PROCESS_CRASH);
	sim_broker_count(split->leader);
	process_crash(split->leader->process);
}

static void heal(struct split *split)
{
	cut(split, -1);
	network_healed(&split->all->network);
	process_start(split->leader->process);
	split->all->down = false;
	split->leader = split->follower = NULL;
}

static void step(struct world_event *event)
{
	struct split *split = container_of(event, struct split, event);
	struct world *world = split->all->world;
	uint64_t next_ns = world_range(world, 1, AGAIN_NS_MAX);

	if (split->all->down) {
		heal(split);
		next_ns = world_range(world, NS_MS, WHOLE_NS_MAX);
	} else if (split->leader != NULL) {
		kill_leader(split);
		next_ns = world_range(world, DOWN_NS_MIN, DOWN_NS_MAX);
	} else if (world->now_ns < split->all->faults.quiet_ns && choose(split)) {
		world_count_fault(world, FAULT_PARTITION);
		cut(split, 1);
		next_ns = world_range(world, SPLIT_LAG_NS, SPLIT_NS_MAX);
	}
	if (split->leader != NULL || world->now_ns < split->all->faults.quiet_ns)
		world_schedule(world, event, world->now_ns + next_ns);
}

void split_start(struct broker_sim *all)
{
	struct split *split = calloc(1, sizeof(*split));

	ensure(split != NULL);
	*split = (struct split){.all = all, .event = {.fire = step, .what = "split", .outermost = true}};
	all->split = split;
	world_schedule(all->world, &split->event, world_range(all->world, 100 * NS_MS, 300 * NS_MS));
}

void split_end(struct broker_sim *all)
{
	if (all->split == NULL)
		return;
	world_cancel(all->world, &all->split->event);
	free(all->split);
	all->split = NULL;
}
