/* Produce: record batches into partitions. Compressed ones are looked into before anything is appended (R-B42); the
 * connection's next request waits for that. acks=all is answered when the high watermark has passed them, acks=1 when
 * the log is as durable as the topic wants it. */
#include "broker/requests/handlers.h"

#include <stdlib.h>

typedef struct kafka_produce_response_partition_produce_response produced_partition;

/* One partition whose records may not be acknowledged yet. */
struct produce_wait {
	struct partition_wait wait;
	struct produce *produce;
	struct partition *partition;
	produced_partition *to;
	int64_t end; /* behind them */
	bool all, waits;
};

/* The compressed batches of a request, in its order. */
struct produce_look {
	struct inspection inspection;
	struct produce *produce;
	struct connection_bytes kept; /* once its request has ended */
	uint32_t used;                /* by append */
	struct produce_packed {
		const uint8_t *at;
		struct batch batch;
		struct batch_contents contents;
	} at[];
};

struct produce {
	struct request *request;
	struct kafka_produce_response response;
	struct produce_wait *waits;
	struct produce_look *look; /* NULL: none is compressed */
	int32_t wait_count, left;
};

static enum kafka_error may_produce(struct request *request, const struct partition *partition,
	struct codec_string topic, int16_t acks, const char **message_out)
{
	enum kafka_error error;

	*message_out = request_guard_own(topic, &error);
	if (error != KAFKA_NONE)
		return error;
	if (!broker_has_lease(request->broker)) {
		*message_out = "this broker does not reach the controller";
		return KAFKA_NOT_LEADER_OR_FOLLOWER;
	}
	return acks == -1 && !partition_has_enough(partition) ? KAFKA_NOT_ENOUGH_REPLICAS : KAFKA_NONE;
}

/* What was found in these records; NULL: they are not compressed, or will be refused. */
static const struct batch_contents *found_in(struct produce *produce, struct codec_bytes records)
{
	struct produce_look *look = produce->look;

	if (look == NULL || look->used == look->inspection.count || look->at[look->used].at != records.at)
		return NULL;
	return &look->at[look->used++].contents;
}

