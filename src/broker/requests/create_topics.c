/* CreateTopics. */
#include "broker/requests/decisions.h"

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

typedef struct kafka_create_topics_request_creatable_topic wanted_topic;
typedef struct kafka_create_topics_response_creatable_topic_result made_topic;

/* What the request says, as the command has it; false: no memory. */
static bool make_command(struct request *request, const wanted_topic *from, struct kafka_controller_command *command)
{
	const struct broker_config *config = &request->broker->config;
	struct codec_arena *arena = &request->arena;

	codec_default(kafka_controller_command_codec.root, command);
	command->kind = CONTROLLER_CREATE_TOPIC;
	command->topic = from->name;
	command->partitions = from->assignments.count > 0  ? from->assignments.count
			      : from->num_partitions == -1 ? config->num_partitions
							   : from->num_partitions;
	command->replication_factor =
		from->replication_factor == -1 ? config->replication_factor : from->replication_factor;
	hf_env_entropy(request->broker->env, command->topic_id.byte, sizeof(command->topic_id.byte));
	command->configs.count = from->configs.count;
	command->configs.at = codec_arena_take_array(arena, (size_t)from->configs.count, sizeof(*command->configs.at));
	command->assignments.count = from->assignments.count;
	command->assignments.at =
		codec_arena_take_array(arena, (size_t)from->assignments.count, sizeof(*command->assignments.at));
	if (command->configs.at == NULL || command->assignments.at == NULL)
		return false;
	for (int32_t i = 0; i < from->configs.count; i++) {
		command->configs.at[i].name = from->configs.at[i].name;
		command->configs.at[i].value = from->configs.at[i].value;
	}
	for (int32_t i = 0; i < from->assignments.count; i++) {
		command->assignments.at[i].brokers.at = from->assignments.at[i].broker_ids.at;
		command->assignments.at[i].brokers.count = from->assignments.at[i].broker_ids.count;
	}
	return true;
}

/* What the controller is not asked for. */
static const char *find_fault(const wanted_topic *from, enum kafka_error *error_out)
{
	if (from->name.bytes >= 0 && codec_compare(GROUPS_TOPIC, from->name) == 0) {
		*error_out = KAFKA_INVALID_TOPIC;
		return "brokers make this topic themselves, with the first group";
	}
	if (from->assignments.count <= 0 && from->replication_factor != -1 && from->replication_factor < 1) {
		*error_out = KAFKA_INVALID_REPLICATION_FACTOR;
		return "the replication factor is at least 1";
	}
	for (int32_t i = 0; i < from->assignments.count; i++)
		if (from->assignments.at[i].partition_index != i) {
			*error_out = KAFKA_INVALID_REPLICA_ASSIGNMENT;
			return "partitions count from 0";
		}
	return NULL;
}

static void decided(struct decisions *decisions, int32_t place, const struct controller_result *result)
{
	made_topic *to = &((struct kafka_create_topics_response *)decisions->response)->topics.at[place];
	const char *wrong = NULL;

	to->error_code = (int16_t)result->error;
	to->error_message = request_text(result->message);
	if (result->topic == NULL || result->error != KAFKA_NONE)
		return;
	wrong = broker_check_made(decisions->request->broker, to->name, true);
	if (wrong != NULL) {
		to->error_code = KAFKA_STORAGE_ERROR;
		to->error_message = request_text(wrong);
		return;
	}
	to->num_partitions = result->topic->partitions;
	to->replication_factor = (int16_t)result->topic->at[0].replicas.count;
	to->topic_id = result->topic->id;
	if (!fill_configs(decisions->request, &result->topic->config, to))
		to->configs.count = -1;
}

static void create(struct decisions *decisions, int32_t place, const wanted_topic *from, bool validate_only)
{
	struct broker *broker = decisions->request->broker;
	made_topic *to = &((struct kafka_create_topics_response *)decisions->response)->topics.at[place];
	struct kafka_controller_command command;
	struct controller_result result = {0};

	*to = (made_topic){.name = from->name,
		.error_code = DECISIONS_LATE,
		.error_message = {NULL, -1},
		.num_partitions = -1,
		.replication_factor = -1,
		.configs = {NULL, -1}};
	result.message = find_fault(from, &result.error);
	if (!make_command(decisions->request, from, &command))
		result.error = KAFKA_STORAGE_ERROR;
	/* What would be refused does not get into the journal. */
	if (result.error == KAFKA_NONE)
		controller_check(&broker->controller, &command, &result);
	if (result.error == KAFKA_NONE && !validate_only) {
		decisions_propose(decisions, place, &command);
		return;
	}
	decided(decisions, place, &result);
	if (result.error != KAFKA_NONE)
		return;
	to->num_partitions = command.partitions;
	to->replication_factor = command.assignments.count > 0 ? (int16_t)command.assignments.at[0].brokers.count
							       : command.replication_factor;
}

void create_topics_handle(struct request *request)
{
	const struct kafka_create_topics_request *body = request->body;
	struct decisions *decisions = decisions_begin(
		request, sizeof(struct kafka_create_topics_response), body->topics.count, decided, decisions_answer);
	struct kafka_create_topics_response *response = decisions == NULL ? NULL : decisions->response;

	if (response == NULL)
		return;
	codec_default(kafka_create_topics_response_codec.root, response);
	codec_arena_array(&request->arena, &response->topics, body->topics.count);
	for (int32_t i = 0; i < response->topics.count; i++)
		create(decisions, i, &body->topics.at[i], body->validate_only);
	decisions_end(decisions, request_timeout_ns(body->timeout_ms));
}
