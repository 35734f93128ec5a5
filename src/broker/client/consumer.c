/* A consumer: partitions, and their records out of batches. */
#include "broker/client/consumer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/states.h"
#include "broker/client/membership.h"
#include "broker/log/batch_contents.h"

#define FETCH_BYTES        65536u
#define REQUEST_TIMEOUT_NS 30000000000ull
#define RETURN_NS          500000000ull
#define AGAIN_NS           20000000ull
#define TICK_NS            10000000ull
#define ROOM_LEAST         262144u
#define ROUNDS             4u /* of one poll */

static const struct state consumer_ways[CONSUMER_WAYS] = {
	[CONSUMER_NEW] = {"new", BIT(CONSUMER_ATTACHING) | BIT(CONSUMER_TCP)},
	[CONSUMER_ATTACHING] = {"attaching", BIT(CONSUMER_NEW) | BIT(CONSUMER_DIRECT)},
	[CONSUMER_DIRECT] = {"direct", BIT(CONSUMER_NEW) | BIT(CONSUMER_ATTACHING)},
	[CONSUMER_TCP] = {"tcp", BIT(CONSUMER_NEW)},
};

void consumer_move(struct consumer_partition *partition, enum consumer_way to)
{
	states_move("consumer", consumer_ways, &partition->way, to, "%s-%d", partition->topic->name, partition->index);
}

static struct consumer_partition *partition_of(struct list *node)
{
	return container_of(node, struct consumer_partition, node);
}

void consumer_begin_anew(struct consumer_partition *partition, bool at_once)
{
	if (partition->way == CONSUMER_DIRECT || partition->way == CONSUMER_ATTACHING)
		consumer_direct_end(partition);
	partition->life++;
	partition->from = partition->to = partition->reading = 0;
	partition->in_batch = false;
	partition->next_base = -1;
	if (partition->way != CONSUMER_NEW)
		consumer_move(partition, CONSUMER_NEW);
	if (!at_once) {
		partition->again_ns = hf_loop_now_ns(partition->consumer->loop) + AGAIN_NS;
		partition->topic->stale = true;
	}
}

void consumer_reset(struct consumer_partition *partition)
{
	partition->position = partition->consumer->config.reset;
	consumer_begin_anew(partition, false);
}

bool consumer_make_room(struct consumer_partition *partition, uint32_t bytes)
{
	struct hf_consumer *consumer = partition->consumer;
	struct hf_env *env = hf_loop_env(consumer->loop);
	uint32_t have = partition->to - partition->from, room = partition->room == 0 ? ROOM_LEAST : partition->room;
	struct hf_vmr *mr = NULL;
	struct hf_error error;
	void *buffer;

	ensure(partition->in_flight == NULL && !partition->in_batch);
	if (have > 0 && partition->from > 0)
		memmove(partition->buffer, partition->buffer + partition->from, have);
	partition->from = 0;
	partition->to = have;
	if (partition->room > 0 && bytes <= partition->room - have)
		return true;
	while (bytes > room - have)
		room *= 2;
	if (hf_mem_alloc(env, room, &buffer, &error) != 0)
		return false;
	if (consumer->node != NULL &&
		hf_vmr_reg(consumer->pd, buffer, room, IBV_ACCESS_LOCAL_WRITE, &mr, &error) != 0) {
		hf_mem_free(env, buffer);
		return false;
	}
	if (have > 0)
		memcpy(buffer, partition->buffer, have);
	if (hf_vmr_dereg(partition->buffer_mr) == 0)
		hf_mem_free(env, partition->buffer);
	partition->buffer = buffer;
	partition->buffer_mr = mr;
	partition->room = room;
	return true;
}

/* ---- what to read ---- */

static struct consumer_partition *find(const struct hf_consumer *consumer, const char *topic, int32_t index)
{
	for (struct list *at = consumer->partitions.next; at != &consumer->partitions; at = at->next)
		if (partition_of(at)->index == index && strcmp(partition_of(at)->topic->name, topic) == 0)
			return partition_of(at);
	return NULL;
}

int hf_consumer_seek(struct hf_consumer *consumer, const char *topic, int32_t index, int64_t offset)
{
	struct consumer_partition *partition;
	struct leaders_topic *of;

	if (topic == NULL || topic[0] == '\0' || index < 0 || offset < HF_OFFSET_BEGIN)
		return -EINVAL;
	partition = find(consumer, topic, index);
	if (partition != NULL) {
		partition->position = offset;
		partition->idle = false;
		consumer_begin_anew(partition, true);
		return 0;
	}
	of = leaders_topic(&consumer->leaders, topic);
	partition = of == NULL ? NULL : calloc(1, sizeof(*partition));
	if (partition == NULL)
		return -ENOMEM;
	*partition = (struct consumer_partition){
		.consumer = consumer, .topic = of, .index = index, .position = offset, .next_base = -1, .end = -1};
	list_push_back(&consumer->partitions, &partition->node);
	return 0;
}

int64_t hf_consumer_position(const struct hf_consumer *consumer, const char *topic, int32_t index)
{
	const struct consumer_partition *partition = find(consumer, topic, index);

	return partition == NULL || partition->idle ? -1 : partition->position;
}

