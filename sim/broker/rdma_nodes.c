/* The programs: the broker with its node, and clients of the library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "sim/broker/broker_rdma.h"
#include "sim/broker/holders.h"
#include "sim/endpoint.h"

#define CONTROL_PORT    7000u
#define HEARTBEAT_NS    (25 * NS_MS) /* of one broker and its clients */
#define SESSION_BEAT_NS (5 * NS_MS)  /* of several: within their sessions a peer that is gone is known to be */
#define FAILBACK_NS     (20 * NS_MS)
#define BUDGET_NS       (4 * NS_S)
#define TOPIC_NS        (20 * NS_MS)
#define QP_TIMEOUT      8 /* 1 ms */
#define QP_RETRY_CNT    2
#define REST_NS_MAX     (4 * NS_MS)
#define TIMEOUT_NS      (500 * NS_MS)
#define RETURN_NS       (30 * NS_MS)
#define MESSAGES        8

/* ---- a node ---- */

static void configure(const struct rdma_sim_end *end, struct hf_node_config *config)
{
	*config = (struct hf_node_config){.rail_count = RDMA_SIM_RAILS,
		.policy = HF_POLICY_VARUNA,
		.heartbeat_ns = end->all->count > 1 ? SESSION_BEAT_NS : HEARTBEAT_NS,
		.heartbeat_misses = 4,
		.failback_ns = FAILBACK_NS,
		.budget_ns = end->all->count > 1 ? NS_S : BUDGET_NS,
		.timeout = QP_TIMEOUT,
		.retry_cnt = QP_RETRY_CNT};
	snprintf(config->name, sizeof(config->name), "%s", end->host.name);
	snprintf(config->secret, sizeof(config->secret), "%s", ENDPOINT_SECRET);
	for (unsigned i = 0; i < RDMA_SIM_RAILS; i++) {
		struct hf_addr address;
		char text[HF_ADDR_TEXT];

		snprintf(text, sizeof(text), "10.%u.0.%u", i, end->index + 1);
		ensure(hf_addr_parse(text, &address) == 0);
		endpoint_set_rail(config, i, &address, CONTROL_PORT);
	}
}

int rdma_sim_open_node(struct rdma_sim_end *end)
{
	struct hf_node_config config;
	struct hf_error error = {0};
	int rc = hf_loop_create(&end->process->env, &end->loop);

	configure(end, &config);
	if (rc == 0)
		rc = hf_node_open(end->loop, &config, NULL, NULL, &end->node, &error);
	if (rc != 0 && !end->process->muted)
		world_violate(end->all->world, "start", "%s", error.text);
	return rc;
}

void rdma_sim_close_node(struct rdma_sim_end *end)
{
	hf_node_close(end->node);
	end->node = NULL;
	hf_loop_destroy(end->loop);
	end->loop = NULL;
}

/* ---- brokers ---- */

static struct rdma_sim_broker *broker_of(struct rdma_sim_end *end)
{
	return container_of(end, struct rdma_sim_broker, end);
}

/* Once all brokers are there, so that each has a replica. */
static void make_topic(struct hf_timer *timer, uint64_t now_ns)
{
	struct rdma_sim_end *end = container_of(timer, struct rdma_sim_end, timer);
	struct broker *broker = broker_of(end)->broker;
	struct codec_string name = {RDMA_SIM_TOPIC, sizeof(RDMA_SIM_TOPIC) - 1};

	if (controller_find(&broker->controller, name) != NULL)
		return;
	if (broker->controller.broker_count == end->all->count)
		broker_create_topic(broker, name, RDMA_SIM_PARTITIONS, NULL);
	if (end->all->count > 1)
		hf_loop_set_timer(end->loop, timer, now_ns + TOPIC_NS);
}

static int start_broker(struct process *process, void *context)
{
	struct rdma_sim_end *end = context;
	struct rdma_sim_broker *broker = broker_of(end);
	struct hf_error error;
	int rc = rdma_sim_open_node(end);

	if (rc != 0)
		return rc;
	rc = broker_open(end->loop, end->node, &broker->config, &broker->broker, &error);
	if (rc != 0) {
		if (!process->muted)
			world_violate(end->all->world, "start", "%s", error.text);
		return rc;
	}
	rdma_sim_observe(broker);
	end->timer = (struct hf_timer){.fire = make_topic};
	if (end->index == 0)
		make_topic(&end->timer, hf_loop_now_ns(end->loop));
	return 0;
}

static void stop_broker(struct process *process, void *context)
{
	struct rdma_sim_end *end = context;
	struct broker *broker = broker_of(end)->broker;

	(void)process;
	broker_of(end)->broker = NULL;
	hf_loop_cancel_timer(end->loop, &end->timer);
	broker_close(broker);
	rdma_sim_close_node(end);
}

const struct program rdma_sim_broker_program = {.name = "broker", .start = start_broker, .stop = stop_broker};

