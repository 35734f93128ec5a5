/* A node: the devices of its rails, the control channel over them, and the poller and timer that drive everything. */
#include "vqp/path/pool.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "vqp/atomic/owner.h"
#include "vqp/atomic/uid_slots.h"

#define TICK_NS            20000000ull
#define DIG_MOST           4u
#define DIG_TICK           256u
#define TICK_VQPS          256u
#define HEARTBEAT_NS       50000000ull
#define HEARTBEAT_MISSES   4u
#define FAILBACK_NS        200000000ull
#define BUDGET_NS          10000000000ull
#define QP_TIMEOUT         10 /* 4.096 us * 2^10 = 4 ms */
#define QP_RETRIES         3
#define PEER_DEAD_EXTRA_NS 1000000000ull /* a peer outlives its vqps' budget, so that they fail with their own reason */

uint32_t node_up_mask(const struct hf_node *node)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < node->rail_count; i++)
		if (node->rails[i].up)
			mask |= 1u << i;
	return mask;
}

/* xorshift64*. */
uint32_t node_random(struct hf_node *node)
{
	node->random ^= node->random >> 12;
	node->random ^= node->random << 25;
	node->random ^= node->random >> 27;
	return (uint32_t)(node->random * 0x2545f4914f6cdd1dull >> 32);
}

void node_tick_soon(struct hf_node *node)
{
	if (node->attached)
		hf_loop_set_timer(node->loop, &node->timer, hf_loop_now_ns(node->loop));
}

/* The peers are told first: from this one message they know which of their vqps to fence, and do it while we do. */
static void rail_set(struct hf_node *node, unsigned i, bool up)
{
	if (node->rails[i].up == up)
		return;
	node->rails[i].up = up;
	node->switching = true; /* what control says of its path on that rail can wait */
	control_enable(node->control, i, up);
	node->switching = false;
	list_for_each (at, &node->peers) {
		struct hf_peer *peer = container_of(at, struct hf_peer, node_link);

		peer_say_ports(peer);
		peer_flush(peer);
	}
	list_for_each (at, &node->peers)
		peer_refresh_rails(container_of(at, struct hf_peer, node_link));
	log_info("node %s: rail %s is %s", node->config.name, node->rails[i].config.name, up ? "up" : "down");
	if (node->events.rail_changed != NULL)
		node->events.rail_changed(node, i, up, node->context);
}

static void qp_fatal(struct hf_node *node, unsigned rail, const struct hf_qp *qp)
{
	struct wc_sink *sink = table_get(&node->rails[rail].cqs.sinks, qp->qp_num);

	if (sink != NULL)
		sink->fatal(sink);
}

static enum hf_poll rail_events(struct hf_node *node, unsigned i)
{
	struct hf_dev_event event;
	enum hf_poll poll = HF_IDLE;

	while (hf_dev_get_event(node->rails[i].dev, &event) == 1) {
		poll = HF_BUSY;
		if (event.type == IBV_EVENT_PORT_ACTIVE)
			rail_set(node, i, true);
		else if (event.type == IBV_EVENT_PORT_ERR || event.type == IBV_EVENT_DEVICE_FATAL) {
			node->rails[i].fatal |= event.type == IBV_EVENT_DEVICE_FATAL;
			rail_set(node, i, false);
		} else if (event.type == IBV_EVENT_QP_FATAL)
			qp_fatal(node, i, event.qp);
	}
	return poll;
}

static enum hf_poll node_notify(struct hf_node *node)
{
	enum hf_poll poll = HF_IDLE;

	list_for_each (at, &node->vcqs) {
		struct hf_vcq *cq = container_of(at, struct hf_vcq, node_link);
		void (*notify)(struct hf_vcq *, void *) = cq->notify;

		if (notify == NULL || !cq->fresh)
			continue;
		cq->notify = NULL;
		notify(cq, cq->context);
		return HF_BUSY; /* it may have destroyed anything; the others have their turn at the next poll */
	}
	return poll;
}

