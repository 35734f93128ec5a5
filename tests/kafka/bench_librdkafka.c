/* librdkafka as a client, for scripts/bench_broker.py.
 *
 *     bench-librdkafka latency BROKERS TOPIC BYTES COUNT    one record in flight
 *     bench-librdkafka produce BROKERS TOPIC BYTES MS       as many as it can, in its batches
 *     bench-librdkafka consume BROKERS TOPIC                from the first record to the last
 *
 * Prints {"p50_us", "p99_us"} or {"per_s", "mb_s"}. */
#include <librdkafka/rdkafka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_client.h"

#define BYTES_MAX 1000000u
#define WARM_NS   300000000ull
#define LIMIT_MS  30000

static char value[BYTES_MAX];
static size_t delivered;

static void told(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
	(void)client;
	(void)context;
	if (message->err != 0)
		fail(rd_kafka_err2str(message->err));
	delivered++;
}

static void set(rd_kafka_conf_t *config, const char *key, const char *text)
{
	char error[256];

	if (rd_kafka_conf_set(config, key, text, error, sizeof(error)) != RD_KAFKA_CONF_OK)
		fail(error);
}

static rd_kafka_conf_t *config_of(const char *brokers)
{
	rd_kafka_conf_t *config = rd_kafka_conf_new();

	set(config, "bootstrap.servers", brokers);
	set(config, "socket.nagle.disable", "true");
	return config;
}

static rd_kafka_t *open_client(rd_kafka_type_t type, rd_kafka_conf_t *config)
{
	char error[256];
	rd_kafka_t *client = rd_kafka_new(type, config, error, sizeof(error));

	if (client == NULL)
		fail(error);
	return client;
}

static rd_kafka_t *open_producer(const char *brokers, const char *linger_ms)
{
	rd_kafka_conf_t *config = config_of(brokers);

	set(config, "acks", "all");
	set(config, "linger.ms", linger_ms);
	set(config, "queue.buffering.max.kbytes", "262144");
	rd_kafka_conf_set_dr_msg_cb(config, told);
	return open_client(RD_KAFKA_PRODUCER, config);
}

static void send_one(rd_kafka_t *producer, rd_kafka_topic_t *topic, size_t bytes)
{
	while (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, value, bytes, NULL, 0, NULL) != 0) {
		if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
			fail(rd_kafka_err2str(rd_kafka_last_error()));
		rd_kafka_poll(producer, 1);
	}
}

static void latency(char **words)
{
	rd_kafka_t *producer = open_producer(words[0], "0");
	rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, words[1], NULL);
	size_t bytes = strtoul(words[2], NULL, 10), count = strtoul(words[3], NULL, 10), warm = count / 2;

	for (size_t i = 0; i < warm + count; i++) {
		uint64_t sent_ns = now_ns();
		size_t before = delivered;

		send_one(producer, topic, bytes);
		while (delivered == before)
			rd_kafka_poll(producer, 100);
		if (i >= warm)
			times[i - warm] = (double)(now_ns() - sent_ns) / 1e3;
	}
	sort_times(count);
	printf("{\"p50_us\": %.3f, \"p99_us\": %.3f}\n", times[count / 2], times[count * 99 / 100]);
}

static void report(size_t count, uint64_t bytes, uint64_t took_ns)
{
	printf("{\"per_s\": %.1f, \"mb_s\": %.3f}\n", (double)count * 1e9 / (double)took_ns,
		(double)bytes * 1e3 / (double)took_ns);
}

static void send_until(rd_kafka_t *producer, rd_kafka_topic_t *topic, size_t bytes, uint64_t end_ns)
{
	do {
		for (unsigned i = 0; i < 16; i++)
			send_one(producer, topic, bytes);
		rd_kafka_poll(producer, 0);
	} while (now_ns() < end_ns);
	if (rd_kafka_flush(producer, LIMIT_MS) != 0)
		fail("records are not delivered");
}

static void produce(char **words)
{
	rd_kafka_t *producer = open_producer(words[0], "5");
	rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, words[1], NULL);
	size_t bytes = strtoul(words[2], NULL, 10), before;
	uint64_t start_ns;

	send_until(producer, topic, bytes, now_ns() + WARM_NS);
	before = delivered;
	start_ns = now_ns();
	send_until(producer, topic, bytes, start_ns + strtoul(words[3], NULL, 10) * 1000000u);
	report(delivered - before, (uint64_t)(delivered - before) * bytes, now_ns() - start_ns);
}

static void consume(char **words)
{
	rd_kafka_conf_t *config = config_of(words[0]);
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	uint64_t first_ns = 0, last_ns = 0, bytes = 0;
	rd_kafka_t *consumer;
	size_t count = 0;

	set(config, "group.id", "bench");
	set(config, "enable.auto.commit", "false");
	set(config, "enable.partition.eof", "true");
	/* Otherwise it rests for half a second whenever it is 100,000 records ahead of its reader. */
	set(config, "queued.min.messages", "10000000");
	set(config, "queued.max.messages.kbytes", "1048576");
	consumer = open_client(RD_KAFKA_CONSUMER, config);
	rd_kafka_poll_set_consumer(consumer);
	rd_kafka_topic_partition_list_add(list, words[1], 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
	rd_kafka_assign(consumer, list);
	for (;;) {
		rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, LIMIT_MS);

		if (message == NULL)
			fail("no record comes");
		if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
			break;
		if (message->err != 0)
			fail(rd_kafka_message_errstr(message));
		last_ns = now_ns();
		first_ns = count == 0 ? last_ns : first_ns;
		count++;
		bytes += message->len;
		rd_kafka_message_destroy(message);
	}
	if (count < 2)
		fail("there are no records");
	report(count, bytes, last_ns - first_ns);
}

int main(int argc, char **argv)
{
	memset(value, 'x', sizeof(value));
	if (argc == 6 && strcmp(argv[1], "latency") == 0)
		latency(argv + 2);
	else if (argc == 6 && strcmp(argv[1], "produce") == 0)
		produce(argv + 2);
	else if (argc == 4 && strcmp(argv[1], "consume") == 0)
		consume(argv + 2);
	else
		fail("latency|produce BROKERS TOPIC BYTES COUNT|MS, or consume BROKERS TOPIC");
	fflush(stdout);
	_Exit(0); /* without the time that closing takes */
}
