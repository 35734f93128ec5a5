/* A node: the devices of its rails, the control channel over them, and the poller and timer that drive everything. */
#include "node/node.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "dev/qp_rules.h"
#include "node/listeners.h"
#include "node/peer.h"

#define TICK_NS             20000000ull
#define HEARTBEAT_NS        50000000ull
#define HEARTBEAT_SHARED_NS 250000000ull /* where cores are shared (R-G4) */
#define HEARTBEAT_MISSES    4u
#define FAILBACK_NS         200000000ull
#define BUDGET_NS           10000000000ull
#define QP_TIMEOUT          10 /* 4.096 us * 2^10 = 4 ms */
#define QP_RETRIES          3
#define QP_TIMEOUT_SHARED   14 /* a NIC that is a program waits for a core: 67 ms * 8 = 537 ms (R-G4) */
#define QP_RETRIES_SHARED   7
/* A peer outlives the budget of its vqps, so that they fail with their own reason. */
#define PEER_DEAD_EXTRA_NS 1000000000ull

uint32_t node_up_mask(const struct hf_node *node)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < node->rail_count; i++)
		if (node->rails[i].up)
			mask |= 1u << i;
	return mask;
}

uint64_t node_rail_silence_ns(const struct node_rail *rail)
{
	return qp_rules_budget_ns(rail->timeout, rail->retry_cnt);
}

uint64_t node_silence_ns(const struct hf_node *node)
{
	uint64_t longest_ns = 0;

	for (unsigned i = 0; i < node->rail_count; i++)
		if (node_rail_silence_ns(&node->rails[i]) > longest_ns)
			longest_ns = node_rail_silence_ns(&node->rails[i]);
	return longest_ns;
}

void node_limit_silence(struct hf_node *node, uint64_t limit_ns)
{
	for (unsigned i = 0; i < node->rail_count; i++) {
		struct node_rail *rail = &node->rails[i];

		while (node->config.timeout == 0 && rail->timeout > QP_TIMEOUT &&
			node_rail_silence_ns(rail) >= limit_ns)
			rail->timeout--;
		if (node->config.retry_cnt == 0 && node_rail_silence_ns(rail) >= limit_ns)
			rail->retry_cnt = QP_RETRIES;
	}
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
	node_status_rail(node, i);
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
	listeners_rail_changed(node, i, up);
}

static void qp_fatal(struct hf_node *node, unsigned rail, const struct hf_qp *qp)
{
	struct wc_sink *sink = table_get(&node->rails[rail].cqs.sinks, qp->qp_num);

	if (sink != NULL)
		sink->fatal(sink);
}

static void device_died(struct hf_node *node, unsigned i)
{
	bool died_before = node->rails[i].fatal;

	node->rails[i].fatal = true; /* before the rail is told to be down */
	rail_set(node, i, false);
	if (died_before)
		return;
	log_error("node %s: the device of rail %s failed permanently; the rail stays down until the process restarts",
		node->config.name, node->rails[i].config.name);
	listeners_device_died(node, i);
}

static enum hf_poll rail_events(struct hf_node *node, unsigned i)
{
	struct hf_dev_event event;
	enum hf_poll poll = HF_IDLE;

	while (hf_dev_get_event(node->rails[i].dev, &event) == 1) {
		poll = HF_BUSY;
		if (event.type == IBV_EVENT_PORT_ACTIVE)
			rail_set(node, i, true);
		else if (event.type == IBV_EVENT_PORT_ERR)
			rail_set(node, i, false);
		else if (event.type == IBV_EVENT_DEVICE_FATAL)
			device_died(node, i);
		else if (event.type == IBV_EVENT_QP_FATAL)
			qp_fatal(node, i, event.qp);
	}
	return poll;
}

void node_flush(struct hf_node *node)
{
	list_for_each (at, &node->peers)
		peer_flush(container_of(at, struct hf_peer, node_link));
}

void node_hear(struct hf_node *node)
{
	node->hearing = true;
	list_for_each (at, &node->peers) {
		struct hf_peer *peer = container_of(at, struct hf_peer, node_link);

		if (peer->outbox.used > 0 && peer->control != NULL)
			control_hear(peer->control);
	}
	node->hearing = false;
}

