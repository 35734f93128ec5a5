/* Paths: what a packet passes on its way. Each stage is a condition of the path and what chance makes of it. */
#include "sim/network.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"
#include "dev/soft/packet.h"

#define BASE_DELAY_NS_MIN 800u
#define BASE_DELAY_NS_MAX 3000u
#define BASE_JITTER_NS    300u
#define REORDER_NS_MAX    (20 * NS_US)
#define LATE_NS_MIN       (50 * NS_MS)
#define LATE_NS_MAX       (3 * NS_S)
#define STREAM_LIMIT_MIN  (1 * NS_S)
#define STREAM_LIMIT_MAX  (8 * NS_S)
#define UNORDERED_PPM     200000u /* of worlds */
#define FIRST_PORT        32768u
#define WIRE_QUEUE_BYTES  (512u << 10) /* as a switch has for a port */

void network_init(struct network *network, struct world *world)
{
	*network = (struct network){.world = world, .last_port = FIRST_PORT};
	network->unordered = world_chance(world, UNORDERED_PPM);
	network->stream_limit_ns = world_range(world, STREAM_LIMIT_MIN, STREAM_LIMIT_MAX);
	list_init(&network->packets);
}

void network_free(struct network *network)
{
	packets_free(network);
	for (unsigned i = 0; i < network->port_count; i++)
		streams_free(&network->ports[i]);
}

struct port *network_add_port(struct network *network, struct host *host, unsigned rail, const char *address)
{
	struct port *port = &network->ports[network->port_count];

	ensure(network->port_count < PORTS_MAX);
	*port = (struct port){.host = host, .index = network->port_count++, .rail = rail};
	ensure(hf_addr_parse(address, &port->address) == 0);
	list_init(&port->sockets);
	list_init(&port->listeners);
	list_init(&port->streams);
	for (unsigned i = 0; i < network->port_count; i++) {
		struct conditions there = {
			.delay_ns = world_range(network->world, BASE_DELAY_NS_MIN, BASE_DELAY_NS_MAX),
			.jitter_ns = BASE_JITTER_NS,
		};

		network->paths[i][port->index] = network->paths[port->index][i] = there;
	}
	return port;
}

struct port *network_find(struct network *network, const struct hf_addr *address)
{
	struct hf_addr host_part = *address;

	hf_addr_set_port(&host_part, 0);
	for (unsigned i = 0; i < network->port_count; i++)
		if (hf_addr_equal(&network->ports[i].address, &host_part))
			return &network->ports[i];
	return NULL;
}

int network_bind(struct process *process, const struct hf_addr *local, struct port **port_out, struct hf_addr *bound,
	struct hf_error *error)
{
	struct network *network = process->host->network;
	struct port *port = network_find(network, local);
	char text[HF_ADDR_TEXT];

	if (process->muted)
		return hf_error_set(error, -ENETDOWN, "the process is dead");
	if (port == NULL || port->host != process->host)
		return hf_error_set(error, -EADDRNOTAVAIL, "%s is not an address of host %s",
			hf_addr_format(local, text), process->host->name);
	*port_out = port;
	*bound = *local;
	if (hf_addr_port(local) == 0)
		hf_addr_set_port(bound, ++network->last_port);
	return 0;
}

bool sim_addr_is_local(struct hf_env *env, const struct hf_addr *addr)
{
	struct process *process = env_process(env);
	struct port *port = network_find(process->host->network, addr);

	return port != NULL && port->host == process->host;
}

struct conditions *network_path(struct network *network, const struct port *from, const struct port *to)
{
	return &network->paths[from->index][to->index];
}

bool network_open(const struct network *network, const struct port *from, const struct port *to)
{
	return from->cut_tx == 0 && to->cut_rx == 0 && !from->dark && !to->dark && !from->host->stopped &&
	       !to->host->stopped && !from->host->suspended && !to->host->suspended &&
	       network->paths[from->index][to->index].cuts == 0;
}

/* ---- the stages ---- */

uint64_t network_wire_ns(struct network *network, const struct port *from, const struct port *to, size_t bytes)
{
	struct conditions *path = network_path(network, from, to);
	uint64_t now_ns = network->world->now_ns;
	uint64_t waits_ns = path->wire_free_ns > now_ns ? path->wire_free_ns - now_ns : 0;

	if (path->bits_per_s == 0)
		return waits_ns; /* behind what is queued from before */
	if (waits_ns > WIRE_QUEUE_BYTES * 8 * NS_S / path->bits_per_s)
		return UINT64_MAX;
	waits_ns += bytes * 8 * NS_S / path->bits_per_s;
	path->wire_free_ns = now_ns + waits_ns;
	return waits_ns;
}

