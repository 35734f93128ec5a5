/* A producer: records into batches, batches into the hands of a way, and what became of them back. */
#include "broker/client/producer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/states.h"
#include "broker/codec/compression.h"

#define BATCH_BYTES         65536u
#define BUFFER_BYTES        (32ull << 20)
#define REQUEST_TIMEOUT_NS  30000000000ull
#define DELIVERY_TIMEOUT_NS 120000000000ull
#define RETURN_NS           500000000ull
#define TICK_NS             10000000ull
#define DELIVERIES_LEAST    16u
#define BATCH_ALIGN         64u

static const struct state producer_ways[PRODUCER_WAYS] = {
	[PRODUCER_NEW] = {"new", BIT(PRODUCER_ASKING) | BIT(PRODUCER_TCP)},
	[PRODUCER_ASKING] = {"asking", BIT(PRODUCER_NEW) | BIT(PRODUCER_CONNECTING) | BIT(PRODUCER_TCP)},
	[PRODUCER_CONNECTING] = {"connecting", BIT(PRODUCER_DIRECT) | BIT(PRODUCER_NEW)},
	[PRODUCER_DIRECT] = {"direct", BIT(PRODUCER_NEW)},
	[PRODUCER_TCP] = {"tcp", BIT(PRODUCER_NEW)},
};

void producer_move(struct producer_partition *partition, enum producer_way to)
{
	states_move("producer", producer_ways, &partition->way, to, "%s-%d", partition->topic->name, partition->index);
}

/* ---- batches ---- */

static struct produce_batch *batch_of(struct list *node)
{
	return container_of(node, struct produce_batch, node);
}

static struct produce_batch *new_batch(struct producer_partition *partition)
{
	struct hf_producer *producer = partition->producer;
	struct list *node = list_pop_front(&producer->free);
	struct produce_batch *batch;

	if (node == NULL)
		return NULL;
	batch = batch_of(node);
	batch->closed = batch->packed = batch->posted = batch->answered = false;
	batch->born_ns = hf_loop_now_ns(producer->loop);
	records_start(&batch->writer, batch->data, producer->config.batch_bytes);
	list_push_back(&partition->queued, &batch->node);
	return batch;
}

void producer_free_batch(struct producer_partition *partition, struct produce_batch *batch)
{
	list_remove(&batch->node);
	list_push_front(&partition->producer->free, &batch->node);
}

void producer_delivered(
	struct producer_partition *partition, struct produce_batch *batch, const struct hf_delivery *delivery)
{
	struct hf_producer *producer = partition->producer;
	struct hf_delivery of_one = *delivery;

	list_remove(&batch->node);
	producer->pending -= (uint64_t)batch->writer.count;
	if (delivery->error == 0) {
		producer->stats.records += (uint64_t)batch->writer.count;
		producer->stats.batches++;
		producer->stats.rdma_batches += delivery->rdma;
	}
	for (int32_t i = 0; i < batch->writer.count; i++) {
		const struct producer_delivery *to = &batch->deliveries[i];

		of_one.offset = delivery->offset < 0 ? -1 : delivery->offset + i;
		if (to->delivered != NULL)
			to->delivered(to->context, &of_one);
	}
	batch->answered = true;
	if (batch->posted)
		list_push_back(&partition->posted, &batch->node);
	else
		producer_free_batch(partition, batch);
}

bool producer_gathers(const struct producer_partition *partition)
{
	return !batch_of(partition->queued.next)->closed && !list_empty(&partition->sent) &&
	       !partition->producer->flushing;
}

static bool may_close(const struct producer_partition *partition, const struct produce_batch *batch, uint64_t now_ns)
{
	const struct hf_producer *producer = partition->producer;

	return batch->closed || producer->flushing || now_ns - batch->born_ns >= producer->config.linger_ns;
}

/* Once, and only to something smaller. */
static void pack(const struct hf_producer *producer, struct produce_batch *batch)
{
	size_t bytes = batch->writer.used - BATCH_HEADER_BYTES, packed;

	if (producer->config.codec == HF_CODEC_NONE || batch->packed)
		return;
	batch->packed = true;
	packed = compression_pack(
		producer->config.codec, batch->data + BATCH_HEADER_BYTES, bytes, producer->packed, bytes);
	if (packed == 0 || packed >= bytes)
		return;
	memcpy(batch->data + BATCH_HEADER_BYTES, producer->packed, packed);
	batch->writer.used = BATCH_HEADER_BYTES + packed;
	batch->writer.attributes = (int16_t)producer->config.codec;
}

