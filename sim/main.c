/* holdfast-sim: clusters of product code in virtual time, one for each seed. */
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/device.h"
#include "sim/runner.h"

#define LARGE_BYTES (256 << 10)

struct options {
	uint64_t first, seeds, seed;
	unsigned jobs;
	bool one, trace, stop;
	const struct scenario *scenario;
};

static void usage(FILE *to)
{
	fprintf(to,
		"usage: holdfast-sim [--seeds N] [--first K] [--jobs J] [--scenario S] [--stop-at-violation]\n"
		"       holdfast-sim --seed K [--trace] [--scenario S]\n"
		"Runs product code in a simulated world, once for each seed. Scenarios, all without a * unless one is "
		"named:\n");
	for (unsigned i = 0; scenarios[i] != NULL; i++)
		fprintf(to, "%s %-14s %s\n", scenarios[i]->only_when_named ? "*" : " ", scenarios[i]->name,
			scenarios[i]->what);
	fprintf(to, "Exit status: 0 no violation, 1 violations, 2 wrong usage or a run that died.\n");
}

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *value_out)
{
	char *end;

	*value_out = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && *end == '\0' && *value_out >= least && *value_out <= most)
		return true;
	fprintf(stderr, "holdfast-sim: \"%s\" is not a number from %" PRIu64 " to %" PRIu64 "\n", text, least, most);
	return false;
}

