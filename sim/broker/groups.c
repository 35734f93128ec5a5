/* A consumer group: its members' accounts, and the kills. */
#include "sim/broker/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define KILL_NS_MAX (900 * NS_MS)
#define DOWN_NS_MAX (600 * NS_MS)

_Static_assert(SIM_MEMBER_PARTITIONS == SIM_BROKER_PARTITIONS, "the group reads all partitions");

uint32_t sim_group_number(struct sim_group *group, int32_t generation, const char *leader)
{
	struct member_generation *next = &group->generations[group->generation_count];

	for (uint32_t i = 0; i < group->generation_count; i++)
		if (group->generations[i].generation == generation && strcmp(group->generations[i].leader, leader) == 0)
			return i + 1;
	ensure(group->generation_count + 1 < GROUP_GENERATIONS_MAX);
	next->generation = generation;
	snprintf(next->leader, sizeof(next->leader), "%s", leader);
	return ++group->generation_count;
}

static void kill_next(struct world_event *event)
{
	struct sim_group *group = container_of(event, struct sim_group, killer);
	struct broker_sim *all = group->all;
	struct world *world = all->world;
	struct process *process = group->processes[world_range(world, 0, SIM_MEMBERS - 1)];
	uint64_t next_ns = KILL_NS_MAX;

	if (group->down != NULL) {
		process_start(group->down);
		group->down = NULL;
	} else if (world->now_ns < all->faults.quiet_ns && process->running && !process->paused) {
		world_count_fault(world, FAULT_PROCESS_CRASH);
		process_crash(process);
		group->down = process;
		next_ns = DOWN_NS_MAX;
	}
	if (group->down != NULL || world->now_ns < all->faults.quiet_ns)
		world_schedule(world, event, world->now_ns + world_range(world, NS_US, next_ns));
}

void sim_group_set_up(struct broker_sim *all, enum sim_group_kind kind)
{
	struct sim_group *group = calloc(1, sizeof(*group));

	ensure(group != NULL);
	all->group = group;
	group->all = all;
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++)
		group_account_init(&group->accounts[i], all->world, all->accounts[i].name);
	for (unsigned i = 0; i < SIM_MEMBERS; i++) {
		if (kind == SIM_GROUP_OURS)
			our_member_set_up(&group->ours[i], all, i);
		else
			sim_member_set_up(&group->stock[i], all, i);
		group->processes[i] = kind == SIM_GROUP_OURS ? group->ours[i].process : group->stock[i].process;
	}
	for (unsigned i = 0; i < all->count; i++) {
		struct broker_config *config = &all->brokers[i].config;

		config->session_min_ns = SIM_GROUP_SESSION_MS / 2 * NS_MS;
		config->rebalance_delay_ms = 20;
		if (kind == SIM_GROUP_OURS) /* they ask for the topic before all brokers are there */
			config->auto_create_topics = false;
	}
}

void sim_group_start(struct broker_sim *all)
{
	all->group->killer = (struct world_event){.fire = kill_next, .what = "member-killer", .outermost = true};
	world_schedule(all->world, &all->group->killer, world_range(all->world, 100 * NS_MS, KILL_NS_MAX));
}

bool sim_group_is_at_end(const struct broker_sim *all)
{
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++)
		if (!group_is_at(&all->group->accounts[i], all->accounts[i].end))
			return false;
	return true;
}

void sim_group_free(struct broker_sim *all)
{
	for (unsigned i = 0; i < SIM_MEMBER_PARTITIONS; i++)
		all->outcome->doubled += all->group->accounts[i].doubled;
	world_cancel(all->world, &all->group->killer);
	for (unsigned i = 0; i < SIM_MEMBERS; i++)
		host_free(all->group->processes[i]->host);
	free(all->group);
	all->group = NULL;
}
