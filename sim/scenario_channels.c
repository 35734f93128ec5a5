/* Channels between three nodes under faults of the control connection, of processes and of hosts: messages of all
 * lengths on two channels, one of which is closed and registered again. Held to what checkers/streams.h says, and:
 *   rails         causes are told between peer_up and peer_down, and each is another than the one before
 *   liveness      when all has healed, every pair of nodes is open on both channels again, what was sent arrives, and
 *                 a send that was refused is followed by `writable`;
 *                 every rail to every peer is told to be up
 * In half of the worlds a layer has a lease, by which peers are dead long before the budget. */
#include <holdfast/channel.h>

#include <stdio.h>
#include <stdlib.h>
#include <errno.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/checkers/streams.h"
#include "sim/endpoint.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define NODES         3u
#define RAILS         2u
#define CHANNELS      2u
#define LINKS         6u /* of a channel of a node */
#define CONTROL_PORT  7000u
#define HEARTBEAT_NS  (5 * NS_MS)
#define BUDGET_NS     (1 * NS_S)
#define LEASE_NS_MIN  (60 * NS_MS)
#define LEASE_NS_MAX  (400 * NS_MS)
#define LIVE_NS       (8 * NS_S)
#define REST_NS_MAX   (4 * NS_MS)
#define BYTES_MAX     (6u << 20) /* that a run sends, about */
#define CLOSED_NS_MAX (20 * NS_MS)
#define CHANNEL_FAULTS                                                                                                 \
	(FAULT_BIT(FAULT_CUT) | FAULT_BIT(FAULT_CUT_TX) | FAULT_BIT(FAULT_CUT_RX) | FAULT_BIT(FAULT_PORT_DOWN) |       \
		FAULT_BIT(FAULT_FLAP) | FAULT_BIT(FAULT_DELAY) | FAULT_BIT(FAULT_RAIL_DOWN) |                          \
		FAULT_BIT(FAULT_CONTROL_HELD) | FAULT_BIT(FAULT_CLOG) | FAULT_BIT(FAULT_STREAM_RESET) |                \
		FAULT_BIT(FAULT_PAUSE) | FAULT_BIT(FAULT_PARTITION) | FAULT_BIT(FAULT_PROCESS_CRASH) |                 \
		FAULT_BIT(FAULT_HOST_STOP))

/* One node's end of a channel to one peer. A peer that has restarted may open before its predecessor has ended. */
struct link {
	struct hf_peer *peer; /* NULL: not open */
	unsigned other;       /* the node that it is */
	uint32_t stream;      /* that this end sends */
	struct stream_end heard;
	bool refused;
};

/* What was told of the rails to a peer. */
struct rails {
	struct hf_peer *peer; /* NULL: none */
	enum hf_rail_cause cause[RAILS];
	bool told[RAILS];
};

struct chans;

struct chan_node {
	struct chans *all;
	unsigned index;
	struct endpoint endpoint;
	struct hf_peer *peers[NODES]; /* that this node connects to */
	struct hf_node_listener layer;
	struct rails rails[LINKS];
	struct hf_channel *channels[CHANNELS];
	struct link links[CHANNELS][LINKS];
	uint64_t next_ns, register_ns; /* when the second channel is registered again; 0: it is */
};

struct chans {
	struct world *world;
	struct network network;
	struct faults faults;
	struct chan_node nodes[NODES];
	struct streams streams;
	struct outcome *outcome;
	uint64_t bytes, lease_ns;
	uint8_t message[HF_CHANNEL_MESSAGE_BYTES];
	bool stopping;
};

/* ---- callbacks ---- */

static unsigned end_number(unsigned node, unsigned channel)
{
	return node * CHANNELS + channel;
}

static unsigned channel_number(const struct chan_node *node, const struct hf_channel *channel)
{
	return channel == node->channels[1];
}

/* NULL: it is not open. As peer NULL: one that is free. */
static struct link *link_of(struct chan_node *node, const struct hf_channel *channel, const struct hf_peer *peer)
{
	for (unsigned i = 0; i < LINKS; i++) {
		struct link *link = &node->links[channel_number(node, channel)][i];

		if (link->peer == peer)
			return link;
	}
	return NULL;
}

