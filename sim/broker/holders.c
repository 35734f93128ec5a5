/* Producers over RDMA that fail. */
#include "sim/broker/holders.h"

#include <stdlib.h>

#include "base/ensure.h"

#define WELL_NS_MAX   (150 * NS_MS)
#define FAILED_NS_MAX (1500 * NS_MS) /* so that a partition that waited for its holder stood for too long */

static void fail_one(struct holders *holders)
{
	struct world *world = holders->all->world;
	struct rdma_sim_client *client = &holders->all->clients[world_range(world, 0, RDMA_SIM_PRODUCERS - 2)];

	if (client->over_tcp || hf_producer_pending(client->producer) == 0)
		return;
	holders->failed = client;
	holders->all->outcome->in_doubt++;
	if (world_chance(world, 300000)) {
		world_count_fault(world, FAULT_PROCESS_CRASH);
		process_crash(client->end.process);
	} else {
		world_count_fault(world, FAULT_PAUSE);
		process_pause(client->end.process, world_chance(world, 500000));
	}
}

static void continue_one(struct holders *holders)
{
	struct process *process = holders->failed->end.process;

	holders->failed = NULL;
	if (process->paused)
		process_resume(process);
	else
		process_start(process);
}

static void next(struct world_event *event)
{
	struct holders *holders = container_of(event, struct holders, event);
	struct world *world = holders->all->world;
	bool quiet = world->now_ns >= holders->all->faults.quiet_ns;

	if (holders->failed != NULL)
		continue_one(holders);
	else if (!quiet)
		fail_one(holders);
	if (holders->failed != NULL || !quiet)
		world_schedule(world, event,
			world->now_ns +
				world_range(world, NS_MS, holders->failed != NULL ? FAILED_NS_MAX : WELL_NS_MAX));
}

void holders_start(struct rdma_sim *all)
{
	struct holders *holders = calloc(1, sizeof(*holders));

	ensure(holders != NULL);
	*holders = (struct holders){.all = all, .event = {.fire = next, .what = "holders", .outermost = true}};
	all->holders = holders;
	world_schedule(all->world, &holders->event, world_range(all->world, 20 * NS_MS, 200 * NS_MS));
}

void holders_end(struct rdma_sim *all)
{
	if (all->holders == NULL)
		return;
	world_cancel(all->world, &all->holders->event);
	free(all->holders);
	all->holders = NULL;
	if (all->led > RDMA_SIM_PARTITIONS)
		world_violate(all->world, "leader", "a producer that failed cost a partition its leader");
}

void holders_judge(const struct rdma_sim_client *client, uint64_t sent_ns)
{
	struct world *world = client->end.all->world;

	if (client->end.all->holders != NULL && client->over_tcp && world->now_ns - sent_ns > HOLDERS_STAND_NS)
		world_violate(world, "stands", "a partition stood for %llu ms because of its holder",
			(unsigned long long)((world->now_ns - sent_ns) / NS_MS));
}
