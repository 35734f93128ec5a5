/* One of a pair's two nodes: told what to do by its parent over its channel. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/scratch.h"
#include "cli/transfer/copy.h"
#include "cli/transfer/pair.h"

#define CONTROL_PORT  18515
#define QP_TIMEOUT    12u /* 17 ms, four times: a busy machine does not look like a cut */
#define SETUP_WAIT_MS 10000u
#define LOOK_EVERY_NS 4000000u
#define PLACES_A_NODE (PAIR_RAILS + 1u)
#define TIMEOUT_NS    15000000000ull

struct pair_node {
	struct channel channel;
	json_t *setup; /* the strings are its */
	const char *role, *device, *fabric, *source, *into, *scratch;
	struct hf_addr base;
	struct hf_node_config config;
	bool quit;
};

/* a/r0, a/r1, a's management network, b/r0, ... */
static struct hf_addr address_of(const struct pair_node *node, unsigned place, uint16_t port)
{
	struct hf_addr address = node->base;

	address.in.sin_addr.s_addr = htonl(ntohl(node->base.in.sin_addr.s_addr) + place);
	hf_addr_set_port(&address, port);
	return address;
}

static void configure(struct pair_node *node)
{
	struct hf_node_config *config = &node->config;
	unsigned place = strcmp(node->role, "a") == 0 ? 0 : PLACES_A_NODE;

	snprintf(config->name, sizeof(config->name), "%s", node->role);
	snprintf(config->fabric, sizeof(config->fabric), "%s", node->fabric);
	config->policy = HF_POLICY_VARUNA;
	config->timeout = QP_TIMEOUT;
	config->rail_count = PAIR_RAILS;
	for (unsigned i = 0; i < PAIR_RAILS; i++) {
		struct hf_rail_config *rail = &config->rails[i];

		snprintf(rail->name, sizeof(rail->name), "r%u", i);
		snprintf(rail->kind, sizeof(rail->kind), "%s", node->device);
		rail->address = address_of(node, place + i, 0);
		rail->control = address_of(node, place + i, CONTROL_PORT);
	}
	config->management[0] = address_of(node, place + PAIR_RAILS, CONTROL_PORT);
	config->management_count = 1;
}

static void hear(struct pair_node *node)
{
	json_t *message = channel_receive(&node->channel);

	if (json_object_get(message, "quit") != NULL || node->channel.ended || process_parent_gone())
		node->quit = true;
	json_decref(message);
}

static bool look(const struct copy_watch *watch, void *context)
{
	struct pair_node *node = context;
	json_t *status = copy_watch_json(watch);

	json_object_set_new(status, "at_ns", json_integer((json_int_t)watch->looked_ns));
	json_object_set_new(status, "last", json_string(watch->last));
	json_object_set_new(status, "switches", json_integer(watch->switches));
	channel_send(&node->channel, status);
	hear(node);
	return !node->quit;
}

static bool ended(void *context)
{
	struct pair_node *node = context;

	hear(node);
	return node->quit;
}

static void ready(void *context)
{
	struct pair_node *node = context;

	channel_send(&node->channel, json_pack("{s:b}", "ready", 1));
}

static int run(struct pair_node *node, uint64_t rate_bytes, uint64_t burst_bytes, bool fallback_off)
{
	struct copy_node_options options = {.given = &node->config,
		.fallback = fallback_off ? HF_FALLBACK_OFF : HF_FALLBACK_AUTO,
		.fallback_given = true};
	struct copy_send_options send = {.path = node->source,
		.to_count = PLACES_A_NODE,
		.rate_bytes = rate_bytes,
		.burst_bytes = burst_bytes,
		.connect_timeout_ns = TIMEOUT_NS,
		.node = options,
		.look = look,
		.look_context = node,
		.look_every_ns = LOOK_EVERY_NS};
	struct copy_receive_options receive = {.directory = node->into,
		.json = true,
		.node = options,
		.ready = ready,
		.ended = ended,
		.context = node};

	for (unsigned i = 0; i < PLACES_A_NODE; i++)
		send.to[i] = address_of(node, PLACES_A_NODE + i, CONTROL_PORT);
	return strcmp(node->role, "a") == 0 ? copy_send(&send) : copy_receive(&receive);
}

int pair_node_command(int argc, char **argv)
{
	static struct pair_node node;
	const int channel_fd = PROCESS_CHANNEL_FD;
	json_int_t rate, burst;
	const char *base;
	int status, fallback_off;

	(void)argv;
	if (argc > 1 || process_hold_lifeline() != 0)
		return cli_refuse("transfer-node", "is a part of `holdfast demo transfer` and is started by it only");
	channel_init(&node.channel, channel_fd);
	process_wait_readable(&channel_fd, 1, SETUP_WAIT_MS);
	node.setup = channel_receive(&node.channel);
	if (json_unpack(node.setup, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b}", "role", &node.role, "device",
		    &node.device, "fabric", &node.fabric, "base", &base, "source", &node.source, "into", &node.into,
		    "scratch", &node.scratch, "rate", &rate, "burst", &burst, "fallback_off", &fallback_off) != 0 ||
		hf_addr_parse(base, &node.base) != 0)
		return cli_refuse("transfer-node", "received no setup from the program that started it");
	configure(&node);
	status = run(&node, (uint64_t)rate, (uint64_t)burst, fallback_off != 0);
	if (process_parent_gone()) {
		scratch_remove_path(node.scratch);
		hf_fabric_remove(
			node.fabric); /* refused as long as the other node is on it, which then does the same */
	}
	json_decref(node.setup);
	return status;
}
