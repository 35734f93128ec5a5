/* OffsetForLeaderEpoch: where an epoch ends in the leader's log. */
#include "broker/requests/handlers.h"

static void answer_partition(struct request *request, struct codec_string topic,
	const struct kafka_offset_for_leader_epoch_request_offset_for_leader_partition *from,
	struct kafka_offset_for_leader_epoch_response_epoch_end_offset *to)
{
	enum kafka_error error;
	const struct partition *partition = broker_find_led(request->broker, topic, from->partition, &error);
	const struct leader_epochs *epochs;
	int64_t end;

	if (error == KAFKA_NONE)
		error = partition_check_epoch(partition, from->current_leader_epoch);
	*to = (struct kafka_offset_for_leader_epoch_response_epoch_end_offset){
		.error_code = (int16_t)error, .partition = from->partition, .leader_epoch = -1, .end_offset = -1};
	if (error != KAFKA_NONE)
		return;
	epochs = &partition->log->epochs;
	end = partition_log_end(partition->log);
	if (from->leader_epoch == partition->leader_epoch) {
		to->leader_epoch = partition->leader_epoch;
		to->end_offset = end;
		return;
	}
	if (leader_epochs_end(epochs, from->leader_epoch, end, &to->leader_epoch, &to->end_offset) ||
		from->leader_epoch < 0 || from->leader_epoch > partition->leader_epoch)
		return;
	/* Older than all that is here: to answer that nothing is known would say that its records were truncated. */
	to->leader_epoch = from->leader_epoch;
	to->end_offset = epochs->count > 0 ? epochs->at[0].start_offset : end;
}

void leader_epoch_handle(struct request *request)
{
	const struct kafka_offset_for_leader_epoch_request *body = request->body;
	struct kafka_offset_for_leader_epoch_response response;
	int32_t count = body->topics.count;

	codec_default(kafka_offset_for_leader_epoch_response_codec.root, &response);
	codec_arena_array(&request->arena, &response.topics, count);
	for (int32_t i = 0; i < response.topics.count; i++) {
		struct kafka_offset_for_leader_epoch_response_offset_for_leader_topic_result *topic =
			&response.topics.at[i];
		int32_t partitions = body->topics.at[i].partitions.count;

		topic->topic = body->topics.at[i].topic;
		codec_arena_array(&request->arena, &topic->partitions, partitions);
		for (int32_t k = 0; k < topic->partitions.count; k++)
			answer_partition(
				request, topic->topic, &body->topics.at[i].partitions.at[k], &topic->partitions.at[k]);
	}
	request_answer(request, &response);
}
