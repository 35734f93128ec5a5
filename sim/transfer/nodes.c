/* A node's program: its engine and memory, the peers, and registrations that come and go. */
#include "sim/transfer/transfer.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "node/node.h"
#include "node/peer.h"
#include "sim/device.h"
#include "transfer/engine.h"

#define CONTROL_PORT  7000u
#define TCP_PORT      7100u
#define HEARTBEAT_NS  (5 * NS_MS)
#define BUDGET_NS     (1 * NS_S)
#define QP_TIMEOUT    8  /* 1 ms */
#define QP_PATIENT    15 /* 134 ms: more than a window takes on a slow rail */
#define QP_RETRY_CNT  2
#define FORGOTTEN_MAX (5 * NS_MS) /* until memory is registered again */
#define FORGET_NS_MAX (60 * NS_MS)
#define SPOIL_PPM     400000u /* of registrations that go: the others are unregistered */

void tr_drain(const struct tr_node *node)
{
	list_for_each (at, &node->endpoint.process->nics) {
		struct nic *nic = container_of(at, struct nic, node);

		if (!nic->dead)
			bus_drain(&nic->bus);
	}
}

/* ---- peers and segments ---- */

unsigned tr_node_named(const struct hf_peer *peer)
{
	return (unsigned)(hf_peer_name(peer)[0] - 'a');
}

static void on_segment(struct hf_transfer *engine, struct hf_peer *peer, void *context)
{
	struct tr_node *node = context;
	struct tr_side *side = &node->sides[tr_node_named(peer)];

	side->peer = peer;
	side->segment = hf_transfer_segment(engine, peer);
}

static void peer_down(struct hf_peer *peer, void *context)
{
	struct tr_node *node = context;

	for (unsigned i = 0; i < TR_NODES; i++) {
		if (node->peers[i] == peer)
			node->peers[i] = NULL;
		if (node->sides[i].peer == peer) {
			node->sides[i].peer = NULL;
			node->sides[i].segment = NULL;
		}
	}
}

static void connect_others(struct tr_node *node)
{
	for (unsigned other = 0; other < node->index; other++) {
		struct hf_addr addresses[TR_PATHS];
		struct hf_error error = {0};

		for (unsigned i = 0; i < TR_PATHS; i++) {
			addresses[i] = tr_port(&node->tr->nodes[other], i)->address;
			hf_addr_set_port(&addresses[i], CONTROL_PORT);
		}
		if (node->peers[other] == NULL &&
			hf_peer_connect(node->endpoint.node, addresses, TR_PATHS, &node->peers[other], &error) != 0)
			world_violate(node->tr->world, "connecting", "%s", error.text);
	}
}

/* ---- registrations ---- */

static void register_area(struct tr_node *node, struct move_area *area, unsigned permission)
{
	struct hf_error error = {0};

	if (hf_transfer_register(node->engine, area->memory, area->bytes, permission, &error) != 0)
		world_violate(node->tr->world, "start", "%s", error.text);
}

/* From now on the memory is the program's again. */
static void target_left(struct hf_transfer *engine, void *addr, void *context)
{
	struct tr_side *side = context;

	(void)engine, (void)addr;
	tr_drain(side->owner);
	side->leaving = false;
	side->target->registered = false;
	side->registered_ns = side->owner->tr->world->now_ns;
}

static void unregister_target(struct tr_node *node, struct tr_side *side)
{
	if (hf_transfer_unregister(node->engine, side->target->memory, target_left, side) != 0)
		world_violate(node->tr->world, "unregister", "memory that is registered cannot be unregistered");
	side->leaving = true;
	side->registered_ns = node->tr->world->now_ns;
}

static void register_target(struct tr_node *node, struct tr_side *side, const struct tr_node *requester)
{
	if (side->admitted != requester->endpoint.process->incarnation) {
		move_area_begin(side->target);
		moves_fill(&node->tr->moves, side->target, 0, side->target->bytes);
	}
	side->target->registered = true;
	register_area(node, side->target, HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE);
	side->registered_ns = node->tr->world->now_ns;
	side->admitted = requester->endpoint.process->incarnation;
	side->again_ns = 0;
	side->spoiled = false;
}

