/* `holdfast consume`: a line for each record, by RDMA where a configuration has rails; alone or in a group. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/broker/records.h"
#include "cli/cli.h"
#include "cli/process.h"

#define MESSAGES 64
#define LEAVE_NS 5000000000ull /* longer than a coordinator that is there takes */

struct consuming {
	struct records_client *client;
	const struct records_options *options;
	struct hf_consumer *consumer;
	int32_t partitions; /* that are read; 0: not known yet */
	uint64_t count;
	struct hf_error error; /* why it cannot go on; empty: its number says it */
};

/* The partitions, once it is known how many there are. */
static int begin(struct consuming *consuming)
{
	const struct records_options *options = consuming->options;
	int32_t known = hf_consumer_partitions(consuming->consumer, options->topics[0]);
	int32_t first = options->partition < 0 ? 0 : options->partition,
		end = options->partition < 0 ? known : first + 1;
	int rc = 0;

	if (known == 0)
		return 0;
	if (first >= known)
		return hf_error_set(&consuming->error, -EINVAL, "the topic %s has %d partitions, numbered from 0",
			options->topics[0], known);
	for (int32_t i = first; rc == 0 && i < end; i++)
		rc = hf_consumer_seek(consuming->consumer, options->topics[0], i, options->from);
	consuming->partitions = end;
	return rc;
}

static bool at_end(const struct consuming *consuming)
{
	const struct records_options *options = consuming->options;
	struct hf_consumer_group group;

	if (options->group != NULL) {
		hf_consumer_group(consuming->consumer, &group);
		return group.at_end;
	}
	for (int32_t i = options->partition < 0 ? 0 : options->partition; i < consuming->partitions; i++)
		if (!hf_consumer_at_end(consuming->consumer, options->topics[0], i))
			return false;
	return consuming->partitions > 0;
}

static void print(const struct records_options *options, const struct hf_message *message)
{
	if (options->key_separator >= 0) {
		fwrite(message->key, 1, message->key_bytes, stdout);
		putchar(options->key_separator);
	}
	fwrite(message->value, 1, message->value_bytes, stdout);
	putchar(options->delimiter);
}

/* Until the end that the options name, or a signal. 0, or -errno. */
static int read_on(struct consuming *consuming)
{
	const struct records_options *options = consuming->options;
	struct hf_message messages[MESSAGES];

	while (!process_interrupted()) {
		uint64_t left = options->count == 0 ? MESSAGES : options->count - consuming->count;
		int n, rc = consuming->partitions == 0 && options->group == NULL ? begin(consuming) : 0;

		if (rc != 0)
			return rc;
		n = hf_consumer_poll(consuming->consumer, messages, left < MESSAGES ? (int)left : MESSAGES);
		for (int i = 0; i < n; i++)
			print(options, &messages[i]);
		if (n < 0)
			return n;
		if (n > 0 && (fflush(stdout) != 0 || ferror(stdout))) /* what is not written must not be committed */
			return errno == 0 ? -EIO : -errno;
		consuming->count += (uint64_t)n;
		consuming->client->told = consuming->count;
		if (options->count > 0 && consuming->count == options->count)
			return 0;
		if (n > 0)
			continue;
		if (options->exits && at_end(consuming))
			return 0;
		rc = records_wait(consuming->client, options,
			hf_consumer_partitions(consuming->consumer, options->topics[0]) > 0);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Commits, so that the group goes on behind what was printed. */
static void leave(struct consuming *consuming)
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + LEAVE_NS;
	struct hf_consumer_group group = {0};
	struct hf_message message;

	hf_consumer_leave(consuming->consumer);
	while (!group.is_over && hf_env_now_ns(hf_env_host()) < end_ns) {
		(void)hf_consumer_poll(consuming->consumer, &message, 0);
		(void)hf_loop_turn(consuming->client->loop, RECORDS_TURN_NS);
		hf_consumer_group(consuming->consumer, &group);
	}
}

static int consume(struct records_client *client, const struct records_options *options)
{
	const struct hf_consumer_config config = {.brokers = options->broker, .reset = options->from};
	const struct hf_group_config group = {
		.group = options->group, .topics = options->topics, .topic_count = options->topic_count};
	struct consuming consuming = {.client = client, .options = options};
	struct hf_error error = {0};
	int rc;

	if (options->group != NULL && options->from >= 0)
		return cli_refuse("consume", "--group begins at the beginning or the end, where it was nowhere before");
	rc = hf_consumer_open(client->loop, client->node, &config, &consuming.consumer, &error);
	if (rc != 0)
		return cli_refuse("consume", "%s", error.text);
	if (options->group != NULL)
		rc = hf_consumer_join(consuming.consumer, &group);
	if (rc == 0)
		rc = read_on(&consuming);
	if (options->group != NULL && !ferror(stdout))
		leave(&consuming);
	hf_consumer_close(consuming.consumer);
	if (ferror(stdout))
		return cli_fail("consume", "standard output cannot be written: %s", strerror(-rc));
	if (rc == -ETIMEDOUT && cli_flush("consume") == EXIT_DONE)
		return cli_fail("consume",
			"no record came within --timeout (%.3g s), after %llu. Look at the topic with `holdfast topics "
			"--brokers %s describe %s`",
			(double)options->timeout_ns / 1e9, (unsigned long long)consuming.count, options->broker,
			options->topics[0]);
	if (rc != 0)
		return cli_refuse("consume", "cannot read on: %s",
			consuming.error.text[0] != '\0' ? consuming.error.text : strerror(-rc));
	return cli_flush("consume");
}

int consume_command(int argc, char **argv)
{
	return records_run(argc, argv, "consume", consume);
}
