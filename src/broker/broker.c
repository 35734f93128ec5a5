/* A broker: opens what it needs in order, listens, proposes. */
#include "broker/broker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/log.h"
#include "broker/controller/kept_logs.h"
#include "broker/log/checkpoint.h"
#include "broker/rdma/rdma.h"
#include "broker/connection.h"

#define META_MOST  4096u
#define CRC_KEY    "holdfast.crc32c=" /* the last line; Kafka reads over it */
#define MARKING_NS 1000000000ull

const struct broker_endpoint *broker_endpoint(const struct broker *broker, unsigned index)
{
	const struct broker_config *config = &broker->config;

	return config->advertised.count > 0 ? &config->advertised.at[index] : &config->listeners.at[index];
}

/* ---- listening ---- */

static unsigned count_from(const struct broker *broker, struct hf_addr remote)
{
	unsigned count = 0;

	hf_addr_set_port(&remote, 0);
	list_for_each (at, &broker->connections) {
		struct hf_addr other = container_of(at, struct connection, node)->remote;

		hf_addr_set_port(&other, 0);
		count += hf_addr_equal(&other, &remote);
	}
	return count;
}

/* NULL; or the limit that the connection would exceed. */
static const char *limit_of(const struct broker *broker, const struct hf_addr *remote)
{
	if (broker->connection_count >= broker->config.max_connections)
		return "max.connections";
	if (broker->config.max_connections_per_ip < broker->config.max_connections &&
		count_from(broker, *remote) >= broker->config.max_connections_per_ip)
		return "max.connections.per.ip";
	return NULL;
}

static void listener_ready(struct hf_watch *watch, unsigned ready)
{
	struct broker_listener *listener = container_of(watch, struct broker_listener, watch);
	struct broker *broker = listener->broker;
	static struct log_limit refusals;
	char text[HF_ADDR_TEXT];
	struct hf_addr remote;
	const char *limit;
	struct hf_io *io;
	uint64_t left_out;

	(void)ready;
	if (hf_stream_accept(listener->io, &io, &remote) != 0)
		return;
	limit = limit_of(broker, &remote);
	if (limit != NULL) {
		if (log_limit_allows(&refusals, hf_loop_now_ns(broker->loop), &left_out))
			log_warn("broker: a connection of %s is refused: as many as %s allows are open; raise it, or "
				 "close "
				 "some (%llu lines suppressed)",
				hf_addr_format(&remote, text), limit, (unsigned long long)left_out);
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
	}
	return 0;
}

/* Connections made meanwhile waited. */
static int watch_listeners(struct broker *broker, struct hf_error *error)
{
	for (unsigned i = 0; i < broker->listener_count; i++) {
		struct broker_listener *listener = &broker->listeners[i];
		int rc = hf_loop_watch(broker->loop, &listener->watch, listener->io, HF_READABLE);

		if (rc != 0)
			return hf_error_set(error, rc, "cannot watch a listener: %s", strerror(-rc));
	}
	return 0;
}

/* ---- opening ---- */

/* What is durable in log.dirs is lost with its name. */
static int sync_parent(struct broker *broker)
{
	char path[CHECKPOINT_PATH_BYTES], *slash;

	snprintf(path, sizeof(path), "%s", broker->config.log_dirs);
	slash = strrchr(path, '/');
	if (slash == NULL)
		return hf_dir_sync(broker->env, ".");
	slash[slash == path] = '\0';
	return hf_dir_sync(broker->env, path);
}

static int lock_directory(struct broker *broker, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES];
	int rc = hf_dir_make(broker->env, broker->config.log_dirs);

	if (rc != 0 && rc != -EEXIST)
		return hf_error_set(error, rc, "cannot make log.dirs %s: %s", broker->config.log_dirs, strerror(-rc));
	if (rc == 0 && (rc = sync_parent(broker)) != 0)
		return hf_error_set(
			error, rc, "cannot sync the directory of %s: %s", broker->config.log_dirs, strerror(-rc));
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
	const char *cluster = strstr(text, "cluster.id="), *node = strstr(text, "node.id="),
		   *crc = strstr(text, CRC_KEY);
	unsigned found = 0;
	int id = -1;

	if (crc != NULL && (sscanf(crc, CRC_KEY "%8x", &found) != 1 || found != crc32c(0, text, (size_t)(crc - text))))
		return hf_error_set(error, -EBADMSG,
			"%s is damaged: its CRC differs; restore it, or, if its lines are right, remove that "
			"of " CRC_KEY,
			path);
	if (cluster == NULL || node == NULL || sscanf(cluster, "cluster.id=%31[^\n]", broker->cluster_id) != 1 ||
		sscanf(node, "node.id=%d", &id) != 1)
		return hf_error_set(error, -EBADMSG, "%s has no cluster.id and node.id; restore it", path);
	if (id != broker->config.node_id)
		return hf_error_set(error, -EINVAL,
			"%s belongs to node.id %d, and this broker has node.id %d: correct node.id or log.dirs", path,
			id, broker->config.node_id);
	return 0;
}