static void on_open(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct chan_node *node = context;
	unsigned k = channel_number(node, channel);
	struct link *link = link_of(node, channel, NULL);

	if (link_of(node, channel, peer) != NULL || link == NULL) {
		world_violate(node->all->world, "ends", "a channel opened twice");
		return;
	}
	*link = (struct link){.peer = peer, .other = (unsigned)(hf_peer_name(peer)[0] - 'a'), .heard = {.open = true}};
	link->stream = streams_begin(&node->all->streams, end_number(node->index, k), end_number(link->other, k));
	ensure(link->stream != 0);
	world_note(node->all->world, "channel-open", link->stream);
}

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct chan_node *node = context;
	unsigned k = channel_number(node, channel);
	struct link *link = link_of(node, channel, peer);
	const char *wrong = "a message arrived at an end that is not open";

	if (link != NULL)
		wrong = streams_hear(&node->all->streams, &link->heard, end_number(link->other, k),
			end_number(node->index, k), data, bytes);
	if (wrong != NULL)
		world_violate(node->all->world, "streams", "%s to %s: %s", hf_peer_name(peer), node->endpoint.host.name,
			wrong);
	world_note(node->all->world, "channel-message", bytes);
	node->all->outcome->operations++;
}

static void on_writable(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct link *link = link_of(context, channel, peer);

	if (link != NULL)
		link->refused = false;
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct chan_node *node = context;
	struct link *link = link_of(node, channel, peer);

	if (link == NULL) {
		world_violate(node->all->world, "ends", "a channel ended that was not open");
		return;
	}
	world_note(node->all->world, "channel-end", link->stream);
	*link = (struct link){0};
}

/* ---- rails ---- */

static struct rails *rails_of(struct chan_node *node, const struct hf_peer *peer)
{
	for (unsigned i = 0; i < LINKS; i++)
		if (node->rails[i].peer == peer)
			return &node->rails[i];
	return NULL;
}

static void layer_peer_up(struct hf_peer *peer, void *context)
{
	struct chan_node *node = context;
	struct rails *rails = rails_of(node, NULL);

	ensure(rails != NULL);
	*rails = (struct rails){.peer = peer};
}

static void layer_peer_down(struct hf_peer *peer, void *context)
{
	struct chan_node *node = context;
	struct rails *rails = rails_of(node, peer);

	if (rails != NULL)
		*rails = (struct rails){0};
	for (unsigned k = 0; k < CHANNELS; k++)
		for (unsigned i = 0; i < LINKS; i++)
			if (node->links[k][i].peer == peer)
				world_violate(node->all->world, "ends", "a peer is down before its channels ended");
}

static void layer_peer_rail(struct hf_peer *peer, unsigned rail, enum hf_rail_cause cause, void *context)
{
	struct chan_node *node = context;
	struct rails *rails = rails_of(node, peer);

	if (rails == NULL || rail >= RAILS || (rails->told[rail] && rails->cause[rail] == cause)) {
		world_violate(node->all->world, "rails", "rail %u is told to be %s, which is no news", rail,
			hf_rail_cause_name(cause));
		return;
	}
	rails->cause[rail] = cause;
	rails->told[rail] = true;
	world_note(node->all->world, "peer-rail", cause);
}

static bool rails_are_up(const struct rails *rails)
{
	for (unsigned i = 0; i < RAILS; i++)
		if (!rails->told[i] || rails->cause[i] != HF_RAIL_UP)
			return false;
	return true;
}

static int listen_to(struct chan_node *node)
{
	struct hf_error error = {0};
	int rc;

	node->layer = (struct hf_node_listener){
		.events = {.peer_up = layer_peer_up, .peer_down = layer_peer_down, .peer_rail = layer_peer_rail},
		.context = node,
		.lease_ns = node->all->lease_ns};
	rc = hf_node_listen(node->endpoint.node, &node->layer, &error);
	if (rc != 0)
		world_violate(node->all->world, "start", "%s", error.text);
	return rc;
}

/* ---- the program ---- */

static const struct hf_channel_events events = {
	.open = on_open, .message = on_message, .writable = on_writable, .end = on_end};

static int register_channel(struct chan_node *node, unsigned k)
{
	struct hf_error error = {0};
	int rc = hf_channel_register(
		node->endpoint.node, k == 0 ? "first" : "second", &events, node, &node->channels[k], &error);

	if (rc != 0)
		world_violate(node->all->world, "start", "%s", error.text);
	return rc;
}

static void close_second(struct chan_node *node, uint64_t now_ns)
{
	hf_channel_close(node->channels[1]);
	node->channels[1] = NULL;
	memset(node->links[1], 0, sizeof(node->links[1]));
	node->register_ns = now_ns + world_range(node->all->world, 0, CLOSED_NS_MAX);
}