static void node_flush(struct hf_node *node)
{
	list_for_each (at, &node->peers)
		peer_flush(container_of(at, struct hf_peer, node_link));
}

/* Whom we are about to tell what executed here may have told it as well, while we fenced: then the path goes out in the
 * same message. */
static void node_hear(struct hf_node *node)
{
	node->hearing = true;
	list_for_each (at, &node->peers) {
		struct hf_peer *peer = container_of(at, struct hf_peer, node_link);

		if (peer->outbox.used > 0 && peer->control != NULL)
			control_hear(peer->control);
	}
	node->hearing = false;
}

static bool post_resumed(struct hf_node *node)
{
	struct list *at;
	bool any = false;

	for (; (at = list_pop_front(&node->resumed)) != NULL; any = true)
		post_pump(container_of(at, struct hf_vqp, resumed_link));
	return any;
}

static enum hf_poll node_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct hf_node *node = container_of(poller, struct hf_node, poller);
	enum hf_poll poll = HF_IDLE;
	bool answered = node->fence_answered;

	node->turned_ns = now_ns;
	/* First what ends a path: nothing is tried on it in vain, and who waits for our part of the exchange has it. */
	for (unsigned i = 0; i < node->rail_count; i++)
		if (rail_events(node, i) == HF_BUSY)
			poll = HF_BUSY;
	if (post_resumed(node) | failover_drain(node))
		poll = HF_BUSY;
	if (!list_empty(&node->fence_queue))
		node_flush(node); /* what was said since the last turn: the other side wakes while we fence */
	if (fence_queue_turn(node) == HF_BUSY) {
		(void)failover_drain(node);
		node_hear(node);
		node_flush(node);
		/* Who asked meanwhile waits for us; what else the others have said is read in the next turn. */
		if (!list_empty(&node->fence_asked))
			(void)fence_queue_turn(node);
		poll = HF_BUSY;
		/* Some vqp goes on, for the first time since the cut: what it posts may complete in this turn. */
		if (!answered && node->fence_answered)
			hf_loop_hurry(node->loop);
	}
	for (unsigned i = 0; i < node->rail_count; i++)
		if (hf_dev_poll(node->rails[i].dev, now_ns) == HF_BUSY)
			poll = HF_BUSY;
	if (completions_turn(node) == HF_BUSY)
		poll = HF_BUSY;
	if (failover_drain(node))
		poll = HF_BUSY;
	/* Old qps are destroyed when nothing better is to do. */
	if (poll == HF_IDLE && list_empty(&node->recovering) && path_dig(node, DIG_MOST))
		poll = HF_BUSY;
	if (poll == HF_IDLE && fence_queue_warm(node))
		poll = HF_BUSY;
	if (rebuild_turn(node, now_ns) || pool_turn(node))
		poll = HF_BUSY;
	if (owner_turn(node) == HF_BUSY)
		poll = HF_BUSY;
	(void)failover_drain(node);
	if (node_notify(node) == HF_BUSY)
		poll = HF_BUSY;
	node_flush(node);
	return poll;
}

/* False: some vqp has something to do now. */
static bool fence_queue_sleeps(struct hf_node *node)
{
	uint64_t retry_ns = UINT64_MAX;

	if (!list_empty(&node->fence_asked))
		return false;
	list_for_each (at, &node->fence_queue) {
		const struct hf_vqp *vqp = container_of(at, struct hf_vqp, fence_link);
		uint64_t its_ns = fence_retry_ns(vqp);

		if (!fence_queue_waits(vqp))
			return false;
		if (its_ns > hf_loop_now_ns(node->loop) && its_ns < retry_ns)
			retry_ns = its_ns;
	}
	if (retry_ns != UINT64_MAX)
		hf_loop_set_timer(node->loop, &node->fence_timer, retry_ns);
	return true;
}

