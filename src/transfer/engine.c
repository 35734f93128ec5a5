#include "transfer/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "node/node.h"
#include "transfer/say.h"

#define CHANNEL_NAME       "holdfast.transfer"
#define BLOCK_BYTES        65536u
#define SHM_BLOCK_BYTES    (1u << 20)
#define TCP_BLOCK_BYTES    (1u << 20)
#define WINDOW_SLICES      16u
#define STREAMS            2u
#define TARGET_STREAMS_MAX 256u
#define BUFFERS            10000u
#define FAILOVERS          3
#define ERROR_THRESHOLD    3u
#define ERROR_WINDOW_NS    10000000000ull
#define COOLDOWN_NS        30000000000ull
#define PROBE_INTERVAL_NS  1000000000ull
#define MAX_TIMEOUT_NS     10000000000ull
#define MAX_RETRY_COUNT    8u
#define CANCEL_GRACE_NS    100000000ull
#define LEASE_NS           2000000000ull
#define TICK_NS            10000000ull /* for ports of rails that changed, and slices that are stuck */

static uint64_t or_default(uint64_t value, uint64_t standard)
{
	return value != 0 ? value : standard;
}

/* ---- turns ---- */

static enum hf_poll engine_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct hf_transfer *engine = container_of(poller, struct hf_transfer, poller);
	bool busy = passive_turn(engine);

	busy |= memcpy_turn(&engine->own);
	busy |= release_turn(engine, now_ns);
	if (engine->target != NULL)
		tcp_target_turn(engine->target, now_ns);
	return peers_turn(engine, now_ns) || busy ? HF_BUSY : HF_IDLE;
}

static void engine_tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_transfer *engine = container_of(timer, struct hf_transfer, timer);
	uint64_t wake_ns = peers_wake_ns(engine);

	if (wake_ns > now_ns + TICK_NS)
		wake_ns = now_ns + TICK_NS;
	hf_loop_set_timer(engine->loop, timer, wake_ns > now_ns ? wake_ns : now_ns + 1);
}

/* ---- opening ---- */

static uint64_t block_of(const struct hf_transfer_config *config, uint64_t standard)
{
	return or_default(config->shm_block_bytes, or_default(config->block_bytes, standard));
}

static bool is_on(const struct hf_transfer_config *config, enum hf_transport transport)
{
	return (config->transports_off & 1u << transport) == 0;
}

static void init_lanes(struct hf_transfer *engine, struct rdma_transport *rails,
	const struct hf_transfer_config *config, uint64_t block_bytes)
{
	rails->lanes = (struct lane_context){.loop = engine->loop,
		.node = engine->node,
		.pd = engine->pd,
		.probe = &engine->probe,
		.confirm_writes = config->confirm_writes && rails == &engine->rdma,
		.monitor = {.error_threshold = (unsigned)or_default(config->rail_error_threshold, ERROR_THRESHOLD),
			.error_window_ns = or_default(config->rail_error_window_ns, ERROR_WINDOW_NS),
			.cooldown_ns = or_default(config->rail_cooldown_ns, COOLDOWN_NS),
			.probe_interval_ns = or_default(config->rail_probe_interval_ns, PROBE_INTERVAL_NS)},
		.block_bytes = block_bytes,
		.max_retry_count = (unsigned)or_default(config->max_retry_count, MAX_RETRY_COUNT)};
	rails->lanes.window_bytes = or_default(config->window_bytes, WINDOW_SLICES * rails->lanes.block_bytes);
	rails->max_timeout_ns = or_default(config->max_timeout_ns, MAX_TIMEOUT_NS);
}

static void sort_rails(struct hf_transfer *engine, const struct hf_transfer_config *config)
{
	for (unsigned i = 0; i < hf_node_rails(engine->node); i++) {
		bool is_shm = strcmp(hf_node_rail_kind(engine->node, i), "shm") == 0;

		if (is_on(config, is_shm ? HF_TRANSPORT_SHM : HF_TRANSPORT_RDMA))
			*(is_shm ? &engine->shm.rails : &engine->rdma.rails) |= 1u << i;
	}
}

