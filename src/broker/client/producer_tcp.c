/* What a producer asks over TCP: a producer id, access to a partition, and Produce where there is no RDMA. */
#include "broker/client/producer.h"

#include <errno.h>

#include "base/ensure.h"
#include "base/log.h"

#define PRODUCE_VERSION 7
#define IDS_VERSION     1
#define AGAIN_NS        20000000ull
#define TRANSACTION_MS  60000
#define SEQUENCE_HALF   (1 << 30)

static struct producer_partition *partition_of(struct kafka_call *call)
{
	return container_of(call, struct producer_partition, call);
}

static struct produce_batch *batch_of(struct list *node)
{
	return container_of(node, struct produce_batch, node);
}

/* From the beginning, after a while; perhaps at another broker. */
static void start_again(struct producer_partition *partition)
{
	partition->again_ns = hf_loop_now_ns(partition->producer->loop) + AGAIN_NS;
	partition->topic->stale = true;
	if (partition->way != PRODUCER_NEW)
		producer_move(partition, PRODUCER_NEW);
}

static bool call(struct producer_partition *partition, void (*done)(struct kafka_call *call, const void *response),
	int16_t key, int16_t version, const void *request)
{
	partition->call.done = done;
	if (kafka_link_call(&partition->leader->link, &partition->call, key, version, request))
		return true;
	start_again(partition);
	return false;
}

/* ---- a producer id ---- */

static void id_known(struct kafka_call *of, const void *response)
{
	struct producer_partition *partition = partition_of(of);
	const struct kafka_init_producer_id_response *answer = response;

	if (answer == NULL || answer->error_code != KAFKA_NONE) {
		start_again(partition);
		return;
	}
	partition->id = answer->producer_id;
	partition->epoch = answer->producer_epoch;
	partition->next_sequence = 0;
}

static bool ask_id(struct producer_partition *partition)
{
	const struct kafka_init_producer_id_request request = {
		.transactional_id = {NULL, -1}, .transaction_timeout_ms = TRANSACTION_MS};

	ensure(list_empty(&partition->sent));
	return call(partition, id_known, KAFKA_INIT_PRODUCER_ID, IDS_VERSION, &request);
}

/* ---- access, and what was lost ---- */

static bool is_behind(int32_t sequence, int32_t last)
{
	return ((last - (int64_t)sequence) & INT32_MAX) < SEQUENCE_HALF;
}

/* Whatever may have been on its way has landed or never will: the last sequence decides. */
static void settle(struct producer_partition *partition, const struct kafka_access_response *answer)
{
	struct hf_delivery delivery = {.rdma = true};

	while (answer->last_sequence >= 0 && !list_empty(&partition->sent)) {
		struct produce_batch *batch = batch_of(partition->sent.next);
		int32_t last = batch_sequence_after(batch->sequence, batch->writer.count - 1);

		if (!is_behind(last, answer->last_sequence))
			break;
		/* They were written by one holder, so nothing lies in between. */
		delivery.offset =
			answer->last_offset - ((answer->last_sequence - (int64_t)batch->sequence) & INT32_MAX);
		partition->producer->stats.settled++;
		producer_delivered(partition, batch, &delivery);
	}
	producer_requeue(partition);
}

static void access_known(struct kafka_call *of, const void *response)
{
	struct producer_partition *partition = partition_of(of);
	struct hf_producer *producer = partition->producer;
	const struct kafka_access_response *answer = response;
	uint64_t now_ns = hf_loop_now_ns(producer->loop);
	bool settled =
		answer != NULL && (answer->error_code == KAFKA_NONE || answer->error_code == KAFKA_UNSUPPORTED_VERSION);

	if (!settled) {
		start_again(partition);
		return;
	}
	settle(partition, answer);
	if (answer->error_code == KAFKA_NONE && now_ns >= partition->return_ns &&
		producer_direct_connect(partition, answer) == 0)
		return;
	if (now_ns >= partition->return_ns)
		partition->return_ns = now_ns + producer->config.return_ns;
	if (producer->config.rdma == HF_RDMA_REQUIRED)
		start_again(partition);
	else
		producer_move(partition, PRODUCER_TCP);
}

static bool ask_access(struct producer_partition *partition, uint64_t now_ns)
{
	const struct hf_producer_config *config = &partition->producer->config;
	const struct kafka_access_request request = {
		.kind = now_ns >= partition->return_ns ? ACCESS_PRODUCE : ACCESS_SETTLE,
		.topic = {partition->topic->name, (int32_t)strlen(partition->topic->name)},
		.partition = partition->index,
		.producer_id = partition->id,
		.producer_epoch = partition->epoch,
		.acks = config->acks_leader ? 1 : -1,
		.current_leader_epoch = leaders_epoch(partition->topic, partition->index)};

	producer_move(partition, PRODUCER_ASKING);
	return call(partition, access_known, KAFKA_ACCESS, 0, &request);
}

