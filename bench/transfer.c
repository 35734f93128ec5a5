/* holdfast bench transfer: what the transfer engine carries, beside others, and while its rails are cut. */
#include "bench/transfer.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "bench/files.h"
#include "cli/cli.h"
#include "cli/process.h"

#define ROUNDS_DEFAULT 7u
#define ROUNDS_MOST    99.0
#define CUTS_DEFAULT   20u
#define RAIL_RATE      500u
#define CUTS_MOST      200.0
#define COPY_DEFAULT   4.0
#define RATE_DEFAULT   100.0
#define GIGABYTE       1073741824.0
#define MEGABYTE       1e6

enum part { PART_SWEEP, PART_BESIDE, PART_RAILS, PART_CUTS, PARTS };
static const char *const part_names[PARTS] = {"sweep", "beside", "rails", "cuts"};

struct request {
	struct transfer_options options;
	unsigned parts;
	struct bench_files files;
};

static const struct option known[] = {{"device", required_argument, NULL, 'd'}, {"only", required_argument, NULL, 'y'},
	{"rounds", required_argument, NULL, 'n'}, {"cuts", required_argument, NULL, 'c'},
	{"gib", required_argument, NULL, 'g'}, {"rate", required_argument, NULL, 'r'},
	{"rail-rate", required_argument, NULL, 's'}, {"mooncake", required_argument, NULL, 'm'},
	{"out", required_argument, NULL, 'o'}, {"quick", no_argument, NULL, 'q'}, {"json", no_argument, NULL, 'j'},
	{0}};

static int parse_value(int answer, const char *value, struct request *request)
{
	struct transfer_options *options = &request->options;
	double number;

	if (answer == 'n' && cli_number(value, 1, ROUNDS_MOST, &number))
		options->rounds = (unsigned)number;
	else if (answer == 'c' && cli_number(value, 1, CUTS_MOST, &number))
		options->cuts = (unsigned)number;
	else if (answer == 'g' && cli_number(value, 0.05, 1024, &number))
		options->copy_bytes = (uint64_t)(number * GIGABYTE);
	else if (answer == 's' && cli_number(value, 1, 1e6, &number))
		options->rail_rate = (unsigned)number;
	else if (answer == 'r' && cli_number(value, 1, 1e6, &number))
		options->rate_bytes = (uint64_t)(number * MEGABYTE);
	else
		return bench_refuse("this is no number that fits:", value);
	return 0;
}

static int parse_option(int answer, const char *value, struct request *request)
{
	switch (answer) {
	case 'd':
		request->options.device = value;
		return 0;
	case 'y':
		request->options.only = value;
		return 0;
	case 'm':
		request->options.mooncake = value;
		return 0;
	case 'o':
		request->files.out = value;
		return 0;
	case 'q':
		request->options.quick = true;
		return 0;
	case 'j':
		request->files.json = true;
		return 0;
	default:
		return parse_value(answer, value, request);
	}
}

static int parse_part(const char *name, struct request *request)
{
	for (unsigned i = 0; i < PARTS; i++)
		if (strcmp(name, part_names[i]) == 0) {
			request->parts |= 1u << i;
			return 0;
		}
	return bench_refuse("there is no part of `bench transfer` called", name);
}

static int parse(int argc, char **argv, struct request *request)
{
	int answer, refused = 0;

	*request = (struct request){.options = {.rounds = ROUNDS_DEFAULT,
					    .cuts = CUTS_DEFAULT,
					    .rail_rate = RAIL_RATE,
					    .copy_bytes = (uint64_t)(COPY_DEFAULT * GIGABYTE),
					    .rate_bytes = (uint64_t)(RATE_DEFAULT * MEGABYTE)}};
	opterr = 0;
	optind = 1;
	while (!refused && (answer = getopt_long(argc, argv, ":", known, NULL)) != -1)
		refused = answer == '?' || answer == ':' ? cli_refuse_option("bench", argv, answer)
							 : parse_option(answer, optarg, request);
	for (; !refused && optind < argc; optind++)
		refused = parse_part(argv[optind], request);
	if (request->options.device != NULL && strcmp(request->options.device, "shm") != 0 &&
		strcmp(request->options.device, "soft") != 0 && strcmp(request->options.device, "tcp") != 0)
		return bench_refuse("this set has shm, soft and tcp, not", request->options.device);
	if (request->parts == 0)
		request->parts = (1u << PARTS) - 1;
	request->options.log = request->files.json ? stderr : stdout;
	return refused;
}

static int run_part(const struct request *request, enum part part, json_t *all)
{
	json_t *figures = part == PART_SWEEP || part == PART_BESIDE ? json_array() : json_object();
	struct hf_error error = {0};
	int failed = 0;

	json_object_set_new(all, part_names[part], figures);
	switch (part) {
	case PART_SWEEP:
		failed = transfer_sweep(&request->options, figures, &error);
		break;
	case PART_BESIDE:
		failed = transfer_beside(&request->options, figures, &error);
		break;
	case PART_RAILS:
		failed = transfer_rails(&request->options, figures, &error);
		break;
	case PART_CUTS:
		failed = transfer_cuts(&request->options, figures, &error);
		break;
	case PARTS:
		break;
	}
	if (failed >= 0)
		return failed;
	cli_refuse("bench", "transfer: %s", error.text[0] != '\0' ? error.text : strerror(-failed));
	return failed == -EINTR ? EXIT_INTERRUPTED : EXIT_FOUND;
}

int bench_transfer(int argc, char **argv)
{
	struct request request;
	json_t *all;
	int status = parse(argc, argv, &request), written;

	if (status != 0)
		return status;
	process_catch_signals();
	all = json_object();
	for (unsigned i = 0; i < PARTS && status != EXIT_INTERRUPTED; i++)
		if (request.parts & 1u << i) {
			int part = run_part(&request, (enum part)i, all);

			status = part > status ? part : status;
		}
	written = bench_files_write(&request.files, all);
	json_decref(all);
	return status != EXIT_DONE ? status : written;
}