static void init_transports(struct hf_transfer *engine, const struct hf_transfer_config *config)
{
	memcpy_transport_init(&engine->own, engine, engine->loop, block_of(config, SHM_BLOCK_BYTES));
	rdma_transport_init(&engine->shm, HF_TRANSPORT_SHM);
	rdma_transport_init(&engine->rdma, HF_TRANSPORT_RDMA);
	tcp_transport_init(&engine->tcp);
	sort_rails(engine, config);
	init_lanes(engine, &engine->shm, config, block_of(config, SHM_BLOCK_BYTES));
	init_lanes(engine, &engine->rdma, config, or_default(config->block_bytes, BLOCK_BYTES));
	engine->tcp.loop = engine->loop;
	engine->tcp.local = config->listen;
	engine->tcp.incarnation = engine->incarnation;
	engine->tcp.streams = (unsigned)or_default(config->streams, STREAMS);
	engine->tcp.block_bytes = block_of(config, TCP_BLOCK_BYTES);
	engine->tcp.max_timeout_ns = or_default(config->max_timeout_ns, MAX_TIMEOUT_NS);
	engine->tcp.say_fence = say_fence;
	metrics_register(&engine->metrics, engine->node->config.name);
	engine->owners.metrics = &engine->metrics;
	engine->owners.loop = engine->loop;
	engine->owners.fallback = config->fallback != HF_FALLBACK_OFF;
	engine->owners.config.cancel_grace_ns = or_default(config->cancel_grace_ns, CANCEL_GRACE_NS);
	engine->owners.config.max_failover_attempts =
		config->max_failover_attempts < 0
			? 0
			: (unsigned)or_default((uint64_t)config->max_failover_attempts, FAILOVERS);
	engine->owners.ranked[HF_TRANSPORT_MEMCPY] = &engine->own.transport;
	engine->owners.ranked[HF_TRANSPORT_SHM] = engine->shm.rails != 0 ? &engine->shm.transport : NULL;
	engine->owners.ranked[HF_TRANSPORT_RDMA] = engine->rdma.rails != 0 ? &engine->rdma.transport : NULL;
	engine->owners.ranked[HF_TRANSPORT_TCP] = engine->target != NULL ? &engine->tcp.transport : NULL;
}

static enum tcp_nak find_buffer(
	void *context, uint64_t key, enum hf_transfer_opcode opcode, uint64_t offset, uint32_t length, uint8_t **at_out)
{
	const struct hf_transfer *engine = context;

	return buffers_find(&engine->buffers, key, opcode, offset, length, at_out);
}

static int open_target(struct hf_transfer *engine, const struct hf_transfer_config *config, struct hf_error *error)
{
	const struct tcp_target_config target = {.listen = config->listen,
		.incarnation = engine->incarnation,
		.streams_max = TARGET_STREAMS_MAX,
		.admits = peers_admit,
		.lease_until_ns = peers_lease_until_ns,
		.find = find_buffer,
		.context = engine};

	if (config->listen.sa.sa_family == AF_UNSPEC || !is_on(config, HF_TRANSPORT_TCP))
		return 0;
	return tcp_target_open(engine->loop, &target, &engine->target, error);
}

static int open_memory(struct hf_transfer *engine, const struct hf_transfer_config *config, struct hf_error *error)
{
	bool rails = hf_node_rails(engine->node) > 0; /* without one: tcp alone */
	int rc = rails ? hf_vpd_alloc(engine->node, &engine->pd) : 0;

	if (rc == 0)
		rc = buffers_init(&engine->buffers, hf_loop_env(engine->loop), engine->pd,
			(unsigned)or_default(config->max_buffers, BUFFERS));
	if (rc == 0 && !rails)
		return 0;
	if (rc == 0)
		rc = hf_vcq_create(engine->node, 1, engine, &engine->passive_cq);
	if (rc != 0)
		return hf_error_set(
			error, rc, "cannot create the protection domain of the transfer engine: %s", strerror(-rc));
	return probe_open(&engine->probe, hf_loop_env(engine->loop), engine->pd,
		or_default(config->block_bytes, BLOCK_BYTES), error);
}

static int begin_lease(struct hf_transfer *engine, const struct hf_transfer_config *config, struct hf_error *error)
{
	const struct hf_node_config *node = &engine->node->config;
	uint64_t least_ns = 2 * node->heartbeat_ns * node->heartbeat_misses;
	int rc;

	engine->lease.lease_ns = or_default(config->lease_ns, least_ns > LEASE_NS ? least_ns : LEASE_NS);
	rc = hf_node_listen(engine->node, &engine->lease, error);
	engine->listens = rc == 0;
	return rc;
}

static int check(const struct hf_transfer_config *config, struct hf_error *error)
{
	char text[HF_ADDR_TEXT];

	if (is_on(config, HF_TRANSPORT_TCP) && hf_addr_is_any(&config->listen))
		return hf_error_set(error, -EINVAL,
			"transports.tcp.address: peers cannot connect to %s; give an address of this host",
			hf_addr_format(&config->listen, text));
	if (config->streams > TCP_STREAMS_MAX)
		return hf_error_set(
			error, -EINVAL, "streams: %u are too many; at most %u", config->streams, TCP_STREAMS_MAX);
	if (config->max_buffers > WIRE_BUFFERS_MAX)
		return hf_error_set(error, -EINVAL, "max_buffers: %u are too many; at most %u", config->max_buffers,
			WIRE_BUFFERS_MAX);
	if ((config->block_bytes != 0 && config->block_bytes < BLOCK_BYTES_MIN) ||
		(config->shm_block_bytes != 0 && config->shm_block_bytes < BLOCK_BYTES_MIN))
		return hf_error_set(error, -EINVAL, "block_bytes, shm_block_bytes: at least %u", BLOCK_BYTES_MIN);
	return 0;
}