static bool parse(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {
		{"seeds", required_argument, NULL, 'n'},
		{"first", required_argument, NULL, 'f'},
		{"jobs", required_argument, NULL, 'j'},
		{"seed", required_argument, NULL, 's'},
		{"scenario", required_argument, NULL, 'c'},
		{"trace", no_argument, NULL, 't'},
		{"stop-at-violation", no_argument, NULL, 'x'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	uint64_t jobs;

	*options = (struct options){.first = 1, .seeds = 100, .jobs = 2};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
		if (c == 'n' && !parse_number(optarg, 1, UINT32_MAX, &options->seeds))
			return false;
		if (c == 'f' && !parse_number(optarg, 0, UINT64_MAX / 2, &options->first))
			return false;
		if (c == 's' && !parse_number(optarg, 0, UINT64_MAX, &options->seed))
			return false;
		if (c == 'j' && !parse_number(optarg, 1, RUNNER_JOBS_MAX, &jobs))
			return false;
		if (c == 'j')
			options->jobs = (unsigned)jobs;
		if (c == 'c' && (options->scenario = scenario_find(optarg)) == NULL) {
			fprintf(stderr, "holdfast-sim: there is no scenario \"%s\"\n", optarg);
			return false;
		}
		options->one |= c == 's';
		options->trace |= c == 't';
		options->stop |= c == 'x';
		if (c == 'h') {
			usage(stdout);
			exit(0);
		}
		if (c == '?')
			return false;
	}
	return optind == argc;
}

static void print_faults(const uint64_t *faults)
{
	printf("faults injected:");
	for (unsigned i = 0; i < FAULT_KINDS; i++)
		if (faults[i] > 0)
			printf(" %s %" PRIu64, fault_name((enum fault_kind)i), faults[i]);
	printf("\n");
}

/* Of scenarios that count this. */
static void print_doubt(const struct outcome *outcome)
{
	if (outcome->in_doubt > 0)
		printf("faults that hit work in doubt: %" PRIu64 "\n", outcome->in_doubt);
}

static int run_one_seed(const struct options *options)
{
	struct run_result result;

	run_seed(options->seed, options->scenario, options->trace, &result);
	printf("seed %" PRIu64 ": hash %016" PRIx64 ", %" PRIu64 " events, %.3f s of virtual time, %" PRIu64
	       " operations, %" PRIu64 " failovers, %" PRIu64 " doubled, %" PRIu64 " unknown\n",
		result.seed, result.hash, result.events, (double)result.virtual_ns / 1e9, result.outcome.operations,
		result.outcome.failovers, result.outcome.doubled, result.outcome.unknown);
	print_faults(result.faults);
	print_doubt(&result.outcome);
	if (result.violations > 0)
		printf("VIOLATION: %s\n", result.violation);
	return result.violations > 0;
}

/* The command that repeats a seed. */
static void print_again(uint64_t seed, const struct scenario *scenario)
{
	if (scenario == NULL)
		printf("  again: make sim SEED=%" PRIu64 " TRACE=1\n", seed);
	else
		printf("  again: make sim SEED=%" PRIu64 " TRACE=1 SIM_ARGS=\"--scenario %s\"\n", seed, scenario->name);
}

static double now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int run_many(const struct options *options)
{
	static struct run_sum sum;
	double started = now_seconds(), took;
	uint64_t died;
	int rc =
		run_seeds(options->first, options->seeds, options->jobs, options->scenario, options->stop, &sum, &died);

	took = now_seconds() - started;
	printf("%" PRIu64 " seeds in %.1f s (%.0f seeds/s), %" PRIu64 " events, %.0f s of virtual time, %" PRIu64
	       " operations, %" PRIu64 " failovers, %" PRIu64 " additions doubled by blind resending, %" PRIu64
	       " unknown, hash %016" PRIx64 "\n",
		sum.seeds, took, (double)sum.seeds / took, sum.events, (double)sum.virtual_ns / 1e9,
		sum.outcome.operations, sum.outcome.failovers, sum.outcome.doubled, sum.outcome.unknown, sum.hash);
	print_faults(sum.faults);
	print_doubt(&sum.outcome);
	if (sum.outcome.excluded > 0)
		printf("members of stores excluded: %" PRIu64 "; returned by a full copy: %" PRIu64
		       ", with what they had missed: %" PRIu64 "; deleted records removed: %" PRIu64 "\n",
			sum.outcome.excluded, sum.outcome.copied, sum.outcome.healed, sum.outcome.purged);
	if (sum.outcome.truncated > 0)
		printf("logs of replicas cut where a later leader has another history: %" PRIu64 "\n",
			sum.outcome.truncated);
	if (sum.outcome.older_logs > 0)
		printf("logs of members of stores replaced by older copies: %" PRIu64
		       "; with a torn entry before others: %" PRIu64 "\n",
			sum.outcome.older_logs, sum.outcome.torn_logs);
	if (sum.outcome.damaged_logs > 0)
		printf("logs of members of stores damaged below their marks: %" PRIu64 "\n", sum.outcome.damaged_logs);
	if (sum.outcome.hit_recoveries > 0)
		printf("killed inside recoveries: %" PRIu64 "; of these, the member that returned: %" PRIu64
		       ", its buddy: %" PRIu64 ", who decided: %" PRIu64 "\n",
			sum.outcome.hit_recoveries, sum.outcome.hit_returning, sum.outcome.hit_buddies,
			sum.outcome.hit_deciders);
	for (unsigned i = 0; i < sum.kept; i++) {
		printf("VIOLATION seed %" PRIu64 ": %s\n", sum.violations[i].seed, sum.violations[i].violation);
		print_again(sum.violations[i].seed, options->scenario);
	}
	if (rc != 0) {
		printf("DIED in seed %" PRIu64 "\n", died);
		print_again(died, options->scenario);
		return 2;
	}
	printf("%s: %" PRIu64 " of %" PRIu64 " seeds violated\n", sum.violated == 0 ? "ok" : "FAILED", sum.violated,
		sum.seeds);
	return sum.violated > 0;
}

int main(int argc, char **argv)
{
	struct options options;

	if (!parse(argc, argv, &options)) {
		usage(stderr);
		return 2;
	}
	/* Large zeroed memory comes from the kernel, page by page as it is touched, and not from what was freed. */
	mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	device_register();
	return options.one ? run_one_seed(&options) : run_many(&options);
}