/* A requester that has restarted asks for memory at the same place, which what its predecessor sent must not reach. */
static bool renew_targets(struct tr_node *node)
{
	bool any = false;

	for (unsigned i = 0; i < TR_NODES; i++) {
		struct tr_node *requester = &node->tr->nodes[i];
		struct tr_side *side = &requester->sides[node->index];

		bool known = side->admitted == requester->endpoint.process->incarnation;

		if (i == node->index || side->leaving || (known && node->tr->world->now_ns < side->again_ns) ||
			(known && side->target->registered))
			continue;
		if (side->target->registered)
			unregister_target(node, side);
		else
			register_target(node, side, requester);
		any = true;
	}
	return any;
}

/* As where a device loses a registration: the keys that peers have are wrong, until they are told others. */
static void spoil_keys(struct tr_node *node, struct tr_side *side)
{
	struct buffer *buffer = buffers_at(&node->engine->buffers, side->target->memory);
	struct hf_error error = {0};

	ensure(hf_vmr_dereg(buffer->mr) == 0);
	ensure(hf_vmr_reg(node->engine->pd, buffer->addr, buffer->bytes,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, &buffer->mr,
		       &error) == 0);
	side->spoiled = true;
	side->registered_ns = node->tr->world->now_ns;
}

static void tell_keys(struct tr_node *node)
{
	for (unsigned i = 0; i < TR_NODES; i++) {
		struct tr_side *side = &node->tr->nodes[i].sides[node->index];

		if (i == node->index || !side->spoiled || node->tr->world->now_ns < side->again_ns)
			continue;
		side->spoiled = false;
		side->registered_ns = node->tr->world->now_ns;
		peers_tell_segment(node->engine);
	}
}

/* One at a time. */
static void forget_some(struct tr_node *node, uint64_t now_ns)
{
	struct world *world = node->tr->world;
	unsigned i = (node->index + (unsigned)world_range(world, 1, 2)) % TR_NODES;
	struct tr_side *side = &node->tr->nodes[i].sides[node->index];

	if (!node->tr->forgets || now_ns < node->forget_ns || world->now_ns >= node->tr->quiet_ns)
		return;
	node->forget_ns = now_ns + world_range(world, 0, FORGET_NS_MAX);
	for (unsigned k = 0; k < TR_NODES; k++) {
		const struct tr_side *of = &node->tr->nodes[k].sides[node->index];

		if (k != node->index && (!of->target->registered || of->leaving || of->spoiled))
			return;
	}
	if (world_chance(world, SPOIL_PPM))
		spoil_keys(node, side);
	else
		unregister_target(node, side);
	side->again_ns = world->now_ns + world_range(world, 0, FORGOTTEN_MAX);
}

/* ---- the loop ---- */

static enum hf_poll poll_node(struct hf_poller *poller, uint64_t now_ns)
{
	struct tr_node *node = container_of(poller, struct tr_node, endpoint.poller);
	bool busy = tr_take_ends(node);

	tr_look_at_rails(node);
	connect_others(node);
	busy |= renew_targets(node);
	forget_some(node, now_ns);
	tell_keys(node);
	tr_cancel_due(node);
	if (node->tr->times != NULL && node->index == 0 && now_ns >= node->next_ns) {
		node->next_ns = now_ns + node->tr->times->rest_ns;
		for (unsigned i = 0; i < TR_NODES; i++)
			if (node->tr->times->asks[i])
				tr_submit_all(node, i);
	}
	if (node->tr->times == NULL && !node->tr->stopping && now_ns >= node->next_ns)
		tr_submit(node, now_ns);
	return busy ? HF_BUSY : HF_IDLE;
}

/* The work of others is not looked at often: the timer comes in any case. */
static bool arm_node(struct hf_poller *poller)
{
	struct tr_node *node = container_of(poller, struct tr_node, endpoint.poller);
	uint64_t now_ns = hf_loop_now_ns(node->endpoint.loop), due_ns = now_ns + NS_MS;

	if (!node->tr->stopping && node->next_ns > now_ns && node->next_ns < due_ns)
		due_ns = node->next_ns;
	hf_loop_set_timer(node->endpoint.loop, &node->endpoint.timer, due_ns);
	return true;
}

