/* `holdfast produce`: a record for each line, over RDMA where a configuration has rails. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/broker/lines.h"
#include "cli/broker/records.h"
#include "cli/cli.h"
#include "cli/process.h"

#define LINE_BYTES 60000u /* of a record that fits into a batch */

static void delivered(void *context, const struct hf_delivery *delivery)
{
	struct records_client *client = context;

	client->told++;
	client->failed += delivery->error != 0;
}

static struct hf_record record_of(const struct records_options *options, const char *line, size_t bytes)
{
	struct hf_record record = {.topic = options->topics[0],
		.partition = options->partition < 0 ? HF_PARTITION_ANY : options->partition,
		.key = options->key,
		.key_bytes = options->key == NULL ? 0 : strlen(options->key),
		.value = line,
		.value_bytes = bytes,
		.timestamp_ms = (int64_t)(hf_env_wall_ns(hf_env_host()) / 1000000)};
	const char *separator = options->key_separator < 0 ? NULL : memchr(line, options->key_separator, bytes);

	if (separator != NULL) {
		record.key = line;
		record.key_bytes = (size_t)(separator - line);
		record.value = separator + 1;
		record.value_bytes = bytes - record.key_bytes - 1;
	}
	return record;
}

static int send_line(struct records_client *client, struct hf_producer *producer, const struct records_options *options,
	const char *line, size_t bytes)
{
	const struct hf_record record = record_of(options, line, bytes);
	int rc;

	while ((rc = hf_producer_send(producer, &record, delivered, client)) == -EAGAIN && !process_interrupted())
		if (records_wait(client, options, client->told > 0) != 0)
			return -ETIMEDOUT;
	return rc;
}

/* Until the input ends, and then until everything is told. */
static int send_lines(struct records_client *client, struct hf_producer *producer,
	const struct records_options *options, struct lines *lines)
{
	const char *line;
	size_t bytes;
	int rc = 0;

	while (rc >= 0 && !process_interrupted()) {
		rc = lines_next(lines, LINE_BYTES, &line, &bytes);
		if (rc == 0 && hf_producer_pending(producer) > 0)
			rc = records_wait(client, options, client->told > 0);
		else if (rc == 0)
			(void)hf_loop_turn(client->loop, RECORDS_TURN_NS);
		else if (rc > 0)
			rc = send_line(client, producer, options, line, bytes);
	}
	hf_producer_flush(producer);
	while (rc != -ETIMEDOUT && hf_producer_pending(producer) > 0 && !process_interrupted())
		if (records_wait(client, options, client->told > 0) != 0)
			rc = -ETIMEDOUT;
	if (rc >= 0 || rc == -ENODATA)
		rc = hf_producer_pending(producer) > 0 ? -EINTR : 0;
	return rc;
}

static int produce(struct records_client *client, const struct records_options *options)
{
	const struct hf_producer_config config = {.brokers = options->broker, .codec = options->codec};
	struct lines lines = {0};
	struct hf_producer *producer;
	struct hf_error error = {0};
	int rc = hf_producer_open(client->loop, client->node, &config, &producer, &error);

	if (rc != 0)
		return cli_refuse("produce", "%s", error.text);
	rc = lines_open(&lines, client->loop, STDIN_FILENO, options->delimiter);
	if (rc == 0)
		rc = send_lines(client, producer, options, &lines);
	lines_close(&lines);
	hf_producer_close(producer);
	if (rc == -ETIMEDOUT)
		return cli_fail("produce",
			"no record was acknowledged within --timeout (%.3g s); %llu were before, and others may be in "
			"the log. Look at the topic with `holdfast topics --brokers %s describe %s`",
			(double)options->timeout_ns / 1e9, (unsigned long long)(client->told - client->failed),
			options->broker, options->topics[0]);
	if (rc != 0)
		return cli_refuse("produce", "a record was not taken: %s", strerror(-rc));
	return client->failed == 0 ? EXIT_DONE
				   : cli_refuse("produce", "the broker refused %llu records; its log says why",
					     (unsigned long long)client->failed);
}

int produce_command(int argc, char **argv)
{
	return records_run(argc, argv, "produce", produce);
}
