/* CreatePartitions: more of them. */
#include "broker/requests/handlers.h"

static void create(struct request *request, const struct kafka_create_partitions_request_create_partitions_topic *from,
	bool validate_only, struct kafka_create_partitions_response_create_partitions_topic_result *to)
{
	struct broker *broker = request->broker;
	const struct controller_topic *topic = controller_find(&broker->controller, from->name);
	struct kafka_controller_command command;
	struct controller_result result = {0};

	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_ADD_PARTITIONS;
	command.topic = from->name;
	command.partitions = from->count;
	if (topic == NULL)
		result.error = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
	else if (from->count <= topic->partitions || from->count > CONTROLLER_PARTITIONS_MAX)
		result = (struct controller_result){.error = KAFKA_INVALID_PARTITIONS,
			.message = "the number of partitions can only grow, up to 10000"};
	else if (!validate_only)
		broker_propose(broker, &command, &result);
	to->name = from->name;
	to->error_code = (int16_t)result.error;
	to->error_message = request_text(result.message);
}

void create_partitions_handle(struct request *request)
{
	const struct kafka_create_partitions_request *body = request->body;
	struct kafka_create_partitions_response response;
	int32_t count = body->topics.count;

	codec_default(kafka_create_partitions_response_codec.root, &response);
	response.results.at = codec_arena_take_array(&request->arena, (size_t)count, sizeof(*response.results.at));
	response.results.count = response.results.at == NULL ? 0 : count;
	for (int32_t i = 0; i < response.results.count; i++)
		create(request, &body->topics.at[i], body->validate_only, &response.results.at[i]);
	request_answer(request, &response);
}
