/* The section `broker`. */
#include "broker/broker_config.h"

#include <stdlib.h>
#include <string.h>

#define FLUSH_CHECK_NS 1000000000ull
#define HOUR_MS        3600000ull
#define QUEUED_BYTES   (256u << 20)

void broker_config_settle(struct broker_config *config)
{
	bool shared = config->cores == HF_CORES_SHARED;

	if (config->session_ns == 0)
		config->session_ns = shared ? 3000000000ull : 500000000ull;
	if (config->heartbeat_ns == 0)
		config->heartbeat_ns = shared ? 250000000ull : 50000000ull;
}

void broker_config_default(struct broker_config *config)
{
	*config = (struct broker_config){
		.auto_create_topics = true,
		.delete_topics = true,
		.num_partitions = 1,
		.cores = HF_CORES_SHARED,
		.lag_ns = 10000000000ull,
		.replication_factor = 1,
		.offsets_replication_factor = 3,
		.min_insync_replicas = 1,
		.replication_batch_bytes = 1024,
		.request_max_bytes = 100u << 20,
		.fetch_max_bytes = 55u << 20,
		.max_connections = 10000,
		.max_connections_per_ip = INT32_MAX,
		.idle_ns = 600000000000ull,
		.retention_check_ns = 300000000000ull,
		.session_min_ns = 6000000000ull,
		.session_max_ns = 1800000000000ull,
		.rebalance_delay_ms = 3000,
		.extent_bytes = 16u << 20,
		.group_max_size = 1000,
		.offset_metadata_max_bytes = 4096,
		.offsets_retention_minutes = 10080,
		.segment_bytes = 1u << 30,
		.index_interval_bytes = 4096,
		.max_message_bytes = 1048588,
		.roll_ms = 604800000,
		.retention_ms = 604800000,
		.retention_bytes = -1,
		.timestamp_after_ms = HOUR_MS,
		.flush_messages = FLUSH_NEVER,
		.flush_ms = FLUSH_NEVER,
		.flush_scheduler_ms = FLUSH_NEVER,
	};
}

/* "NAME://HOST:PORT"; an empty host means all addresses, and localhost 127.0.0.1. */
static bool parse_endpoint(const char *text, size_t bytes, struct broker_endpoint *out)
{
	const char *end = text + bytes, *slashes = memmem(text, bytes, "://", 3);
	const char *host = slashes == NULL ? NULL : slashes + 3, *colon;
	char port[8] = {0}, *rest;
	unsigned long number;

	if (host == NULL || (size_t)(slashes - text) >= sizeof(out->name) || slashes == text)
		return false;
	colon = memrchr(host, ':', (size_t)(end - host));
	if (colon == NULL || (size_t)(colon - host) >= sizeof(out->host) || (size_t)(end - colon) > sizeof(port))
		return false;
	memcpy(port, colon + 1, (size_t)(end - colon - 1));
	number = strtoul(port, &rest, 10);
	if (rest == port || *rest != '\0' || number > UINT16_MAX)
		return false;
	*out = (struct broker_endpoint){.port = (uint16_t)number};
	memcpy(out->name, text, (size_t)(slashes - text));
	memcpy(out->host, host, (size_t)(colon - host));
	return strcmp(out->name, "PLAINTEXT") == 0;
}

static bool parse_endpoints(const char *text, int64_t number, void *out)
{
	struct broker_endpoints *endpoints = out;

	(void)number;
	*endpoints = (struct broker_endpoints){0};
	while (text != NULL && *text != '\0') {
		const char *comma = strchrnul(text, ',');

		if (endpoints->count == BROKER_LISTENERS_MAX ||
			!parse_endpoint(text, (size_t)(comma - text), &endpoints->at[endpoints->count]))
			return false;
		endpoints->count++;
		text = *comma == ',' ? comma + 1 : comma;
	}
	return endpoints->count > 0;
}

static struct broker_voter *find_voter(struct broker_voters *voters, int32_t id)
{
	for (unsigned i = 0; i < voters->count; i++)
		if (voters->at[i].id == id)
			return &voters->at[i];
	if (voters->count == CONTROLLER_BROKERS_MAX)
		return NULL;
	voters->at[voters->count] = (struct broker_voter){.id = id};
	return &voters->at[voters->count++];
}

static bool parse_voter(const char *text, size_t bytes, struct broker_voters *voters)
{
	char address[HF_ADDR_TEXT] = {0}, *rest;
	unsigned long id = strtoul(text, &rest, 10);
	size_t head = (size_t)(rest - text) + 1;
	struct broker_voter *voter;

	if (rest == text || *rest != '@' || id > INT32_MAX || head >= bytes || bytes - head >= sizeof(address))
		return false;
	memcpy(address, text + head, bytes - head);
	voter = find_voter(voters, (int32_t)id);
	return voter != NULL && voter->address_count < BROKER_VOTER_ADDRESSES &&
	       hf_addr_parse(address, &voter->addresses[voter->address_count++]) == 0;
}

