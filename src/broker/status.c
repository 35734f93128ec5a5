/* A broker's pages and metrics. */
#include "broker/status.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/rdma/rdma.h"
#include "node/node.h"

#define UPDATE_NS 500000000ull

/* ---- metrics ---- */

static uint64_t count_led(const struct broker *broker)
{
	uint64_t led = 0;

	for (unsigned i = 0; i < broker->topics.count; i++)
		for (int32_t k = 0; k < broker->topics.at[i]->count; k++)
			led += broker->topics.at[i]->partitions[k] != NULL &&
			       broker->topics.at[i]->partitions[k]->leads;
	return led;
}

static uint64_t count_offline(const struct broker *broker)
{
	uint64_t offline = 0;

	for (unsigned i = 0; i < broker->controller.topic_count; i++)
		for (int32_t k = 0; k < broker->controller.topics[i]->partitions; k++)
			offline += broker->controller.topics[i]->at[k].leader < 0;
	return offline;
}

enum log_condition { CONDITION_OK, CONDITION_FAILED, CONDITION_DAMAGED, CONDITION_MISSING };

/* Of the log of a partition, at this broker. */
static enum log_condition condition_of(const struct partition *here)
{
	if (here == NULL)
		return CONDITION_MISSING;
	if (partition_log_is_damaged(here->log))
		return CONDITION_DAMAGED;
	return here->log->failed ? CONDITION_FAILED : CONDITION_OK;
}

static uint64_t count_condition(const struct broker *broker, enum log_condition condition)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < broker->controller.topic_count; i++) {
		const struct controller_topic *topic = broker->controller.topics[i];

		for (int32_t k = 0; k < topic->partitions; k++)
			count += controller_set_has(&topic->at[k].replicas, broker->config.node_id) &&
				 condition_of(topics_partition(&broker->topics, request_text(topic->name), k)) ==
					 condition;
	}
	return count;
}

static uint64_t count_failed(const struct broker *broker)
{
	return count_condition(broker, CONDITION_FAILED);
}

static uint64_t count_damaged(const struct broker *broker)
{
	return count_condition(broker, CONDITION_DAMAGED);
}

static uint64_t count_missing(const struct broker *broker)
{
	return broker_is_member(broker) ? count_condition(broker, CONDITION_MISSING) : 0;
}

/* Without a leader, and a replica is to be here. */
static uint64_t count_offline_here(const struct broker *broker)
{
	uint64_t offline = 0;

	for (unsigned i = 0; i < broker->controller.topic_count; i++)
		for (int32_t k = 0; k < broker->controller.topics[i]->partitions; k++) {
			const struct controller_partition *at = &broker->controller.topics[i]->at[k];

			offline += at->leader < 0 && controller_set_has(&at->replicas, broker->config.node_id);
		}
	return offline;
}

static uint64_t count_under_replicated(const struct broker *broker)
{
	return broker->replication.broker == NULL ? 0 : replication_under_replicated(&broker->replication);
}

enum {
	PARTITIONS_LED,
	PARTITIONS_OFFLINE,
	PARTITIONS_UNDER_REPLICATED,
	LOGS_FAILED,
	LOGS_DAMAGED,
	LOGS_MISSING,
	CONNECTIONS,
	CONTROLLER,
	GRANTS,
	ELECTIONS,
	TRUNCATIONS,
	REPLICATED_BYTES,
	ISR_SHRINKS,
	ROWS,
};

static const struct service_metric rows[ROWS] = {
	[PARTITIONS_LED] = {"holdfast_broker_partitions_led", "Partitions that this broker leads.", HF_METRIC_GAUGE},
	[PARTITIONS_OFFLINE] = {"holdfast_broker_partitions_offline", "Partitions of the cluster without a leader.",
		HF_METRIC_GAUGE},
	[PARTITIONS_UNDER_REPLICATED] = {"holdfast_broker_partitions_under_replicated",
		"Partitions that this broker leads and of which a replica is not in sync.", HF_METRIC_GAUGE},
	[LOGS_FAILED] = {"holdfast_broker_logs_failed",
		"Logs of this broker that take no records: the disk is full, or refused.", HF_METRIC_GAUGE},
	[LOGS_DAMAGED] = {"holdfast_broker_logs_damaged", "Logs of this broker that are damaged, and are not served.",
		HF_METRIC_GAUGE},
	[LOGS_MISSING] = {"holdfast_broker_logs_missing", "Logs of this broker that could not be opened.",
		HF_METRIC_GAUGE},
	[CONNECTIONS] = {"holdfast_broker_connections", "Connections of clients.", HF_METRIC_GAUGE},
	[CONTROLLER] = {"holdfast_broker_controller", "Whether this broker leads the controller.", HF_METRIC_GAUGE},
	[GRANTS] = {"holdfast_broker_grants_total", "Grants of partitions to producers over RDMA.", HF_METRIC_COUNTER},
	[ELECTIONS] = {"holdfast_broker_elections_total", "How often this broker began to lead a partition.",
		HF_METRIC_COUNTER},
	[TRUNCATIONS] = {"holdfast_broker_truncations_total",
		"Logs that were cut where a later leader has another history.", HF_METRIC_COUNTER},
	[REPLICATED_BYTES] = {"holdfast_broker_replicated_bytes_total", "Bytes written into the logs of followers.",
		HF_METRIC_COUNTER},
	[ISR_SHRINKS] = {"holdfast_broker_isr_shrinks_total", "Replicas that left an isr because they were behind.",
		HF_METRIC_COUNTER},
};

