/* Fetch: records from partitions, at once or when there are enough of them.
 *
 * A fetch that finds less than min_bytes waits at each of its partitions; it is answered when they have grown enough or
 * max_wait_ms is over, from what the logs have then. Sessions are declined: each fetch names all its partitions. */
#include "broker/requests/handlers.h"

#define NS_PER_MS                  1000000ull
#define MAX_WAIT_MS                300000 /* of one fetch; clients ask for half a second */
#define FETCH_SESSION_ID_NOT_FOUND 70
/* Of one answer: its length, an i32, has room for these and for what the arena of a request holds. */
#define RECORDS_MOST (INT32_MAX - (int64_t)REQUEST_ARENA_BYTES)

struct fetch_wait {
	struct partition_wait wait;
	struct fetch *fetch;
};

struct fetch {
	struct request *request;
	struct fetch_wait *waits;
	unsigned wait_count;
	uint64_t ready, wanted; /* bytes */
};

struct fetch_pass { /* of one answer */
	struct request *request;
	int64_t left; /* bytes that may still be added */
	uint64_t bytes;
	bool error;
};

static void read_partition(struct fetch_pass *pass, struct codec_string topic,
	const struct kafka_fetch_request_fetch_partition *from, struct kafka_fetch_response_partition_data *to)
{
	enum kafka_error error;
	struct partition *partition = broker_find_led(pass->request->broker, topic, from->partition, &error);
	int64_t most = from->partition_max_bytes < pass->left ? from->partition_max_bytes : pass->left;
	struct log_span span = {0};

	to->partition_index = from->partition;
	to->high_watermark = to->last_stable_offset = to->log_start_offset = -1;
	if (error == KAFKA_NONE)
		error = partition_check_epoch(partition, from->current_leader_epoch);
	if (error == KAFKA_NONE) {
		to->high_watermark = to->last_stable_offset = partition->hw;
		to->log_start_offset = partition->log->start_offset;
		error = partition_log_read(partition->log, from->fetch_offset, partition->hw,
			most < 0 ? 0 : (uint32_t)most, pass->bytes == 0, &span);
		error = broker_range_error(pass->request->broker, error);
	}
	to->error_code = (int16_t)error;
	pass->error |= error != KAFKA_NONE;
	if (span.segment == NULL || !request_hold(pass->request, span.segment))
		return;
	to->records = (struct codec_bytes){span.at, (int32_t)span.bytes};
	pass->bytes += span.bytes;
	pass->left -= span.bytes;
}

/* Fills the response from the logs as they are now; false: no memory. */
static bool read_all(struct fetch_pass *pass, struct kafka_fetch_response *response)
{
	const struct kafka_fetch_request *body = pass->request->body;
	struct codec_arena *arena = &pass->request->arena;

	codec_default(kafka_fetch_response_codec.root, response);
	response->responses.count = body->topics.count;
	response->responses.at =
		codec_arena_take_array(arena, (size_t)body->topics.count, sizeof(*response->responses.at));
	if (response->responses.at == NULL)
		return false;
	for (int32_t i = 0; i < body->topics.count; i++) {
		struct kafka_fetch_response_fetchable_topic_response *topic = &response->responses.at[i];
		int32_t count = body->topics.at[i].partitions.count;

		topic->topic = body->topics.at[i].topic;
		topic->partitions.count = count;
		topic->partitions.at = codec_arena_take_array(arena, (size_t)count, sizeof(*topic->partitions.at));
		if (topic->partitions.at == NULL)
			return false;
		for (int32_t k = 0; k < count; k++) {
			topic->partitions.at[k] = (struct kafka_fetch_response_partition_data){
				.diverging_epoch = {-1, -1},
				.current_leader = {-1, -1},
				.snapshot_id = {-1, -1},
				.aborted_transactions = {.at = NULL, .count = body->isolation_level == 0 ? -1 : 0},
				.preferred_read_replica = -1};
			read_partition(
				pass, topic->topic, &body->topics.at[i].partitions.at[k], &topic->partitions.at[k]);
		}
	}
	return true;
}