/* "ID@HOST:PORT,..."; an id that stands there again has another address. */
static bool parse_voters(const char *text, int64_t number, void *out)
{
	struct broker_voters *voters = out;

	(void)number;
	*voters = (struct broker_voters){0};
	while (text != NULL && *text != '\0') {
		const char *comma = strchrnul(text, ',');

		if (!parse_voter(text, (size_t)(comma - text), voters))
			return false;
		text = *comma == ',' ? comma + 1 : comma;
	}
	return voters->count > 0;
}

/* A whole number from -1 on, which means: without limit. */
static bool parse_limit(const char *text, int64_t number, void *out)
{
	if (text != NULL || number < -1)
		return false;
	*(int64_t *)out = number;
	return true;
}

static const char *const timestamp_types[] = {"CreateTime", "LogAppendTime", NULL};

#define INTO(member) HF_CONFIG_INTO(struct broker_config, member)
#define LIMIT        .type = HF_CONFIG_PARSED, .parse = parse_limit, .expected = "a whole number, or -1 for no limit"

static const char *const cores[] = {[HF_CORES_OWNED] = "owned", [HF_CORES_SHARED] = "shared", NULL};

static const struct hf_config_key keys[] = {
	{"node.id", HF_CONFIG_NUMBER, INTO(node_id), .required = true, .min = 0, .max = INT32_MAX},
	{"listeners", HF_CONFIG_PARSED, INTO(listeners), .required = true, .parse = parse_endpoints,
		.expected = "a list of PLAINTEXT://HOST:PORT"},
	{"advertised.listeners", HF_CONFIG_PARSED, INTO(advertised), .parse = parse_endpoints,
		.expected = "a list of PLAINTEXT://HOST:PORT"},
	{"log.dirs", HF_CONFIG_PATH, INTO(log_dirs), .required = true},
	{"auto.create.topics.enable", HF_CONFIG_BOOL, INTO(auto_create_topics)},
	{"delete.topic.enable", HF_CONFIG_BOOL, INTO(delete_topics)},
	{"num.partitions", HF_CONFIG_NUMBER, INTO(num_partitions), .min = 1, .max = 10000},
	{"controller.quorum.voters", HF_CONFIG_PARSED, INTO(voters), .parse = parse_voters,
		.expected = "a list of ID@HOST:PORT, at most 7 brokers with up to 4 addresses each"},
	{"cores", HF_CONFIG_CHOICE, INTO(cores), .choices = cores},
	{"broker.session.timeout.ms", HF_CONFIG_MILLISECONDS, INTO(session_ns)},
	{"broker.heartbeat.interval.ms", HF_CONFIG_MILLISECONDS, INTO(heartbeat_ns)},
	{"replica.lag.time.max.ms", HF_CONFIG_MILLISECONDS, INTO(lag_ns)},
	{"unclean.leader.election.enable", HF_CONFIG_BOOL, INTO(unclean_election)},
	{"default.replication.factor", HF_CONFIG_NUMBER, INTO(replication_factor), .min = 1,
		.max = CONTROLLER_BROKERS_MAX},
	{"offsets.topic.replication.factor", HF_CONFIG_NUMBER, INTO(offsets_replication_factor), .min = 1,
		.max = CONTROLLER_BROKERS_MAX},
	{"min.insync.replicas", HF_CONFIG_NUMBER, INTO(min_insync_replicas), .min = 1, .max = CONTROLLER_BROKERS_MAX},
	{"replication.batch.bytes", HF_CONFIG_NUMBER, INTO(replication_batch_bytes), .min = 1, .max = 1u << 20},
	{"socket.request.max.bytes", HF_CONFIG_NUMBER, INTO(request_max_bytes), .min = 4096, .max = INT32_MAX},
	{"fetch.max.bytes", HF_CONFIG_NUMBER, INTO(fetch_max_bytes), .min = 1024, .max = INT32_MAX},
	{"max.connections", HF_CONFIG_NUMBER, INTO(max_connections), .min = 1, .max = 100000},
	{"max.connections.per.ip", HF_CONFIG_NUMBER, INTO(max_connections_per_ip), .min = 1, .max = INT32_MAX},
	{"queued.max.request.bytes", .offset = offsetof(struct broker_config, queued_max_bytes), .bytes = 8, LIMIT},
	{"connections.max.idle.ms", HF_CONFIG_MILLISECONDS, INTO(idle_ns)},
	{"log.retention.check.interval.ms", HF_CONFIG_MILLISECONDS, INTO(retention_check_ns)},
	{"group.min.session.timeout.ms", HF_CONFIG_MILLISECONDS, INTO(session_min_ns)},
	{"group.max.session.timeout.ms", HF_CONFIG_MILLISECONDS, INTO(session_max_ns)},
	{"group.initial.rebalance.delay.ms", HF_CONFIG_NUMBER, INTO(rebalance_delay_ms), .min = 0, .max = INT32_MAX},
	{"group.max.size", HF_CONFIG_NUMBER, INTO(group_max_size), .min = 1, .max = 100000},
	{"rdma.extent.bytes", HF_CONFIG_NUMBER, INTO(extent_bytes), .min = 4096, .max = INT32_MAX},
	{"offset.metadata.max.bytes", HF_CONFIG_NUMBER, INTO(offset_metadata_max_bytes), .min = 0, .max = 32767},
	{"offsets.retention.minutes", HF_CONFIG_NUMBER, INTO(offsets_retention_minutes), .min = 1, .max = INT32_MAX},
	{"log.segment.bytes", HF_CONFIG_NUMBER, INTO(segment_bytes), .min = 4096, .max = INT32_MAX},
	{"log.index.interval.bytes", HF_CONFIG_NUMBER, INTO(index_interval_bytes), .min = 0, .max = INT32_MAX},
	{"message.max.bytes", HF_CONFIG_NUMBER, INTO(max_message_bytes), .min = 0, .max = INT32_MAX},
	{"log.roll.ms", .offset = offsetof(struct broker_config, roll_ms), .bytes = 8, LIMIT},
	{"log.retention.ms", .offset = offsetof(struct broker_config, retention_ms), .bytes = 8, LIMIT},
	{"log.retention.bytes", .offset = offsetof(struct broker_config, retention_bytes), .bytes = 8, LIMIT},
	{"log.flush.interval.messages", HF_CONFIG_NUMBER, INTO(flush_messages), .min = 1, .max = INT64_MAX},
	{"log.flush.interval.ms", HF_CONFIG_NUMBER, INTO(flush_ms), .min = 0, .max = INT64_MAX},
	{"log.flush.scheduler.interval.ms", HF_CONFIG_NUMBER, INTO(flush_scheduler_ms), .min = 1, .max = INT64_MAX},
	{"log.message.timestamp.after.max.ms", HF_CONFIG_NUMBER, INTO(timestamp_after_ms), .min = 0, .max = INT64_MAX},
	{"log.message.timestamp.type", HF_CONFIG_CHOICE, INTO(timestamp_type), .choices = timestamp_types},
};

