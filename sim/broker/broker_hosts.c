/* The brokers: one, or three with rails between them. */
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/broker/brokers.h"
#include "sim/broker/split.h"
#include "sim/endpoint.h"

#define CONTROL_PORT 7000u
#define HEARTBEAT_NS (5 * NS_MS)
#define FAILBACK_NS  (20 * NS_MS)
#define QP_TIMEOUT   8 /* 1 ms */
#define QP_RETRY_CNT 2
#define CLIENTS_FROM 10u /* of addresses */

void sim_client_address(unsigned index, char text[HF_ADDR_TEXT])
{
	snprintf(text, HF_ADDR_TEXT, "10.0.0.%u", index + CLIENTS_FROM);
}

static void rail_address(unsigned number, unsigned rail, uint16_t port, struct hf_addr *out)
{
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "10.%u.0.%u:%u", rail, number, port);
	ensure(hf_addr_parse(text, out) == 0);
}

void sim_rails_configure(const struct host *host, unsigned number, struct hf_node_config *config)
{
	*config = (struct hf_node_config){.rail_count = SIM_BROKER_RAILS,
		.policy = HF_POLICY_VARUNA,
		.heartbeat_ns = HEARTBEAT_NS,
		.heartbeat_misses = 4,
		.failback_ns = FAILBACK_NS,
		.budget_ns = NS_S,
		.timeout = QP_TIMEOUT,
		.retry_cnt = QP_RETRY_CNT};
	snprintf(config->name, sizeof(config->name), "%s", host->name);
	snprintf(config->secret, sizeof(config->secret), "%s", ENDPOINT_SECRET);
	for (unsigned i = 0; i < SIM_BROKER_RAILS; i++) {
		struct hf_addr address;

		rail_address(number, i, CONTROL_PORT, &address);
		endpoint_set_rail(config, i, &address, CONTROL_PORT);
	}
}

void sim_rails_add_port(struct host *host, unsigned number, unsigned rail)
{
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "10.%u.0.%u", rail, number);
	network_add_port(host->network, host, rail, text);
}

static int open_broker(struct sim_broker *broker, struct hf_error *error)
{
	struct hf_node_config config;
	int rc = hf_loop_create(&broker->process->env, &broker->loop);

	sim_rails_configure(&broker->host, broker->index + 1, &config);
	if (broker->all->shared) {
		config.cores = HF_CORES_SHARED;
		config.heartbeat_ns = config.budget_ns = 0;
		config.timeout = config.retry_cnt = 0;
	}
	if (rc == 0 && broker->all->rails)
		rc = hf_node_open(broker->loop, &config, NULL, NULL, &broker->node, error);
	if (rc == 0)
		rc = broker_open(broker->loop, broker->node, &broker->config, &broker->broker, error);
	return rc;
}

/* Once all brokers are there, so that each has a replica. */
static void make_topic(struct hf_timer *timer, uint64_t now_ns)
{
	struct sim_broker *broker = container_of(timer, struct sim_broker, timer);
	const struct controller *controller = &broker->broker->controller;
	struct codec_string name = {SIM_BROKER_TOPIC, sizeof(SIM_BROKER_TOPIC) - 1};

	if (controller_find(controller, name) != NULL)
		return;
	if (controller->broker_count == broker->all->count)
		broker_create_topic(broker->broker, name, SIM_BROKER_PARTITIONS, NULL);
	hf_loop_set_timer(broker->loop, timer, now_ns + 20 * NS_MS);
}

static int broker_program_start(struct process *process, void *context)
{
	struct sim_broker *broker = context;
	struct hf_error error = {0};
	int rc = open_broker(broker, &error);

	if (rc != 0) {
		if (!process->muted)
			world_violate(broker->all->world, "start", "%s", error.text);
		return rc;
	}
	broker->timer = (struct hf_timer){.fire = make_topic};
	if (broker->index == 0)
		make_topic(&broker->timer, hf_loop_now_ns(broker->loop));
	return 0;
}

static void broker_program_stop(struct process *process, void *context)
{
	struct sim_broker *broker = context;

	(void)process;
	hf_loop_cancel_timer(broker->loop, &broker->timer);
	broker_close(broker->broker);
	hf_node_close(broker->node);
	hf_loop_destroy(broker->loop);
	broker->broker = NULL;
	broker->node = NULL;
	broker->loop = NULL;
}