static int write_identity(struct broker *broker, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES], text[160];
	int n = snprintf(text, sizeof(text), "version=1\ncluster.id=%s\nnode.id=%d\n", broker->cluster_id,
		broker->config.node_id);

	n += snprintf(text + n, sizeof(text) - (size_t)n, CRC_KEY "%08x\n", crc32c(0, text, (size_t)n));
	snprintf(path, sizeof(path), "%s/meta.properties", broker->config.log_dirs);
	return checkpoint_write(broker->env, path, text, (size_t)n, error);
}

void broker_name_cluster(struct broker *broker)
{
	struct hf_error error;

	if (broker->cluster_id[0] != '\0')
		return;
	memcpy(broker->cluster_id, broker->controller.cluster_id, sizeof(broker->cluster_id));
	if (write_identity(broker, &error) != 0)
		log_warn("broker: %s; log.dirs has no record of its owner, and a restart cannot verify it", error.text);
}

static int identify(struct broker *broker, struct hf_error *error)
{
	char path[CHECKPOINT_PATH_BYTES], *text;
	size_t bytes;
	int rc;

	snprintf(path, sizeof(path), "%s/meta.properties", broker->config.log_dirs);
	rc = checkpoint_read(broker->env, path, META_MOST, &text, &bytes, error);
	if (rc == -ENOENT && (broker->marks == NULL || log_marks_are_empty(broker->marks)))
		return 0; /* it has no owner yet */
	if (rc == -ENOENT)
		return hf_error_set(error, -EBADMSG,
			"%s is missing, and the directory has logs; restore it: the lines version=1, cluster.id=ID and "
			"node.id=%d; `holdfast broker status` of another broker shows the ID",
			path, broker->config.node_id);
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
	if (broker->rdma != NULL)
		busy |= rdma_turn(broker->rdma);
	connections_flush(broker);
	return busy ? HF_BUSY : HF_IDLE;
}

static bool broker_arm(struct hf_poller *poller)
{
	const struct broker *broker = container_of(poller, struct broker, poller);

	return list_empty(&broker->ready) && (broker->rdma == NULL || rdma_is_idle(broker->rdma));
}

static void retention_due(struct hf_timer *timer, uint64_t now_ns)
{
	struct broker *broker = container_of(timer, struct broker, retention);

	broker_retry_missing(broker);
	topics_retain(&broker->topics, broker_now_ms(broker));
	groups_expire(&broker->groups);
	hf_loop_set_timer(broker->loop, timer, now_ns + broker->config.retention_check_ns);
}

static void marking_due(struct hf_timer *timer, uint64_t now_ns)
{
	struct broker *broker = container_of(timer, struct broker, marking);

	topics_note_hws(&broker->topics);
	log_marks_sync_later(broker->marks, flusher_workers(&broker->flusher));
	hf_loop_set_timer(broker->loop, timer, now_ns + MARKING_NS);
}

/* The commands of one process: this broker is all there is of the cluster. */
static int start_alone(struct broker *broker, struct hf_error *error)
{
	struct kafka_controller_command_command_endpoint endpoints[BROKER_LISTENERS_MAX];
	struct kafka_controller_command command;
	struct controller_result result;
	char path[CHECKPOINT_PATH_BYTES];
	int rc;

	broker_registration(broker, endpoints, &command);
	controller_apply(&broker->controller, &command, &result);
	broker_name_cluster(broker);
	snprintf(path, sizeof(path), "%s/controller.journal", broker->config.log_dirs);
	rc = journal_open(broker->env, path, broker->marks, &broker->controller, &broker->journal, error);
	if (rc == 0 && (rc = hf_dir_sync(broker->env, broker->config.log_dirs)) != 0)
		hf_error_set(error, rc, "cannot sync %s: %s", broker->config.log_dirs, strerror(-rc));
	return rc;
}

