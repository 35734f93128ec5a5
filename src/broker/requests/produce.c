/* Produce: record batches into partitions. One replica has everything that its leader has, so acks=1 and acks=all are
 * answered at once. */
#include "broker/requests/handlers.h"

static void append(struct request *request, struct codec_string topic,
	const struct kafka_produce_request_partition_produce_data *from,
	struct kafka_produce_response_partition_produce_response *to)
{
	struct partition *partition = topics_partition(&request->broker->topics, topic, from->index);
	struct append_result result;

	to->index = from->index;
	to->base_offset = -1;
	if (partition != NULL && codec_compare(GROUPS_TOPIC, topic) == 0) {
		to->error_code = KAFKA_INVALID_TOPIC;
		to->error_message = request_text("this topic is the broker's own");
		return;
	}
	if (partition == NULL) {
		to->error_code = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
		return;
	}
	to->error_code = (int16_t)partition_append(partition, from->records.at,
		from->records.bytes < 0 ? 0 : (size_t)from->records.bytes, broker_now_ms(request->broker), &result);
	to->base_offset = result.base_offset;
	to->log_append_time_ms = result.append_time_ms;
	to->log_start_offset = partition->log->start_offset;
	to->error_message = request_text(result.message);
}

static void refuse_all(const struct kafka_produce_request *body, struct kafka_produce_response *response, int16_t error,
	const char *message)
{
	for (int32_t i = 0; i < body->topic_data.count; i++)
		for (int32_t k = 0; k < body->topic_data.at[i].partition_data.count; k++) {
			struct kafka_produce_response_partition_produce_response *to =
				&response->responses.at[i].partition_responses.at[k];

			to->index = body->topic_data.at[i].partition_data.at[k].index;
			to->base_offset = -1;
			to->error_code = error;
			to->error_message = request_text(message);
		}
}

/* The response in the shape of the request; false: no memory. */
static bool make_response(struct request *request, struct kafka_produce_response *response)
{
	const struct kafka_produce_request *body = request->body;

	codec_default(kafka_produce_response_codec.root, response);
	response->responses.count = body->topic_data.count;
	response->responses.at = codec_arena_take_array(
		&request->arena, (size_t)body->topic_data.count, sizeof(*response->responses.at));
	if (response->responses.at == NULL)
		return false;
	for (int32_t i = 0; i < body->topic_data.count; i++) {
		struct kafka_produce_response_topic_produce_response *topic = &response->responses.at[i];
		int32_t count = body->topic_data.at[i].partition_data.count;

		topic->name = body->topic_data.at[i].name;
		topic->partition_responses.count = count;
		topic->partition_responses.at =
			codec_arena_take_array(&request->arena, (size_t)count, sizeof(*topic->partition_responses.at));
		if (topic->partition_responses.at == NULL)
			return false;
		for (int32_t k = 0; k < count; k++)
			topic->partition_responses.at[k] =
				(struct kafka_produce_response_partition_produce_response){.log_append_time_ms = -1,
					.log_start_offset = -1,
					.error_message = {NULL, -1},
					.current_leader = {-1, -1}};
	}
	return true;
}

void produce_handle(struct request *request)
{
	const struct kafka_produce_request *body = request->body;
	struct kafka_produce_response response;

	if (!make_response(request, &response)) {
		/* Nothing was appended; the empty answer fails the client's request. */
		response.responses.count = 0;
	} else if (body->transactional_id.bytes >= 0) {
		refuse_all(body, &response, KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
			"this broker has no transactions");
	} else if (body->acks < -1 || body->acks > 1) {
		refuse_all(body, &response, KAFKA_INVALID_REQUIRED_ACKS, "acks is 0, 1 or -1 (all)");
	} else {
		for (int32_t i = 0; i < body->topic_data.count; i++)
			for (int32_t k = 0; k < body->topic_data.at[i].partition_data.count; k++)
				append(request, body->topic_data.at[i].name,
					&body->topic_data.at[i].partition_data.at[k],
					&response.responses.at[i].partition_responses.at[k]);
	}
	if (body->acks == 0)
		request_answer_none(request);
	else
		request_answer(request, &response);
}