static void append(struct produce *produce, struct codec_string topic,
	const struct kafka_produce_request_partition_produce_data *from, produced_partition *to)
{
	struct request *request = produce->request;
	int16_t acks = ((const struct kafka_produce_request *)request->body)->acks;
	struct append_result result = {.base_offset = -1, .append_time_ms = -1};
	enum kafka_error error;
	struct partition *partition = broker_find_led(request->broker, topic, from->index, &error);
	struct produce_wait *wait = &produce->waits[produce->wait_count];
	const struct batch_contents *contents = found_in(produce, from->records);

	to->index = from->index;
	to->base_offset = -1;
	if (error == KAFKA_NONE)
		error = may_produce(request, partition, topic, acks, &result.message);
	if (error == KAFKA_NONE)
		error = partition_append_inspected(partition, from->records.at,
			from->records.bytes < 0 ? 0 : (size_t)from->records.bytes, broker_now_ms(request->broker),
			contents, &result);
	to->error_code = (int16_t)error;
	to->error_message = request_text(result.message);
	if (error != KAFKA_NONE)
		return;
	to->base_offset = result.base_offset;
	to->log_append_time_ms = result.append_time_ms;
	to->log_start_offset = partition->log->start_offset;
	/* Of one that was there already too: it may not be replicated yet, nor on the disk. */
	if (acks == 0 || partition_has_settled(partition, partition_log_end(partition->log), acks == -1))
		return;
	*wait = (struct produce_wait){.produce = produce,
		.partition = partition,
		.to = to,
		.end = partition_log_end(partition->log),
		.all = acks == -1};
	produce->wait_count++;
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

/* ---- acks=all, and where records must be durable first ---- */

static void leave_all(struct request *request)
{
	struct produce *produce = request->state;

	for (int32_t i = 0; i < produce->wait_count; i++)
		if (produce->waits[i].waits)
			partition_remove_wait(&produce->waits[i].wait);
}

static void all_replicated(struct request *request)
{
	request_answer(request, &((struct produce *)request->state)->response);
}

static void late(struct request *request)
{
	struct produce *produce = request->state;

	leave_all(request);
	for (int32_t i = 0; i < produce->wait_count; i++)
		if (produce->waits[i].waits) {
			produce->waits[i].to->error_code = KAFKA_REQUEST_TIMED_OUT;
			produce->waits[i].to->error_message =
				request_text("not all replicas have it in time, or the disk is slow");
		}
	all_replicated(request);
}

static void hw_moved(struct partition_wait *at, uint32_t bytes)
{
	struct produce_wait *wait = container_of(at, struct produce_wait, wait);
	const struct partition *partition = wait->partition;

	if (bytes != UINT32_MAX && !partition_has_settled(partition, wait->end, wait->all))
		return;
	if (bytes == UINT32_MAX)
		wait->to->error_code = partition->log->failed ? KAFKA_STORAGE_ERROR : KAFKA_NOT_LEADER_OR_FOLLOWER;
	else if (wait->all && !partition_has_enough(partition))
		wait->to->error_code = KAFKA_NOT_ENOUGH_REPLICAS_AFTER_APPEND;
	wait->waits = false;
	partition_remove_wait(at);
	/* Not from here: the partition is telling its waits. */
	if (--wait->produce->left == 0)
		request_wait(wait->produce->request, 0, all_replicated, leave_all);
}

static void wait_for_replicas(struct produce *produce)
{
	struct request *request = produce->request;
	int32_t timeout_ms = ((const struct kafka_produce_request *)request->body)->timeout_ms;

	request->state = produce;
	produce->left = produce->wait_count;
	for (int32_t i = 0; i < produce->wait_count; i++) {
		struct produce_wait *wait = &produce->waits[i];

		wait->wait.grown = hw_moved;
		wait->waits = true;
		partition_add_wait(wait->partition, &wait->wait);
	}
	request_wait(request, request_timeout_ns(timeout_ms), late, leave_all);
}

static void append_all(struct produce *produce)
{
	const struct kafka_produce_request *body = produce->request->body;

	for (int32_t i = 0; i < body->topic_data.count; i++)
		for (int32_t k = 0; k < body->topic_data.at[i].partition_data.count; k++)
			append(produce, body->topic_data.at[i].name, &body->topic_data.at[i].partition_data.at[k],
				&produce->response.responses.at[i].partition_responses.at[k]);
}

static struct produce *begin(struct request *request)
{
	const struct kafka_produce_request *body = request->body;
	struct produce *produce = codec_arena_take(&request->arena, sizeof(*produce));
	size_t count = 0;

	for (int32_t i = 0; i < body->topic_data.count; i++)
		count += (size_t)body->topic_data.at[i].partition_data.count;
	if (produce == NULL)
		return NULL;
	*produce = (struct produce){
		.request = request, .waits = codec_arena_take_array(&request->arena, count, sizeof(*produce->waits))};
	return produce->waits != NULL && make_response(request, &produce->response) ? produce : NULL;
}

static bool has_error(const struct kafka_produce_response *response)
{
	for (int32_t i = 0; i < response->responses.count; i++)
		for (int32_t k = 0; k < response->responses.at[i].partition_responses.count; k++)
			if (response->responses.at[i].partition_responses.at[k].error_code != KAFKA_NONE)
				return true;
	return false;
}

static void append_and_answer(struct produce *produce)
{
	struct request *request = produce->request;
	int16_t acks = ((const struct kafka_produce_request *)request->body)->acks;

	append_all(produce);
	free(produce->look);
	if (produce->wait_count > 0)
		wait_for_replicas(produce);
	else if (acks != 0)
		request_answer(request, &produce->response);
	else if (has_error(&produce->response))
		request_break(
			request, "with acks=0 has records that were refused"); /* its client asks for the leader */
	else
		request_answer_none(request);
}

/* ---- looking into compressed batches ---- */

static int64_t look_into(struct inspection *inspection, uint32_t index, size_t most)
{
	struct produce_packed *packed = &container_of(inspection, struct produce_look, inspection)->at[index];

	batch_contents_check(
		packed->at, &packed->batch, most < BATCH_CONTENTS_MOST ? most : BATCH_CONTENTS_MOST, &packed->contents);
	return packed->contents.result == BATCH_CONTENTS_LARGE && most < BATCH_CONTENTS_MOST
		       ? -1
		       : (int64_t)packed->contents.bytes;
}

static void looked(struct inspection *inspection)
{
	struct produce *produce = container_of(inspection, struct produce_look, inspection)->produce;

	produce->request->cancel = NULL;
	append_and_answer(produce);
}

static void dropped(struct inspection *inspection)
{
	struct produce_look *look = container_of(inspection, struct produce_look, inspection);

	connection_bytes_free(&look->kept);
	free(look);
}

/* The connection ends: a helper thread may be reading its bytes. */
static void leave_look(struct request *request)
{
	struct produce *produce = request->state;
	struct produce_look *look = produce->look;

	connection_take_bytes(request->connection, &look->kept);
	inspector_abandon(&look->inspection);
}

/* Others are refused by append, without a look at their records. */
static bool is_packed(struct produce *produce, struct codec_string topic,
	const struct kafka_produce_request_partition_produce_data *from, struct batch *batch)
{
	enum kafka_error error;
	const struct partition *partition;

	if (from->records.bytes < (int32_t)BATCH_HEADER_BYTES ||
		batch_read(from->records.at, (size_t)from->records.bytes, batch) != BATCH_RIGHT ||
		(batch->attributes & BATCH_COMPRESSION) == 0)
		return false;
	partition = broker_find_led(produce->request->broker, topic, from->index, &error);
	return partition != NULL && (uint32_t)batch->length <= partition->log->config.max_message_bytes;
}

/* Fills the list, or counts. */
static uint32_t list_packed(struct produce *produce, struct produce_look *look, size_t *packed_out)
{
	const struct kafka_produce_request *body = produce->request->body;
	struct batch batch;
	uint32_t count = 0;

	*packed_out = 0;
	for (int32_t i = 0; i < body->topic_data.count; i++)
		for (int32_t k = 0; k < body->topic_data.at[i].partition_data.count; k++) {
			const struct kafka_produce_request_partition_produce_data *from =
				&body->topic_data.at[i].partition_data.at[k];

			if (!is_packed(produce, body->topic_data.at[i].name, from, &batch))
				continue;
			if (look != NULL)
				look->at[count] = (struct produce_packed){.at = from->records.at, .batch = batch};
			*packed_out += (size_t)batch.length;
			count++;
		}
	return count;
}

static void look_and_append(struct produce *produce)
{
	struct request *request = produce->request;
	size_t packed;
	uint32_t count = list_packed(produce, NULL, &packed);
	struct produce_look *look = count == 0 ? NULL : calloc(1, sizeof(*look) + (size_t)count * sizeof(look->at[0]));

	if (count > 0 && look == NULL) {
		request_give_up(request);
		return;
	}
	produce->look = look;
	if (look != NULL) {
		list_packed(produce, look, &packed);
		look->produce = produce;
		look->inspection =
			(struct inspection){.count = count, .look = look_into, .done = looked, .drop = dropped};
		request->state = produce;
		request->cancel = leave_look;
		if (!inspector_begin(&request->broker->inspector, &look->inspection, packed))
			return;
		request->cancel = NULL;
	}
	append_and_answer(produce);
}

void produce_handle(struct request *request)
{
	const struct kafka_produce_request *body = request->body;
	struct produce *produce = begin(request);
	bool refused = true;

	if (produce == NULL) {
		request_give_up(request); /* nothing was appended */
		return;
	}
	if (body->transactional_id.bytes >= 0)
		refuse_all(body, &produce->response, KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
			"this broker has no transactions");
	else if (body->acks < -1 || body->acks > 1)
		refuse_all(body, &produce->response, KAFKA_INVALID_REQUIRED_ACKS, "acks is 0, 1 or -1 (all)");
	else
		refused = false;
	if (!refused)
		look_and_append(produce);
	else if (body->acks != 0)
		request_answer(request, &produce->response);
	else
		request_break(request, "with acks=0 has records that were refused");
}