void consumer_stop_all(struct hf_consumer *consumer)
{
	list_for_each (at, &consumer->partitions)
		if (!partition_of(at)->idle) {
			consumer_begin_anew(partition_of(at), true);
			partition_of(at)->idle = true;
		}
}

bool hf_consumer_at_end(const struct hf_consumer *consumer, const char *topic, int32_t index)
{
	const struct consumer_partition *partition = find(consumer, topic, index);

	return partition != NULL && consumer_at_end(partition);
}

bool consumer_at_end(const struct consumer_partition *partition)
{
	if (partition->idle || partition->from != partition->to)
		return false;
	if (partition->way == CONSUMER_TCP)
		return partition->position == partition->end;
	/* A look that knows the slot has found nothing more. */
	return partition->way == CONSUMER_DIRECT && !partition->complete && partition->in_flight == NULL &&
	       partition->place == partition->readable && partition->session->looked_number >= partition->first_look;
}

int32_t hf_consumer_partitions(struct hf_consumer *consumer, const char *topic)
{
	struct leaders_topic *of = leaders_topic(&consumer->leaders, topic);

	return of == NULL ? 0 : leaders_partitions(&consumer->leaders, of);
}

void hf_consumer_stats(const struct hf_consumer *consumer, struct hf_consumer_stats *stats_out)
{
	*stats_out = consumer->stats;
}

/* ---- records ---- */

/* Unpacks the records, whose frames were not checked yet. 0; -errno. */
static int unpack(struct consumer_partition *partition, const uint8_t *at)
{
	const struct batch *batch = &partition->batch;
	struct compression_buffer *to = &partition->unpacked;
	struct records_reader reader;
	struct record record;
	int32_t count = 0;
	int rc = compression_unpack((unsigned)batch->attributes & BATCH_COMPRESSION, at + BATCH_HEADER_BYTES,
		(size_t)batch->length - BATCH_HEADER_BYTES, to, BATCH_CONTENTS_MOST);

	if (rc != 0)
		return rc;
	partition->reader = reader = (struct records_reader){to->at, to->at + to->bytes};
	while (records_next(&reader, &record))
		count++;
	return reader.at == reader.end && count == batch->count ? 0 : -EBADMSG;
}

/* The next batch, if it is whole. 1: it is; 0: it is not, or not yet; -errno. */
static int next_batch(struct consumer_partition *partition)
{
	const uint8_t *at = partition->buffer + partition->from;
	uint32_t bytes = partition->to - partition->from;
	struct batch *batch = &partition->batch;
	enum batch_verdict verdict = bytes == 0 ? BATCH_SHORT : batch_read(at, bytes, batch);
	bool right, packed;

	if (verdict == BATCH_SHORT)
		return 0;
	right = verdict == BATCH_RIGHT && batch->leader_epoch != BATCH_NO_EPOCH &&
		(partition->next_base < 0 ? batch_last_offset(batch) >= partition->position
					  : batch->base_offset == partition->next_base) &&
		batch_check(at, batch) == BATCH_RIGHT;
	if (!right) {
		partition->consumer->stats.anew++;
		consumer_begin_anew(partition, false);
		return 0;
	}
	packed = (batch->attributes & BATCH_COMPRESSION) != 0;
	if (packed && partition->unpacked_given)
		return 0;
	partition->reader = records_begin(at, batch);
	if (packed) {
		int rc = unpack(partition, at);

		if (rc != 0)
			return rc;
	}
	partition->in_batch = true;
	return 1;
}

static void end_batch(struct consumer_partition *partition)
{
	partition->in_batch = false;
	partition->from += (uint32_t)partition->batch.length;
	partition->next_base = partition->position = batch_next_offset(&partition->batch);
}

static bool fill(struct consumer_partition *partition, struct hf_message *message)
{
	struct hf_consumer *consumer = partition->consumer;
	struct record record;

	while (records_next(&partition->reader, &record)) {
		int64_t offset = partition->batch.base_offset + record.offset_delta;

		if (offset < partition->position)
			continue;
		*message = (struct hf_message){.topic = partition->topic->name,
			.partition = partition->index,
			.offset = offset,
			.timestamp_ms = partition->batch.base_timestamp_ms + record.timestamp_delta,
			.key = record.key.at,
			.value = record.value.at,
			.key_bytes = record.key.bytes < 0 ? 0 : (size_t)record.key.bytes,
			.value_bytes = record.value.bytes < 0 ? 0 : (size_t)record.value.bytes};
		if ((partition->batch.attributes & BATCH_LOG_APPEND_TIME) != 0)
			message->timestamp_ms = partition->batch.max_timestamp_ms;
		partition->position = offset + 1;
		partition->unpacked_given |= (partition->batch.attributes & BATCH_COMPRESSION) != 0;
		consumer->stats.records++;
		consumer->stats.rdma_records += partition->way == CONSUMER_DIRECT;
		return true;
	}
	end_batch(partition);
	return false;
}