/* On a full disk, records are served all the same. */
static int open_marks(struct broker *broker, struct hf_error *error)
{
	const char *directory = broker->config.log_dirs;
	int rc = log_marks_open(broker->env, directory, broker->config.node_id, &broker->marks, error);

	if (broker_disk_is_full(broker))
		log_warn("broker: the disk of %s is full (less than %u bytes are left): records are served, and none "
			 "is taken; make room and restart the broker",
			directory, BROKER_ROOM_LEAST);
	if (rc != -ENOSPC)
		return rc;
	log_warn("broker: %s; damage of logs is not told from torn ends until there is room", error->text);
	return 0;
}

static int broker_start(struct broker *broker, struct hf_error *error)
{
	static const struct quorum_owner owner = {.applied = broker_applied,
		.restored = broker_restored,
		.fill = broker_registration,
		.joined = broker_joined};
	bool alone = broker->config.voters.count == 0;
	int rc = lock_directory(broker, error);

	if (rc == 0)
		rc = open_marks(broker, error);
	if (rc == 0)
		rc = identify(broker, error);
	if (rc == 0)
		rc = open_listeners(broker, error);
	if (rc == 0 && alone)
		rc = start_alone(broker, error);
	if (rc == 0)
		rc = topics_open(&broker->topics, broker->env, broker->config.log_dirs, broker->config.node_id,
			&broker->controller, &broker->flusher, broker->marks, broker_now_ms(broker), error);
	if (rc == 0 && alone)
		topics_known(&broker->topics, &broker->controller);
	if (rc == 0)
		groups_open(&broker->groups, broker);
	if (rc == 0 && broker->node != NULL)
		rc = rdma_open(broker, broker->node, &broker->rdma, error);
	if (rc == 0 && !alone && broker->node == NULL)
		rc = hf_error_set(error, -EINVAL,
			"controller.quorum.voters needs a node: give the file its keys (name, rails or management)");
	if (rc == 0 && !alone)
		rc = replication_open(&broker->replication, broker, broker_roles_changed, error);
	if (rc == 0 && !alone)
		rc = quorum_open(&broker->quorum, broker, &owner,
			broker->topics.was_clean ||
				kept_logs_are_proven(broker->env, broker->config.log_dirs, broker->marks),
			log_marks_ended(broker->marks), error);
	if (rc == 0)
		rc = broker_status_open(&broker->status, broker, error);
	if (rc == 0)
		rc = watch_listeners(broker, error);
	return rc;
}

int broker_open(struct hf_loop *loop, struct hf_node *node, const struct broker_config *config,
	struct broker **broker_out, struct hf_error *error)
{
	struct broker *broker = calloc(1, sizeof(*broker));
	int rc;

	*broker_out = NULL;
	if (broker == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a broker");
	broker->env = hf_loop_env(loop);
	broker->loop = loop;
	broker->node = node;
	broker->config = *config;
	broker_config_settle(&broker->config);
	list_init(&broker->connections);
	list_init(&broker->ready);
	broker_config_topic_defaults(config, &broker->defaults);
	controller_init(&broker->controller, &broker->defaults);
	flusher_open(&broker->flusher, loop, broker_config_flush_check_ns(config));
	inspector_open(&broker->inspector, loop);
	connection_memory_open(&broker->memory, loop, &broker->connections, broker_config_queued_bytes(config));
	broker->poller = (struct hf_poller){.poll = broker_poll, .arm = broker_arm};
	hf_loop_add_poller(loop, &broker->poller);
	broker->retention.fire = retention_due;
	broker->marking = (struct hf_timer){.fire = marking_due, .quiet = true};
	hf_loop_set_timer(loop, &broker->marking, hf_loop_now_ns(loop) + MARKING_NS);
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
	rdma_close(broker->rdma);
	inspector_close(&broker->inspector);
	connection_memory_close(&broker->memory);
	broker_status_close(&broker->status);
	quorum_close(&broker->quorum);
	groups_close(&broker->groups);
	if (broker->topics.env != NULL)
		topics_close(&broker->topics);
	(void)flusher_close(&broker->flusher);
	replication_close(&broker->replication);
	journal_close(broker->journal);
	log_marks_close(broker->marks);
	controller_free(&broker->controller);
	hf_loop_cancel_timer(broker->loop, &broker->retention);
	hf_loop_cancel_timer(broker->loop, &broker->marking);
	hf_loop_remove_poller(broker->loop, &broker->poller);
	if (broker->lock != NULL)
		hf_file_close(broker->lock);
	free(broker);
}
