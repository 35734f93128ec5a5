/* DeleteTopics. */
#include "broker/requests/handlers.h"

#define TOPIC_DELETION_DISABLED 73

void delete_topics_handle(struct request *request)
{
	const struct kafka_delete_topics_request *body = request->body;
	struct broker *broker = request->broker;
	struct kafka_delete_topics_response response;
	int32_t count = body->topic_names.count;

	codec_default(kafka_delete_topics_response_codec.root, &response);
	response.responses.at = codec_arena_take_array(&request->arena, (size_t)count, sizeof(*response.responses.at));
	response.responses.count = response.responses.at == NULL ? 0 : count;
	for (int32_t i = 0; i < response.responses.count; i++) {
		struct kafka_delete_topics_response_deletable_topic_result *to = &response.responses.at[i];
		struct kafka_controller_command command;
		struct controller_result result = {.error = KAFKA_UNKNOWN_TOPIC_OR_PARTITION};

		codec_default(kafka_controller_command_codec.root, &command);
		command.kind = CONTROLLER_DELETE_TOPIC;
		command.topic = body->topic_names.at[i];
		if (!broker->config.delete_topics)
			result.error = TOPIC_DELETION_DISABLED;
		else if (controller_find(&broker->controller, command.topic) != NULL)
			broker_propose(broker, &command, &result);
		to->name = command.topic;
		to->error_code = (int16_t)result.error;
		to->error_message = request_text(result.message);
	}
	request_answer(request, &response);
}
