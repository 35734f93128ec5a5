/* `holdfast demo`: reads what is wanted, runs each device, writes the reports, judges. */
#include "cli/demo/demo.h"

#include <holdfast/node.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/demo/html.h"
#include "cli/demo/input.h"
#include "cli/demo/report.h"
#include "cli/demo/run.h"
#include "cli/draw.h"
#include "cli/process.h"
#include "cli/report_file.h"
#include "cli/tree.h"

#define NS_A_SECOND     1e9
#define MEGABYTE        1e6
#define SECONDS_DEFAULT 15.0
#define SECONDS_QUICK   3.5
#define SECONDS_MOST    86400.0
#define RATE_DEFAULT    300.0 /* what a core can hash meanwhile, and receive over soft */
#define RATE_MOST       1e6
#define MEMORY_ROOM                                                                                                    \
	(4ull << 30) /* input and copy, and as much again left free: then no disk has a part in the figures */
#define FAILBACK_NS  250000000u
#define ADDRESS_LAST 252u /* of a base: three more follow it in its network of 256 */

static const char *const default_devices[] = {"shm", "soft"};

/* The cuts of all runs would not fit on a stack. */
static struct demo_result results[DEMO_DEVICES_MAX];

static bool kind_exists(const char *name)
{
	for (const struct hf_dev_kind *kind = hf_dev_kinds(); kind->name != NULL; kind++)
		if (strcmp(kind->name, name) == 0)
			return true;
	return false;
}

static int parse_device(const char *name, struct demo_options *options)
{
	if (strcmp(name, "all") == 0) {
		options->device_count = 0;
		for (unsigned i = 0; i < sizeof(default_devices) / sizeof(default_devices[0]); i++)
			options->devices[options->device_count++] = default_devices[i];
		return 0;
	}
	if (!kind_exists(name))
		return cli_refuse("demo", "there is no device '%s'; `holdfast devices` lists them", name);
	options->devices[0] = name;
	options->device_count = 1;
	return 0;
}

static int parse_base(const char *text, struct demo_options *options)
{
	if (hf_addr_parse(text, &options->base) != 0 || options->base.sa.sa_family != AF_INET ||
		hf_addr_port(&options->base) != 0 || (ntohl(options->base.in.sin_addr.s_addr) & 0xff) > ADDRESS_LAST)
		return cli_refuse("demo",
			"base '%s' is not an IPv4 address that three more can follow, such as 127.0.0.11", text);
	options->base_given = true;
	return 0;
}

static int parse_option(int answer, const char *value, struct demo_options *options)
{
	switch (answer) {
	case 'd':
		return parse_device(value, options);
	case 'i':
		options->input = value;
		return 0;
	case 'c':
		options->config = value;
		return 0;
	case 'o':
		options->output = value;
		return 0;
	case 'b':
		return parse_base(value, options);
	case 's':
		return cli_take_number("demo", "seconds", value, 1, SECONDS_MOST, NS_A_SECOND, &options->seconds_ns);
	case 'r':
		return cli_take_number("demo", "rate", value, 0, RATE_MOST, MEGABYTE, &options->rate_bytes);
	case 'q':
		options->quick = true;
		return 0;
	default:
		options->json = true;
		return 0;
	}
}

