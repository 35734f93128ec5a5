/* A broker: opens what it needs in order, listens, proposes. */
#include "broker/broker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/log/checkpoint.h"
#include "broker/connection.h"
#include "broker/groups/groups_log.h"

#define PRODUCER_ID_BLOCK 1000
#define NS_PER_MS         1000000ull
#define META_MOST         4096u

int64_t broker_now_ms(const struct broker *broker)
{
	return (int64_t)(hf_env_wall_ns(broker->env) / NS_PER_MS);
}

const struct broker_endpoint *broker_endpoint(const struct broker *broker, unsigned index)
{
	const struct broker_config *config = &broker->config;

	return config->advertised.count > 0 ? &config->advertised.at[index] : &config->listeners.at[index];
}

/* ---- the controller ---- */

void broker_propose(
	struct broker *broker, const struct kafka_controller_command *command, struct controller_result *result)
{
	struct hf_error error;

	journal_propose(broker->journal, command, result);
	if (result->error != KAFKA_NONE)
		return;
	if (command->kind == CONTROLLER_DELETE_TOPIC) {
		topics_delete(&broker->topics, command->topic);
		groups_log_forget_topic(&broker->groups, command->topic);
	}
	if (result->topic == NULL || topics_follow(&broker->topics, result->topic, broker_now_ms(broker), &error) == 0)
		return;
	log_error("broker: topic %s is not served: %s", result->topic->name, error.text);
	*result = (struct controller_result){
		.error = KAFKA_STORAGE_ERROR, .message = "the broker cannot open the log; its own log says why"};
}

static void make_creation(struct broker *broker, struct codec_string name, int32_t partitions,
	const struct kafka_controller_command_command_config *configs, int32_t config_count,
	struct kafka_controller_command *command)
{
	codec_default(kafka_controller_command_codec.root, command);
	command->kind = CONTROLLER_CREATE_TOPIC;
	command->topic = name;
	command->partitions = partitions;
	command->configs.count = config_count;
	union {
		const struct kafka_controller_command_command_config *in;
		struct kafka_controller_command_command_config *out; /* a decoded message's arrays are not const */
	} list = {.in = configs};
	command->configs.at = list.out;
	hf_env_entropy(broker->env, command->topic_id.byte, sizeof(command->topic_id.byte));
}

void broker_check_topic(struct broker *broker, struct codec_string name, int32_t partitions,
	const struct kafka_controller_command_command_config *configs, int32_t config_count,
	struct controller_result *result)
{
	struct kafka_controller_command command;
	struct controller scratch;

	make_creation(broker, name, partitions, configs, config_count, &command);
	controller_init(&scratch, &broker->defaults);
	controller_apply(&scratch, &command, result);
	result->topic = NULL;
	controller_free(&scratch);
}

void broker_create_topic(struct broker *broker, struct codec_string name, int32_t partitions,
	const struct kafka_controller_command_command_config *configs, int32_t config_count,
	struct controller_result *result)
{
	struct kafka_controller_command command;

	/* What would be refused does not get into the journal. */
	broker_check_topic(broker, name, partitions, configs, config_count, result);
	if (result->error != KAFKA_NONE)
		return;
	make_creation(broker, name, partitions, configs, config_count, &command);
	broker_propose(broker, &command, result);
}

int64_t broker_take_producer_id(struct broker *broker, enum kafka_error *error_out)
{
	struct kafka_controller_command command;
	struct controller_result result;

	if (broker->next_producer_id == broker->producer_ids_end) {
		codec_default(kafka_controller_command_codec.root, &command);
		command.kind = CONTROLLER_TAKE_PRODUCER_IDS;
		command.count = PRODUCER_ID_BLOCK;
		broker_propose(broker, &command, &result);
		*error_out = result.error;
		if (result.error != KAFKA_NONE)
			return -1;
		broker->next_producer_id = result.first_producer_id;
		broker->producer_ids_end = result.first_producer_id + PRODUCER_ID_BLOCK;
	}
	*error_out = KAFKA_NONE;
	return broker->next_producer_id++;
}

/* ---- listening ---- */

