/* ListOffsets: the first offset, the next one, or that of a time. */
#include "broker/requests/handlers.h"

enum list_offsets_time { LATEST = -1, EARLIEST = -2, MAX_TIMESTAMP = -3 };

static void answer_partition(struct request *request, struct codec_string topic,
	const struct kafka_list_offsets_request_list_offsets_partition *from,
	struct kafka_list_offsets_response_list_offsets_partition_response *to)
{
	enum kafka_error error;
	const struct partition *partition = broker_find_led(request->broker, topic, from->partition_index, &error);
	int64_t offset = -1, timestamp = -1;
	bool found = true, behind_hw;

	if (error == KAFKA_NONE)
		error = partition_check_epoch(partition, from->current_leader_epoch);
	*to = (struct kafka_list_offsets_response_list_offsets_partition_response){
		.partition_index = from->partition_index,
		.error_code = (int16_t)error,
		.timestamp = -1,
		.offset = -1,
		.leader_epoch = -1};
	if (error != KAFKA_NONE)
		return;
	if (from->timestamp == LATEST)
		offset = partition->hw;
	else if (from->timestamp == EARLIEST)
		offset = partition->log->start_offset;
	else if (from->timestamp == MAX_TIMESTAMP)
		found = partition_log_latest_time(partition->log, &offset, &timestamp);
	else if (from->timestamp >= 0)
		found = partition_log_find_time(partition->log, from->timestamp, &offset, &timestamp);
	else
		to->error_code = KAFKA_UNSUPPORTED_VERSION;
	behind_hw = found && from->timestamp != EARLIEST && offset >= partition->hw;
	if (behind_hw && partition->hw < partition->epoch_start)
		to->error_code = KAFKA_OFFSET_NOT_AVAILABLE; /* it may have been acknowledged (R-B16) */
	if (!found || to->error_code != KAFKA_NONE || (behind_hw && from->timestamp != LATEST))
		return;
	to->offset = offset;
	to->timestamp = timestamp;
	to->leader_epoch =
		from->timestamp == LATEST ? partition->leader_epoch : leader_epochs_at(&partition->log->epochs, offset);
}

void list_offsets_handle(struct request *request)
{
	const struct kafka_list_offsets_request *body = request->body;
	struct kafka_list_offsets_response response;
	int32_t count = body->topics.count;

	codec_default(kafka_list_offsets_response_codec.root, &response);
	codec_arena_array(&request->arena, &response.topics, count);
	for (int32_t i = 0; i < response.topics.count; i++) {
		struct kafka_list_offsets_response_list_offsets_topic_response *topic = &response.topics.at[i];
		int32_t partitions = body->topics.at[i].partitions.count;

		topic->name = body->topics.at[i].name;
		codec_arena_array(&request->arena, &topic->partitions, partitions);
		for (int32_t k = 0; k < topic->partitions.count; k++)
			answer_partition(
				request, topic->name, &body->topics.at[i].partitions.at[k], &topic->partitions.at[k]);
	}
	request_answer(request, &response);
}