static void sample(const void *service, uint64_t *values)
{
	const struct broker *broker = service;

	values[PARTITIONS_LED] = count_led(broker);
	values[PARTITIONS_OFFLINE] = count_offline(broker);
	values[PARTITIONS_UNDER_REPLICATED] = count_under_replicated(broker);
	values[LOGS_FAILED] = count_failed(broker);
	values[LOGS_DAMAGED] = count_damaged(broker);
	values[LOGS_MISSING] = count_missing(broker);
	values[CONNECTIONS] = broker->connection_count;
	values[CONTROLLER] = broker->journal != NULL || broker->quorum.leads;
	values[GRANTS] = broker->rdma == NULL ? 0 : broker->rdma->grants;
	values[ELECTIONS] = broker->replication.counters.led;
	values[TRUNCATIONS] = broker->replication.counters.truncations;
	values[REPLICATED_BYTES] = broker->replication.counters.pushed_bytes;
	values[ISR_SHRINKS] = broker->replication.counters.isr_shrinks;
}

static void update(struct hf_timer *timer, uint64_t now_ns)
{
	struct broker_status *status = container_of(timer, struct broker_status, timer);

	service_metrics_sample(&status->metrics);
	hf_loop_set_timer(status->broker->loop, timer, now_ns + UPDATE_NS);
}

static void open_metrics(struct broker_status *status)
{
	char id[HF_METRIC_LABEL_BYTES];

	snprintf(id, sizeof(id), "%d", status->broker->config.node_id);
	service_metrics_open(
		&status->metrics, rows, ROWS, (struct hf_metric_label){"broker", id}, sample, status->broker);
}

/* ---- the page ---- */

static json_t *ids_of(const struct controller_set *set)
{
	json_t *ids = json_array();

	for (unsigned i = 0; i < set->count; i++)
		json_array_append_new(ids, json_integer(set->at[i]));
	return ids;
}

static json_t *describe_partition(const struct broker *broker, const struct controller_topic *topic, int32_t index)
{
	static const char *const conditions[] = {"ok", "failed", "damaged", "missing"};
	const struct controller_partition *known = &topic->at[index];
	const struct partition *here = topics_partition(&broker->topics, request_text(topic->name), index);
	bool is_replica = controller_set_has(&known->replicas, broker->config.node_id);

	return json_pack("{s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:I, s:I}", "log",
		is_replica ? conditions[condition_of(here)] : "none", "topic", topic->name, "partition", index,
		"leader", known->leader, "epoch", known->leader_epoch, "replicas", ids_of(&known->replicas), "isr",
		ids_of(&known->isr), "end", here == NULL ? (json_int_t)-1 : (json_int_t)partition_log_end(here->log),
		"hw", here == NULL ? (json_int_t)-1 : (json_int_t)here->hw);
}

/* How long ago the lease ended, which a majority of the controller gives; 0: it has not; -1: there was none yet. */
static json_int_t lease_over_ms(const struct broker *broker)
{
	uint64_t now_ns = hf_env_boot_ns(broker->env), until_ns = broker->quorum.lease_until_ns;

	if (broker->journal != NULL)
		return 0;
	return until_ns == 0 ? -1 : now_ns < until_ns ? 0 : (json_int_t)((now_ns - until_ns) / 1000000) + 1;
}

int32_t broker_controller(const struct broker *broker)
{
	int32_t leader = quorum_leader(&broker->quorum);

	if (!broker_has_lease(broker))
		return -1;
	return leader < 0 ? broker->config.node_id : leader;
}