const struct program broker_program = {.name = "broker", .start = broker_program_start, .stop = broker_program_stop};

/* ---- looking at them ---- */

void sim_broker_count(struct sim_broker *broker)
{
	if (broker->broker == NULL)
		return;
	broker->all->led += broker->broker->replication.counters.led;
	broker->all->truncations += broker->broker->replication.counters.truncations;
	if (broker->broker->replication.counters.lost_hw > 0)
		world_violate(broker->all->world, "kept", "%s has cut records that were committed", broker->host.name);
}

bool sim_brokers_are_whole(const struct broker *const *brokers, unsigned count, const char *topic)
{
	for (unsigned i = 0; i < count; i++) {
		const struct controller_topic *known =
			brokers[i] == NULL ? NULL : controller_find(&brokers[i]->controller, request_text(topic));

		if (known == NULL || !brokers[i]->quorum.registered || quorum_leader(&brokers[i]->quorum) < 0 ||
			quorum_leader(&brokers[i]->quorum) != quorum_leader(&brokers[0]->quorum))
			return false;
		for (int32_t k = 0; k < known->partitions; k++)
			if (known->at[k].leader < 0 || known->at[k].isr.count < count)
				return false;
	}
	return true;
}

int sim_brokers_leading(const struct broker *const *brokers, unsigned count, const char *topic)
{
	for (unsigned i = 0; i < count; i++) {
		const struct partition *partition =
			brokers[i] == NULL ? NULL : topics_partition(&brokers[i]->topics, request_text(topic), 0);

		if (partition != NULL && partition->leads)
			return (int)i;
	}
	return -1;
}

/* ---- setting up ---- */

static void configure_broker(struct sim_broker *broker, uint32_t index_interval)
{
	struct broker_sim *all = broker->all;
	struct broker_config *config = &broker->config;

	broker_config_default(config);
	config->cores = all->shared ? HF_CORES_SHARED : HF_CORES_OWNED;
	config->node_id = (int32_t)broker->index + 1;
	config->listeners = (struct broker_endpoints){.at = {{.name = "PLAINTEXT", .port = 9092}}, .count = 1};
	snprintf(config->listeners.at[0].host, sizeof(config->listeners.at[0].host), "10.0.0.%u", broker->index + 1);
	snprintf(config->log_dirs, sizeof(config->log_dirs), "logs");
	config->segment_bytes = 16384;
	config->index_interval_bytes = index_interval;
	if (all->flushes)
		config->flush_messages = 1;
	if (all->count == 1)
		return;
	config->replication_factor = (int16_t)all->count;
	config->min_insync_replicas = all->count / 2 + 1;
	/* Of three seeds one has followers that are left behind by what faults do to links. */
	if (!all->shared)
		config->lag_ns = all->world->seed % 3 == 1 ? 100 * NS_MS : 2 * NS_S;
	if (all->splits)
		config->lag_ns = SPLIT_LAG_NS;
	for (unsigned i = 0; i < all->count; i++) {
		struct broker_voter *voter = &config->voters.at[config->voters.count++];

		*voter = (struct broker_voter){.id = (int32_t)i + 1, .address_count = SIM_BROKER_RAILS};
		for (unsigned k = 0; k < SIM_BROKER_RAILS; k++)
			rail_address(i + 1, k, CONTROL_PORT, &voter->addresses[k]);
	}
}

void sim_brokers_set_up(struct broker_sim *all, unsigned count)
{
	static const char *const names[SIM_BROKERS_MAX] = {"broker1", "broker2", "broker3"};
	uint32_t index_interval = (uint32_t)world_range(all->world, 0, 1000);

	all->count = count;
	for (unsigned i = 0; i < count; i++) {
		struct sim_broker *broker = &all->brokers[i];

		broker->all = all;
		broker->index = i;
		host_init(&broker->host, all->world, &all->network, names[i]);
		broker->process = process_create(&broker->host, names[i], &broker_program, broker);
		configure_broker(broker, index_interval);
	}
	for (unsigned rail = 0; rail < (all->rails ? SIM_BROKER_RAILS : 1); rail++)
		for (unsigned i = 0; i < count; i++)
			sim_rails_add_port(&all->brokers[i].host, i + 1, rail);
}