static void configure(const struct tr_node *node, struct hf_node_config *config)
{
	*config = (struct hf_node_config){.rail_count = TR_RAILS,
		.management_count = 1,
		.policy = HF_POLICY_VARUNA,
		.heartbeat_ns = HEARTBEAT_NS,
		.heartbeat_misses = 4,
		.budget_ns = BUDGET_NS,
		.timeout = node->tr->slow ? QP_PATIENT : QP_TIMEOUT,
		.retry_cnt = QP_RETRY_CNT};
	snprintf(config->name, sizeof(config->name), "%s", node->endpoint.host.name);
	config->management[0] = tr_port(node, TR_MANAGEMENT)->address;
	hf_addr_set_port(&config->management[0], CONTROL_PORT);
	for (unsigned i = 0; i < TR_RAILS; i++) {
		struct hf_rail_config *rail = &config->rails[i];

		snprintf(rail->name, sizeof(rail->name), "r%u", i);
		snprintf(rail->kind, sizeof(rail->kind), "soft");
		rail->address = rail->control = tr_port(node, i)->address;
		hf_addr_set_port(&rail->address, 0);
		hf_addr_set_port(&rail->control, CONTROL_PORT);
		rail->mtu = node->tr->mtu;
	}
}

static int open_engine(struct tr_node *node)
{
	static const struct hf_transfer_events events = {.segment = on_segment};
	struct hf_transfer_config config = node->tr->config;
	struct hf_error error = {0};
	int rc;

	config.listen = tr_port(node, TR_MANAGEMENT)->address;
	hf_addr_set_port(&config.listen, TCP_PORT);
	rc = hf_transfer_open(node->endpoint.node, &config, &events, node, &node->engine, &error);
	if (rc != 0)
		world_violate(node->tr->world, "start", "%s", error.text);
	return rc;
}

static int start_node(struct process *process, void *context)
{
	static const struct hf_node_events events = {.peer_down = peer_down};
	struct tr_node *node = context;
	struct hf_node_config config;
	int rc;

	(void)process;
	node->stopped = false;
	configure(node, &config);
	if ((rc = endpoint_open(&node->endpoint, &config, &events, node, 16)) != 0 || (rc = open_engine(node)) != 0)
		return rc;
	for (unsigned i = 0; i < TR_RAILS; i++)
		moves_watch(&node->tr->moves, &nic_of(hf_node_dev(node->endpoint.node, i))->bus);
	for (unsigned i = 0; i < TR_NODES; i++) {
		if (i == node->index)
			continue;
		move_area_begin(node->sides[i].local);
		moves_fill(&node->tr->moves, node->sides[i].local, 0, TR_AREA_BYTES);
		register_area(node, node->sides[i].local, 0);
		node->tr->nodes[i].sides[node->index].admitted = 0;
	}
	node->trips = (struct trips){.cooldown_ns = node->tr->config.rail_cooldown_ns,
		.line_gap_ns = node->tr->line_gap_ns,
		.attempts = node->tr->config.max_failover_attempts < 0
				    ? 0
				    : (unsigned)node->tr->config.max_failover_attempts};
	endpoint_run(&node->endpoint, poll_node, arm_node);
	return 0;
}

/* Of a process that ends: its requests end without a wait for leases, and nobody is told. */
static void close_engine(struct tr_node *node)
{
	node->stopped = true;
	peers_close(node->engine);
	for (unsigned i = 0; i < TR_BATCHES; i++)
		ensure(hf_transfer_batch_free(node->batches[i].batch) == 0);
	ensure(hf_transfer_close(node->engine) == 0);
	memset(node->batches, 0, sizeof(node->batches));
	node->engine = NULL;
}

/* What a node that dies has asked for is in doubt until its peers have heard of that. */
static void stop_node(struct process *process, void *context)
{
	struct tr_node *node = context;

	(void)process;
	for (unsigned i = 0; i < TR_NODES; i++) {
		struct tr_side *side = &node->sides[i];

		memset(side->slots, 0, sizeof(side->slots));
		side->peer = NULL;
		side->segment = NULL;
		if (i == node->index)
			continue;
		node->tr->nodes[i].sides[node->index].leaving = false;
		node->tr->nodes[i].sides[node->index].spoiled = false;
		side->local->registered = node->tr->nodes[i].sides[node->index].target->registered = false;
	}
	if (node->endpoint.node != NULL && node->engine != NULL)
		close_engine(node);
	memset(node->peers, 0, sizeof(node->peers));
	node->next_ns = node->forget_ns = 0;
	if (node->endpoint.loop != NULL)
		endpoint_close(&node->endpoint);
}

const struct program tr_program = {.name = "transfer", .start = start_node, .stop = stop_node};
