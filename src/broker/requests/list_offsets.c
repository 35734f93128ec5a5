/* ListOffsets: the first offset, the next one, or that of a time. A batch that has a time is unpacked if need be, on a
 * helper thread if that takes long (inspector.h). */
#include "broker/requests/handlers.h"

#include <stdlib.h>

#define FIRST_WITH_NOT_AVAILABLE 5 /* version */

enum list_offsets_time { LATEST = -1, EARLIEST = -2, MAX_TIMESTAMP = -3 };

typedef struct kafka_list_offsets_request_list_offsets_partition asked;
typedef struct kafka_list_offsets_response_list_offsets_partition_response listed;

/* A time that is searched. */
struct search {
	struct codec_string topic;
	const asked *from;
	listed *to;
	int64_t timestamp_ms, next_offset; /* the next batch to look into has it, or comes later */
	struct log_batch batch;            /* pinned, while it is looked into */
	enum batch_contents_result result;
	struct batch_contents_place found;
};

struct searches {
	struct inspection inspection;
	struct request *request;
	struct kafka_list_offsets_response response;
	struct search *at;
	struct search **looks; /* those of `at` with a batch, for the inspection */
};

static void answer_offset(const struct request *request, const struct partition *partition, const asked *from,
	int64_t offset, int64_t timestamp_ms, listed *to)
{
	bool behind_hw = from->timestamp != EARLIEST && offset >= partition->hw;

	/* It may have been acknowledged (R-B16). Older versions have another error that clients retry. */
	if (behind_hw && partition->hw < partition->epoch_start)
		to->error_code = request->version < FIRST_WITH_NOT_AVAILABLE ? KAFKA_LEADER_NOT_AVAILABLE
									     : KAFKA_OFFSET_NOT_AVAILABLE;
	if (to->error_code != KAFKA_NONE || (behind_hw && from->timestamp != LATEST))
		return;
	to->offset = offset;
	to->timestamp = timestamp_ms;
	to->leader_epoch =
		from->timestamp == LATEST ? partition->leader_epoch : leader_epochs_at(&partition->log->epochs, offset);
}

static const struct partition *find(
	struct request *request, struct codec_string topic, const asked *from, enum kafka_error *error_out)
{
	const struct partition *partition = broker_find_led(request->broker, topic, from->partition_index, error_out);

	if (*error_out == KAFKA_NONE)
		*error_out = partition_check_epoch(partition, from->current_leader_epoch);
	return *error_out == KAFKA_NONE ? partition : NULL;
}

/* Whether there is a batch to look into next. */
static bool search_on(struct request *request, struct search *search)
{
	enum kafka_error error;
	const struct partition *partition = find(request, search->topic, search->from, &error);

	search->to->error_code = (int16_t)error;
	if (partition == NULL)
		return false;
	if (search->next_offset < partition->log->start_offset)
		search->next_offset = partition->log->start_offset;
	return partition_log_find_time(partition->log, search->timestamp_ms, search->next_offset, &search->batch);
}

/* The batch was looked into: whether another one has to be. */
static bool search_goes_on(struct request *request, struct search *search)
{
	enum kafka_error error;
	const struct partition *partition;

	if (search->result == BATCH_CONTENTS_RIGHT && search->found.offset < 0) {
		search->next_offset = batch_next_offset(&search->batch.batch);
		return search_on(request, search);
	}
	partition = find(request, search->topic, search->from, &error);
	if (error == KAFKA_NONE && search->result != BATCH_CONTENTS_RIGHT) {
		/* It was appended by a release that did not look, or there is no memory: the place of the batch. */
		search->found = (struct batch_contents_place){.offset = search->batch.batch.base_offset,
			.timestamp_ms = search->batch.batch.max_timestamp_ms};
	}
	search->to->error_code = (int16_t)error;
	if (error == KAFKA_NONE)
		answer_offset(
			request, partition, search->from, search->found.offset, search->found.timestamp_ms, search->to);
	return false;
}

/* ---- looking into batches ---- */

static int64_t look(struct inspection *inspection, uint32_t index, size_t most)
{
	struct search *search = container_of(inspection, struct searches, inspection)->looks[index];
	size_t limit = most < BATCH_CONTENTS_MOST ? most : BATCH_CONTENTS_MOST;

	search->result = batch_contents_find_time(search->batch.at, &search->batch.batch, search->timestamp_ms,
		search->next_offset, limit, &search->found);
	return search->result == BATCH_CONTENTS_LARGE && most < BATCH_CONTENTS_MOST ? -1 : (int64_t)search->found.bytes;
}

static void unpin(struct searches *searches)
{
	for (uint32_t i = 0; i < searches->inspection.count; i++)
		segment_unpin(searches->looks[i]->batch.segment);
	searches->inspection.count = 0;
}

static void free_all(struct searches *searches)
{
	free(searches->at);
	free(searches->looks);
	free(searches);
}