static void pass_cut(struct network *network, const struct port *from, const struct port *to, struct fate *fate)
{
	if (!network_open(network, from, to))
		fate->lost = true;
}

static void pass_loss(struct network *network, const struct port *from, const struct port *to, struct fate *fate)
{
	if (world_chance(network->world, network_path(network, from, to)->loss_ppm))
		fate->lost = true;
}

static void pass_wire(struct network *network, const struct port *from, const struct port *to, struct fate *fate)
{
	struct conditions *path = network_path(network, from, to);
	uint64_t wire_ns = fate->bytes == 0 ? 0 : network_wire_ns(network, from, to, fate->bytes);
	uint64_t at_ns = network->world->now_ns + path->delay_ns +
			 (path->jitter_ns ? world_range(network->world, 0, path->jitter_ns) : 0);

	fate->lost = wire_ns == UINT64_MAX;
	if (fate->lost)
		return;
	at_ns += wire_ns;
	if (!network->unordered && at_ns <= path->last_ns)
		at_ns = path->last_ns + 1;
	path->last_ns = at_ns;
	fate->delay_ns += at_ns - network->world->now_ns;
}

/* A clogged path holds everything until it opens. */
static void pass_clog(struct network *network, const struct port *from, const struct port *to, struct fate *fate)
{
	uint64_t until_ns = network_path(network, from, to)->clogged_until_ns;

	if (until_ns > network->world->now_ns)
		fate->delay_ns += until_ns - network->world->now_ns;
}

static void pass_reorder(struct network *network, const struct port *from, const struct port *to, struct fate *fate)
{
	if (world_chance(network->world, network_path(network, from, to)->reorder_ppm))
		fate->delay_ns += world_range(network->world, 0, REORDER_NS_MAX);
}

static void pass_late(struct network *network, const struct port *from, const struct port *to, struct fate *fate)
{
	if (world_chance(network->world, network_path(network, from, to)->late_ppm))
		fate->delay_ns += world_range(network->world, LATE_NS_MIN, LATE_NS_MAX);
}

/* The second copy may be a late one. */
static void pass_duplicate(struct network *network, const struct port *from, const struct port *to, struct fate *fate)
{
	if (!world_chance(network->world, network_path(network, from, to)->duplicate_ppm))
		return;
	fate->copy_delay_ns = fate->delay_ns + world_range(network->world, 1, REORDER_NS_MAX);
	if (world_chance(network->world, 200000))
		fate->copy_delay_ns += world_range(network->world, LATE_NS_MIN, LATE_NS_MAX);
}

struct fate network_fate(struct network *network, const struct port *from, const struct port *to, size_t bytes)
{
	static void (*const stages[])(struct network *, const struct port *, const struct port *, struct fate *) = {
		pass_cut, pass_loss, pass_wire, pass_clog, pass_reorder, pass_late, pass_duplicate};
	struct fate fate = {.bytes = bytes};

	for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]) && !fate.lost; i++)
		stages[i](network, from, to, &fate);
	return fate;
}

bool network_loses(
	struct network *network, const struct port *from, const struct port *to, const uint8_t *data, size_t bytes)
{
	const struct conditions *path = network_path(network, from, to);
	uint32_t traits = bytes == 0 ? 0 : packet_traits(data[0]);

	if (from->data_lost > 0 || to->data_lost > 0 || (from->writes_lost > 0 && (traits & PACKET_IS_WRITE) != 0))
		return true;
	if ((traits & PACKET_IS_RESPONSE) == 0)
		return false;
	return world_chance(network->world, data[0] == PACKET_ACK ? path->acks_lost_ppm : path->responses_lost_ppm);
}

void network_healed(struct network *network)
{
	for (unsigned i = 0; i < network->port_count; i++)
		streams_healed(&network->ports[i]);
}

unsigned network_reset_streams(struct network *network, struct port *a, const struct port *b)
{
	(void)network;
	return streams_reset(a, b);
}

bool network_busy(const struct network *network)
{
	return !list_empty(&network->packets);
}
