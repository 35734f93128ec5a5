#include "cli/broker/records.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/other_port.h"
#include "cli/process.h"

#define SILENT_NS      3000000000ull
#define TIMEOUT_MOST_S 3600
#define SECOND_NS      1e9

static bool parse_number(const char *text, int64_t most, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	return end != text && *end == '\0' && errno == 0 && *out >= 0 && *out <= most;
}

static bool parse_from(const char *text, int64_t *out)
{
	if (strcmp(text, "beginning") == 0)
		*out = HF_OFFSET_BEGIN;
	else if (strcmp(text, "end") == 0)
		*out = HF_OFFSET_END;
	else
		return parse_number(text, INT64_MAX, out);
	return true;
}

/* One character, or \n, \t, \0. */
static bool parse_character(const char *text, char *out)
{
	static const char names[] = "nt0", characters[] = "\n\t";
	const char *name;

	if (strlen(text) == 1) {
		*out = text[0];
		return true;
	}
	name = strlen(text) == 2 && text[0] == '\\' ? strchr(names, text[1]) : NULL;
	if (name == NULL)
		return false;
	*out = characters[name - names];
	return true;
}

static bool parse_codec(const char *text, enum hf_codec *out)
{
	static const char *const names[HF_CODECS] = {"none", "gzip", "snappy", "lz4", "zstd"};

	for (unsigned i = 0; i < HF_CODECS; i++)
		if (strcmp(text, names[i]) == 0) {
			*out = (enum hf_codec)i;
			return true;
		}
	return false;
}

static bool add_topic(struct records_options *options, const char *topic)
{
	if (options->topic_count == RECORDS_TOPICS_MAX)
		return false;
	options->topics[options->topic_count++] = topic;
	return true;
}

/* Options of both; false: it is none of them, or what it says is wrong. */
static bool take(struct records_options *options, int option)
{
	int64_t number;
	char character;

	switch (option) {
	case 'b':
		options->broker = optarg;
		return true;
	case 't':
		return add_topic(options, optarg);
	case 'C':
		options->config = optarg;
		return true;
	case 'p':
		if (!parse_number(optarg, INT32_MAX, &number))
			return false;
		options->partition = (int32_t)number;
		return true;
	case 'K':
		if (!parse_character(optarg, &character))
			return false;
		options->key_separator = (unsigned char)character;
		return true;
	case 'D':
		return parse_character(optarg, &options->delimiter);
	default:
		return false;
	}
}

static bool take_of_produce(struct records_options *options, int option)
{
	switch (option) {
	case 'k':
		options->key = optarg;
		return true;
	case 'z':
		return parse_codec(optarg, &options->codec);
	default:
		return take(options, option);
	}
}

static bool take_of_consume(struct records_options *options, int option)
{
	int64_t number;

	switch (option) {
	case 'o':
		return parse_from(optarg, &options->from);
	case 'c':
		if (!parse_number(optarg, INT64_MAX, &number))
			return false;
		options->count = (uint64_t)number;
		return true;
	case 'e':
		options->exits = true;
		return true;
	case 'G':
		options->group = optarg;
		return true;
	default:
		return take(options, option);
	}
}

static int parse(int argc, char **argv, struct records_options *options)
{
	static const struct option longs[] = {{"brokers", required_argument, NULL, 'b'},
		{"topic", required_argument, NULL, 't'}, {"partition", required_argument, NULL, 'p'},
		{"config", required_argument, NULL, 'C'}, {"key", required_argument, NULL, 'k'},
		{"key-separator", required_argument, NULL, 'K'}, {"delimiter", required_argument, NULL, 'D'},
		{"codec", required_argument, NULL, 'z'}, {"from", required_argument, NULL, 'o'},
		{"count", required_argument, NULL, 'c'}, {"exit", no_argument, NULL, 'e'},
		{"group", required_argument, NULL, 'G'}, {"timeout", required_argument, NULL, 'T'}, {0}};
	bool consumes = strcmp(options->command, "consume") == 0;
	int c, status = EXIT_DONE;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:b:t:p:k:K:D:z:o:c:eG:", longs, NULL)) != -1) {
		if (c == '?' || c == ':')
			return cli_refuse_option(options->command, argv, c);
		if (c == 'T') {
			status = cli_take_number(options->command, "timeout", optarg, 0.001, TIMEOUT_MOST_S, SECOND_NS,
				&options->timeout_ns);
			if (status != EXIT_DONE)
				return status;
			continue;
		}
		if (!(consumes ? take_of_consume : take_of_produce)(options, c))
			return cli_refuse(options->command,
				"-%c %s makes no sense here; `holdfast help %s` says what does", c,
				optarg == NULL ? "" : optarg, options->command);
	}
	while (options->group != NULL && optind < argc && add_topic(options, argv[optind]))
		optind++;
	if (optind < argc)
		return cli_refuse_option(options->command, argv, -1);
	if (options->broker == NULL || options->topic_count == 0)
		return cli_refuse(options->command, "--brokers HOST:PORT and --topic NAME are needed");
	if (options->topic_count > 1 && options->group == NULL)
		return cli_refuse(options->command, "--topic is there twice; several are read by a --group only");
	if (options->group != NULL && options->partition >= 0)
		return cli_refuse(options->command, "--group and --partition: a group assigns its partitions itself");
	return EXIT_DONE;
}

/* What the first of the addresses serves instead, if it does. */
static void tell_silence(struct records_client *client, const struct records_options *options)
{
	char first[HF_ADDR_TEXT];
	struct hf_addr at;
	const char *other = NULL;

	(void)snprintf(first, sizeof(first), "%.*s", (int)strcspn(options->broker, ","), options->broker);
	if (hf_addr_parse(first, &at) == 0)
		other = other_port_find(client->loop, &at, "Kafka", OTHER_PORT_NS);
	if (other != NULL)
		(void)cli_refuse(options->command,
			"%s serves clients of %s, and not of Kafka; it is tried on. Give an address of `listeners` in "
			"the configuration of a broker",
			first, other);
	else
		(void)cli_refuse(options->command,
			"no broker of %s answers for the topic %s yet; it is tried on. Look at it with "
			"`holdfast topics --brokers %s`",
			options->broker, options->topics[0], options->broker);
}

int records_wait(struct records_client *client, const struct records_options *options, bool answered)
{
	uint64_t now_ns = hf_loop_now_ns(client->loop);

	if (client->waits_ns == 0 || client->told != client->waits_told) {
		client->waits_ns = now_ns;
		client->waits_told = client->told;
	}
	if (options->timeout_ns != 0 && now_ns - client->waits_ns >= options->timeout_ns)
		return -ETIMEDOUT;
	if (answered) {
		client->since_ns = 0;
	} else if (client->since_ns != 0 && now_ns >= client->since_ns + SILENT_NS) {
		client->since_ns = 0;
		tell_silence(client, options);
	}
	(void)hf_loop_turn(client->loop, RECORDS_TURN_NS);
	return 0;
}

int records_run(int argc, char **argv, const char *command,
	int (*work)(struct records_client *client, const struct records_options *options))
{
	struct records_options options = {
		.command = command, .partition = -1, .key_separator = -1, .delimiter = '\n', .from = HF_OFFSET_BEGIN};
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
	client.since_ns = hf_loop_now_ns(client.loop);
	if (options.config != NULL && hf_node_open(client.loop, &node, NULL, NULL, &client.node, &error) != 0)
		status = cli_refuse(command, "%s", error.text);
	else
		status = work(&client, &options);
	hf_node_close(client.node);
	hf_loop_destroy(client.loop);
	return status;
}