struct produce_batch *producer_next(struct producer_partition *partition, uint64_t now_ns)
{
	struct produce_batch *batch;

	if (list_empty(&partition->queued))
		return NULL;
	batch = batch_of(partition->queued.next);
	if (!may_close(partition, batch, now_ns))
		return NULL;
	list_remove(&batch->node);
	batch->closed = true;
	pack(partition->producer, batch);
	batch->sequence = partition->next_sequence;
	partition->next_sequence = batch_sequence_after(batch->sequence, batch->writer.count);
	batch->bytes = (uint32_t)records_finish(&batch->writer, partition->id, partition->epoch, batch->sequence);
	list_push_back(&partition->sent, &batch->node);
	return batch;
}

void producer_requeue(struct producer_partition *partition)
{
	if (!list_empty(&partition->sent))
		partition->next_sequence = batch_of(partition->sent.next)->sequence;
	while (!list_empty(&partition->sent)) {
		struct list *node = partition->sent.prev;

		list_remove(node);
		list_push_front(&partition->queued, node);
	}
}

/* Too old: told so. What was sent may be in the log, so the sequences begin anew, under another id. */
static bool expire(struct producer_partition *partition, uint64_t now_ns)
{
	const struct hf_delivery delivery = {.error = -ETIMEDOUT, .offset = -1};
	struct list *oldest = list_empty(&partition->sent) ? &partition->queued : &partition->sent;

	if (list_empty(oldest) ||
		now_ns - batch_of(oldest->next)->born_ns < partition->producer->config.delivery_timeout_ns)
		return false;
	if (partition->call.waiting)
		return false; /* its answer, or the end of its connection, comes first */
	if (!list_empty(&partition->sent)) {
		producer_direct_close(partition);
		if (partition->way != PRODUCER_NEW)
			producer_move(partition, PRODUCER_NEW);
		partition->id = -1;
	}
	while (!list_empty(&partition->sent))
		producer_delivered(partition, batch_of(partition->sent.next), &delivery);
	while (!list_empty(&partition->queued) &&
		now_ns - batch_of(partition->queued.next)->born_ns >= partition->producer->config.delivery_timeout_ns)
		producer_delivered(partition, batch_of(partition->queued.next), &delivery);
	return true;
}

/* ---- records ---- */

static struct producer_partition *add_partition(struct hf_producer *producer, const char *topic, int32_t index)
{
	struct leaders_topic *of = leaders_topic(&producer->leaders, topic);
	struct producer_partition *partition = of == NULL ? NULL : calloc(1, sizeof(*partition));

	if (partition == NULL)
		return NULL;
	*partition = (struct producer_partition){.producer = producer, .topic = of, .index = index, .id = -1};
	list_init(&partition->queued);
	list_init(&partition->sent);
	list_init(&partition->posted);
	list_push_back(&producer->partitions, &partition->node);
	return partition;
}

static bool is_it(const struct producer_partition *partition, const char *topic, int32_t index)
{
	return partition != NULL && partition->index == index && strcmp(partition->topic->name, topic) == 0;
}

static struct producer_partition *find_partition(struct hf_producer *producer, const char *topic, int32_t index)
{
	if (is_it(producer->last, topic, index))
		return producer->last;
	list_for_each (at, &producer->partitions)
		if (is_it(container_of(at, struct producer_partition, node), topic, index))
			return container_of(at, struct producer_partition, node);
	return add_partition(producer, topic, index);
}

static bool note_delivery(struct produce_batch *batch, hf_delivered *delivered, void *context)
{
	uint32_t at = (uint32_t)batch->writer.count;

	if (at == batch->delivery_room) {
		uint32_t room = at == 0 ? DELIVERIES_LEAST : 2 * at;
		struct producer_delivery *more = realloc(batch->deliveries, room * sizeof(*more));

		if (more == NULL)
			return false;
		batch->deliveries = more;
		batch->delivery_room = room;
	}
	batch->deliveries[at] = (struct producer_delivery){delivered, context};
	return true;
}

/* 1: it does not fit into this batch. */
static int add(struct hf_producer *producer, struct produce_batch *batch, const struct hf_record *record,
	hf_delivered *delivered, void *context)
{
	const struct codec_bytes key = {record->key, record->key == NULL ? -1 : (int32_t)record->key_bytes},
				 value = {record->value, record->value == NULL ? -1 : (int32_t)record->value_bytes};

	if (!note_delivery(batch, delivered, context))
		return -ENOMEM;
	if (!records_add(&batch->writer, record->timestamp_ms, key, value)) {
		batch->closed = true;
		return 1;
	}
	producer->pending++;
	if (producer->config.batch_records != 0 && batch->writer.count == (int32_t)producer->config.batch_records)
		batch->closed = true;
	return 0;
}

