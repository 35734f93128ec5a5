/* Where a group is: fetching and committing offsets. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/client/consumer.h"
#include "broker/client/membership.h"

#define FETCH_VERSION  5
#define COMMIT_VERSION 7

static struct codec_string text_of(const char *text)
{
	return (struct codec_string){text, (int32_t)strlen(text)};
}

/* ---- where the group was ---- */

static int16_t worst_of(const struct kafka_offset_fetch_response *answer)
{
	int16_t error = answer->error_code;

	for (int32_t i = 0; i < answer->topics.count; i++)
		for (int32_t k = 0; k < answer->topics.at[i].partitions.count && error == KAFKA_NONE; k++)
			error = answer->topics.at[i].partitions.at[k].error_code;
	return error;
}

static void read_from(struct hf_consumer *consumer, struct codec_string topic, int32_t partition, int64_t offset)
{
	char name[LEADERS_TOPIC_BYTES];

	if (topic.bytes <= 0 || (size_t)topic.bytes >= sizeof(name))
		return;
	memcpy(name, topic.at, (size_t)topic.bytes);
	name[topic.bytes] = '\0';
	(void)hf_consumer_seek(consumer, name, partition, offset >= 0 ? offset : consumer->config.reset);
}

static void fetched(struct kafka_call *call, const void *response)
{
	struct membership *membership = container_of(call, struct membership, call);
	const struct kafka_offset_fetch_response *answer = response;
	int16_t error = answer == NULL ? KAFKA_NOT_COORDINATOR : worst_of(answer);

	if (error != KAFKA_NONE) {
		membership_failed(membership, error);
		return;
	}
	for (int32_t i = 0; i < answer->topics.count; i++)
		for (int32_t k = 0; k < answer->topics.at[i].partitions.count; k++)
			read_from(membership->consumer, answer->topics.at[i].name,
				answer->topics.at[i].partitions.at[k].partition_index,
				answer->topics.at[i].partitions.at[k].committed_offset);
	membership->committed_ns = hf_loop_now_ns(membership->consumer->loop);
	membership_move(membership, MEMBERSHIP_STABLE);
}

void membership_fetch(struct membership *membership)
{
	struct assignor_reader counts = {.from = membership->assigned}, reader = counts;
	struct kafka_offset_fetch_request request = {.group_id = text_of(membership->group)};
	struct codec_string topic, last = {NULL, 0};
	int32_t *indexes, partition;
	size_t count = 0;

	while (assignor_next(&counts, &topic, &partition) == 1)
		count++;
	if (count == 0) {
		membership_move(membership, MEMBERSHIP_STABLE);
		return;
	}
	indexes = calloc(count, sizeof(*indexes));
	request.topics.at = calloc(count, sizeof(*request.topics.at));
	for (size_t i = 0; i < count && indexes != NULL && request.topics.at != NULL; i++) {
		(void)assignor_next(&reader, &topic, &indexes[i]);
		if (topic.at != last.at) { /* the reader's: one pointer for each topic */
			request.topics.at[request.topics.count].name = last = topic;
			request.topics.at[request.topics.count++].partition_indexes.at = &indexes[i];
		}
		request.topics.at[request.topics.count - 1].partition_indexes.count++;
	}
	if (request.topics.count > 0)
		(void)membership_call(membership, fetched, KAFKA_OFFSET_FETCH, FETCH_VERSION, &request);
	free(indexes);
	free(request.topics.at);
}

/* ---- where it is ---- */

static void told(struct membership *membership, int error)
{
	hf_committed *committed = membership->committed;

	membership->committed = NULL;
	if (committed != NULL)
		committed(membership->context, error);
}

static void committed(struct kafka_call *call, const void *response)
{
	struct membership *membership = container_of(call, struct membership, commit);
	const struct kafka_offset_commit_response *answer = response;
	int16_t error = answer == NULL ? KAFKA_NOT_COORDINATOR : KAFKA_NONE;

	for (int32_t i = 0; answer != NULL && i < answer->topics.count; i++)
		for (int32_t k = 0; k < answer->topics.at[i].partitions.count && error == KAFKA_NONE; k++)
			error = answer->topics.at[i].partitions.at[k].error_code;
	if (error != KAFKA_NONE && membership->state == MEMBERSHIP_STABLE)
		membership_failed(membership, error);
	if (error == KAFKA_NONE)
		told(membership, 0);
	else
		told(membership,
			error == KAFKA_ILLEGAL_GENERATION || error == KAFKA_UNKNOWN_MEMBER_ID ? -ESTALE : -EAGAIN);
}

/* All that is read of a topic; returns how many there are. */
static int32_t add_topic(struct hf_consumer *consumer, const struct leaders_topic *topic,
	struct kafka_offset_commit_request_offset_commit_request_partition *to)
{
	int32_t count = 0;

	list_for_each (at, &consumer->partitions) {
		const struct consumer_partition *partition = container_of(at, struct consumer_partition, node);

		if (partition->topic == topic && !partition->idle && partition->position >= 0)
			to[count++] = (struct kafka_offset_commit_request_offset_commit_request_partition){
				.partition_index = partition->index,
				.committed_offset = partition->position,
				.committed_leader_epoch = -1,
				.committed_metadata = {"", 0}};
	}
	return count;
}

bool membership_commit(struct membership *membership)
{
	struct hf_consumer *consumer = membership->consumer;
	struct kafka_offset_commit_request request = {.group_id = text_of(membership->group),
		.generation_id_or_member_epoch = membership->generation,
		.member_id = text_of(membership->member),
		.group_instance_id = {NULL, -1},
		.retention_time_ms = -1};
	size_t count = 0, used = 0;
	struct kafka_offset_commit_request_offset_commit_request_partition *partitions;
	bool taken = false;

	list_for_each (at, &consumer->partitions)
		count++;
	membership->committed_ns = hf_loop_now_ns(consumer->loop);
	if (count == 0)
		return false;
	partitions = calloc(count, sizeof(*partitions));
	request.topics.at = calloc(consumer->leaders.topic_count, sizeof(*request.topics.at));
	if (partitions != NULL && request.topics.at != NULL)
		list_for_each (at, &consumer->leaders.topics) {
			const struct leaders_topic *topic = container_of(at, struct leaders_topic, node);
			int32_t n = add_topic(consumer, topic, partitions + used);

			if (n > 0)
				request.topics.at[request.topics.count++] =
					(struct kafka_offset_commit_request_offset_commit_request_topic){
						.name = text_of(topic->name), .partitions = {partitions + used, n}};
			used += (size_t)n;
		}
	membership->commit.done = committed;
	if (request.topics.count > 0)
		taken = kafka_link_call(
			&membership->link, &membership->commit, KAFKA_OFFSET_COMMIT, COMMIT_VERSION, &request);
	free(partitions);
	free(request.topics.at);
	return taken;
}
