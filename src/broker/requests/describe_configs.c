/* DescribeConfigs: of topics; of brokers there is nothing to describe. */
#include "broker/requests/handlers.h"

#include <string.h>

enum { RESOURCE_TOPIC = 2, RESOURCE_BROKER = 4, SOURCE_TOPIC = 1, SOURCE_DEFAULT = 5 };

static bool is_wanted(const struct kafka_describe_configs_request_describe_configs_resource *from, const char *name)
{
	for (int32_t i = 0; i < from->configuration_keys.count; i++)
		if (codec_compare(name, from->configuration_keys.at[i]) == 0)
			return true;
	return from->configuration_keys.count < 0;
}

static bool describe_topic(struct request *request, const struct controller_topic *topic,
	const struct kafka_describe_configs_request_describe_configs_resource *from,
	struct kafka_describe_configs_response_describe_configs_result *to)
{
	to->configs.at = codec_arena_take_array(&request->arena, TOPIC_CONFIG_KEYS, sizeof(*to->configs.at));
	if (to->configs.at == NULL)
		return false;
	for (unsigned i = 0; i < TOPIC_CONFIG_KEYS; i++) {
		struct kafka_describe_configs_response_describe_configs_resource_result *config =
			&to->configs.at[to->configs.count];
		bool own = (topic->config.set & 1u << i) != 0;
		char text[TOPIC_CONFIG_TEXT_BYTES];

		if (!is_wanted(from, topic_config_name(i)))
			continue;
		*config = (struct kafka_describe_configs_response_describe_configs_resource_result){
			.name = request_text(topic_config_name(i)),
			.value = request_text(
				codec_arena_format(&request->arena, "%s", topic_config_text(&topic->config, i, text))),
			.config_source = own ? SOURCE_TOPIC : SOURCE_DEFAULT,
			.config_type = topic_config_type(i),
			.documentation = {NULL, -1}};
		to->configs.count++;
	}
	return true;
}

static void describe(struct request *request,
	const struct kafka_describe_configs_request_describe_configs_resource *from,
	struct kafka_describe_configs_response_describe_configs_result *to)
{
	const struct controller_topic *topic;

	*to = (struct kafka_describe_configs_response_describe_configs_result){.resource_type = from->resource_type,
		.resource_name = from->resource_name,
		.error_message = {NULL, -1}};
	if (from->resource_type == RESOURCE_BROKER)
		return;
	topic = from->resource_type == RESOURCE_TOPIC
			? controller_find(&request->broker->controller, from->resource_name)
			: NULL;
	if (from->resource_type != RESOURCE_TOPIC)
		to->error_code = KAFKA_INVALID_REQUEST;
	else if (topic == NULL)
		to->error_code = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
	else if (!describe_topic(request, topic, from, to))
		to->error_code = KAFKA_UNKNOWN_SERVER_ERROR;
}

void describe_configs_handle(struct request *request)
{
	const struct kafka_describe_configs_request *body = request->body;
	struct kafka_describe_configs_response response;
	int32_t count = body->resources.count;

	codec_default(kafka_describe_configs_response_codec.root, &response);
	codec_arena_array(&request->arena, &response.results, count);
	for (int32_t i = 0; i < response.results.count; i++)
		describe(request, &body->resources.at[i], &response.results.at[i]);
	request_answer(request, &response);
}