static void dropped(struct inspection *inspection)
{
	struct searches *searches = container_of(inspection, struct searches, inspection);

	unpin(searches);
	free_all(searches);
}

static void leave(struct request *request)
{
	inspector_abandon(&((struct searches *)request->state)->inspection);
}

/* What was looked into is answered, or goes on with its next batch. */
static void take_results(struct searches *searches)
{
	uint32_t count = searches->inspection.count, next = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct search *search = searches->looks[i];
		struct segment *before = search->batch.segment;

		if (search_goes_on(searches->request, search)) {
			segment_pin(search->batch.segment);
			searches->looks[next++] = search;
		}
		segment_unpin(before);
	}
	searches->inspection.count = next;
	searches->inspection.next = 0;
}

static void look_and_answer(struct searches *searches)
{
	struct request *request = searches->request;

	while (searches->inspection.count > 0) {
		size_t bytes = 0;

		for (uint32_t i = 0; i < searches->inspection.count; i++)
			bytes += (size_t)searches->looks[i]->batch.batch.length;
		request->state = searches;
		request->cancel = leave;
		if (!inspector_begin(&request->broker->inspector, &searches->inspection, bytes))
			return;
		request->cancel = NULL;
		take_results(searches);
	}
	request_answer(request, &searches->response);
	free_all(searches);
}

static void looked(struct inspection *inspection)
{
	struct searches *searches = container_of(inspection, struct searches, inspection);

	searches->request->cancel = NULL;
	take_results(searches);
	look_and_answer(searches);
}

/* ---- the request ---- */

/* What a time is answered with needs a look into a batch; the rest is answered at once. */
static void answer_partition(struct searches *searches, struct codec_string topic, const asked *from, listed *to)
{
	struct request *request = searches->request;
	struct search search = {
		.topic = topic, .from = from, .to = to, .timestamp_ms = from->timestamp, .next_offset = 0};
	enum kafka_error error;
	const struct partition *partition = find(request, topic, from, &error);

	*to = (listed){.partition_index = from->partition_index,
		.error_code = (int16_t)error,
		.timestamp = -1,
		.offset = -1,
		.leader_epoch = -1};
	if (partition == NULL)
		return;
	if (from->timestamp == LATEST || from->timestamp == EARLIEST) {
		answer_offset(request, partition, from,
			from->timestamp == LATEST ? partition->hw : partition->log->start_offset, -1, to);
		return;
	}
	if (from->timestamp < MAX_TIMESTAMP) {
		to->error_code = KAFKA_UNSUPPORTED_VERSION;
		return;
	}
	if (from->timestamp == MAX_TIMESTAMP && !partition_log_latest_time(partition->log, &search.timestamp_ms))
		return;
	if (!search_on(request, &search))
		return;
	segment_pin(search.batch.segment);
	searches->at[searches->inspection.count] = search;
	searches->looks[searches->inspection.count] = &searches->at[searches->inspection.count];
	searches->inspection.count++;
}

static uint32_t times(const struct kafka_list_offsets_request *body)
{
	uint32_t count = 0;

	for (int32_t i = 0; i < body->topics.count; i++)
		for (int32_t k = 0; k < body->topics.at[i].partitions.count; k++)
			count += body->topics.at[i].partitions.at[k].timestamp != LATEST &&
				 body->topics.at[i].partitions.at[k].timestamp != EARLIEST;
	return count;
}

/* NULL: no memory. */
static struct searches *make(struct request *request)
{
	const struct kafka_list_offsets_request *body = request->body;
	struct searches *searches = calloc(1, sizeof(*searches));
	uint32_t count = times(body);

	if (searches == NULL)
		return NULL;
	searches->at = calloc(count + 1, sizeof(*searches->at));
	searches->looks = calloc(count + 1, sizeof(*searches->looks));
	searches->request = request;
	searches->inspection = (struct inspection){.look = look, .done = looked, .drop = dropped};
	codec_default(kafka_list_offsets_response_codec.root, &searches->response);
	if (searches->at != NULL && searches->looks != NULL)
		return searches;
	free_all(searches);
	return NULL;
}

void list_offsets_handle(struct request *request)
{
	const struct kafka_list_offsets_request *body = request->body;
	struct searches *searches = make(request);

	if (searches == NULL) {
		request_give_up(request);
		return;
	}
	codec_arena_array(&request->arena, &searches->response.topics, body->topics.count);
	for (int32_t i = 0; i < searches->response.topics.count; i++) {
		struct kafka_list_offsets_response_list_offsets_topic_response *topic =
			&searches->response.topics.at[i];

		topic->name = body->topics.at[i].name;
		codec_arena_array(&request->arena, &topic->partitions, body->topics.at[i].partitions.count);
		for (int32_t k = 0; k < topic->partitions.count; k++)
			answer_partition(
				searches, topic->name, &body->topics.at[i].partitions.at[k], &topic->partitions.at[k]);
	}
	look_and_answer(searches);
}
