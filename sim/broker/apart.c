#include "sim/broker/apart.h"

#define SEEDS_PPM    400000u
#define AGAIN_NS_MAX (300 * NS_US)
#define PAUSE_NS_MIN (600 * NS_MS) /* beyond a session */
#define PAUSE_NS_MAX (1200 * NS_MS)
#define ALONE_NS_MAX (800 * NS_MS)
#define BEGIN_NS_MIN (200 * NS_MS)

static bool is_of_broker(const struct apart *apart, const struct port *port)
{
	for (unsigned i = 0; i < apart->count; i++)
		if (port->host == apart->brokers[i]->host)
			return true;
	return false;
}

static void cut(const struct apart *apart, int by)
{
	struct network *network = apart->network;
	const struct host *host = apart->broker->host;

	for (unsigned i = 0; i < network->port_count; i++)
		for (unsigned k = 0; k < network->port_count; k++)
			if (is_of_broker(apart, &network->ports[i]) && is_of_broker(apart, &network->ports[k]) &&
				(network->ports[i].host == host) != (network->ports[k].host == host))
				network->paths[i][k].cuts += (unsigned)by;
}

static void begin(struct apart *apart)
{
	struct world *world = apart->network->world;

	apart->broker = apart->choose(apart);
	if (apart->broker == NULL) {
		world_schedule(world, &apart->event, world->now_ns + world_range(world, 1, AGAIN_NS_MAX));
		return;
	}
	world_count_fault(world, FAULT_PARTITION);
	world_trace(world, "  %s is set apart", apart->broker->name);
	cut(apart, 1);
	process_pause(apart->broker, false);
	world_schedule(world, &apart->event, world->now_ns + world_range(world, PAUSE_NS_MIN, PAUSE_NS_MAX));
}

static void step(struct world_event *event)
{
	struct apart *apart = container_of(event, struct apart, event);
	struct world *world = apart->network->world;

	if (apart->broker == NULL) {
		if (world->now_ns + PAUSE_NS_MAX + ALONE_NS_MAX < apart->quiet_ns)
			begin(apart);
	} else if (apart->broker->paused) {
		process_resume(apart->broker);
		world_schedule(world, event, world->now_ns + world_range(world, NS_MS, ALONE_NS_MAX));
	} else {
		cut(apart, -1);
		network_healed(apart->network);
		apart->broker = NULL;
	}
}

void apart_plan(struct apart *apart)
{
	struct world *world = apart->network->world;

	apart->event = (struct world_event){.fire = step, .what = "apart", .outermost = true};
	if (apart->count > 1 && world_chance(world, SEEDS_PPM))
		world_schedule(world, &apart->event, world_range(world, BEGIN_NS_MIN, apart->quiet_ns / 3));
}
