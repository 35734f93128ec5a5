/* broker.h - a Kafka broker on a loop: listeners, connections, topics, and the controller in the same process. For RDMA
 * it uses an optional node on the same loop.
 *
 * Owned by one loop; its objects have no locks. Opening and closing block for the file system. */
#ifndef HOLDFAST_BROKER_BROKER_H
#define HOLDFAST_BROKER_BROKER_H

#include <holdfast/loop.h>
#include <holdfast/node.h>

#include "broker/broker_config.h"
#include "broker/connection_memory.h"
#include "broker/groups/groups.h"
#include "broker/inspector.h"
#include "broker/controller/journal.h"
#include "broker/controller/quorum.h"
#include "broker/controller/topics.h"
#include "broker/replication/replication.h"
#include "broker/status.h"

#define BROKER_ROOM_LEAST (1u << 20) /* below it the disk is full */

struct broker_listener {
	struct hf_watch watch;
	struct hf_io *io;
	struct broker *broker;
	unsigned index; /* of the configuration */
};

struct rdma;

struct broker {
	struct hf_env *env;
	struct hf_loop *loop;
	struct hf_node *node; /* the program's; NULL: TCP is all there is */
	struct rdma *rdma;    /* with a node */
	struct broker_config config;
	struct topic_config defaults;
	char cluster_id[32];
	struct hf_file *lock; /* of LOG_DIRS/.lock: one broker a directory */
	struct controller controller;
	struct journal *journal; /* NULL: the quorum has the commands */
	struct quorum quorum;
	struct replication replication;
	struct broker_status status;
	struct topics topics;
	struct log_marks *marks;
	struct flusher flusher;
	struct inspector inspector;
	struct groups groups;
	struct broker_listener listeners[BROKER_LISTENERS_MAX];
	unsigned listener_count;
	struct list connections, ready; /* ready: an answer came outside of the connection's own turn */
	unsigned connection_count;
	struct connection_memory memory;
	struct hf_poller poller;
	struct hf_timer retention, marking;
	int64_t next_producer_id, producer_ids_end;
};

/* Opens the directory, which is made if its parent exists, and listens. `node` is on the same loop, or NULL.
 * -EADDRINUSE, -EAGAIN (another broker has the directory open) and others, with words. */
int broker_open(struct hf_loop *loop, struct hf_node *node, const struct broker_config *config,
	struct broker **broker_out, struct hf_error *error);
/* Before the node. Closes connections, and the logs in order; NULL is legal. */
void broker_close(struct broker *broker);

static inline int64_t broker_now_ms(const struct broker *broker) /* time of day */
{
	return (int64_t)(hf_env_wall_ns(broker->env) / 1000000);
}
/* The address advertised to clients of listener `index`. */
const struct broker_endpoint *broker_endpoint(const struct broker *broker, unsigned index);

/* Sends the command to the controller; the proposal (NULL: none) is completed when it was applied here, within this
 * call if there is one broker. */
void broker_propose(struct broker *broker, const struct kafka_controller_command *command, struct proposal *proposal);
/* After a command was applied, or the whole state was replaced: opens, closes, leads, follows. */
void broker_applied(
	struct broker *broker, const struct kafka_controller_command *command, const struct controller_result *result);
void broker_joined(struct broker *broker);
void broker_restored(struct broker *broker);
/* After this broker began or ended to lead some partition. */
void broker_roles_changed(struct broker *broker);
/* Of this broker, but for its stamp; the endpoints are the caller's memory, of BROKER_LISTENERS_MAX. */
void broker_registration(const struct broker *broker, struct kafka_controller_command_command_endpoint *endpoints,
	struct kafka_controller_command *command);

/* Takes the cluster's id over, and into meta.properties, unless it has one. */
void broker_name_cluster(struct broker *broker);

/* Creates a topic with the default placement; nothing happens when it is there. */
void broker_create_topic(
	struct broker *broker, struct codec_string name, int32_t partitions, struct proposal *proposal);
/* The topic of committed offsets, likewise. */
void broker_create_offsets(struct broker *broker, struct proposal *proposal);

/* After the topic was made or grew: whether all of its logs that are to be here are open. NULL, or what is wrong; a
 * broker alone has taken a new topic back then. */
const char *broker_check_made(struct broker *broker, struct codec_string topic, bool is_new);
/* Logs that could not be opened: again. */
void broker_retry_missing(struct broker *broker);

/* The partition, if this broker leads it; NULL, with the error for the client. */
struct partition *broker_find_led(
	const struct broker *broker, struct codec_string topic, int32_t index, enum kafka_error *error_out);
/* Whether the controller's state applies to this incarnation; before that it is an old one. */
static inline bool broker_is_member(const struct broker *broker)
{
	return broker->journal != NULL || broker->quorum.registered;
}

/* Whether it may take records as a leader: the controller was reached within the session. */
static inline bool broker_has_lease(const struct broker *broker)
{
	return broker->journal != NULL || quorum_has_lease(&broker->quorum);
}

/* Of LOG_DIRS. */
static inline bool broker_disk_is_full(const struct broker *broker)
{
	uint64_t left, all;

	return hf_dir_space(broker->env, broker->config.log_dirs, &left, &all) == 0 && left < BROKER_ROOM_LEAST;
}

/* The error for an offset. Without a lease another broker may lead with a longer log: OFFSET_OUT_OF_RANGE would reset
 * the client's position, so the client is redirected instead. */
enum kafka_error broker_range_error(const struct broker *broker, enum kafka_error error);
/* Where clients of listener `index` find a broker; NULL: it is not alive, or has no such listener. */
const struct controller_endpoint *broker_endpoint_of(const struct broker *broker, int32_t node, unsigned index);

#endif
