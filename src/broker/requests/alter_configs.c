/* IncrementalAlterConfigs: of topics. */
#include "broker/requests/handlers.h"

enum { RESOURCE_TOPIC = 2, OPERATION_SET = 0, OPERATION_DELETE = 1 };

static void alter(struct request *request,
	const struct kafka_incremental_alter_configs_request_alter_configs_resource *from, bool validate_only,
	struct controller_result *result)
{
	struct broker *broker = request->broker;
	const struct controller_topic *topic = controller_find(&broker->controller, from->resource_name);
	struct kafka_controller_command command;
	struct topic_config scratch;

	*result = (struct controller_result){.error = KAFKA_INVALID_REQUEST};
	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_SET_CONFIGS;
	command.topic = from->resource_name;
	command.configs.count = from->configs.count;
	command.configs.at =
		codec_arena_take_array(&request->arena, (size_t)from->configs.count, sizeof(*command.configs.at));
	if (from->resource_type != RESOURCE_TOPIC || command.configs.at == NULL) {
		result->message = "only the configuration of topics can be changed while the broker runs";
		return;
	}
	if (topic == NULL) {
		result->error = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
		return;
	}
	scratch = topic->config;
	for (int32_t i = 0; i < from->configs.count; i++) {
		const struct kafka_incremental_alter_configs_request_alterable_config *config = &from->configs.at[i];

		command.configs.at[i].name = config->name;
		command.configs.at[i].value =
			config->config_operation == OPERATION_SET ? config->value : request_text(NULL);
		if (config->config_operation != OPERATION_SET && config->config_operation != OPERATION_DELETE)
			result->message = "a configuration can be set or deleted; none here is a list";
		else
			result->message = topic_config_set(
				&scratch, &broker->defaults, command.configs.at[i].name, command.configs.at[i].value);
		if (result->message != NULL) {
			result->error = KAFKA_INVALID_CONFIG;
			return;
		}
	}
	result->error = KAFKA_NONE;
	if (!validate_only)
		broker_propose(broker, &command, result);
}

void alter_configs_handle(struct request *request)
{
	const struct kafka_incremental_alter_configs_request *body = request->body;
	struct kafka_incremental_alter_configs_response response;
	int32_t count = body->resources.count;

	codec_default(kafka_incremental_alter_configs_response_codec.root, &response);
	response.responses.at = codec_arena_take_array(&request->arena, (size_t)count, sizeof(*response.responses.at));
	response.responses.count = response.responses.at == NULL ? 0 : count;
	for (int32_t i = 0; i < response.responses.count; i++) {
		struct controller_result result;

		alter(request, &body->resources.at[i], body->validate_only, &result);
		response.responses.at[i] =
			(struct kafka_incremental_alter_configs_response_alter_configs_resource_response){
				.error_code = (int16_t)result.error,
				.error_message = request_text(result.message),
				.resource_type = body->resources.at[i].resource_type,
				.resource_name = body->resources.at[i].resource_name};
	}
	request_answer(request, &response);
}
