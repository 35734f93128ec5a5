/* `holdfast produce` and `holdfast consume`: a record for each line, over RDMA where a configuration has rails. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <holdfast/consumer.h>

#include "cli/broker/lines.h"
#include "cli/cli.h"
#include "cli/process.h"

#define TURN_NS    50000000ull
#define MESSAGES   64
#define LINE_BYTES 60000u /* of a record that fits into a batch */

struct records_options {
	const char *command, *broker, *topic, *config;
	int32_t partition;
	int64_t from;
	bool exits; /* at the end of the partition */
};

struct records_client {
	struct hf_loop *loop;
	struct hf_node *node;
	uint64_t failed;
};

static bool parse_number(const char *text, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	return end != text && *end == '\0' && errno == 0 && *out >= 0;
}

static bool parse_from(const char *text, int64_t *out)
{
	if (strcmp(text, "beginning") == 0)
		*out = HF_OFFSET_BEGIN;
	else if (strcmp(text, "end") == 0)
		*out = HF_OFFSET_END;
	else
		return parse_number(text, out);
	return true;
}

static int parse(int argc, char **argv, struct records_options *options)
{
	static const struct option longs[] = {{"broker", required_argument, NULL, 'b'},
		{"topic", required_argument, NULL, 't'}, {"partition", required_argument, NULL, 'p'},
		{"config", required_argument, NULL, 'c'}, {"from", required_argument, NULL, 'f'},
		{"exit", no_argument, NULL, 'e'}, {0}};
	bool consumes = strcmp(options->command, "consume") == 0;
	int64_t number;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:", longs, NULL)) != -1) {
		if (c == 'b')
			options->broker = optarg;
		else if (c == 't')
			options->topic = optarg;
		else if (c == 'c')
			options->config = optarg;
		else if (c == 'p' && parse_number(optarg, &number) && number <= INT32_MAX)
			options->partition = (int32_t)number;
		else if (c == 'f' && consumes && parse_from(optarg, &options->from))
			continue;
		else if (c == 'e' && consumes)
			options->exits = true;
		else
			return cli_refuse_option(options->command, argv, c);
	}
	if (optind < argc)
		return cli_refuse_option(options->command, argv, -1);
	if (options->broker == NULL || options->topic == NULL)
		return cli_refuse(options->command, "--broker HOST:PORT and --topic NAME are needed");
	return EXIT_DONE;
}

static void delivered(void *context, const struct hf_delivery *delivery)
{
	struct records_client *client = context;

	client->failed += delivery->error != 0;
}

static int send_line(struct records_client *client, struct hf_producer *producer, const struct records_options *options,
	const char *line, size_t bytes)
{
	const struct hf_record record = {.topic = options->topic,
		.partition = options->partition,
		.value = line,
		.value_bytes = bytes,
		.timestamp_ms = (int64_t)(hf_env_wall_ns(hf_env_host()) / 1000000)};
	int rc;

	while ((rc = hf_producer_send(producer, &record, delivered, client)) == -EAGAIN && !process_interrupted())
		(void)hf_loop_turn(client->loop, TURN_NS);
	return rc;
}

/* Until the input ends, and then until everything is told. */
static int send_lines(struct records_client *client, struct hf_producer *producer, const struct records_options *options,
	struct lines *lines)
{
	const char *line;
	size_t bytes;
	int rc = 0;

	while (rc >= 0 && !process_interrupted()) {
		rc = lines_next(lines, LINE_BYTES, &line, &bytes);
		if (rc == 0)
			(void)hf_loop_turn(client->loop, TURN_NS);
		else if (rc > 0)
			rc = send_line(client, producer, options, line, bytes);
	}
	hf_producer_flush(producer);
	while (hf_producer_pending(producer) > 0 && !process_interrupted())
		(void)hf_loop_turn(client->loop, TURN_NS);
	if (rc >= 0 || rc == -ENODATA)
		rc = hf_producer_pending(producer) > 0 ? -EINTR : 0;
	return rc;
}

static int produce(struct records_client *client, const struct records_options *options)
{
	const struct hf_producer_config config = {.brokers = options->broker};
	struct lines lines = {0};
	struct hf_producer *producer;
	struct hf_error error = {0};
	int rc = hf_producer_open(client->loop, client->node, &config, &producer, &error);

	if (rc != 0)
		return cli_refuse("produce", "%s", error.text);
	rc = lines_open(&lines, client->loop, STDIN_FILENO, '\n');
	if (rc == 0)
		rc = send_lines(client, producer, options, &lines);
	lines_close(&lines);
	hf_producer_close(producer);
	if (rc != 0)
		return cli_refuse("produce", "a record was not taken: %s", strerror(-rc));
	return client->failed == 0 ? EXIT_DONE
				   : cli_refuse("produce", "the broker refused %llu records; its log says why",
					     (unsigned long long)client->failed);
}

static int consume(struct records_client *client, const struct records_options *options)
{
	const struct hf_consumer_config config = {.brokers = options->broker};
	struct hf_message messages[MESSAGES];
	struct hf_consumer *consumer;
	struct hf_error error = {0};
	int n = 0, rc = hf_consumer_open(client->loop, client->node, &config, &consumer, &error);

	if (rc != 0)
		return cli_refuse("consume", "%s", error.text);
	rc = hf_consumer_seek(consumer, options->topic, options->partition, options->from);
	while (rc == 0 && n >= 0 && !process_interrupted()) {
		n = hf_consumer_poll(consumer, messages, MESSAGES);
		for (int i = 0; i < n; i++) {
			fwrite(messages[i].value, 1, messages[i].value_bytes, stdout);
			putchar('\n');
		}
		if (n > 0)
			continue;
		if (options->exits && hf_consumer_at_end(consumer, options->topic, options->partition))
			break;
		fflush(stdout);
		(void)hf_loop_turn(client->loop, TURN_NS);
	}
	hf_consumer_close(consumer);
	if (rc != 0 || n < 0)
		return cli_refuse("consume", "cannot read on: %s", strerror(rc != 0 ? -rc : -n));
	return cli_flush("consume");
}

static int run(int argc, char **argv, const char *command,
	int (*work)(struct records_client *client, const struct records_options *options))
{
	struct records_options options = {.command = command, .from = HF_OFFSET_BEGIN};
	struct records_client client = {0};
	struct hf_node_config node;
	struct hf_config_section section = hf_node_config_section(&node);
	struct hf_error error = {0};
	int status = parse(argc, argv, &options);

	if (status != EXIT_DONE)
		return status;
	if (options.config != NULL && hf_config_load(hf_env_host(), options.config, &section, 1, &error) != 0)
		return cli_refuse(command, "%s", error.text);
	process_catch_signals();
	if (hf_loop_create(hf_env_host(), &client.loop) != 0)
		return cli_refuse(command, "no memory for a loop");
	if (options.config != NULL && hf_node_open(client.loop, &node, NULL, NULL, &client.node, &error) != 0)
		status = cli_refuse(command, "%s", error.text);
	else
		status = work(&client, &options);
	hf_node_close(client.node);
	hf_loop_destroy(client.loop);
	return status;
}

int produce_command(int argc, char **argv)
{
	return run(argc, argv, "produce", produce);
}

int consume_command(int argc, char **argv)
{
	return run(argc, argv, "consume", consume);
}