static void fence_retry(struct hf_timer *timer, uint64_t now_ns)
{
	(void)timer, (void)now_ns; /* that the loop turns is enough */
}

/* Asks every queue for a wake-up, then looks once more: what came in between would not wake anybody. */
static bool node_arm(struct hf_poller *poller)
{
	struct hf_node *node = container_of(poller, struct hf_node, poller);

	node_flush(node);
	if (!list_empty(&node->resumed) || !list_empty(&node->marked) || !list_empty(&node->owner_ended) ||
		!fence_queue_sleeps(node))
		return false;
	for (unsigned i = 0; i < node->rail_count; i++)
		if (!rail_cqs_arm(&node->rails[i].cqs))
			return false;
	list_for_each (at, &node->vcqs) {
		const struct hf_vcq *cq = container_of(at, struct hf_vcq, node_link);

		if (cq->notify != NULL && cq->fresh)
			return false;
	}
	for (unsigned i = 0; i < node->rail_count; i++)
		if (!hf_dev_arm(node->rails[i].dev))
			return false;
	return true;
}

static void node_tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_node *node = container_of(timer, struct hf_node, timer);

	list_for_each (at, &node->peers)
		peer_tick(container_of(at, struct hf_peer, node_link), now_ns);
	list_for_each_safe (at, &node->recovering)
		failover_tick(container_of(at, struct hf_vqp, recovering_link), now_ns);
	/* The others want little: a backup, a way back. A few of them at a time, each in its turn. */
	for (unsigned i = 0; i < node->vqp_count && i < TICK_VQPS; i++) {
		struct list *at = list_pop_front(&node->vqps);

		list_push_back(&node->vqps, at);
		failover_tick(container_of(at, struct hf_vqp, node_link), now_ns);
	}
	uid_slots_tick(node, now_ns);
	home_tick(node, now_ns);
	if (list_empty(&node->fence_queue) && list_empty(&node->fence_asked))
		(void)path_dig(node, DIG_TICK); /* also under load */
	rebuild_tick(node, now_ns);
	pool_tick(node, now_ns);
	(void)failover_drain(node);
	hf_loop_set_timer(node->loop, timer, now_ns + TICK_NS);
}

static void rail_ready(struct hf_watch *watch, unsigned ready)
{
	(void)watch, (void)ready; /* being awake is enough: the poller does the work */
}

static int rail_open(struct hf_node *node, unsigned i, struct hf_error *error)
{
	struct node_rail *rail = &node->rails[i];
	struct hf_dev_config config = {.kind = rail->config.kind,
		.fabric = node->config.fabric[0] == '\0' ? NULL : node->config.fabric,
		.node = node->config.name,
		.rail = rail->config.name,
		.address = rail->config.address,
		.nic = rail->config.nic[0] == '\0' ? NULL : rail->config.nic,
		.mtu = rail->config.mtu,
		.caps_masked = node->config.caps_masked};
	struct ibv_port_attr port = {0};
	int rc = hf_dev_open(node->env, &config, &rail->dev, error);

	if (rc != 0)
		return rc;
	rail->cqs.dev = rail->dev;
	rail->up = hf_dev_query_port(rail->dev, &port) == 0 && port.state == IBV_PORT_ACTIVE;
	rail->watch.ready = rail_ready;
	rc = hf_loop_watch(node->loop, &rail->watch, hf_dev_io(rail->dev), HF_READABLE);
	return rc == 0 ? 0 : hf_error_set(error, rc, "rail %s: cannot be watched: %s", config.rail, strerror(-rc));
}