/* ---- Produce ---- */

bool producer_tcp_is_retriable(int16_t error)
{
	switch (error) {
	case KAFKA_UNKNOWN_TOPIC_OR_PARTITION:
	case KAFKA_NOT_LEADER_OR_FOLLOWER:
	case KAFKA_REQUEST_TIMED_OUT:
	case KAFKA_NOT_ENOUGH_REPLICAS:
	case KAFKA_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
	case KAFKA_STORAGE_ERROR:
		return true;
	default:
		return false;
	}
}

/* The broker has forgotten the producer, or never knew it: the sequences begin anew, under another id. */
static bool is_forgotten(int16_t error)
{
	return error == KAFKA_OUT_OF_ORDER_SEQUENCE || error == KAFKA_INVALID_PRODUCER_EPOCH ||
	       error == KAFKA_UNKNOWN_PRODUCER_ID;
}

static void produced(struct kafka_call *of, const void *response)
{
	struct producer_partition *partition = partition_of(of);
	const struct kafka_produce_response *answer = response;
	const struct kafka_produce_response_partition_produce_response *at;
	struct hf_delivery delivery = {0};

	if (list_empty(&partition->sent))
		return; /* its time was over */
	if (answer == NULL || answer->responses.count != 1 || answer->responses.at[0].partition_responses.count != 1) {
		start_again(partition);
		return;
	}
	at = &answer->responses.at[0].partition_responses.at[0];
	delivery.offset = at->base_offset;
	if (producer_tcp_is_retriable(at->error_code)) {
		start_again(partition);
		return;
	}
	if (at->error_code != KAFKA_NONE && at->error_code != KAFKA_DUPLICATE_SEQUENCE) {
		delivery = (struct hf_delivery){.error = -EIO, .refusal = at->error_code, .offset = -1};
		partition->next_sequence = batch_of(partition->sent.next)->sequence;
		if (is_forgotten(at->error_code)) {
			partition->id = -1;
			producer_move(partition, PRODUCER_NEW);
		}
	}
	producer_delivered(partition, batch_of(partition->sent.next), &delivery);
}

static bool produce(struct producer_partition *partition, uint64_t now_ns)
{
	struct kafka_produce_request_partition_produce_data data = {.index = partition->index};
	struct kafka_produce_request_topic_produce_data topic = {
		.name = {partition->topic->name, (int32_t)strlen(partition->topic->name)},
		.partition_data = {&data, 1}};
	struct kafka_produce_request request = {.transactional_id = {NULL, -1},
		.acks = partition->producer->config.acks_leader ? 1 : -1,
		.timeout_ms = (int32_t)(partition->producer->config.request_timeout_ns / 1000000),
		.topic_data = {&topic, 1}};
	struct produce_batch *batch =
		list_empty(&partition->sent) ? producer_next(partition, now_ns) : batch_of(partition->sent.next);

	if (batch == NULL)
		return false;
	data.records = (struct codec_bytes){batch->data, (int32_t)batch->bytes};
	return call(partition, produced, KAFKA_PRODUCE, PRODUCE_VERSION, &request);
}

/* ---- turns ---- */

static bool wants_rdma(const struct producer_partition *partition, uint64_t now_ns)
{
	return partition->producer->node != NULL && partition->leader->access == LEADERS_ACCESS_YES &&
	       now_ns >= partition->return_ns;
}

static bool begin(struct producer_partition *partition, uint64_t now_ns)
{
	struct hf_producer *producer = partition->producer;

	partition->leader = leaders_leader(&producer->leaders, partition->topic, partition->index);
	if (partition->leader == NULL)
		return false;
	if (partition->id < 0)
		return ask_id(partition);
	/* Without RDMA, what was sent is the one batch that TCP sends again under the same sequence. */
	if (wants_rdma(partition, now_ns) || producer->config.rdma == HF_RDMA_REQUIRED ||
		partition->sent.next != partition->sent.prev)
		return partition->leader->access == LEADERS_ACCESS_YES && ask_access(partition, now_ns);
	producer_move(partition, PRODUCER_TCP);
	return true;
}

bool producer_tcp_turn(struct producer_partition *partition, uint64_t now_ns)
{
	if (partition->call.waiting || now_ns < partition->again_ns)
		return false;
	switch (partition->way) {
	case PRODUCER_NEW:
		return begin(partition, now_ns);
	case PRODUCER_TCP:
		if (list_empty(&partition->sent) && wants_rdma(partition, now_ns)) {
			producer_move(partition, PRODUCER_NEW);
			return true;
		}
		return produce(partition, now_ns);
	case PRODUCER_ASKING:
	case PRODUCER_CONNECTING:
	case PRODUCER_DIRECT:
	case PRODUCER_WAYS:
		break;
	}
	return false;
}