void rdma_sim_count(struct rdma_sim_broker *broker)
{
	struct rdma_sim *all = broker->end.all;

	if (broker->broker == NULL)
		return;
	all->led += broker->broker->replication.counters.led;
	all->truncations += broker->broker->replication.counters.truncations;
	if (broker->broker->replication.counters.lost_hw > 0)
		world_violate(all->world, "kept", "%s has cut records that were committed", broker->end.host.name);
}

static void add_voters(struct broker_config *config, unsigned count, struct world *world)
{
	config->replication_factor = (int16_t)count;
	config->min_insync_replicas = count / 2 + 1;
	config->lag_ns = world_range(world, 50 * NS_MS, 2 * NS_S);
	/* Of one batch at a time, so that hw comes to the end of a segment step by step. */
	config->replication_batch_bytes = world->seed % 3 == 0 ? 1 : config->replication_batch_bytes;
	config->auto_create_topics = false; /* clients ask before all brokers are there */
	for (unsigned i = 0; i < count; i++) {
		struct broker_voter *voter = &config->voters.at[config->voters.count++];

		*voter = (struct broker_voter){.id = (int32_t)i + 1, .address_count = RDMA_SIM_RAILS};
		for (unsigned rail = 0; rail < RDMA_SIM_RAILS; rail++) {
			char text[HF_ADDR_TEXT];

			snprintf(text, sizeof(text), "10.%u.0.%u:%u", rail, i + 1, CONTROL_PORT);
			ensure(hf_addr_parse(text, &voter->addresses[rail]) == 0);
		}
	}
}

void rdma_sim_configure(struct rdma_sim_broker *broker)
{
	struct world *world = broker->end.all->world;
	struct broker_config *config = &broker->config;

	broker_config_default(config);
	config->cores = HF_CORES_OWNED;
	config->node_id = (int32_t)broker->end.index + 1;
	config->listeners = (struct broker_endpoints){.at = {{.name = "PLAINTEXT", .port = 9092}}, .count = 1};
	snprintf(
		config->listeners.at[0].host, sizeof(config->listeners.at[0].host), "10.0.0.%u", broker->end.index + 1);
	snprintf(config->log_dirs, sizeof(config->log_dirs), "logs");
	config->segment_bytes = 16384;
	config->extent_bytes = (uint32_t)world_range(world, 4096, 20000);
	config->index_interval_bytes = (uint32_t)world_range(world, 0, 1000);
	if (broker->end.all->flushes)
		config->flush_messages = 1;
	if (broker->end.all->count > 1)
		add_voters(config, broker->end.all->count, world);
}

/* ---- producers ---- */

static struct rdma_sim_client *client_of(struct hf_poller *poller)
{
	return container_of(container_of(poller, struct rdma_sim_end, poller), struct rdma_sim_client, end);
}

static void delivered(void *context, const struct hf_delivery *delivery)
{
	const struct rdma_sim_sent *sent = context;
	struct rdma_sim_client *client = sent->client;
	struct rdma_sim *all = client->end.all;

	world_note(all->world, "delivered", (uint64_t)delivery->offset);
	if (delivery->error != 0) {
		/* Only a loss of power makes a broker forget whom it knew. */
		if (!all->accounts[client->partition].lossy)
			world_violate(all->world, "told", "producer %u is told that record %llu failed: %d, %d",
				client->end.index, (unsigned long long)sent->number, delivery->error,
				delivery->refusal);
		return;
	}
	if (sent->losses == all->losses && delivery->offset >= 0)
		partition_acked(&all->accounts[client->partition], (uint64_t)delivery->offset, client->end.index,
			sent->number, 1);
	holders_judge(client, sent->sent_ns);
	all->outcome->operations++;
	all->rdma_batches += delivery->rdma;
	client->done_since_quiet += all->world->now_ns >= all->faults.quiet_ns;
}

static bool send_some(struct rdma_sim_client *client, uint64_t now_ns)
{
	struct rdma_sim *all = client->end.all;
	struct world *world = all->world;
	uint8_t value[PARTITION_VALUE_BYTES];
	struct hf_record record = {.topic = RDMA_SIM_TOPIC,
		.partition = client->partition,
		.value = value,
		.value_bytes = sizeof(value),
		.timestamp_ms = (int64_t)(hf_env_wall_ns(&client->end.process->env) / NS_MS)};
	uint64_t count = world_range(world, 1, 5);

	if (now_ns < client->next_ns || all->stopping || client->number + count > RDMA_SIM_NUMBERS ||
		hf_producer_pending(client->producer) >= client->depth)
		return false;
	for (uint64_t i = 0; i < count; i++) {
		struct rdma_sim_sent *sent = &client->sent[client->number];

		*sent = (struct rdma_sim_sent){client, client->number, world->now_ns, all->losses};
		put_le32(value, client->end.index);
		put_le64(value + 4, client->number);
		if (hf_producer_send(client->producer, &record, delivered, sent) != 0)
			break;
		client->number++;
	}
	client->next_ns = now_ns + world_range(world, 1, client->over_tcp ? 8 * REST_NS_MAX : REST_NS_MAX);
	return true;
}

