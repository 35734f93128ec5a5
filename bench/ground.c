/* holdfast bench ground: figures of our devices beside UCX's, alternating, in one run.
 *
 * Each figure is measured in rounds of: cache line, ours, cache line, UCX, cache line. The bare cache line says how
 * far apart the two cores are just then, which changes while a virtual machine runs; a round in which it changed is
 * measured again, a bounded number of times. A figure is the median of its rounds, its ratio that of their ratios. */
#include "bench/bench.h"
#include "bench/files.h"
#include "cli/cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_DEFAULT 11u /* TCP of the peer swings by a third from round to round */
#define ROUNDS_MAX     99u
#define REPEATS        10u /* of rounds whose modes differ, for each figure */
#define MODE_FACTOR    1.6 /* between cache lines of one mode; near and far differ by 4 */

enum { DONE = 0, FAILED = 1, WRONG_INPUT = 2 };

#define UCX_SHM "UCX shared memory (posix)"
#define UCX_TCP "UCX tcp over lo"

static const struct bench_figure figures[] = {
	{"shm_write_latency_8", "ns", "shm", BENCH_WRITE_LATENCY, 8, UCX_SHM, "ucp_put_lat", "posix,self", "300000",
		1.2},
	{"shm_write_latency_4096", "ns", "shm", BENCH_WRITE_LATENCY, 4096, UCX_SHM, "ucp_put_lat", "posix,self",
		"200000", 1.2},
	{"shm_write_latency_65536", "ns", "shm", BENCH_WRITE_LATENCY, 65536, UCX_SHM, "ucp_put_lat", "posix,self",
		"50000", 1.2},
	{"shm_cas_latency", "ns", "shm", BENCH_CAS_LATENCY, 8, UCX_SHM, "ucp_cswap", "posix,self", "1000000", 1.2},
	{"soft_write_latency_8", "ns", "soft", BENCH_WRITE_LATENCY, 8, UCX_TCP, "ucp_put_lat", "tcp", "20000", 1.0},
	{"soft_write_bandwidth_65536", "MB/s", "soft", BENCH_BANDWIDTH, 65536, UCX_TCP, "ucp_put_bw", "tcp", "6000",
		3.0},
};
#define FIGURES (sizeof(figures) / sizeof(figures[0]))

struct options {
	struct bench_files files;
	const char *only; /* a part of the names */
	unsigned rounds;
	bool peer;
};

struct rounds {
	double ours[ROUNDS_MAX], peer[ROUNDS_MAX], ratio[ROUNDS_MAX];
	unsigned n;
	bool have_peer;
};

static bool same_mode(const double *lines, unsigned n)
{
	double least = lines[0], most = lines[0];

	for (unsigned i = 1; i < n; i++) {
		least = lines[i] < least ? lines[i] : least;
		most = lines[i] > most ? lines[i] : most;
	}
	return most <= least * MODE_FACTOR;
}

/* One round; *same_out: the cores were equally far apart all the time. */
static int one_round(
	const struct bench_figure *figure, struct options *options, FILE *log, struct rounds *rounds, bool *same_out)
{
	double lines[3], ours, peer = 0;
	struct hf_error error = {0};
	int rc;

	if ((rc = bench_cache_line_ns(&lines[0])) != 0)
		return rc;
	if ((rc = bench_measure(figure, &ours, &error)) != 0) {
		fprintf(stderr, "holdfast bench: %s\n", error.text);
		return rc;
	}
	if ((rc = bench_cache_line_ns(&lines[1])) != 0)
		return rc;
	if (options->peer && bench_peer_measure(figure, &peer, &error) != 0) {
		fprintf(stderr, "holdfast bench: %s\n", error.text);
		options->peer = false;
	}
	lines[2] = lines[1];
	if (options->peer && (rc = bench_cache_line_ns(&lines[2])) != 0)
		return rc;
	*same_out = same_mode(lines, 3);
	rounds->ours[rounds->n] = ours;
	rounds->peer[rounds->n] = peer;
	rounds->ratio[rounds->n] = options->peer && peer > 0 ? ours / peer : 0;
	fprintf(log, "  %-27s %10.1f %-4s  ", figure->name, ours, figure->unit);
	if (options->peer)
		fprintf(log, "UCX %10.1f  ratio %5.2f  ", peer, rounds->ratio[rounds->n]);
	fprintf(log, "cache line %3.0f %3.0f %3.0f ns%s\n", lines[0], lines[1], lines[2],
		*same_out ? "" : "  the cores moved");
	fflush(log);
	return 0;
}

