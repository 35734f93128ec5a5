/* CreateTopics. */
#include "broker/requests/handlers.h"

static bool fill_configs(struct request *request, const struct topic_config *config,
	struct kafka_create_topics_response_creatable_topic_result *to)
{
	to->configs.at = codec_arena_take_array(&request->arena, TOPIC_CONFIG_KEYS, sizeof(*to->configs.at));
	if (to->configs.at == NULL)
		return false;
	to->configs.count = TOPIC_CONFIG_KEYS;
	for (unsigned i = 0; i < TOPIC_CONFIG_KEYS; i++) {
		char text[TOPIC_CONFIG_TEXT_BYTES];

		to->configs.at[i].name = request_text(topic_config_name(i));
		to->configs.at[i].value =
			request_text(codec_arena_format(&request->arena, "%s", topic_config_text(config, i, text)));
		to->configs.at[i].config_source = (config->set & 1u << i) != 0 ? 1 : 5;
	}
	return true;
}

/* Everything that the controller need not be asked for. */
static const char *find_fault(struct request *request, const struct kafka_create_topics_request_creatable_topic *from,
	enum kafka_error *error_out)
{
	if (controller_find(&request->broker->controller, from->name) != NULL) {
		*error_out = KAFKA_TOPIC_ALREADY_EXISTS;
		return "there is a topic of this name";
	}
	if (from->replication_factor != 1 && from->replication_factor != -1 && from->assignments.count <= 0) {
		*error_out = KAFKA_INVALID_REPLICATION_FACTOR;
		return "there is one broker, so the replication factor is 1";
	}
	for (int32_t i = 0; i < from->assignments.count; i++) {
		const struct kafka_create_topics_request_creatable_replica_assignment *at = &from->assignments.at[i];

		if (at->partition_index != i || at->broker_ids.count != 1 ||
			at->broker_ids.at[0] != request->broker->config.node_id) {
			*error_out = KAFKA_INVALID_REPLICA_ASSIGNMENT;
			return "partitions count from 0, and each is assigned to the one broker there is";
		}
	}
	return NULL;
}

static void create(struct request *request, const struct kafka_create_topics_request_creatable_topic *from,
	bool validate_only, struct kafka_create_topics_response_creatable_topic_result *to)
{
	struct broker *broker = request->broker;
	int32_t partitions = from->assignments.count > 0  ? from->assignments.count
			     : from->num_partitions == -1 ? broker->config.num_partitions
							  : from->num_partitions;
	struct kafka_controller_command_command_config *configs =
		codec_arena_take_array(&request->arena, (size_t)from->configs.count, sizeof(*configs));
	struct controller_result result = {0};

	*to = (struct kafka_create_topics_response_creatable_topic_result){.name = from->name,
		.error_message = {NULL, -1},
		.num_partitions = -1,
		.replication_factor = -1,
		.configs = {NULL, -1}};
	result.message = find_fault(request, from, &result.error);
	if (configs == NULL)
		result.error = KAFKA_STORAGE_ERROR;
	for (int32_t i = 0; configs != NULL && i < from->configs.count; i++) {
		configs[i].name = from->configs.at[i].name;
		configs[i].value = from->configs.at[i].value;
	}
	if (result.error == KAFKA_NONE && validate_only)
		broker_check_topic(broker, from->name, partitions, configs, from->configs.count, &result);
	else if (result.error == KAFKA_NONE)
		broker_create_topic(broker, from->name, partitions, configs, from->configs.count, &result);
	to->error_code = (int16_t)result.error;
	to->error_message = request_text(result.message);
	if (result.error != KAFKA_NONE)
		return;
	to->num_partitions = partitions;
	to->replication_factor = 1;
	if (result.topic == NULL)
		return;
	to->topic_id = result.topic->id;
	if (!fill_configs(request, &result.topic->config, to))
		to->configs.count = -1;
}

void create_topics_handle(struct request *request)
{
	const struct kafka_create_topics_request *body = request->body;
	struct kafka_create_topics_response response;

	codec_default(kafka_create_topics_response_codec.root, &response);
	response.topics.at =
		codec_arena_take_array(&request->arena, (size_t)body->topics.count, sizeof(*response.topics.at));
	response.topics.count = response.topics.at == NULL ? 0 : body->topics.count;
	for (int32_t i = 0; i < response.topics.count; i++)
		create(request, &body->topics.at[i], body->validate_only, &response.topics.at[i]);
	request_answer(request, &response);
}