static int parse(int argc, char **argv, struct demo_options *options)
{
	static const struct option known[] = {{"device", required_argument, NULL, 'd'},
		{"input", required_argument, NULL, 'i'}, {"config", required_argument, NULL, 'c'},
		{"output", required_argument, NULL, 'o'}, {"base", required_argument, NULL, 'b'},
		{"seconds", required_argument, NULL, 's'}, {"rate", required_argument, NULL, 'r'},
		{"quick", no_argument, NULL, 'q'}, {"json", no_argument, NULL, 'j'}, {0}};
	uint64_t bytes;
	int answer, refused;

	*options = (struct demo_options){.output = ".", .rate_bytes = (uint64_t)(RATE_DEFAULT * MEGABYTE)};
	parse_device("all", options);
	opterr = 0;
	while ((answer = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		if (answer == '?' || answer == ':')
			return cli_refuse_option("demo", argv, answer);
		refused = parse_option(answer, optarg, options);
		if (refused)
			return refused;
	}
	if (optind < argc)
		return cli_refuse_option("demo", argv, answer);
	if (options->seconds_ns == 0)
		options->seconds_ns = (uint64_t)((options->quick ? SECONDS_QUICK : SECONDS_DEFAULT) * NS_A_SECOND);
	if (tree_kind(options->output, &bytes) != TREE_DIRECTORY)
		return cli_refuse(
			"demo", "there is no directory '%s' to write demo.json and demo.html to", options->output);
	return 0;
}

/* What of a node's configuration the demo itself has to know; and whether it is one at all. */
static int read_config(struct hf_env *env, const struct demo_options *options, uint64_t *failback_ns)
{
	static struct hf_node_config config;
	struct hf_error error = {0};

	*failback_ns = FAILBACK_NS;
	if (options->config == NULL)
		return 0;
	if (hf_node_config_load(env, options->config, &config, &error) != 0)
		return cli_refuse("demo", "%s", error.text);
	if (config.failback_ns != 0)
		*failback_ns = config.failback_ns;
	return 0;
}

static int write_reports(
	struct hf_env *env, const struct demo_options *options, const struct demo_input *input, unsigned n)
{
	json_t *json = report_json(results, n, input);
	char *text = json != NULL ? json_dumps(json, CLI_JSON_STYLE) : NULL;
	char *page = html_page(results, n, input);
	int failed = text != NULL && page != NULL ? 0 : -ENOMEM, status = EXIT_DONE;

	if (!failed)
		failed = report_write(env, options->output, "demo.json", text);
	if (!failed)
		failed = report_write(env, options->output, "demo.html", page);
	if (failed) {
		cli_refuse("demo", "the reports cannot be written to '%s': %s; choose another with --output",
			options->output, strerror(-failed));
		status = EXIT_FOUND;
	}
	if (options->json && json != NULL && cli_print_json(json_incref(json)) != EXIT_DONE)
		status = EXIT_FOUND;
	free(page);
	free(text);
	json_decref(json);
	return status;
}

/* Whether the caller has to change something, or the machine, before the demo can run at all. */
static int status_of_failure(int failed, bool started)
{
	if (failed == -EINTR)
		return EXIT_INTERRUPTED;
	return started || failed == -ESRCH || failed == -ETIMEDOUT ? EXIT_FOUND : EXIT_WRONG_INPUT;
}

static int run_devices(struct demo_task *task, unsigned *done_out)
{
	struct hf_error error = {0};

	for (unsigned i = 0; i < task->options->device_count; i++) {
		bool started;
		int failed;

		task->device = task->options->devices[i];
		failed = demo_run(task, &results[i], &started, &error);
		screen_close(task->screen);
		if (failed) {
			cli_refuse("demo", "%s: %s", task->device, error.text);
			return status_of_failure(failed, started);
		}
		*done_out = i + 1;
		if (task->screen->mode != SCREEN_SILENT)
			report_print(&results[i], task->input, stdout);
	}
	return EXIT_DONE;
}

static int run(const struct demo_options *options, const struct scratch *scratch, uint64_t failback_ns)
{
	static struct demo_input input;
	struct hf_error error = {0};
	struct screen screen;
	struct demo_task task = {.env = hf_env_host(),
		.options = options,
		.input = &input,
		.scratch = scratch,
		.failback_ns = failback_ns,
		.screen = &screen};
	unsigned done = 0;
	int failed, status;

	screen_open(&screen, options->json);
	screen_say(&screen, "preparing the input ...");
	failed = demo_input_prepare(task.env, options, scratch, &input, &error);
	if (failed) {
		cli_refuse("demo", "%s", error.text);
		return failed == -EINTR ? EXIT_INTERRUPTED : EXIT_WRONG_INPUT;
	}
	screen_say(&screen, "moving %s, %s", input.what, draw_bytes((double)input.bytes));
	status = run_devices(&task, &done);
	if (status != EXIT_DONE)
		return status;
	status = write_reports(task.env, options, &input, done);
	for (unsigned i = 0; i < done; i++)
		if (demo_lost(&results[i]) > 0)
			status = EXIT_FOUND;
	screen_say(&screen, "\n%s; the reports are %s/demo.json and %s/demo.html",
		status == EXIT_DONE ? "Nothing was lost" : "FAILED", options->output, options->output);
	return status;
}

int demo_command(int argc, char **argv)
{
	static struct demo_options options;
	struct hf_error error = {0};
	struct scratch scratch;
	uint64_t failback_ns;
	int status;

	if (argc > 1 && strcmp(argv[1], "transfer") == 0)
		return transfer_demo_command(argc - 1, argv + 1);
	status = parse(argc, argv, &options);
	if (status == 0)
		status = read_config(hf_env_host(), &options, &failback_ns);
	if (status != 0)
		return status;
	process_catch_signals();
	demo_clean_fabrics();
	if (scratch_create(&scratch, options.input == NULL ? MEMORY_ROOM : 0, &error) != 0)
		return cli_refuse("demo", "%s", error.text);
	status = run(&options, &scratch, failback_ns);
	scratch_remove(&scratch);
	demo_clean_fabrics(); /* nodes that were still dying when this began are dead by now */
	return status;
}
