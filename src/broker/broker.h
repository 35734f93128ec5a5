/* broker.h - a Kafka broker on a loop: listeners, connections, topics, and the controller in the same process.
 *
 * Owned by one loop; its objects have no locks. Opening and closing block for the file system. */
#ifndef HOLDFAST_BROKER_BROKER_H
#define HOLDFAST_BROKER_BROKER_H

#include <holdfast/loop.h>

#include "broker/broker_config.h"
#include "broker/groups/groups.h"
#include "broker/controller/journal.h"
#include "broker/controller/topics.h"

struct broker_listener {
	struct hf_watch watch;
	struct hf_io *io;
	struct broker *broker;
	unsigned index; /* of the configuration */
};

struct broker {
	struct hf_env *env;
	struct hf_loop *loop;
	struct broker_config config;
	struct topic_config defaults;
	char cluster_id[32];
	struct hf_file *lock; /* of LOG_DIRS/.lock: one broker a directory */
	struct controller controller;
	struct journal *journal;
	struct topics topics;
	struct groups groups;
	struct broker_listener listeners[BROKER_LISTENERS_MAX];
	unsigned listener_count;
	struct list connections, ready; /* ready: an answer came outside of the connection's own turn */
	unsigned connection_count;
	struct hf_poller poller;
	struct hf_timer retention;
	int64_t next_producer_id, producer_ids_end;
};

/* Opens the directory, which is made if its parent exists, and listens. -EADDRINUSE, -EAGAIN (another broker has the
 * directory open) and others, with words. */
int broker_open(
	struct hf_loop *loop, const struct broker_config *config, struct broker **broker_out, struct hf_error *error);
/* Closes connections, and the logs in order; NULL is legal. */
void broker_close(struct broker *broker);

int64_t broker_now_ms(const struct broker *broker); /* time of day */
/* What clients are told to connect to, who came by listener `index`. */
const struct broker_endpoint *broker_endpoint(const struct broker *broker, unsigned index);

/* Proposes a command, applies it, and opens or closes what it made or removed. */
void broker_propose(
	struct broker *broker, const struct kafka_controller_command *command, struct controller_result *result);
/* Creates a topic with the default number of partitions. */
void broker_create_topic(struct broker *broker, struct codec_string name, int32_t partitions,
	const struct kafka_controller_command_command_config *configs, int32_t config_count,
	struct controller_result *result);
/* Whether a topic that does not exist could be created so; result->topic is NULL. */
void broker_check_topic(struct broker *broker, struct codec_string name, int32_t partitions,
	const struct kafka_controller_command_command_config *configs, int32_t config_count,
	struct controller_result *result);
/* One id, from blocks that the controller hands out; -1: there is none, and *error_out says why. */
int64_t broker_take_producer_id(struct broker *broker, enum kafka_error *error_out);

#endif
