#include "stand.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "broker/log/records.h"

#define VALUE_BYTES 65536u

struct stand stand;

void stand_open(uint32_t segment_bytes, uint32_t extent_bytes)
{
	struct codec_string name = {STAND_TOPIC, 1};
	struct hf_error error = {0};

	memset(&stand, 0, sizeof(stand));
	snprintf(stand.directory, sizeof(stand.directory), "/tmp/holdfast-test-XXXXXX");
	assert_non_null(mkdtemp(stand.directory));
	pair_open(&stand.pair, HF_POLICY_VARUNA);
	broker_config_default(&stand.config);
	broker_config_settle(&stand.config);
	stand.config.node_id = 1;
	stand.config.segment_bytes = segment_bytes;
	stand.config.extent_bytes = extent_bytes;
	stand.config.listeners =
		(struct broker_endpoints){.at = {{.name = "PLAINTEXT", .host = "127.0.0.1", .port = 0}}, .count = 1};
	snprintf(stand.config.log_dirs, sizeof(stand.config.log_dirs), "%.60s", stand.directory);
	if (broker_open(stand.pair.loop, stand.pair.b.node, &stand.config, &stand.broker, &error) != 0)
		fail_msg("%s", error.text);
	broker_create_topic(stand.broker, name, 2, NULL);
	snprintf(stand.address, sizeof(stand.address), "127.0.0.1:%u", stand.broker->config.listeners.at[0].port);
}

void stand_close(void)
{
	char command[128];

	hf_producer_close(stand.producer);
	hf_consumer_close(stand.consumer);
	broker_close(stand.broker);
	pair_close(&stand.pair);
	snprintf(command, sizeof(command), "rm -r %s", stand.directory);
	assert_int_equal(system(command), 0);
}

void stand_open_producer(const struct hf_producer_config *config)
{
	struct hf_producer_config full = *config;
	struct hf_error error = {0};

	full.brokers = stand.address;
	if (hf_producer_open(stand.pair.loop, stand.pair.a.node, &full, &stand.producer, &error) != 0)
		fail_msg("%s", error.text);
}

static void delivered(void *context, const struct hf_delivery *delivery)
{
	(void)context;
	stand.told++;
	stand.failed += delivery->error != 0;
	stand.rdma += delivery->rdma;
	stand.refusal = delivery->error != 0 ? delivery->refusal : stand.refusal;
	if (delivery->error == 0)
		stand.next_offset = delivery->offset + 1;
}

int stand_send(int32_t partition, uint64_t number, uint32_t bytes)
{
	static uint8_t value[VALUE_BYTES];
	const struct hf_record record = {.topic = STAND_TOPIC,
		.partition = partition,
		.value = value,
		.value_bytes = bytes,
		.timestamp_ms = 1700000000000};

	put_le64(value, number);
	return hf_producer_send(stand.producer, &record, delivered, NULL);
}

void stand_until(bool (*done)(void))
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + STAND_PATIENCE_NS;

	while (!done()) {
		if (hf_env_now_ns(hf_env_host()) > end_ns)
			fail_msg("it does not happen");
		(void)hf_loop_turn(stand.pair.loop, 5000000);
	}
}

void stand_open_consumer(const struct hf_consumer_config *config)
{
	struct hf_consumer_config full = *config;
	struct hf_error error = {0};

	full.brokers = stand.address;
	if (hf_consumer_open(stand.pair.loop, stand.pair.a.node, &full, &stand.consumer, &error) != 0)
		fail_msg("%s", error.text);
}

void stand_send_all(int32_t partition, uint64_t from, uint64_t count, uint32_t bytes)
{
	for (uint64_t i = 0; i < count; i++) {
		int rc;

		while ((rc = stand_send(partition, from + i, bytes)) == -EAGAIN)
			(void)hf_loop_turn(stand.pair.loop, 0);
		assert_int_equal(rc, 0);
	}
	stand_until(stand_is_flushed);
}

void stand_receive(uint64_t from, uint64_t count, int64_t shift)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + STAND_PATIENCE_NS, seen = 0;
	struct hf_message messages[16];

	while (seen < count) {
		int n = hf_consumer_poll(stand.consumer, messages, count - seen < 16 ? (int)(count - seen) : 16);

		assert_true(n >= 0);
		for (int i = 0; i < n; i++, seen++) {
			assert_int_equal(get_le64(messages[i].value), from + seen);
			assert_int_equal(messages[i].offset, (int64_t)(from + seen) + shift);
		}
		if (n == 0)
			(void)hf_loop_turn(stand.pair.loop, 1000000);
		if (hf_env_now_ns(hf_env_host()) > end_ns)
			fail_msg("only %u of %u records came", (unsigned)seen, (unsigned)count);
	}
	assert_int_equal(seen, count);
}

bool stand_is_flushed(void)
{
	return hf_producer_pending(stand.producer) == 0;
}

struct partition *stand_partition(int32_t index)
{
	return topics_partition(&stand.broker->topics, (struct codec_string){STAND_TOPIC, 1}, index);
}

void stand_check_numbers(int32_t index, uint64_t from, uint64_t count)
{
	struct partition *partition = stand_partition(index);
	int64_t offset = 0;
	uint64_t seen = 0;
	struct log_span span;
	struct batch batch;

	while (offset < partition->hw) {
		assert_int_equal(partition_log_read(partition->log, offset, partition->hw, 1, true, &span), KAFKA_NONE);
		assert_non_null(span.segment);
		assert_int_equal(batch_read(span.at, span.bytes, &batch), BATCH_RIGHT);
		assert_int_equal(batch_check(span.at, &batch), BATCH_RIGHT);
		assert_int_equal(batch.base_offset, offset);
		for (struct records_reader reader = records_begin(span.at, &batch); reader.at < reader.end; seen++) {
			struct record record;

			assert_true(records_next(&reader, &record));
			assert_int_equal(get_le64(record.value.at), from + seen);
		}
		offset = batch_next_offset(&batch);
		segment_release(span.segment);
	}
	assert_int_equal(seen, count);
}