static void listener_ready(struct hf_watch *watch, unsigned ready)
{
	struct broker_listener *listener = container_of(watch, struct broker_listener, watch);
	struct broker *broker = listener->broker;
	static struct log_limit refusals;
	struct hf_addr remote;
	struct hf_io *io;
	uint64_t left_out;

	(void)ready;
	if (hf_stream_accept(listener->io, &io, &remote) != 0)
		return;
	if (broker->connection_count >= broker->config.max_connections) {
		if (log_limit_allows(&refusals, hf_loop_now_ns(broker->loop), &left_out))
			log_warn("broker: a connection is refused: there are max.connections (%u) already "
				 "(%llu such lines left out)",
				broker->config.max_connections, (unsigned long long)left_out);
		hf_io_close(io);
		return;
	}
	(void)connection_open(
		broker, io, &remote, listener->index); /* no memory: the client sees its connection closed */
}

/* An empty host is every address, and localhost 127.0.0.1: the broker asks no name server. */
static int endpoint_address(const struct broker_endpoint *endpoint, struct hf_addr *out, struct hf_error *error)
{
	const char *host = endpoint->host[0] == '\0'                  ? "0.0.0.0"
			   : strcmp(endpoint->host, "localhost") == 0 ? "127.0.0.1"
								      : endpoint->host;
	char text[BROKER_HOST_BYTES + 8];

	snprintf(text, sizeof(text), "%s:%u", host, endpoint->port);
	if (hf_addr_parse(text, out) == 0)
		return 0;
	return hf_error_set(
		error, -EINVAL, "listeners: '%.100s' is no address of this host; write an IP address", text);
}

static int open_listeners(struct broker *broker, struct hf_error *error)
{
	for (unsigned i = 0; i < broker->config.listeners.count; i++) {
		struct broker_listener *listener = &broker->listeners[i];
		struct hf_addr address;
		int rc = endpoint_address(&broker->config.listeners.at[i], &address, error);

		if (rc == 0)
			rc = hf_stream_listen(broker->env, &address, &listener->io, error);
		if (rc != 0)
			return rc;
		broker->listener_count++;
		*listener = (struct broker_listener){
			.watch = {.ready = listener_ready}, .io = listener->io, .broker = broker, .index = i};
		/* A port that the system chose is told to clients. */
		if (hf_io_local(listener->io, &address) == 0 && broker->config.listeners.at[i].port == 0)
			broker->config.listeners.at[i].port = hf_addr_port(&address);
		rc = hf_loop_watch(broker->loop, &listener->watch, listener->io, HF_READABLE);
		if (rc != 0)
			return hf_error_set(error, rc, "cannot watch a listener: %s", strerror(-rc));
	}
	return 0;
}

/* ---- opening ---- */

static int lock_directory(struct broker *broker, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES];
	int rc = hf_dir_make(broker->env, broker->config.log_dirs);

	if (rc != 0 && rc != -EEXIST)
		return hf_error_set(error, rc, "cannot make log.dirs %s: %s", broker->config.log_dirs, strerror(-rc));
	snprintf(path, sizeof(path), "%s/.lock", broker->config.log_dirs);
	rc = hf_file_open(broker->env, path, HF_FILE_WRITE | HF_FILE_CREATE, &broker->lock);
	if (rc != 0)
		return hf_error_set(error, rc, "cannot open %s: %s", path, strerror(-rc));
	rc = hf_file_lock(broker->lock);
	if (rc == -EAGAIN)
		return hf_error_set(error, rc, "log.dirs %s is in use by another broker", broker->config.log_dirs);
	return rc == 0 ? 0 : hf_error_set(error, rc, "cannot lock %s: %s", path, strerror(-rc));
}

/* Kafka's meta.properties: whose directory this is. */
static int read_identity(struct broker *broker, const char *text, const char *path, struct hf_error *error)
{
	const char *cluster = strstr(text, "cluster.id="), *node = strstr(text, "node.id=");
	int id = -1;

	if (cluster == NULL || node == NULL || sscanf(cluster, "cluster.id=%31[^\n]", broker->cluster_id) != 1 ||
		sscanf(node, "node.id=%d", &id) != 1)
		return hf_error_set(error, -EBADMSG, "%s has no cluster.id and node.id; restore it", path);
	if (id != broker->config.node_id)
		return hf_error_set(error, -EINVAL, "%s belongs to node.id %d, and the configuration says %d", path, id,
			broker->config.node_id);
	return 0;
}