static int load_secret(const struct hf_node *node, struct secret *secret_out, struct hf_error *error)
{
	const struct hf_node_config *config = &node->config;

	*secret_out = (struct secret){0};
	if (config->secret_file[0] != '\0' && config->secret[0] != '\0')
		return hf_error_set(
			error, -EINVAL, "node %s: a secret and a secret_file: give one of them", config->name);
	if (config->secret_file[0] != '\0')
		return secret_load(node->env, config->secret_file, secret_out, error);
	if (config->secret[0] != '\0')
		return secret_set(config->secret, strnlen(config->secret, HF_SECRET_BYTES), secret_out, error);
	return 0;
}

static int open_control(struct hf_node *node, struct hf_error *error)
{
	struct frame_endpoint endpoints[FRAME_ENDPOINTS_MAX] = {0};
	struct control_config config = {.name = node->config.name,
		.heartbeat_ns = node->config.heartbeat_ns,
		.misses = node->config.heartbeat_misses,
		.dead_ns = node->config.budget_ns + PEER_DEAD_EXTRA_NS,
		.endpoint_count = node->rail_count + node->config.management_count,
		.endpoints = endpoints};
	struct secret secret;
	int rc = load_secret(node, &secret, error);

	_Static_assert(FRAME_ENDPOINTS_MAX >= 2 * HF_RAILS_MAX, "every rail and management network has an endpoint");
	if (rc != 0)
		return rc;
	config.secret = &secret;
	for (unsigned i = 0; i < node->rail_count; i++) {
		memcpy(endpoints[i].label, node->rails[i].config.name, HF_NAME_BYTES);
		endpoints[i].addr = node->rails[i].config.control;
	}
	for (unsigned i = 0; i < node->config.management_count; i++) {
		struct frame_endpoint *endpoint = &endpoints[node->rail_count + i];

		endpoint->label[0] = '@';
		endpoint->label[1] = (char)('0' + i);
		endpoint->addr = node->config.management[i];
	}
	while (config.incarnation == 0)
		hf_env_entropy(node->env, &config.incarnation, sizeof(config.incarnation));
	rc = control_open(node->loop, &config, &peer_control_events, node, &node->control, error);
	secret_forget(&secret);
	for (unsigned i = 0; rc == 0 && i < node->rail_count; i++)
		control_enable(node->control, i, node->rails[i].up);
	return rc;
}

static void fill_defaults(struct hf_node_config *config)
{
	if (config->heartbeat_ns == 0)
		config->heartbeat_ns = HEARTBEAT_NS;
	if (config->heartbeat_misses == 0)
		config->heartbeat_misses = HEARTBEAT_MISSES;
	if (config->failback_ns == 0)
		config->failback_ns = FAILBACK_NS;
	if (config->budget_ns == 0)
		config->budget_ns = BUDGET_NS;
	if (config->lease_ns == 0)
		config->lease_ns = config->budget_ns / 2;
	if (config->pool_size == 0)
		config->pool_size = 1;
	if (config->timeout == 0)
		config->timeout = QP_TIMEOUT;
	if (config->retry_cnt == 0)
		config->retry_cnt = QP_RETRIES;
}