/* Messages of a partition; -errno. */
static int give_out(struct consumer_partition *partition, struct hf_message *messages, int n)
{
	int count = 0, rc = 1;

	while (count < n && rc == 1) {
		if (!partition->in_batch)
			rc = next_batch(partition);
		if (rc == 1 && fill(partition, &messages[count]))
			count++;
	}
	return rc < 0 && count == 0 ? rc : count;
}

/* ---- turns ---- */

/* The last records of a batch were given out in the poll before: it is over. */
static void finish_batches(struct hf_consumer *consumer)
{
	list_for_each (at, &consumer->partitions) {
		struct consumer_partition *partition = partition_of(at);

		partition->unpacked_given = false;
		if (partition->in_batch && partition->reader.at == partition->reader.end)
			end_batch(partition);
	}
}

static bool turn(struct hf_consumer *consumer)
{
	uint64_t now_ns = hf_loop_now_ns(consumer->loop);
	bool busy = false;

	list_for_each (at, &consumer->partitions) {
		struct consumer_partition *partition = partition_of(at);

		if ((partition->way == CONSUMER_NEW || partition->way == CONSUMER_TCP) && !partition->idle &&
			now_ns >= partition->again_ns)
			consumer_tcp_turn(partition, now_ns);
	}
	if (consumer->node != NULL)
		busy = consumer_direct_turn(consumer, now_ns);
	return busy;
}

int hf_consumer_poll(struct hf_consumer *consumer, struct hf_message *messages, int n)
{
	int count = 0;

	finish_batches(consumer);
	if (consumer->membership != NULL) {
		membership_turn(consumer->membership, hf_loop_now_ns(consumer->loop));
		if (consumer->membership->refusal != 0)
			return -EACCES;
	}
	for (unsigned round = 0; round < ROUNDS && count == 0; round++) {
		bool busy = turn(consumer);

		list_for_each (at, &consumer->partitions) {
			int rc = count < n && !partition_of(at)->idle
					 ? give_out(partition_of(at), messages + count, n - count)
					 : 0;

			if (rc < 0)
				return count > 0 ? count : rc;
			count += rc;
		}
		if (!busy)
			break;
	}
	return count;
}

/* Ends the sleep of a program that polls once a turn. */
static void tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_consumer *consumer = container_of(timer, struct hf_consumer, timer);

	hf_loop_set_timer(consumer->loop, timer, now_ns + TICK_NS);
}

/* ---- opening ---- */

static void set_defaults(struct hf_consumer_config *config, bool has_node)
{
	config->fetch_bytes = config->fetch_bytes == 0 ? FETCH_BYTES : config->fetch_bytes;
	if (config->request_timeout_ns == 0)
		config->request_timeout_ns = REQUEST_TIMEOUT_NS;
	config->return_ns = config->return_ns == 0 ? RETURN_NS : config->return_ns;
	config->reset = config->reset == 0 ? HF_OFFSET_BEGIN : config->reset;
	if (!has_node)
		config->rdma = HF_RDMA_OFF;
}

int hf_consumer_open(struct hf_loop *loop, struct hf_node *node, const struct hf_consumer_config *config,
	struct hf_consumer **consumer_out, struct hf_error *error)
{
	struct hf_consumer *consumer = calloc(1, sizeof(*consumer));
	int rc;

	*consumer_out = NULL;
	if (consumer == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a consumer");
	consumer->loop = loop;
	consumer->config = *config;
	set_defaults(&consumer->config, node != NULL);
	consumer->node = consumer->config.rdma == HF_RDMA_OFF ? NULL : node;
	list_init(&consumer->partitions);
	list_init(&consumer->sessions);
	consumer->timer = (struct hf_timer){.fire = tick, .quiet = true};
	hf_loop_set_timer(loop, &consumer->timer, hf_loop_now_ns(loop) + TICK_NS);
	rc = leaders_open(&consumer->leaders, loop, consumer->node, config->brokers, &config->local,
		consumer->config.request_timeout_ns, error);
	if (rc == 0 && consumer->node != NULL && (rc = hf_vpd_alloc(consumer->node, &consumer->pd)) != 0)
		hf_error_set(error, rc, "the consumer's node has no rails: %s", strerror(-rc));
	if (rc != 0) {
		hf_consumer_close(consumer);
		return rc;
	}
	*consumer_out = consumer;
	return 0;
}

void hf_consumer_close(struct hf_consumer *consumer)
{
	if (consumer == NULL)
		return;
	hf_loop_cancel_timer(consumer->loop, &consumer->timer);
	leaders_close(&consumer->leaders); /* before those whose calls wait at its brokers */
	membership_close(consumer->membership);
	consumer_direct_close(consumer);
	while (!list_empty(&consumer->partitions)) {
		struct consumer_partition *partition = partition_of(list_pop_front(&consumer->partitions));

		if (hf_vmr_dereg(partition->buffer_mr) == 0)
			hf_mem_free(hf_loop_env(consumer->loop), partition->buffer);
		compression_free(&partition->unpacked);
		free(partition);
	}
	if (consumer->pd != NULL)
		(void)hf_vpd_free(consumer->pd);
	free(consumer);
}