/* ---- readers ---- */

static void start_over(struct rdma_sim_client *client)
{
	client->anew = false;
	client->losses = client->end.all->losses;
	ensure(hf_consumer_seek(client->consumer, RDMA_SIM_TOPIC, client->partition, HF_OFFSET_BEGIN) == 0);
}

static bool read_some(struct rdma_sim_client *client, uint64_t now_ns)
{
	struct rdma_sim *all = client->end.all;
	struct hf_message messages[MESSAGES];
	int n;

	if (now_ns < client->next_ns)
		return false;
	client->next_ns = now_ns + world_range(all->world, 1, NS_MS);
	/* What was read before the loss of power need not be there any more. */
	if (client->anew || client->losses != all->losses || (!all->settling && world_chance(all->world, 1000)))
		start_over(client);
	n = hf_consumer_poll(client->consumer, messages, MESSAGES);
	for (int i = 0; i < n; i++)
		partition_given(&all->accounts[client->partition], (uint64_t)messages[i].offset, messages[i].value,
			messages[i].value_bytes);
	if (n < 0)
		world_violate(all->world, "told", "a reader got %d", n);
	if (n > 0)
		client->next_ns = now_ns;
	return n > 0;
}

/* ---- clients ---- */

static enum hf_poll poll_client(struct hf_poller *poller, uint64_t now_ns)
{
	struct rdma_sim_client *client = client_of(poller);

	return (client->reads ? read_some(client, now_ns) : send_some(client, now_ns)) ? HF_BUSY : HF_IDLE;
}

static bool arm_client(struct hf_poller *poller)
{
	struct rdma_sim_client *client = client_of(poller);

	hf_loop_set_timer(client->end.loop, &client->end.timer,
		hf_loop_now_ns(client->end.loop) +
			world_range(client->end.all->world, 1, client->reads ? NS_MS : REST_NS_MAX));
	return true;
}

static void timer_fired(struct hf_timer *timer, uint64_t now_ns)
{
	(void)timer, (void)now_ns;
}

static int open_client(struct rdma_sim_client *client, struct hf_error *error)
{
	struct world *world = client->end.all->world;
	enum hf_rdma_use rdma = client->over_tcp ? HF_RDMA_OFF : HF_RDMA_AUTO;
	const char *brokers =
		client->end.all->count == 1 ? "10.0.0.1:9092" : "10.0.0.1:9092,10.0.0.2:9092,10.0.0.3:9092";
	struct hf_addr local;

	ensure(hf_addr_parse("10.0.0.0:0", &local) == 0);
	local.in.sin_addr.s_addr = htonl(0x0a000000u + client->end.index + 1);
	if (client->reads)
		return hf_consumer_open(client->end.loop, client->end.node,
			&(struct hf_consumer_config){.brokers = brokers,
				.local = local,
				.rdma = rdma,
				.fetch_bytes = (uint32_t)world_range(world, 1, 4000),
				.request_timeout_ns = TIMEOUT_NS + 500 * NS_MS,
				.return_ns = RETURN_NS},
			&client->consumer, error);
	return hf_producer_open(client->end.loop, client->end.node,
		&(struct hf_producer_config){.brokers = brokers,
			.local = local,
			.rdma = rdma,
			.batch_bytes = 1024,
			.batch_records = (uint32_t)world_range(world, 0, 3),
			.buffer_bytes = 65536,
			.request_timeout_ns = TIMEOUT_NS,
			.return_ns = RETURN_NS},
		&client->producer, error);
}

static int start_client(struct process *process, void *context)
{
	struct rdma_sim_client *client = context;
	struct hf_error error = {0};
	int rc = rdma_sim_open_node(&client->end);

	if (rc == 0 && (rc = open_client(client, &error)) != 0 && !process->muted)
		world_violate(client->end.all->world, "start", "%s", error.text);
	if (rc != 0)
		return rc;
	client->depth = world_range(client->end.all->world, 1, 40);
	client->anew = true;
	client->end.poller = (struct hf_poller){.poll = poll_client, .arm = arm_client};
	client->end.timer = (struct hf_timer){.fire = timer_fired};
	hf_loop_add_poller(client->end.loop, &client->end.poller);
	return 0;
}

static void stop_client(struct process *process, void *context)
{
	struct rdma_sim_client *client = context;
	struct hf_producer_stats stats = {0};
	struct hf_consumer_stats read = {0};

	(void)process;
	if (client->producer != NULL)
		hf_producer_stats(client->producer, &stats);
	if (client->consumer != NULL)
		hf_consumer_stats(client->consumer, &read);
	client->end.all->settled += stats.settled;
	client->end.all->rdma_records += read.rdma_records;
	hf_producer_close(client->producer);
	hf_consumer_close(client->consumer);
	client->producer = NULL;
	client->consumer = NULL;
	hf_loop_cancel_timer(client->end.loop, &client->end.timer);
	rdma_sim_close_node(&client->end);
}

const struct program rdma_sim_client_program = {.name = "client", .start = start_client, .stop = stop_client};