int hf_node_open(struct hf_loop *loop, const struct hf_node_config *config, const struct hf_node_events *events,
	void *context, struct hf_node **node_out, struct hf_error *error)
{
	struct hf_node *node;
	int rc = 0;

	*node_out = NULL;
	if (config->rail_count == 0 || config->rail_count > HF_RAILS_MAX || config->management_count > HF_RAILS_MAX)
		return hf_error_set(error, -EINVAL, "a node has 1 to %d rails and at most %d management addresses",
			HF_RAILS_MAX, HF_RAILS_MAX);
	if (config->lease_ns != 0 &&
		lease_with_margin(config->lease_ns) > (config->budget_ns == 0 ? BUDGET_NS : config->budget_ns))
		return hf_error_set(error, -EINVAL,
			"a lease of %llu ms does not fit into the budget: it takes an eighth more, and 50 ms",
			(unsigned long long)(config->lease_ns / 1000000));
	node = calloc(1, sizeof(*node));
	if (node == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a node");
	node->loop = loop;
	node->env = hf_loop_env(loop);
	node->config = *config;
	fill_defaults(&node->config);
	if (events != NULL)
		node->events = *events;
	node->context = context;
	peer_register(&node->kinds);
	kinds_register(&node->kinds);
	list_init(&node->peers);
	list_init(&node->vpds);
	list_init(&node->vcqs);
	list_init(&node->vqps);
	list_init(&node->fence_queue);
	list_init(&node->fence_asked);
	list_init(&node->marked);
	list_init(&node->cold);
	list_init(&node->resumed);
	list_init(&node->owner_ended);
	list_init(&node->recovering);
	list_init(&node->pools);
	list_init(&node->initiators);
	list_init(&node->graves);
	list_init(&node->rebuilds.waiting);
	list_init(&node->rebuilds.running);
	hf_env_entropy(node->env, &node->next_num, sizeof(node->next_num));
	while (node->random == 0)
		hf_env_entropy(node->env, &node->random, sizeof(node->random));
	node->rail_count = config->rail_count;
	for (unsigned i = 0; i < node->rail_count; i++)
		node->rails[i].config = config->rails[i];
	for (unsigned i = 0; rc == 0 && i < node->rail_count; i++)
		rc = rail_open(node, i, error);
	if (rc == 0)
		rc = open_control(node, error);
	if (rc != 0) {
		hf_node_close(node);
		return rc;
	}
	node->poller = (struct hf_poller){.poll = node_poll, .arm = node_arm};
	node->timer.fire = node_tick;
	node->fence_timer.fire = fence_retry;
	hf_loop_add_poller(loop, &node->poller);
	node->attached = true;
	node_tick_soon(node);
	*node_out = node;
	return 0;
}

static void close_objects(struct hf_node *node)
{
	(void)path_dig(node, UINT_MAX);
	while (!list_empty(&node->vqps))
		hf_vqp_destroy(container_of(node->vqps.next, struct hf_vqp, node_link));
	while (!list_empty(&node->peers))
		hf_peer_close(container_of(node->peers.next, struct hf_peer, node_link));
	while (!list_empty(&node->vcqs))
		(void)hf_vcq_destroy(container_of(node->vcqs.next, struct hf_vcq, node_link));
	while (!list_empty(&node->vpds)) {
		struct hf_vpd *pd = container_of(node->vpds.next, struct hf_vpd, node_link);

		uid_arena_close(pd);
		while (!list_empty(&pd->regions))
			region_free(container_of(pd->regions.next, struct region, pd_link));
		(void)hf_vpd_free(pd);
	}
}

void hf_node_close(struct hf_node *node)
{
	if (node == NULL)
		return;
	close_objects(node);
	control_close(node->control);
	if (node->attached) {
		hf_loop_remove_poller(node->loop, &node->poller);
		hf_loop_cancel_timer(node->loop, &node->timer);
		hf_loop_cancel_timer(node->loop, &node->fence_timer);
	}
	for (unsigned i = 0; i < node->rail_count; i++) {
		if (node->rails[i].watch.io != NULL)
			hf_loop_unwatch(&node->rails[i].watch);
		rail_cqs_close(&node->rails[i].cqs);
		hf_dev_close(node->rails[i].dev);
	}
	table_free(&node->nums);
	free(node->regions);
	free(node);
}

struct hf_loop *hf_node_loop(struct hf_node *node)
{
	return node->loop;
}

unsigned hf_node_rails(const struct hf_node *node)
{
	return node->rail_count;
}

struct hf_dev *hf_node_dev(struct hf_node *node, unsigned rail)
{
	return node->rails[rail].dev;
}

const char *hf_node_rail_name(const struct hf_node *node, unsigned rail)
{
	return node->rails[rail].config.name;
}

bool hf_node_rail_up(const struct hf_node *node, unsigned rail)
{
	return node->rails[rail].up;
}