static bool is_voter(const struct broker_config *config)
{
	for (unsigned i = 0; i < config->voters.count; i++)
		if (config->voters.at[i].id == config->node_id)
			return true;
	return false;
}

static const char *check(const void *out)
{
	const struct broker_config *config = out;
	struct broker_config settled = *config;

	broker_config_settle(&settled);
	if (config->advertised.count > 0 && config->advertised.count != config->listeners.count)
		return "broker: advertised.listeners has not as many entries as listeners";
	if (config->voters.count > 0 && !is_voter(config))
		return "broker: controller.quorum.voters has no entry for node.id";
	if (settled.session_ns < 4 * settled.heartbeat_ns)
		return "broker: broker.session.timeout.ms is less than four times broker.heartbeat.interval.ms";
	if (config->queued_max_bytes > 0 && config->queued_max_bytes < config->request_max_bytes)
		return "broker: queued.max.request.bytes is less than socket.request.max.bytes";
	if (config->session_min_ns > config->session_max_ns)
		return "broker: group.min.session.timeout.ms is above group.max.session.timeout.ms";
	return NULL;
}

struct hf_config_section broker_config_section(struct broker_config *config)
{
	return (struct hf_config_section){.name = "broker",
		.keys = keys,
		.key_count = sizeof(keys) / sizeof(*keys),
		.out = config,
		.required = true,
		.check = check};
}

uint64_t broker_config_queued_bytes(const struct broker_config *config)
{
	if (config->queued_max_bytes < 0)
		return UINT64_MAX;
	if (config->queued_max_bytes > 0)
		return (uint64_t)config->queued_max_bytes;
	return config->request_max_bytes > QUEUED_BYTES ? config->request_max_bytes : QUEUED_BYTES;
}

uint64_t broker_config_flush_check_ns(const struct broker_config *config)
{
	uint64_t ms = (uint64_t)config->flush_scheduler_ms;

	return config->flush_scheduler_ms == FLUSH_NEVER ? FLUSH_CHECK_NS
	       : ms > HOUR_MS                            ? HOUR_MS * 1000000
							 : ms * 1000000;
}

void broker_config_topic_defaults(const struct broker_config *config, struct topic_config *defaults_out)
{
	topic_config_default(defaults_out);
	defaults_out->log.segment_bytes = config->segment_bytes;
	defaults_out->log.index_interval_bytes = config->index_interval_bytes;
	defaults_out->log.max_message_bytes = config->max_message_bytes;
	defaults_out->log.segment_ms = config->roll_ms;
	defaults_out->log.retention_ms = config->retention_ms;
	defaults_out->log.retention_bytes = config->retention_bytes;
	defaults_out->log.timestamp_after_ms = config->timestamp_after_ms;
	defaults_out->log.flush_messages = config->flush_messages;
	defaults_out->log.flush_ms = config->flush_ms != FLUSH_NEVER ? config->flush_ms : config->flush_scheduler_ms;
	defaults_out->log.min_insync_replicas = config->min_insync_replicas;
	defaults_out->log.unclean_election = config->unclean_election;
	defaults_out->log.log_append_time = config->timestamp_type == BROKER_LOG_APPEND_TIME;
}