static struct fetch_pass begin_pass(struct request *request)
{
	const struct kafka_fetch_request *body = request->body;
	int64_t most = request->broker->config.fetch_max_bytes;

	if (most > RECORDS_MOST)
		most = RECORDS_MOST;
	return (struct fetch_pass){.request = request, .left = body->max_bytes < most ? body->max_bytes : most};
}

static void answer_now(struct request *request)
{
	struct fetch_pass pass = begin_pass(request);
	struct kafka_fetch_response response;

	if (!read_all(&pass, &response))
		response.responses.count = 0;
	request_answer(request, &response);
}

/* ---- waiting ---- */

static void leave_partitions(struct fetch *fetch)
{
	for (unsigned i = 0; i < fetch->wait_count; i++)
		partition_remove_wait(&fetch->waits[i].wait);
	fetch->wait_count = 0;
}

static void fetch_expired(struct request *request)
{
	leave_partitions(request->state);
	answer_now(request);
}

static void fetch_cancelled(struct request *request)
{
	leave_partitions(request->state);
}

static void partition_grown(struct partition_wait *wait, uint32_t bytes)
{
	struct fetch *fetch = container_of(wait, struct fetch_wait, wait)->fetch;

	fetch->ready += bytes;
	if (bytes != UINT32_MAX && fetch->ready < fetch->wanted)
		return;
	/* Not from here: the partition is telling its waits, and this one would leave several. */
	request_wait(fetch->request, 0, fetch_expired, fetch_cancelled);
}

/* Waits at every partition; false: no memory. */
static bool wait_at_partitions(struct request *request, uint64_t ready)
{
	const struct kafka_fetch_request *body = request->body;
	struct fetch *fetch = codec_arena_take(&request->arena, sizeof(*fetch));
	size_t count = 0;

	for (int32_t i = 0; i < body->topics.count; i++)
		count += (size_t)body->topics.at[i].partitions.count;
	if (fetch == NULL)
		return false;
	*fetch = (struct fetch){.request = request,
		.ready = ready,
		.wanted = (uint64_t)body->min_bytes,
		.waits = codec_arena_take_array(&request->arena, count, sizeof(*fetch->waits))};
	if (fetch->waits == NULL)
		return false;
	for (int32_t i = 0; i < body->topics.count; i++)
		for (int32_t k = 0; k < body->topics.at[i].partitions.count; k++) {
			struct partition *partition = topics_partition(&request->broker->topics,
				body->topics.at[i].topic, body->topics.at[i].partitions.at[k].partition);
			struct fetch_wait *wait = &fetch->waits[fetch->wait_count];

			if (partition == NULL)
				continue;
			*wait = (struct fetch_wait){.wait = {.grown = partition_grown}, .fetch = fetch};
			partition_add_wait(partition, &wait->wait);
			fetch->wait_count++;
		}
	request->state = fetch;
	return true;
}

void fetch_handle(struct request *request)
{
	const struct kafka_fetch_request *body = request->body;
	struct fetch_pass pass = begin_pass(request);
	struct kafka_fetch_response response;
	int32_t wait_ms = body->max_wait_ms > MAX_WAIT_MS ? MAX_WAIT_MS : body->max_wait_ms;

	if (!read_all(&pass, &response))
		response.responses.count = 0;
	if (body->session_id != 0) {
		response.responses.count = 0;
		response.error_code = FETCH_SESSION_ID_NOT_FOUND;
	}
	if (response.responses.count == 0 || pass.error || wait_ms <= 0 || (int64_t)pass.bytes >= body->min_bytes ||
		!wait_at_partitions(request, pass.bytes)) {
		request_answer(request, &response);
		return;
	}
	request_drop_holds(request);
	request_wait(request, (uint64_t)(uint32_t)wait_ms * NS_PER_MS, fetch_expired, fetch_cancelled);
}
