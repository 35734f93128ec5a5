/* DeleteRecords: gives up what lies below an offset. */
#include "broker/requests/handlers.h"

static void delete_below(struct request *request, struct codec_string topic,
	const struct kafka_delete_records_request_delete_records_partition *from,
	struct kafka_delete_records_response_delete_records_partition_result *to)
{
	enum kafka_error error;
	struct partition *partition = broker_find_led(request->broker, topic, from->partition_index, &error);
	int64_t offset = partition != NULL && from->offset == -1 ? partition->hw : from->offset;

	*to = (struct kafka_delete_records_response_delete_records_partition_result){
		.partition_index = from->partition_index, .low_watermark = -1};
	if (error == KAFKA_NONE)
		(void)request_guard_own(topic, &error);
	if (error != KAFKA_NONE) {
		to->error_code = (int16_t)error;
	} else if (offset < 0 || offset > partition->hw) {
		to->error_code = KAFKA_OFFSET_OUT_OF_RANGE;
	} else {
		partition_log_advance_start(partition->log, offset);
		to->low_watermark = partition->log->start_offset;
	}
}

void delete_records_handle(struct request *request)
{
	const struct kafka_delete_records_request *body = request->body;
	struct kafka_delete_records_response response;
	int32_t count = body->topics.count;

	codec_default(kafka_delete_records_response_codec.root, &response);
	codec_arena_array(&request->arena, &response.topics, count);
	for (int32_t i = 0; i < response.topics.count; i++) {
		struct kafka_delete_records_response_delete_records_topic_result *topic = &response.topics.at[i];
		int32_t partitions = body->topics.at[i].partitions.count;

		topic->name = body->topics.at[i].name;
		codec_arena_array(&request->arena, &topic->partitions, partitions);
		for (int32_t k = 0; k < topic->partitions.count; k++)
			delete_below(
				request, topic->name, &body->topics.at[i].partitions.at[k], &topic->partitions.at[k]);
	}
	topics_write_starts(&request->broker->topics);
	request_answer(request, &response);
}