/* The partition of a record, or -errno. */
static int64_t choose(struct hf_producer *producer, const struct hf_record *record)
{
	struct leaders_topic *topic;
	uint64_t bytes = record->key_bytes + record->value_bytes;
	int32_t count;
	uint32_t random;

	if (record->topic == NULL || record->topic[0] == '\0' || record->partition < HF_PARTITION_ANY)
		return -EINVAL;
	if (record->partition >= 0)
		return record->partition;
	topic = leaders_topic(&producer->leaders, record->topic);
	if (topic == NULL)
		return -ENOMEM;
	count = leaders_partitions(&producer->leaders, topic);
	if (count == 0)
		return topic->fatal ? -EINVAL : -EAGAIN;
	if (record->key != NULL)
		return partitioner_of_key(record->key, record->key_bytes, count);
	hf_env_entropy(hf_loop_env(producer->loop), &random, sizeof(random));
	return partitioner_without_key(&topic->sticky, bytes, producer->config.batch_bytes, count, random);
}

int hf_producer_send(
	struct hf_producer *producer, const struct hf_record *record, hf_delivered *delivered, void *context)
{
	struct producer_partition *partition;
	struct produce_batch *batch = NULL;
	int64_t index;
	int rc = 1;

	if (BATCH_HEADER_BYTES + RECORDS_OVERHEAD + (uint64_t)record->key_bytes + record->value_bytes >
		producer->config.batch_bytes)
		return -EMSGSIZE;
	index = choose(producer, record);
	if (index < 0)
		return (int)index;
	partition = find_partition(producer, record->topic, (int32_t)index);
	if (partition == NULL)
		return -ENOMEM;
	producer->last = partition;
	if (!list_empty(&partition->queued))
		batch = batch_of(partition->queued.prev);
	if (batch != NULL && !batch->closed)
		rc = add(producer, batch, record, delivered, context);
	if (rc == 1) {
		batch = new_batch(partition);
		if (batch == NULL)
			return -EAGAIN;
		rc = add(producer, batch, record, delivered, context);
		ensure(rc <= 0);
	}
	if (rc != 0 && batch->writer.count == 0)
		producer_free_batch(partition, batch);
	else if (partition->way == PRODUCER_DIRECT && !producer_gathers(partition))
		(void)producer_direct_turn(partition, hf_loop_now_ns(producer->loop));
	return rc;
}

uint64_t hf_producer_pending(const struct hf_producer *producer)
{
	return producer->pending;
}

void hf_producer_flush(struct hf_producer *producer)
{
	producer->flushing = producer->pending > 0;
	(void)hf_producer_poll(producer);
}

void hf_producer_stats(const struct hf_producer *producer, struct hf_producer_stats *stats_out)
{
	*stats_out = producer->stats;
}

/* ---- turns ---- */

static bool has_work(const struct producer_partition *partition)
{
	return !list_empty(&partition->queued) || !list_empty(&partition->sent);
}

bool hf_producer_poll(struct hf_producer *producer)
{
	uint64_t now_ns = hf_loop_now_ns(producer->loop);
	bool busy = false;

	list_for_each (at, &producer->partitions) {
		struct producer_partition *partition = container_of(at, struct producer_partition, node);

		if (partition->way == PRODUCER_DIRECT || partition->way == PRODUCER_CONNECTING)
			busy |= producer_direct_turn(partition, now_ns);
		else if (has_work(partition))
			busy |= producer_tcp_turn(partition, now_ns);
	}
	if (producer->pending == 0)
		producer->flushing = false;
	return busy;
}

static enum hf_poll producer_poll(struct hf_poller *poller, uint64_t now_ns)
{
	(void)now_ns;
	return hf_producer_poll(container_of(poller, struct hf_producer, poller)) ? HF_BUSY : HF_IDLE;
}

/* What waits for a moment is looked at here: ends of lingering, of delays, of the time of a record. */
static void tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_producer *producer = container_of(timer, struct hf_producer, timer);
	uint64_t linger_ns = producer->config.linger_ns;

	list_for_each (at, &producer->partitions)
		(void)expire(container_of(at, struct producer_partition, node), now_ns);
	(void)hf_producer_poll(producer);
	hf_loop_set_timer(producer->loop, timer, now_ns + (linger_ns > 0 && linger_ns < TICK_NS ? linger_ns : TICK_NS));
}

/* ---- opening ---- */

