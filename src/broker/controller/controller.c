/* The cluster's metadata, changed by commands. */
#include "broker/controller/controller.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

void controller_init(struct controller *controller, const struct topic_config *defaults)
{
	*controller = (struct controller){.defaults = *defaults};
}

void controller_free(struct controller *controller)
{
	for (unsigned i = 0; i < controller->topic_count; i++)
		free(controller->topics[i]);
	free(controller->topics);
	*controller = (struct controller){.defaults = controller->defaults};
}

/* Where the topic stands, or would. */
static unsigned place_of(const struct controller *controller, struct codec_string name, bool *there_out)
{
	unsigned low = 0, high = controller->topic_count;

	*there_out = false;
	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		int order = codec_compare(controller->topics[middle]->name, name);

		if (order == 0) {
			*there_out = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct controller_topic *controller_find(const struct controller *controller, struct codec_string name)
{
	bool there;
	unsigned place;

	if (name.bytes < 0)
		return NULL;
	place = place_of(controller, name, &there);
	return there ? controller->topics[place] : NULL;
}

bool controller_topic_name_is_legal(struct codec_string name)
{
	if (name.bytes < 1 || (size_t)name.bytes >= CONTROLLER_TOPIC_BYTES)
		return false;
	for (int32_t i = 0; i < name.bytes; i++) {
		char c = name.at[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '.' &&
			c != '_' && c != '-')
			return false;
	}
	return !(name.bytes == 1 && name.at[0] == '.') && !(name.bytes == 2 && memcmp(name.at, "..", 2) == 0);
}

static void refuse(struct controller_result *result, enum kafka_error error, const char *message)
{
	result->error = error;
	result->message = message;
}

/* All of them, or none. */
static const char *set_configs(const struct controller *controller, struct topic_config *config,
	const struct kafka_controller_command *command)
{
	struct topic_config next = *config;

	for (int32_t i = 0; i < command->configs.count; i++) {
		const char *wrong = topic_config_set(
			&next, &controller->defaults, command->configs.at[i].name, command->configs.at[i].value);

		if (wrong != NULL)
			return wrong;
	}
	*config = next;
	return NULL;
}

static bool grow(struct controller *controller)
{
	unsigned capacity = controller->topic_capacity == 0 ? 16 : controller->topic_capacity * 2;
	struct controller_topic **topics;

	if (controller->topic_count < controller->topic_capacity)
		return true;
	topics = realloc(controller->topics, capacity * sizeof(struct controller_topic *));
	if (topics == NULL)
		return false;
	controller->topics = topics;
	controller->topic_capacity = capacity;
	return true;
}

static void create_topic(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	struct controller_topic made = {.id = command->topic_id,
					.partitions = command->partitions,
					.config = controller->defaults},
				*topic;
	const char *wrong;
	bool there;
	unsigned place;

	if (!controller_topic_name_is_legal(command->topic)) {
		refuse(result, KAFKA_INVALID_TOPIC, "a topic's name has 1 to 249 of a-z A-Z 0-9 . _ -");
		return;
	}
	place = place_of(controller, command->topic, &there);
	if (there) {
		refuse(result, KAFKA_TOPIC_ALREADY_EXISTS, "there is a topic of this name");
		return;
	}
	if (command->partitions < 1 || command->partitions > CONTROLLER_PARTITIONS_MAX) {
		refuse(result, KAFKA_INVALID_PARTITIONS, "a topic has 1 to 10000 partitions");
		return;
	}
	made.config.set = 0;
	wrong = set_configs(controller, &made.config, command);
	if (wrong != NULL) {
		refuse(result, KAFKA_INVALID_CONFIG, wrong);
		return;
	}
	topic = controller->topic_count < CONTROLLER_TOPICS_MAX && grow(controller) ? malloc(sizeof(*topic)) : NULL;
	if (topic == NULL) {
		refuse(result, KAFKA_STORAGE_ERROR, "there is no room for another topic");
		return;
	}
	*topic = made;
	memcpy(topic->name, command->topic.at, (size_t)command->topic.bytes);
	memmove(controller->topics + place + 1, controller->topics + place,
		(controller->topic_count - place) * sizeof(struct controller_topic *));
	controller->topics[place] = topic;
	controller->topic_count++;
	result->topic = topic;
}

static void delete_topic(struct controller *controller, unsigned place)
{
	free(controller->topics[place]);
	controller->topic_count--;
	memmove(controller->topics + place, controller->topics + place + 1,
		(controller->topic_count - place) * sizeof(struct controller_topic *));
}

static void add_partitions(struct controller_topic *topic, int32_t partitions, struct controller_result *result)
{
	if (partitions <= topic->partitions || partitions > CONTROLLER_PARTITIONS_MAX) {
		refuse(result, KAFKA_INVALID_PARTITIONS, "the number of partitions can only grow, up to 10000");
		return;
	}
	topic->partitions = partitions;
}

static void take_producer_ids(struct controller *controller, int32_t count, struct controller_result *result)
{
	if (count < 1 || controller->next_producer_id > CONTROLLER_PRODUCER_ID_MAX - count) {
		refuse(result, KAFKA_UNKNOWN_SERVER_ERROR, "all producer ids are taken");
		return;
	}
	result->first_producer_id = controller->next_producer_id;
	controller->next_producer_id += count;
}

void controller_apply(
	struct controller *controller, const struct kafka_controller_command *command, struct controller_result *result)
{
	struct controller_topic *topic;
	const char *wrong;
	unsigned place;
	bool there;

	*result = (struct controller_result){0};
	if (command->kind == CONTROLLER_CREATE_TOPIC) {
		create_topic(controller, command, result);
		return;
	}
	if (command->kind == CONTROLLER_TAKE_PRODUCER_IDS) {
		take_producer_ids(controller, command->count, result);
		return;
	}
	place = place_of(controller, command->topic, &there);
	if (!there) {
		refuse(result, KAFKA_UNKNOWN_TOPIC_OR_PARTITION, "there is no topic of this name");
		return;
	}
	topic = controller->topics[place];
	result->topic = topic;
	switch (command->kind) {
	case CONTROLLER_DELETE_TOPIC:
		delete_topic(controller, place);
		result->topic = NULL;
		break;
	case CONTROLLER_ADD_PARTITIONS:
		add_partitions(topic, command->partitions, result);
		break;
	case CONTROLLER_SET_CONFIGS:
		wrong = set_configs(controller, &topic->config, command);
		if (wrong != NULL)
			refuse(result, KAFKA_INVALID_CONFIG, wrong);
		break;
	default: /* of a newer release */
		refuse(result, KAFKA_INVALID_REQUEST, "this command is not known");
	}
}
