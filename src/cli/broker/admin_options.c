#include "cli/broker/admin_options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/broker/admin.h"
#include "cli/cli.h"

#define TIMEOUT_NS      10000000000ull
#define TIMEOUT_MOST_S  3600
#define SECOND_NS       1e9
#define PARTITIONS_MOST 100000

static const struct option longs[] = {{"brokers", required_argument, NULL, 'b'},
	{"partitions", required_argument, NULL, 'p'}, {"replicas", required_argument, NULL, 'r'},
	{"config", required_argument, NULL, 'c'}, {"timeout", required_argument, NULL, 't'},
	{"json", no_argument, NULL, 'j'}, {"yes", no_argument, NULL, 'y'}, {0}};

static int take_config(struct admin_options *options)
{
	if (options->config_count == ADMIN_CONFIGS_MAX)
		return cli_refuse(options->command, "--config is there more than %u times", ADMIN_CONFIGS_MAX);
	if (strchr(optarg, '=') == NULL || optarg[0] == '=')
		return cli_refuse(options->command,
			"--config '%s' has no value; write KEY=VALUE, such as retention.ms=60000", optarg);
	options->configs[options->config_count++] = optarg;
	return EXIT_DONE;
}

static int take_count(const char *command, const char *option, int32_t most, int32_t *out)
{
	uint64_t number;
	int status = cli_take_number(command, option, optarg, 1, most, 1, &number);

	if (status == EXIT_DONE)
		*out = (int32_t)number;
	return status;
}

static int take(struct admin_options *options, int option)
{
	int32_t number = 0;
	int status;

	switch (option) {
	case 'b':
		options->brokers = optarg;
		return EXIT_DONE;
	case 'j':
		options->json = true;
		return EXIT_DONE;
	case 'y':
		options->yes = true;
		return EXIT_DONE;
	case 't':
		return cli_take_number(
			options->command, "timeout", optarg, 0.001, TIMEOUT_MOST_S, SECOND_NS, &options->timeout_ns);
	case 'p':
		return take_count(options->command, "partitions", PARTITIONS_MOST, &options->partitions);
	case 'r':
		status = take_count(options->command, "replicas", INT16_MAX, &number);
		options->replicas = (int16_t)number;
		return status;
	default:
		return take_config(options);
	}
}

/* The action's word and its name are those arguments that are no options. */
static int find_action(struct admin_options *options, int count, char **words, const struct admin_action *actions,
	const struct admin_action **out)
{
	const struct admin_action *action = actions;

	while (count > 0 && action->name != NULL && strcmp(action->name, words[0]) != 0)
		action++;
	if (action->name == NULL)
		return cli_refuse(options->command, "there is no '%s %s'; `holdfast help %s` lists the actions",
			options->command, words[0], options->command);
	if (action->named && count < 2)
		return cli_refuse(options->command, "%s needs a name; `holdfast help %s` shows how to call it",
			action->name, options->command);
	if (count > 1 + action->named)
		return cli_refuse(options->command, "unexpected argument '%s'; `holdfast help %s` shows how to call it",
			words[1 + action->named], options->command);
	if (!action->creates && (options->partitions >= 0 || options->replicas >= 0 || options->config_count > 0))
		return cli_refuse(options->command,
			"--partitions, --replicas and --config are options of `holdfast topics create`");
	if (options->yes && !action->confirms)
		return cli_refuse(options->command, "--yes is an option of `holdfast broker recover`");
	options->name = action->named ? words[1] : NULL;
	*out = action;
	return EXIT_DONE;
}

static int parse(int argc, char **argv, struct admin_options *options, const struct admin_action *actions,
	const struct admin_action **out)
{
	int c, status = EXIT_DONE;

	opterr = 0;
	while (status == EXIT_DONE && (c = getopt_long(argc, argv, ":b:", longs, NULL)) != -1)
		status = c == '?' || c == ':' ? cli_refuse_option(options->command, argv, c) : take(options, c);
	if (status == EXIT_DONE)
		status = find_action(options, argc - optind, argv + optind, actions, out);
	if (status == EXIT_DONE && options->brokers == NULL)
		return cli_refuse(
			options->command, "--brokers HOST:PORT is missing: where a broker takes clients of Kafka");
	return status;
}

static int work(struct admin *admin, const struct admin_action *action)
{
	const struct admin_options *options = admin->options;
	struct hf_error error = {0};
	json_t *out = NULL;
	int status;

	if (action->work(admin, &out, &error) != 0) {
		json_decref(out);
		return cli_fail(options->command, "%s", error.text);
	}
	if (options->json) {
		status = cli_print_json(out);
	} else {
		action->print(out);
		json_decref(out);
		status = cli_flush(options->command);
	}
	if (status == EXIT_DONE && admin->incomplete.text[0] != '\0')
		status = cli_fail(options->command, "%s", admin->incomplete.text);
	return status;
}

int admin_run(int argc, char **argv, const struct admin_action *actions)
{
	struct admin_options options = {.command = argv[0], .timeout_ns = TIMEOUT_NS, .partitions = -1, .replicas = -1};
	const struct admin_action *action = actions;
	struct admin admin;
	struct hf_error error = {0};
	struct hf_loop *loop;
	int status = parse(argc, argv, &options, actions, &action);

	if (status != EXIT_DONE)
		return status;
	if (hf_loop_create(hf_env_host(), &loop) != 0)
		return cli_refuse(options.command, "no memory for a loop");
	status = admin_open(&admin, loop, &options, &error) != 0 ? cli_refuse(options.command, "%s", error.text)
								 : work(&admin, action);
	admin_close(&admin);
	hf_loop_destroy(loop);
	return status;
}