static int make_identity(struct broker *broker, const char *path, struct hf_error *error)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	uint8_t entropy[22];
	char text[160];
	int n;

	hf_env_entropy(broker->env, entropy, sizeof(entropy));
	for (unsigned i = 0; i < sizeof(entropy); i++)
		broker->cluster_id[i] = digits[entropy[i] % 64];
	n = snprintf(text, sizeof(text), "version=1\ncluster.id=%s\nnode.id=%d\n", broker->cluster_id,
		broker->config.node_id);
	return checkpoint_write(broker->env, path, text, (size_t)n, error);
}

static int identify(struct broker *broker, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES], *text;
	size_t bytes;
	int rc;

	snprintf(path, sizeof(path), "%s/meta.properties", broker->config.log_dirs);
	rc = checkpoint_read(broker->env, path, META_MOST, &text, &bytes, error);
	if (rc == -ENOENT)
		return make_identity(broker, path, error);
	if (rc == 0)
		rc = read_identity(broker, text, path, error);
	free(text);
	return rc;
}

static enum hf_poll broker_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct broker *broker = container_of(poller, struct broker, poller);
	bool busy = !list_empty(&broker->ready);

	(void)now_ns;
	connections_flush(broker);
	return busy ? HF_BUSY : HF_IDLE;
}

static bool broker_arm(struct hf_poller *poller)
{
	return list_empty(&container_of(poller, struct broker, poller)->ready);
}

static void retention_due(struct hf_timer *timer, uint64_t now_ns)
{
	struct broker *broker = container_of(timer, struct broker, retention);

	topics_retain(&broker->topics, broker_now_ms(broker));
	hf_loop_set_timer(broker->loop, timer, now_ns + broker->config.retention_check_ns);
}

static int broker_start(struct broker *broker, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES];
	int rc = lock_directory(broker, error);

	if (rc == 0)
		rc = identify(broker, error);
	snprintf(path, sizeof(path), "%s/controller.journal", broker->config.log_dirs);
	if (rc == 0)
		rc = journal_open(broker->env, path, &broker->controller, &broker->journal, error);
	if (rc == 0 && (rc = hf_dir_sync(broker->env, broker->config.log_dirs)) != 0)
		hf_error_set(error, rc, "cannot sync %s: %s", broker->config.log_dirs, strerror(-rc));
	if (rc == 0)
		rc = topics_open(&broker->topics, broker->env, broker->config.log_dirs, &broker->controller,
			broker_now_ms(broker), error);
	if (rc == 0)
		rc = groups_open(&broker->groups, broker, error);
	if (rc == 0)
		rc = open_listeners(broker, error);
	return rc;
}

int broker_open(
	struct hf_loop *loop, const struct broker_config *config, struct broker **broker_out, struct hf_error *error)
{
	struct broker *broker = calloc(1, sizeof(*broker));
	int rc;

	*broker_out = NULL;
	if (broker == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a broker");
	broker->env = hf_loop_env(loop);
	broker->loop = loop;
	broker->config = *config;
	list_init(&broker->connections);
	list_init(&broker->ready);
	broker_config_topic_defaults(config, &broker->defaults);
	controller_init(&broker->controller, &broker->defaults);
	broker->poller = (struct hf_poller){.poll = broker_poll, .arm = broker_arm};
	hf_loop_add_poller(loop, &broker->poller);
	broker->retention.fire = retention_due;
	hf_loop_set_timer(loop, &broker->retention, hf_loop_now_ns(loop) + config->retention_check_ns);
	rc = broker_start(broker, error);
	if (rc != 0) {
		broker_close(broker);
		return rc;
	}
	*broker_out = broker;
	return 0;
}

void broker_close(struct broker *broker)
{
	if (broker == NULL)
		return;
	for (unsigned i = 0; i < broker->listener_count; i++) {
		hf_loop_unwatch(&broker->listeners[i].watch);
		hf_io_close(broker->listeners[i].io);
	}
	while (!list_empty(&broker->connections))
		connection_close(container_of(broker->connections.next, struct connection, node));
	groups_close(&broker->groups);
	if (broker->topics.env != NULL)
		topics_close(&broker->topics);
	journal_close(broker->journal);
	controller_free(&broker->controller);
	hf_loop_cancel_timer(broker->loop, &broker->retention);
	hf_loop_remove_poller(broker->loop, &broker->poller);
	if (broker->lock != NULL)
		hf_file_close(broker->lock);
	free(broker);
}
