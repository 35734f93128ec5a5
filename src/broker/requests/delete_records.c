/* DeleteRecords: gives up what lies below an offset. */
#include "broker/requests/handlers.h"

static void delete_below(struct request *request, struct codec_string topic,
	const struct kafka_delete_records_request_delete_records_partition *from,
	struct kafka_delete_records_response_delete_records_partition_result *to)
{
	struct partition *partition = topics_partition(&request->broker->topics, topic, from->partition_index);
	int64_t offset = partition != NULL && from->offset == -1 ? partition->hw : from->offset;

	*to = (struct kafka_delete_records_response_delete_records_partition_result){
		.partition_index = from->partition_index, .low_watermark = -1};
	if (partition == NULL) {
		to->error_code = KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
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
	response.topics.at = codec_arena_take_array(&request->arena, (size_t)count, sizeof(*response.topics.at));
	response.topics.count = response.topics.at == NULL ? 0 : count;
	for (int32_t i = 0; i < response.topics.count; i++) {
		struct kafka_delete_records_response_delete_records_topic_result *topic = &response.topics.at[i];
		int32_t partitions = body->topics.at[i].partitions.count;

		topic->name = body->topics.at[i].name;
		topic->partitions.at =
			codec_arena_take_array(&request->arena, (size_t)partitions, sizeof(*topic->partitions.at));
		topic->partitions.count = topic->partitions.at == NULL ? 0 : partitions;
		for (int32_t k = 0; k < topic->partitions.count; k++)
			delete_below(
				request, topic->name, &body->topics.at[i].partitions.at[k], &topic->partitions.at[k]);
	}
	topics_write_starts(&request->broker->topics);
	request_answer(request, &response);
}
