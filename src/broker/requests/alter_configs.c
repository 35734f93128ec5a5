/* IncrementalAlterConfigs: of topics. */
#include "broker/requests/decisions.h"

#define LIMIT_NS 30000000000ull

enum { RESOURCE_TOPIC = 2, OPERATION_SET = 0, OPERATION_DELETE = 1 };

typedef struct kafka_incremental_alter_configs_request_alter_configs_resource resource;

/* The command, or what is wrong. */
static enum kafka_error make_command(struct request *request, const resource *from,
	struct kafka_controller_command *command, const char **message_out)
{
	struct broker *broker = request->broker;
	const struct controller_topic *topic = controller_find(&broker->controller, from->resource_name);
	struct topic_config scratch;
	enum kafka_error error;

	codec_default(kafka_controller_command_codec.root, command);
	command->kind = CONTROLLER_SET_CONFIGS;
	command->topic = from->resource_name;
	command->configs.count = from->configs.count;
	command->configs.at =
		codec_arena_take_array(&request->arena, (size_t)from->configs.count, sizeof(*command->configs.at));
	if (from->resource_type != RESOURCE_TOPIC || command->configs.at == NULL) {
		*message_out = "only the configuration of topics can be changed while the broker runs";
		return KAFKA_INVALID_REQUEST;
	}
	if (topic == NULL)
		return KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
	*message_out = request_guard_own(from->resource_name, &error);
	if (error != KAFKA_NONE)
		return error;
	scratch = topic->config;
	for (int32_t i = 0; i < from->configs.count; i++) {
		const struct kafka_incremental_alter_configs_request_alterable_config *config = &from->configs.at[i];

		command->configs.at[i].name = config->name;
		command->configs.at[i].value =
			config->config_operation == OPERATION_SET ? config->value : request_text(NULL);
		if (config->config_operation != OPERATION_SET && config->config_operation != OPERATION_DELETE)
			*message_out = "a configuration can be set or deleted; none here is a list";
		else
			*message_out = topic_config_set(
				&scratch, &broker->defaults, command->configs.at[i].name, command->configs.at[i].value);
		if (*message_out != NULL)
			return KAFKA_INVALID_CONFIG;
	}
	return KAFKA_NONE;
}

static void decided(struct decisions *decisions, int32_t place, const struct controller_result *result)
{
	struct kafka_incremental_alter_configs_response *response = decisions->response;

	response->responses.at[place].error_code = (int16_t)result->error;
	response->responses.at[place].error_message = request_text(result->message);
}

static void alter(struct decisions *decisions, int32_t place, const resource *from, bool validate_only)
{
	struct kafka_incremental_alter_configs_response *response = decisions->response;
	struct kafka_controller_command command;
	struct controller_result result = {0};

	response->responses.at[place] =
		(struct kafka_incremental_alter_configs_response_alter_configs_resource_response){
			.error_code = DECISIONS_LATE,
			.error_message = request_text(NULL),
			.resource_type = from->resource_type,
			.resource_name = from->resource_name};
	result.error = make_command(decisions->request, from, &command, &result.message);
	if (result.error == KAFKA_NONE && !validate_only)
		decisions_propose(decisions, place, &command);
	else
		decided(decisions, place, &result);
}

void alter_configs_handle(struct request *request)
{
	const struct kafka_incremental_alter_configs_request *body = request->body;
	int32_t count = body->resources.count;
	struct decisions *decisions = decisions_begin(
		request, sizeof(struct kafka_incremental_alter_configs_response), count, decided, decisions_answer);
	struct kafka_incremental_alter_configs_response *response = decisions == NULL ? NULL : decisions->response;

	if (response == NULL)
		return;
	codec_default(kafka_incremental_alter_configs_response_codec.root, response);
	codec_arena_array(&request->arena, &response->responses, count);
	for (int32_t i = 0; i < response->responses.count; i++)
		alter(decisions, i, &body->resources.at[i], body->validate_only);
	decisions_end(decisions, LIMIT_NS);
}
