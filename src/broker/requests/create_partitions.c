/* CreatePartitions: more of them. */
#include "broker/requests/decisions.h"

static void decided(struct decisions *decisions, int32_t place, const struct controller_result *result)
{
	struct kafka_create_partitions_response *response = decisions->response;

	const char *wrong = NULL;

	response->results.at[place].error_code = (int16_t)result->error;
	response->results.at[place].error_message = request_text(result->message);
	if (result->error == KAFKA_NONE && result->topic != NULL)
		wrong = broker_check_made(decisions->request->broker, response->results.at[place].name, false);
	if (wrong == NULL)
		return;
	response->results.at[place].error_code = KAFKA_STORAGE_ERROR;
	response->results.at[place].error_message = request_text(wrong);
}

/* false: no memory. */
static bool make_command(struct request *request,
	const struct kafka_create_partitions_request_create_partitions_topic *from,
	const struct controller_topic *topic, struct kafka_controller_command *command)
{
	int32_t assigned = from->assignments.count < 0 ? 0 : from->assignments.count;

	codec_default(kafka_controller_command_codec.root, command);
	command->kind = CONTROLLER_ADD_PARTITIONS;
	command->topic = from->name;
	command->partitions = from->count;
	command->replication_factor = (int16_t)topic->at[0].replicas.count;
	command->assignments.count = assigned;
	command->assignments.at =
		codec_arena_take_array(&request->arena, (size_t)assigned, sizeof(*command->assignments.at));
	for (int32_t i = 0; command->assignments.at != NULL && i < assigned; i++) {
		command->assignments.at[i].brokers.at = from->assignments.at[i].broker_ids.at;
		command->assignments.at[i].brokers.count = from->assignments.at[i].broker_ids.count;
	}
	return command->assignments.at != NULL;
}

static void create(struct decisions *decisions, int32_t place,
	const struct kafka_create_partitions_request_create_partitions_topic *from, bool validate_only)
{
	struct broker *broker = decisions->request->broker;
	struct kafka_create_partitions_response *response = decisions->response;
	const struct controller_topic *topic = controller_find(&broker->controller, from->name);
	struct kafka_controller_command command;
	struct controller_result result = {.error = KAFKA_UNKNOWN_TOPIC_OR_PARTITION};

	response->results.at[place].name = from->name;
	response->results.at[place].error_code = DECISIONS_LATE;
	response->results.at[place].error_message = request_text(NULL);
	if (topic != NULL) {
		result = (struct controller_result){0};
		result.message = request_guard_own(from->name, &result.error);
	}
	if (result.error == KAFKA_NONE && !make_command(decisions->request, from, topic, &command))
		result.error = KAFKA_STORAGE_ERROR;
	if (result.error == KAFKA_NONE)
		controller_check(&broker->controller, &command, &result);
	if (result.error == KAFKA_NONE && !validate_only)
		decisions_propose(decisions, place, &command);
	else
		decided(decisions, place, &result);
}

void create_partitions_handle(struct request *request)
{
	const struct kafka_create_partitions_request *body = request->body;
	int32_t count = body->topics.count;
	struct decisions *decisions = decisions_begin(
		request, sizeof(struct kafka_create_partitions_response), count, decided, decisions_answer);
	struct kafka_create_partitions_response *response = decisions == NULL ? NULL : decisions->response;

	if (response == NULL)
		return;
	codec_default(kafka_create_partitions_response_codec.root, response);
	codec_arena_array(&request->arena, &response->results, count);
	for (int32_t i = 0; i < response->results.count; i++)
		create(decisions, i, &body->topics.at[i], body->validate_only);
	decisions_end(decisions, request_timeout_ns(body->timeout_ms));
}
