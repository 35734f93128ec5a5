/* controller.h - the cluster's metadata: topics, partitions, configurations, blocks of producer ids.
 *
 * A state machine of commands (commands/ControllerCommand.json): the same commands in the same order give the same
 * state, wherever they are applied. Nothing else changes it. A command is proposed as bytes, made durable by whoever
 * orders commands (journal.h in one process), and applied then. Pure but for memory. */
#ifndef HOLDFAST_BROKER_CONTROLLER_H
#define HOLDFAST_BROKER_CONTROLLER_H

#include "broker/kafka_error.h"
#include "broker/kafka_messages.h"
#include "broker/controller/topic_config.h"

#define CONTROLLER_TOPIC_BYTES     250u /* with its NUL; Kafka's limit */
#define CONTROLLER_PARTITIONS_MAX  10000
#define CONTROLLER_TOPICS_MAX      10000u
#define CONTROLLER_PRODUCER_ID_MAX 4294967294ll /* what producer_state.h can keep */

enum controller_kind {
	CONTROLLER_CREATE_TOPIC,
	CONTROLLER_DELETE_TOPIC,
	CONTROLLER_ADD_PARTITIONS,
	CONTROLLER_SET_CONFIGS,
	CONTROLLER_TAKE_PRODUCER_IDS,
	CONTROLLER_KINDS,
};

struct controller_topic {
	char name[CONTROLLER_TOPIC_BYTES];
	struct codec_uuid id;
	int32_t partitions;
	struct topic_config config;
};

struct controller {
	struct controller_topic **topics; /* by name */
	unsigned topic_count, topic_capacity;
	int64_t next_producer_id;
	struct topic_config defaults; /* those of the broker's configuration */
};

/* What a command did: an error, or which object it made or changed. */
struct controller_result {
	enum kafka_error error;
	const char *message;                  /* a constant, or NULL */
	const struct controller_topic *topic; /* made or changed; not of DELETE_TOPIC */
	int64_t first_producer_id;
};

void controller_init(struct controller *controller, const struct topic_config *defaults);
void controller_free(struct controller *controller);

/* Applies a decoded command. An error leaves the state as it was. */
void controller_apply(struct controller *controller, const struct kafka_controller_command *command,
	struct controller_result *result);

const struct controller_topic *controller_find(const struct controller *controller, struct codec_string name);

/* 1 to 249 of a-z A-Z 0-9 . _ -, but not "." nor "..". */
bool controller_topic_name_is_legal(struct codec_string name);

#endif