static void set_defaults(struct hf_producer_config *config, bool has_node)
{
	config->batch_bytes = config->batch_bytes == 0 ? BATCH_BYTES : config->batch_bytes;
	config->buffer_bytes = config->buffer_bytes == 0 ? BUFFER_BYTES : config->buffer_bytes;
	if (config->buffer_bytes < 2 * (uint64_t)config->batch_bytes)
		config->buffer_bytes = 2 * (uint64_t)config->batch_bytes;
	if (config->request_timeout_ns == 0)
		config->request_timeout_ns = REQUEST_TIMEOUT_NS;
	if (config->delivery_timeout_ns == 0)
		config->delivery_timeout_ns = DELIVERY_TIMEOUT_NS;
	config->return_ns = config->return_ns == 0 ? RETURN_NS : config->return_ns;
	if (!has_node)
		config->rdma = HF_RDMA_OFF;
}

static int open_buffer(struct hf_producer *producer, struct hf_error *error)
{
	uint64_t each = (producer->config.batch_bytes + BATCH_ALIGN - 1) / BATCH_ALIGN * BATCH_ALIGN;
	uint64_t count = producer->config.buffer_bytes / each;
	void *memory = NULL;
	int rc = hf_mem_alloc(hf_loop_env(producer->loop), each * count, &memory, error);

	producer->buffer = memory;
	if (rc == 0 && producer->node != NULL) {
		rc = hf_vpd_alloc(producer->node, &producer->pd);
		if (rc != 0)
			return hf_error_set(error, rc, "the producer's node has no rails: %s", strerror(-rc));
		rc = hf_vmr_reg(
			producer->pd, memory, each * count, IBV_ACCESS_LOCAL_WRITE, &producer->buffer_mr, error);
	}
	if (rc != 0)
		return rc;
	if (producer->config.codec != HF_CODEC_NONE && (producer->packed = malloc(each)) == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a producer");
	producer->batches = calloc(count, sizeof(*producer->batches));
	if (producer->batches == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a producer");
	for (uint64_t i = 0; i < count; i++) {
		producer->batches[i].data = producer->buffer + i * each;
		list_push_back(&producer->free, &producer->batches[i].node);
	}
	producer->batch_count = count;
	return 0;
}

int hf_producer_open(struct hf_loop *loop, struct hf_node *node, const struct hf_producer_config *config,
	struct hf_producer **producer_out, struct hf_error *error)
{
	struct hf_producer *producer = calloc(1, sizeof(*producer));
	int rc;

	*producer_out = NULL;
	if (producer == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a producer");
	producer->loop = loop;
	producer->config = *config;
	set_defaults(&producer->config, node != NULL);
	producer->node = producer->config.rdma == HF_RDMA_OFF ? NULL : node;
	list_init(&producer->free);
	list_init(&producer->partitions);
	producer->poller = (struct hf_poller){.poll = producer_poll};
	producer->timer = (struct hf_timer){.fire = tick, .quiet = true};
	hf_loop_add_poller(loop, &producer->poller);
	hf_loop_set_timer(loop, &producer->timer, hf_loop_now_ns(loop) + TICK_NS);
	if (producer->config.codec < 0 || producer->config.codec >= HF_CODECS) {
		rc = hf_error_set(error, -EINVAL, "there is no codec %d", (int)producer->config.codec);
		hf_producer_close(producer);
		return rc;
	}
	rc = leaders_open(&producer->leaders, loop, producer->node, config->brokers, &config->local,
		producer->config.request_timeout_ns, error);
	if (rc == 0)
		rc = open_buffer(producer, error);
	if (rc != 0) {
		hf_producer_close(producer);
		return rc;
	}
	*producer_out = producer;
	return 0;
}

void hf_producer_close(struct hf_producer *producer)
{
	if (producer == NULL)
		return;
	hf_loop_remove_poller(producer->loop, &producer->poller);
	hf_loop_cancel_timer(producer->loop, &producer->timer);
	leaders_close(&producer->leaders);
	while (!list_empty(&producer->partitions)) {
		struct producer_partition *partition =
			container_of(list_pop_front(&producer->partitions), struct producer_partition, node);

		producer_direct_close(partition);
		free(partition);
	}
	for (uint64_t i = 0; i < producer->batch_count; i++)
		free(producer->batches[i].deliveries);
	free(producer->batches);
	free(producer->packed);
	if (hf_vmr_dereg(producer->buffer_mr) == 0 && producer->buffer != NULL)
		hf_mem_free(hf_loop_env(producer->loop), producer->buffer);
	if (producer->pd != NULL)
		(void)hf_vpd_free(producer->pd);
	free(producer);
}
