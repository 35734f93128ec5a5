/* DeleteTopics. */
#include "broker/requests/decisions.h"

#define TOPIC_DELETION_DISABLED 73

static void decided(struct decisions *decisions, int32_t place, const struct controller_result *result)
{
	struct kafka_delete_topics_response *response = decisions->response;

	response->responses.at[place].error_code = (int16_t)result->error;
	response->responses.at[place].error_message = request_text(result->message);
}

static void delete_one(struct decisions *decisions, int32_t place, struct codec_string name)
{
	struct broker *broker = decisions->request->broker;
	struct kafka_delete_topics_response *response = decisions->response;
	struct kafka_controller_command command;
	struct controller_result result = {0};

	codec_default(kafka_controller_command_codec.root, &command);
	command.kind = CONTROLLER_DELETE_TOPIC;
	command.topic = name;
	response->responses.at[place].name = name;
	response->responses.at[place].error_code = DECISIONS_LATE;
	response->responses.at[place].error_message = request_text(NULL);
	if (!broker->config.delete_topics)
		result.error = TOPIC_DELETION_DISABLED;
	else if (controller_find(&broker->controller, name) == NULL)
		result.error = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
	else
		result.message = request_guard_own(name, &result.error);
	if (result.error == KAFKA_NONE)
		decisions_propose(decisions, place, &command);
	else
		decided(decisions, place, &result);
}

void delete_topics_handle(struct request *request)
{
	const struct kafka_delete_topics_request *body = request->body;
	int32_t count = body->topic_names.count;
	struct decisions *decisions =
		decisions_begin(request, sizeof(struct kafka_delete_topics_response), count, decided, decisions_answer);
	struct kafka_delete_topics_response *response = decisions == NULL ? NULL : decisions->response;

	if (response == NULL)
		return;
	codec_default(kafka_delete_topics_response_codec.root, response);
	codec_arena_array(&request->arena, &response->responses, count);
	for (int32_t i = 0; i < response->responses.count; i++)
		delete_one(decisions, i, body->topic_names.at[i]);
	decisions_end(decisions, request_timeout_ns(body->timeout_ms));
}