static enum hf_poll node_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct hf_node *node = container_of(poller, struct hf_node, poller);
	enum hf_poll poll = HF_IDLE;

	node->turned_ns = now_ns;
	for (unsigned i = 0; i < node->rail_count; i++)
		if (rail_events(node, i) == HF_BUSY)
			poll = HF_BUSY;
	if (node->layer->begin_turn(node, now_ns) == HF_BUSY)
		poll = HF_BUSY;
	for (unsigned i = 0; i < node->rail_count; i++)
		if (hf_dev_poll(node->rails[i].dev, now_ns) == HF_BUSY)
			poll = HF_BUSY;
	poll = node->layer->turn(node, now_ns, poll);
	peer_rails_tell(node);
	node_flush(node);
	return poll;
}

/* The layer asks every queue for a wake-up, then looks once more: what came in between would not wake the loop. */
static bool node_arm(struct hf_poller *poller)
{
	struct hf_node *node = container_of(poller, struct hf_node, poller);

	node_flush(node);
	if (!node->layer->may_sleep(node))
		return false;
	for (unsigned i = 0; i < node->rail_count; i++)
		if (!hf_dev_arm(node->rails[i].dev))
			return false;
	return true;
}

static uint64_t shorter_tick(uint64_t tick_ns, const struct hf_peer *peer)
{
	uint64_t interval_ns = lease_interval_ns(&peer->lease);

	return peer->up && interval_ns < tick_ns ? interval_ns : tick_ns;
}

/* Ticks come as often as the stamps of the shortest lease. */
static void node_tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_node *node = container_of(timer, struct hf_node, timer);
	uint64_t tick_ns = TICK_NS;

	list_for_each (at, &node->peers) {
		struct hf_peer *peer = container_of(at, struct hf_peer, node_link);

		peer_tick(peer, now_ns);
		tick_ns = shorter_tick(tick_ns, peer);
	}
	node->layer->tick(node, now_ns);
	hf_loop_set_timer(node->loop, timer, now_ns + tick_ns);
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

static int load_tls(const struct hf_node *node, struct tls **tls_out, struct hf_error *error)
{
	const struct hf_tls_files *config = &node->config.tls;
	struct tls_files files = {.cert = config->cert, .key = config->key, .ca = config->ca};

	*tls_out = NULL;
	if (config->cert[0] == '\0' && config->key[0] == '\0' && config->ca[0] == '\0')
		return 0;
	if (config->cert[0] == '\0' || config->key[0] == '\0' || config->ca[0] == '\0')
		return hf_error_set(error, -EINVAL, "node %s: TLS needs cert, key and ca", node->config.name);
	return tls_load(node->env, &files, tls_out, error);
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

	if (rc == 0)
		rc = load_tls(node, &config.tls, error);
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
		config->heartbeat_ns = config->cores == HF_CORES_SHARED ? HEARTBEAT_SHARED_NS : HEARTBEAT_NS;
	if (config->heartbeat_misses == 0)
		config->heartbeat_misses = HEARTBEAT_MISSES;
	if (config->failback_ns == 0)
		config->failback_ns = FAILBACK_NS;
	if (config->budget_ns == 0)
		config->budget_ns = BUDGET_NS;
	if (config->lease_ns == 0)
		config->lease_ns = config->budget_ns / 2 < LEASE_NS_MAX ? config->budget_ns / 2 : LEASE_NS_MAX;
	if (config->pool_size == 0)
		config->pool_size = 1;
}

static void set_qp_times(struct node_rail *rail, const struct hf_node_config *config)
{
	bool late = config->cores == HF_CORES_SHARED && strcmp(rail->config.kind, "verbs") != 0;

	rail->timeout = config->timeout != 0 ? config->timeout : late ? QP_TIMEOUT_SHARED : QP_TIMEOUT;
	rail->retry_cnt = config->retry_cnt != 0 ? config->retry_cnt : late ? QP_RETRIES_SHARED : QP_RETRIES;
}