static void connect_others(struct chan_node *node)
{
	for (unsigned other = 0; other < node->index; other++) {
		struct hf_addr addresses[RAILS];
		struct hf_error error = {0};

		for (unsigned rail = 0; rail < RAILS; rail++) {
			addresses[rail] = node->all->network.ports[rail * NODES + other].address;
			hf_addr_set_port(&addresses[rail], CONTROL_PORT);
		}
		if (node->peers[other] == NULL &&
			hf_peer_connect(node->endpoint.node, addresses, RAILS, &node->peers[other], &error) != 0)
			world_violate(node->all->world, "connecting", "%s", error.text);
	}
}

static void peer_down(struct hf_peer *peer, void *context)
{
	struct chan_node *node = context;

	for (unsigned other = 0; other < NODES; other++)
		if (node->peers[other] == peer)
			node->peers[other] = NULL;
}

static size_t some_bytes(struct world *world)
{
	uint64_t kind = world_range(world, 0, 99);

	return (size_t)world_range(world, STREAM_BYTES_LEAST,
		kind < 60   ? 200
		: kind < 85 ? 10000
		: kind < 97 ? 100000
			    : HF_CHANNEL_MESSAGE_BYTES);
}

static void send_one(struct chan_node *node, struct link *link, unsigned k)
{
	struct chans *all = node->all;
	size_t bytes = some_bytes(all->world);
	int rc;

	streams_fill(&all->streams, link->stream, all->message, bytes);
	rc = hf_channel_send(node->channels[k], link->peer, all->message, bytes);
	if (rc == 0) {
		streams_sent(&all->streams, link->stream);
		all->bytes += bytes;
	} else if (rc == -EAGAIN) {
		link->refused = true;
	} else {
		world_violate(all->world, "sending", "an open channel refuses a message: %s", strerror(-rc));
	}
}

/* Some at once now and then, so that queues fill. */
static void send_some(struct chan_node *node, uint64_t now_ns)
{
	struct world *world = node->all->world;
	unsigned k = (unsigned)world_range(world, 0, CHANNELS - 1), at = (unsigned)world_range(world, 0, NODES - 2);
	unsigned n = world_chance(world, 100000) ? 40 : 1;
	struct link *link = &node->links[k][at];

	for (; n > 0 && link->peer != NULL && !link->refused; n--)
		send_one(node, link, k);
	node->next_ns = now_ns + world_range(world, 0, REST_NS_MAX);
}

static enum hf_poll poll_node(struct hf_poller *poller, uint64_t now_ns)
{
	struct chan_node *node = container_of(poller, struct chan_node, endpoint.poller);
	struct chans *all = node->all;

	connect_others(node);
	if (node->register_ns != 0 && now_ns >= node->register_ns) {
		node->register_ns = 0;
		(void)register_channel(node, 1);
	}
	if (all->stopping || now_ns < node->next_ns || all->bytes >= BYTES_MAX)
		return HF_IDLE;
	if (node->channels[1] != NULL && world_chance(all->world, 10000))
		close_second(node, now_ns);
	send_some(node, now_ns);
	return HF_BUSY;
}

static bool arm_node(struct hf_poller *poller)
{
	struct chan_node *node = container_of(poller, struct chan_node, endpoint.poller);
	uint64_t due_ns =
		node->register_ns != 0 && node->register_ns < node->next_ns ? node->register_ns : node->next_ns;

	if (due_ns > hf_loop_now_ns(node->endpoint.loop))
		hf_loop_set_timer(node->endpoint.loop, &node->endpoint.timer, due_ns);
	return true;
}

static void configure(const struct chan_node *node, struct hf_node_config *config)
{
	*config = (struct hf_node_config){
		.rail_count = RAILS, .heartbeat_ns = HEARTBEAT_NS, .heartbeat_misses = 4, .budget_ns = BUDGET_NS};
	snprintf(config->name, sizeof(config->name), "%s", node->endpoint.host.name);
	for (unsigned i = 0; i < RAILS; i++)
		endpoint_set_rail(config, i, &node->all->network.ports[i * NODES + node->index].address, CONTROL_PORT);
}

static int start_node(struct process *process, void *context)
{
	static const struct hf_node_events node_events = {.peer_down = peer_down};
	struct chan_node *node = context;
	struct hf_node_config config;
	int rc;

	(void)process;
	configure(node, &config);
	rc = endpoint_open(&node->endpoint, &config, &node_events, node, 16);
	if (rc == 0)
		rc = listen_to(node);
	for (unsigned k = 0; rc == 0 && k < CHANNELS; k++)
		rc = register_channel(node, k);
	if (rc == 0)
		endpoint_run(&node->endpoint, poll_node, arm_node);
	return rc;
}