static int run_figure(const struct bench_figure *figure, struct options *options, FILE *log, struct rounds *rounds)
{
	unsigned repeats = 0;

	rounds->n = 0;
	while (rounds->n < options->rounds) {
		bool same;
		int rc = one_round(figure, options, log, rounds, &same);

		if (rc != 0)
			return rc;
		if (same || repeats == REPEATS)
			rounds->n++;
		else
			repeats++;
	}
	rounds->have_peer = options->peer;
	return 0;
}

static json_t *report(const struct bench_figure *figure, struct rounds *rounds, FILE *log)
{
	double value = bench_median(rounds->ours, rounds->n);
	json_t *object = json_pack("{s:s, s:f, s:s}", "name", figure->name, "value", value, "unit", figure->unit);

	if (rounds->have_peer) {
		double peer = bench_median(rounds->peer, rounds->n), ratio = bench_median(rounds->ratio, rounds->n);
		bool most = figure->shape != BENCH_BANDWIDTH;
		bool met = most ? ratio <= figure->target : ratio >= figure->target;

		json_object_update_new(
			object, json_pack("{s:s, s:f, s:f}", "peer", figure->peer, "peer_value", peer, "ratio", ratio));
		fprintf(log, "%-29s %10.1f %-4s  UCX %10.1f  ratio %5.2f  (%s %.1f: %s)\n", figure->name, value,
			figure->unit, peer, ratio, most ? "at most" : "at least", figure->target,
			met ? "met" : "missed");
	} else {
		json_object_update_new(object, json_pack("{s:n, s:n, s:n}", "peer", "peer_value", "ratio"));
		fprintf(log, "%-29s %10.1f %-4s\n", figure->name, value, figure->unit);
	}
	return object;
}

static int run(struct options *options)
{
	FILE *log = options->files.json ? stderr : stdout; /* --json leaves standard output to the JSON */
	json_t *array = json_array();
	static struct rounds rounds;
	int status = DONE;

	for (size_t i = 0; i < FIGURES; i++) {
		if (options->only != NULL && strstr(figures[i].name, options->only) == NULL)
			continue;
		if (run_figure(&figures[i], options, log, &rounds) == 0)
			json_array_append_new(array, report(&figures[i], &rounds, log));
		else
			status = FAILED;
	}
	if (json_array_size(array) == 0 && status == DONE) {
		fprintf(stderr, "holdfast bench: no figure is called like '%s'; leave out --only to see all\n",
			options->only);
		status = WRONG_INPUT;
	} else if (bench_files_write(&options->files, array) != DONE) {
		status = FAILED;
	}
	json_decref(array);
	return status;
}

static bool parse_rounds(const char *text, unsigned *rounds_out)
{
	char *rest;
	unsigned long rounds = strtoul(text, &rest, 10);

	*rounds_out = (unsigned)rounds;
	return *rest == 0 && rest != text && rounds >= 1 && rounds <= ROUNDS_MAX;
}

int bench_ground(int argc, char **argv)
{
	struct options options = {.rounds = ROUNDS_DEFAULT, .peer = true};

	for (int i = 1; i < argc; i++) {
		const char *next = i + 1 < argc ? argv[i + 1] : NULL;

		if (strcmp(argv[i], "--json") == 0 && (next == NULL || next[0] == '-')) {
			options.files.json = true;
		} else if (strcmp(argv[i], "--no-peer") == 0) {
			options.peer = false;
		} else if (next == NULL) {
			return bench_refuse("unknown or incomplete argument", argv[i]);
		} else if (strcmp(argv[i], "--out") == 0 || strcmp(argv[i], "--json") == 0) {
			options.files.out = argv[++i];
		} else if (strcmp(argv[i], "--only") == 0) {
			options.only = argv[++i];
		} else if (strcmp(argv[i], "--rounds") == 0) {
			if (!parse_rounds(argv[++i], &options.rounds))
				return bench_refuse("rounds are a number from 1 to 99, not", argv[i]);
		} else {
			return bench_refuse("unknown argument", argv[i]);
		}
	}
	return run(&options);
}
