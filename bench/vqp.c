/* holdfast bench verbs, holdfast bench failover: options in, tables and JSON out. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "bench/report.h"
#include "cli/cli.h"
#include "cli/report_file.h"

#define ROUNDS_DEFAULT  11u
#define SECONDS_DEFAULT 45u
#define HANDICAP_MAX    1000u
#define CUTS_DEFAULT    11u
#define CLIENTS_DEFAULT 16u
#define SCALES_MAX      32u
#define MB              1048576.0

static const char *const every_kind[] = {"shm", "soft", NULL};
static const unsigned scale_vqps[] = {64, 4096};

struct options {
	const char *kinds[3];
	const char *mode, *only, *out;
	bool json, no_scale, only_scale;
	unsigned rounds, seconds, handicap, cuts, clients, figure, vqps;
};

static bool number(const char *text, unsigned least, unsigned most, unsigned *out)
{
	double value;

	if (text == NULL || !cli_number(text, least, most, &value) || value != (unsigned)value)
		return false;
	*out = (unsigned)value;
	return true;
}

/* What has a value. */
static int parse_value(struct options *options, const char *name, const char *value)
{
	if (strcmp(name, "--device") == 0) {
		if (strcmp(value, "shm") != 0 && strcmp(value, "soft") != 0)
			return bench_refuse("devices are shm and soft, not", value);
		options->kinds[0] = value;
		options->kinds[1] = NULL;
	} else if (strcmp(name, "--mode") == 0) {
		if (bench_mode_find(value) == NULL)
			return bench_refuse("there is no mode called", value);
		options->mode = value;
	} else if (strcmp(name, "--only") == 0) {
		options->only = value;
	} else if (strcmp(name, "--rounds") == 0) {
		if (!number(value, 1, VERBS_ROUNDS_MAX, &options->rounds))
			return bench_refuse("rounds are a number from 1 to 99, not", value);
	} else if (strcmp(name, "--seconds") == 0) {
		if (!number(value, 0, VERBS_SECONDS_MAX, &options->seconds))
			return bench_refuse("seconds are a number from 0 to 3600, not", value);
	} else if (strcmp(name, "--handicap") == 0) {
		if (!number(value, 0, HANDICAP_MAX, &options->handicap))
			return bench_refuse("a handicap is a number from 0 to 1000 per cent, not", value);
	} else if (strcmp(name, "--cuts") == 0) {
		if (!number(value, 1, FAILOVER_CUTS_MAX, &options->cuts))
			return bench_refuse("cuts are a number from 1 to 99, not", value);
	} else if (strcmp(name, "--clients") == 0) {
		if (!number(value, 1, BENCH_CLIENTS_MAX, &options->clients))
			return bench_refuse("clients are a number from 1 to 4096, not", value);
	} else if (strcmp(name, "--vqps") == 0) {
		if (!number(value, 1, BENCH_CLIENTS_MAX, &options->vqps))
			return bench_refuse("vqps are a number from 1 to 4096, not", value);
	} else if (strcmp(name, "--figure") == 0) {
		if (!number(value, 8, 10, &options->figure))
			return bench_refuse("figures are 8, 9 and 10, not", value);
	} else if (strcmp(name, "--out") == 0) {
		options->out = value;
	} else {
		return bench_refuse("unknown argument", name);
	}
	return EXIT_DONE;
}

static int parse(int argc, char **argv, struct options *options)
{
	log_set_level(LOG_WARN); /* hundreds of failovers are what is asked for */
	*options = (struct options){.kinds = {every_kind[0], every_kind[1], NULL},
		.rounds = ROUNDS_DEFAULT,
		.seconds = SECONDS_DEFAULT,
		.cuts = CUTS_DEFAULT,
		.clients = CLIENTS_DEFAULT};
	for (int i = 1; i < argc; i++) {
		int refused = EXIT_DONE;

		if (strcmp(argv[i], "--json") == 0)
			options->json = true;
		else if (strcmp(argv[i], "--no-scale") == 0)
			options->no_scale = true;
		else if (strcmp(argv[i], "--only-scale") == 0)
			options->only_scale = true;
		else if (i + 1 == argc)
			refused = bench_refuse("unknown or incomplete argument", argv[i]);
		else
			refused = parse_value(options, argv[i], argv[i + 1]), i++;
		if (refused != EXIT_DONE)
			return refused;
	}
	return EXIT_DONE;
}

/* ---- out ---- */

static int write_text(const char *path, const char *text)
{
	int failed = text == NULL ? -ENOMEM : report_write(hf_env_host(), NULL, path, text);

	if (failed == 0)
		return EXIT_DONE;
	fprintf(stderr, "holdfast bench: %s cannot be written: %s\n", path, strerror(-failed));
	return EXIT_FOUND;
}