static void stop_node(struct process *process, void *context)
{
	struct chan_node *node = context;

	(void)process;
	for (unsigned k = 0; k < CHANNELS; k++) {
		hf_channel_close(node->channels[k]);
		node->channels[k] = NULL;
	}
	memset(node->links, 0, sizeof(node->links));
	memset(node->rails, 0, sizeof(node->rails));
	memset(node->peers, 0, sizeof(node->peers));
	node->next_ns = node->register_ns = 0;
	if (node->endpoint.loop != NULL)
		endpoint_close(&node->endpoint);
}

static const struct program program = {.name = "channels", .start = start_node, .stop = stop_node};

/* ---- the run ---- */

/* The only end that is open; NULL: there is none, or there are two. */
static const struct link *only_link(const struct chan_node *node, unsigned k, unsigned other)
{
	const struct link *only = NULL;
	unsigned count = 0;

	for (unsigned i = 0; i < LINKS; i++)
		if (node->links[k][i].peer != NULL && node->links[k][i].other == other) {
			only = &node->links[k][i];
			count++;
		}
	return count == 1 ? only : NULL;
}

static bool is_well(const struct chans *all, unsigned k, unsigned from, unsigned to)
{
	const struct link *sender = only_link(&all->nodes[from], k, to);
	const struct link *receiver = only_link(&all->nodes[to], k, from);

	return sender != NULL && receiver != NULL && !sender->refused &&
	       streams_complete(&all->streams, sender->stream, &receiver->heard);
}

/* Both ends of each channel of each pair are open, and have heard all that the other sent. */
static bool all_is_well(const struct chans *all)
{
	for (unsigned k = 0; k < CHANNELS; k++)
		for (unsigned from = 0; from < NODES; from++)
			for (unsigned to = 0; to < NODES; to++)
				if (from != to && !is_well(all, k, from, to))
					return false;
	for (unsigned i = 0; i < NODES; i++)
		for (unsigned k = 0; k < LINKS; k++)
			if (all->nodes[i].rails[k].peer != NULL && !rails_are_up(&all->nodes[i].rails[k]))
				return false;
	return true;
}

static void set_up(struct chans *all, struct world *world, struct outcome *outcome)
{
	static const char *const names[NODES] = {"a", "b", "c"};

	all->world = world;
	all->outcome = outcome;
	all->lease_ns = world_chance(world, 500000) ? world_range(world, LEASE_NS_MIN, LEASE_NS_MAX) : 0;
	network_init(&all->network, world);
	all->network.stream_limit_ns = 8 * NS_S;
	for (unsigned i = 0; i < NODES; i++) {
		struct chan_node *node = &all->nodes[i];

		node->all = all;
		node->index = i;
		host_init(&node->endpoint.host, world, &all->network, names[i]);
		node->endpoint.process = process_create(&node->endpoint.host, names[i], &program, node);
	}
	for (unsigned rail = 0; rail < RAILS; rail++)
		for (unsigned i = 0; i < NODES; i++) {
			char address[HF_ADDR_TEXT];

			snprintf(address, sizeof(address), "10.%u.0.%u", rail, i + 1);
			network_add_port(&all->network, &all->nodes[i].endpoint.host, rail, address);
		}
}

static void run(struct world *world, struct outcome *outcome)
{
	struct chans *all = calloc(1, sizeof(*all));
	struct process *processes[NODES];
	uint64_t quiet_ns = world_range(world, 100 * NS_MS, 800 * NS_MS);

	ensure(all != NULL);
	set_up(all, world, outcome);
	for (unsigned i = 0; i < NODES; i++)
		process_start(processes[i] = all->nodes[i].endpoint.process);
	faults_plan(&all->faults, &all->network, processes, NODES, CHANNEL_FAULTS, (unsigned)world_range(world, 0, 8),
		quiet_ns);
	world_run_until(world, quiet_ns);
	all->bytes = BYTES_MAX - (1u << 20); /* a little more, over what has healed */
	world_run_until(world, quiet_ns + BUDGET_NS);
	all->stopping = true;
	while (world->violations == 0 && world->now_ns < quiet_ns + LIVE_NS && !all_is_well(all))
		world_run_until(world, world->now_ns + NS_MS);
	if (world->violations == 0 && !all_is_well(all))
		world_violate(world, "liveness", "all has healed, and messages are still missing");
	for (unsigned i = 0; i < NODES; i++)
		host_free(&all->nodes[i].endpoint.host);
	network_free(&all->network);
	free(all);
}

const struct scenario scenario_channels = {
	.name = "channels",
	.what = "messages of layers above over the control connection of three nodes",
	.run = run,
};