static int open_segments(struct hf_transfer *engine, struct hf_error *error)
{
	engine->said = calloc(1, sizeof(*engine->said));
	engine->heard = calloc(1, sizeof(*engine->heard));
	engine->wire = calloc(1, WIRE_BYTES_MAX);
	if (engine->said == NULL || engine->heard == NULL || engine->wire == NULL ||
		segment_init(&engine->own.self.segment, &engine->own.self) != 0)
		return hf_error_set(error, -ENOMEM, "no memory for the list of buffers");
	return 0;
}

int hf_transfer_open(struct hf_node *node, const struct hf_transfer_config *config,
	const struct hf_transfer_events *events, void *context, struct hf_transfer **transfer_out,
	struct hf_error *error)
{
	struct hf_transfer *engine;
	int rc = check(config, error);

	*transfer_out = NULL;
	if (rc != 0)
		return rc;
	engine = calloc(1, sizeof(*engine));
	if (engine == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a transfer engine");
	*engine = (struct hf_transfer){.node = node,
		.loop = hf_node_loop(node),
		.context = context,
		.fallback = config->fallback,
		.merge_requests = !config->keep_requests_apart,
		.service = {.name = LANE_SERVICE, .on_request = passive_accept, .context = engine},
		.poller = {.poll = engine_poll},
		.timer = {.fire = engine_tick, .quiet = true}};
	if (events != NULL)
		engine->events = *events;
	list_init(&engine->passives);
	list_init(&engine->peers);
	list_init(&engine->buffers.list);
	while (engine->incarnation == 0)
		hf_env_entropy(hf_loop_env(engine->loop), &engine->incarnation, sizeof(engine->incarnation));
	rc = begin_lease(engine, config, error);
	if (rc == 0)
		rc = open_memory(engine, config, error);
	if (rc == 0)
		rc = open_target(engine, config, error);
	if (rc == 0) {
		init_transports(engine, config);
		rc = open_segments(engine, error);
	}
	if (rc == 0) {
		rc = engine->pd == NULL ? 0 : hf_vqp_serve(node, &engine->service);
		engine->served = rc == 0 && engine->pd != NULL;
		if (rc != 0)
			(void)hf_error_set(error, rc, "the node cannot serve lanes: %s", strerror(-rc));
	}
	if (rc == 0)
		rc = hf_channel_register(node, CHANNEL_NAME, &peers_channel_events, engine, &engine->channel, error);
	if (rc == 0)
		rc = hf_channel_register(node, NOTIFY_CHANNEL, &notify_channel_events, engine, &engine->notices, error);
	if (rc != 0) {
		(void)hf_transfer_close(engine);
		return rc;
	}
	(void)page_open(engine); /* no room for another page: it works without */
	hf_loop_add_poller(engine->loop, &engine->poller);
	hf_loop_set_timer(engine->loop, &engine->timer, hf_loop_now_ns(engine->loop) + TICK_NS);
	engine->attached = true;
	*transfer_out = engine;
	return 0;
}

int hf_transfer_close(struct hf_transfer *engine)
{
	if (engine == NULL)
		return 0;
	if (engine->batches > 0)
		return -EBUSY;
	if (engine->attached) {
		hf_loop_remove_poller(engine->loop, &engine->poller);
		hf_loop_cancel_timer(engine->loop, &engine->timer);
		page_close(engine);
	}
	peers_close(engine);
	hf_channel_close(engine->channel);
	hf_channel_close(engine->notices);
	if (engine->served)
		hf_vqp_unserve(engine->node, &engine->service);
	passive_close(engine);
	tcp_target_close(engine->target);
	probe_close(&engine->probe);
	buffers_free(&engine->buffers);
	segment_free(&engine->own.self.segment);
	free(engine->said);
	free(engine->heard);
	free(engine->wire);
	if (engine->passive_cq != NULL)
		(void)hf_vcq_destroy(engine->passive_cq);
	if (engine->pd != NULL)
		(void)hf_vpd_free(engine->pd);
	if (engine->listens)
		hf_node_unlisten(engine->node, &engine->lease);
	free(engine);
	return 0;
}
