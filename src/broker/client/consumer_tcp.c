/* What a consumer asks over TCP: an offset, and Fetch where there is no RDMA. */
#include "broker/client/consumer.h"

#include <string.h>

#define OFFSETS_VERSION 2
#define FETCH_VERSION   11
#define FETCH_WAIT_MS   500

static struct consumer_partition *partition_of(struct kafka_call *call)
{
	return container_of(call, struct consumer_partition, call);
}

static void call(struct consumer_partition *partition, void (*done)(struct kafka_call *call, const void *response),
	int16_t key, int16_t version, const void *request)
{
	partition->call.done = done;
	partition->asked_life = partition->life;
	if (!kafka_link_call(&partition->leader->link, &partition->call, key, version, request))
		consumer_begin_anew(partition, false);
}

/* ---- an offset ---- */

static void offset_known(struct kafka_call *of, const void *response)
{
	struct consumer_partition *partition = partition_of(of);
	const struct kafka_list_offsets_response *answer = response;
	const struct kafka_list_offsets_response_list_offsets_partition_response *at;

	if (partition->asked_life != partition->life)
		return;
	if (answer == NULL || answer->topics.count != 1 || answer->topics.at[0].partitions.count != 1) {
		consumer_begin_anew(partition, false);
		return;
	}
	at = &answer->topics.at[0].partitions.at[0];
	if (at->error_code != KAFKA_NONE || at->offset < 0)
		consumer_begin_anew(partition, false);
	else
		partition->position = at->offset;
}

static void ask_offset(struct consumer_partition *partition)
{
	struct kafka_list_offsets_request_list_offsets_partition at = {.partition_index = partition->index,
		.current_leader_epoch = leaders_epoch(partition->topic, partition->index),
		.timestamp = partition->position}; /* -1 and -2 mean the same to Kafka */
	struct kafka_list_offsets_request_list_offsets_topic topic = {
		.name = {partition->topic->name, (int32_t)strlen(partition->topic->name)}, .partitions = {&at, 1}};
	const struct kafka_list_offsets_request request = {.replica_id = -1, .topics = {&topic, 1}};

	call(partition, offset_known, KAFKA_LIST_OFFSETS, OFFSETS_VERSION, &request);
}

/* ---- Fetch ---- */

static void fetched(struct kafka_call *of, const void *response)
{
	struct consumer_partition *partition = partition_of(of);
	const struct kafka_fetch_response *answer = response;
	const struct kafka_fetch_response_partition_data *at;

	if (partition->asked_life != partition->life)
		return;
	if (answer == NULL || answer->responses.count != 1 || answer->responses.at[0].partitions.count != 1) {
		consumer_begin_anew(partition, false);
		return;
	}
	at = &answer->responses.at[0].partitions.at[0];
	partition->end = at->high_watermark;
	if (at->error_code == KAFKA_OFFSET_OUT_OF_RANGE) {
		consumer_reset(partition);
	} else if (at->error_code != KAFKA_NONE) {
		consumer_begin_anew(partition, false);
	} else if (at->records.bytes > 0) {
		if (!consumer_make_room(partition, (uint32_t)at->records.bytes)) {
			consumer_begin_anew(partition, false);
			return;
		}
		memcpy(partition->buffer + partition->to, at->records.at, (size_t)at->records.bytes);
		partition->to += (uint32_t)at->records.bytes;
	}
}

/* A broker answers the requests of a connection one behind the other: partitions that are fetched there share the
 * wait. */
static int32_t fetch_wait_ms(const struct consumer_partition *partition)
{
	int32_t sharing = 0;

	list_for_each (at, &partition->consumer->partitions) {
		const struct consumer_partition *other = container_of(at, struct consumer_partition, node);

		sharing += other->way == CONSUMER_TCP && other->leader == partition->leader;
	}
	return FETCH_WAIT_MS / (sharing > 0 ? sharing : 1);
}

/* Whole batches only; what is not yet given out comes first. */
static void fetch(struct consumer_partition *partition)
{
	struct kafka_fetch_request_fetch_partition at = {.partition = partition->index,
		.current_leader_epoch = leaders_epoch(partition->topic, partition->index),
		.fetch_offset = partition->position,
		.log_start_offset = -1,
		.partition_max_bytes = (int32_t)partition->consumer->config.fetch_bytes};
	struct kafka_fetch_request_fetch_topic topic = {
		.topic = {partition->topic->name, (int32_t)strlen(partition->topic->name)}, .partitions = {&at, 1}};
	const struct kafka_fetch_request request = {.replica_id = -1,
		.max_wait_ms = fetch_wait_ms(partition),
		.min_bytes = 1,
		.max_bytes = INT32_MAX,
		.session_epoch = -1,
		.topics = {&topic, 1},
		.rack_id = {"", 0}};

	partition->from = partition->to = 0;
	partition->next_base = -1;
	call(partition, fetched, KAFKA_FETCH, FETCH_VERSION, &request);
}

/* ---- turns ---- */

static bool has_batch(const struct consumer_partition *partition)
{
	struct batch batch;

	return partition->in_batch ||
	       (partition->to > partition->from && batch_read(partition->buffer + partition->from,
							   partition->to - partition->from, &batch) != BATCH_SHORT);
}

void consumer_tcp_turn(struct consumer_partition *partition, uint64_t now_ns)
{
	if (partition->call.waiting || partition->in_flight != NULL)
		return;
	partition->leader = leaders_leader(&partition->consumer->leaders, partition->topic, partition->index);
	if (partition->leader == NULL)
		return;
	if (partition->way == CONSUMER_NEW) {
		if (partition->position < 0)
			ask_offset(partition);
		else if (!consumer_direct_begin(partition, now_ns))
			consumer_move(partition, CONSUMER_TCP);
		return;
	}
	if (has_batch(partition))
		return;
	if (consumer_direct_begin(partition, now_ns))
		return;
	fetch(partition);
}