static int write_json(json_t *report, const struct options *options)
{
	int status = EXIT_DONE;

	if (options->out != NULL) {
		char *text = json_dumps(report, CLI_JSON_STYLE);

		status = write_text(options->out, text);
		free(text);
	}
	if (options->json)
		return cli_print_json(report) != EXIT_DONE ? EXIT_FOUND : status;
	json_decref(report);
	return status;
}

static int complain(const struct hf_error *error)
{
	fprintf(stderr, "holdfast bench: %s\n", error->text);
	return EXIT_FOUND;
}

static FILE *log_of(const struct options *options)
{
	return options->json ? stderr : stdout; /* --json leaves standard output to the JSON */
}

/* ---- verbs ---- */

int bench_verbs(int argc, char **argv)
{
	struct options options;
	struct verbs_table *tables;
	struct hf_error error = {0};
	unsigned n;
	int status = parse(argc, argv, &options);

	if (status != EXIT_DONE)
		return status;
	if (verbs_run(&(struct verbs_options){.kinds = options.kinds,
			      .only_mode = options.mode,
			      .rounds = options.rounds,
			      .seconds = options.seconds,
			      .handicap = options.handicap,
			      .only_figure = options.figure,
			      .log = log_of(&options)},
		    &tables, &n, &error) != 0)
		return complain(&error);
	report_verbs(log_of(&options), tables, n);
	status = write_json(report_verbs_json(tables, n), &options);
	free(tables);
	return status;
}

/* ---- failover ---- */

static void tell_scale(FILE *log, const struct failover_scale *scale)
{
	fprintf(log, "  %-4s %-12s %4u vqps: nodes %5.1f  connected %6.1f  used %6.1f MB  up %6.0f ms", scale->kind,
		scale->mode->name, scale->vqps, scale->nodes_bytes / MB, scale->connected_bytes / MB,
		scale->memory_bytes / MB, scale->connect_us / 1e3);
	if (scale->cuts > 0)
		fprintf(log, "  %u cuts: first %6.0f us (%.0f to %.0f)  p99 %6.0f us  cold %6.0f us  all %8.0f us",
			scale->cuts, scale->first.median, scale->first.low, scale->first.high, scale->first_p99_us,
			scale->cold_us, scale->all_us);
	fputc('\n', log);
}

/* The modes by turns, at each number of vqps. */
static int scale_all(const struct options *options, struct failover_scale *scales, unsigned *n, struct hf_error *error)
{
	int rc = 0;

	for (const char *const *kind = options->kinds; *kind != NULL && rc == 0; kind++)
		for (size_t v = 0; v < (options->vqps != 0 ? 1 : sizeof(scale_vqps) / sizeof(scale_vqps[0])); v++)
			for (unsigned m = 0; m < bench_mode_count && rc == 0 && *n < SCALES_MAX; m++) {
				if (options->mode != NULL && m > 0 && strcmp(options->mode, bench_modes[m].name) != 0)
					continue;
				rc = failover_scale(*kind, &bench_modes[m],
					options->vqps != 0 ? options->vqps : scale_vqps[v], &scales[*n], error);
				if (rc != 0)
					break;
				tell_scale(log_of(options), &scales[*n]);
				fflush(log_of(options));
				++*n;
			}
	return rc;
}

int bench_failover(int argc, char **argv)
{
	static struct failover_scale scales[SCALES_MAX];
	struct failover_result *results = NULL;
	struct hf_error error = {0};
	struct options options;
	unsigned n = 0, scale_count = 0;
	int status = parse(argc, argv, &options), rc = 0;

	if (status != EXIT_DONE)
		return status;
	if (!options.only_scale && options.mode != NULL && !failover_measures(bench_mode_find(options.mode)))
		return bench_refuse("what a wr did may be unknown after a cut in mode", options.mode);
	if (!failover_wants_any(options.only))
		return bench_refuse(
			"experiments have names such as 'CAS cut acknowledgements', none has this:", options.only);
	if (!options.only_scale)
		rc = failover_run(&(struct failover_options){.kinds = options.kinds,
					  .only_mode = options.mode,
					  .only = options.only,
					  .cuts = options.cuts,
					  .clients = options.clients,
					  .log = log_of(&options)},
			&results, &n, &error);
	if (rc == 0 && !options.no_scale)
		rc = scale_all(&options, scales, &scale_count, &error);
	if (rc != 0) {
		free(results);
		return complain(&error);
	}
	report_failover(log_of(&options), results, n);
	report_scale(log_of(&options), scales, scale_count);
	status = write_json(report_failover_json(results, n, scales, scale_count), &options);
	free(results);
	return status;
}