static int check_config(const struct hf_node_config *config, struct hf_error *error)
{
	if (config->rail_count > HF_RAILS_MAX || config->management_count > HF_RAILS_MAX)
		return hf_error_set(error, -EINVAL, "a node has at most %d rails and %d management addresses",
			HF_RAILS_MAX, HF_RAILS_MAX);
	if (config->rail_count == 0 && config->management_count == 0)
		return hf_error_set(error, -EINVAL,
			"a node needs a rail, or without rails a management address for its control connections");
	if (config->lease_ns > LEASE_NS_MAX)
		return hf_error_set(error, -EINVAL, "a lease of %llu ms is too long: it must be at most an hour",
			(unsigned long long)(config->lease_ns / 1000000));
	if (lease_with_margin(config->lease_ns) > config->budget_ns)
		return hf_error_set(error, -EINVAL,
			"a lease of %llu ms does not fit into the budget of %llu ms: "
			"lease_ms, an eighth of it and 50 ms must fit",
			(unsigned long long)(config->lease_ns / 1000000),
			(unsigned long long)(config->budget_ns / 1000000));
	return 0;
}

int node_open(struct hf_node *node, struct hf_loop *loop, const struct hf_node_config *config,
	const struct hf_node_events *events, void *context, const struct node_layer *layer, struct hf_error *error)
{
	int rc;

	list_init(&node->peers);
	node->layer = layer;
	node->loop = loop;
	node->env = hf_loop_env(loop);
	node->config = *config;
	fill_defaults(&node->config);
	rc = check_config(&node->config, error);
	if (rc != 0)
		return rc;
	if (events != NULL)
		node->program.events = *events;
	node->program.context = context;
	peer_register(&node->kinds);
	channels_init(&node->channels);
	while (node->random == 0)
		hf_env_entropy(node->env, &node->random, sizeof(node->random));
	node->rail_count = config->rail_count;
	for (unsigned i = 0; i < node->rail_count; i++) {
		node->rails[i].config = config->rails[i];
		set_qp_times(&node->rails[i], config);
	}
	for (unsigned i = 0; rc == 0 && i < node->rail_count; i++)
		rc = rail_open(node, i, error);
	if (rc == 0)
		rc = open_control(node, error);
	if (rc == 0)
		rc = node_status_open(node, error);
	if (rc != 0)
		return rc;
	node->poller = (struct hf_poller){.poll = node_poll, .arm = node_arm};
	node->timer.fire = node_tick;
	hf_loop_add_poller(loop, &node->poller);
	node->attached = true;
	node_tick_soon(node);
	return 0;
}

void node_close(struct hf_node *node)
{
	node_status_close(node);
	channels_close(node);
	control_close(node->control);
	if (node->attached) {
		hf_loop_remove_poller(node->loop, &node->poller);
		hf_loop_cancel_timer(node->loop, &node->timer);
	}
	for (unsigned i = 0; i < node->rail_count; i++) {
		if (node->rails[i].watch.io != NULL)
			hf_loop_unwatch(&node->rails[i].watch);
		rail_cqs_close(&node->rails[i].cqs);
		hf_dev_close(node->rails[i].dev);
	}
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

const char *hf_node_rail_kind(const struct hf_node *node, unsigned rail)
{
	return node->rails[rail].config.kind;
}

static unsigned add_address(const struct hf_addr *address, struct hf_addr *addresses, unsigned n, unsigned most)
{
	if (n < most && hf_addr_port(address) != 0)
		addresses[n++] = *address;
	return n;
}

unsigned hf_node_addresses(const struct hf_node *node, struct hf_addr *addresses_out, unsigned most)
{
	unsigned n = 0;

	for (unsigned i = 0; i < node->rail_count; i++)
		n = add_address(&node->rails[i].config.control, addresses_out, n, most);
	for (unsigned i = 0; i < node->config.management_count; i++)
		n = add_address(&node->config.management[i], addresses_out, n, most);
	return n;
}

const char *hf_node_rail_name(const struct hf_node *node, unsigned rail)
{
	return node->rails[rail].config.name;
}

bool hf_node_rail_up(const struct hf_node *node, unsigned rail)
{
	return node->rails[rail].up;
}