static json_t *describe(const struct broker_status *status)
{
	const struct broker *broker = status->broker;
	const struct controller *controller = &broker->controller;
	json_t *brokers = json_array(), *partitions = json_array(), *counts = json_object();
	uint64_t values[ROWS];

	for (unsigned i = 0; i < controller->broker_count; i++)
		json_array_append_new(brokers, json_pack("{s:i, s:b}", "id", controller->brokers[i].id, "alive",
						       (int)controller->brokers[i].alive));
	for (unsigned i = 0; i < controller->topic_count; i++)
		for (int32_t k = 0; k < controller->topics[i]->partitions; k++)
			json_array_append_new(partitions, describe_partition(broker, controller->topics[i], k));
	sample(broker, values);
	for (unsigned i = 0; i < ROWS; i++)
		json_object_set_new(
			counts, rows[i].name + strlen("holdfast_broker_"), json_integer((json_int_t)values[i]));
	return json_pack("{s:i, s:s, s:b, s:b, s:I, s:i, s:o, s:o, s:o}", "id", broker->config.node_id, "cluster",
		controller->cluster_id, "member", (int)broker_is_member(broker), "lease", (int)broker_has_lease(broker),
		"lease_over_ms", lease_over_ms(broker), "controller", broker_controller(broker), "brokers", brokers,
		"partitions", partitions, "counts", counts);
}

/* What makes others wrong comes first. */
bool broker_status_wrong(const struct broker *broker, char reason[BROKER_REASON_BYTES])
{
	static const struct {
		uint64_t (*count)(const struct broker *broker);
		const char *words;
	} wrong[] = {{count_damaged, "logs are damaged, and are not served"},
		{count_failed, "logs take no records: the disk is full, or refused"},
		{count_missing, "logs could not be opened"},
		{count_offline_here, "partitions of this broker have no leader"}};
	const char *words = NULL;

	if (!broker_is_member(broker))
		words = "the controller has not registered this broker: it reaches no majority of "
			"controller.quorum.voters";
	else if (!broker_has_lease(broker))
		words = "no majority of controller.quorum.voters has answered this broker within its session";
	else if (broker->journal == NULL ? broker->quorum.failed : journal_failed(broker->journal))
		words = "the controller cannot write its log here: make room and restart the broker";
	else if (broker_disk_is_full(broker))
		words = "the disk of log.dirs is full: make room and restart the broker";
	if (words != NULL) {
		snprintf(reason, BROKER_REASON_BYTES, "%s", words);
		return true;
	}
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		uint64_t count = wrong[i].count(broker);

		snprintf(reason, BROKER_REASON_BYTES, "%llu %s", (unsigned long long)count, wrong[i].words);
		if (count > 0)
			return true;
	}
	return false;
}

/* Ready is a broker that takes and serves the records of all its partitions (R-B46); /health says only that the node
 * works. */
static void ready(const struct http_request *request, struct http_answer *answer, void *context)
{
	const struct broker *broker = ((struct broker_status *)context)->broker;
	char reason[BROKER_REASON_BYTES];

	(void)request;
	http_answer_ready(answer, broker->node->config.name, broker_status_wrong(broker, reason) ? reason : NULL);
}

static void serve(const struct http_request *request, struct http_answer *answer, void *context)
{
	json_t *json = describe(context);

	(void)request;
	answer->type = "application/json";
	answer->body = json == NULL ? NULL : json_dumps(json, JSON_INDENT(1));
	json_decref(json);
}

static const struct http_page pages[] = {{"/broker.json", serve}, {"/ready", ready}};

static struct http_server *server_of(const struct broker *broker)
{
	return broker->node == NULL ? NULL : broker->node->status.http;
}

int broker_status_open(struct broker_status *status, struct broker *broker, struct hf_error *error)
{
	*status = (struct broker_status){.broker = broker, .timer = {.fire = update, .quiet = true}};
	open_metrics(status);
	update(&status->timer, hf_loop_now_ns(broker->loop));
	return http_pages_open(&status->pages, server_of(broker), pages, sizeof(pages) / sizeof(*pages), status, error);
}

void broker_status_close(struct broker_status *status)
{
	if (status->broker == NULL)
		return;
	hf_loop_cancel_timer(status->broker->loop, &status->timer);
	http_pages_close(&status->pages, server_of(status->broker));
	service_metrics_close(&status->metrics);
	*status = (struct broker_status){0};
}
