/* Runs seeds in forked jobs, whose results lie in memory that they share with their parent. */
#include "sim/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ensure.h"
#include "base/log.h"
#include "sim/host.h"

#define TORN_SEEDS  6u /* of so many seeds one has turns that are torn, for less long than a loop may be preempted */
#define TEARS_PPM   500u
#define TEAR_NS_MAX (200 * NS_US)

struct job {
	struct run_sum sum;
	uint64_t current; /* seed */
	bool finished;
};

/* Product code logs what it meets; here it belongs to the trace. */
static void trace_log(enum log_level level, const char *line, void *context)
{
	(void)level;
	world_trace(context, "  %s", line);
}

static void run_one(uint64_t seed, const struct scenario *scenario, bool tracing, struct run_result *result)
{
	struct world world;

	memory_reset();
	world_init(&world, seed, tracing);
	if (seed % TORN_SEEDS == 2) {
		world.tears_ppm = TEARS_PPM;
		world.tear_ns_max = TEAR_NS_MAX;
	}
	log_set_limit(0);
	log_set_sink(trace_log, &world);
	if (tracing)
		log_set_level(LOG_DEBUG);
	scenario->run(&world, &result->outcome);
	log_set_sink(NULL, NULL);
	result->hash = (result->hash ^ world.hash) * 0x100000001b3ull;
	result->events += world.events;
	result->virtual_ns += world.now_ns;
	for (unsigned i = 0; i < FAULT_KINDS; i++)
		result->faults[i] += world.faults[i];
	if (world.violations > 0 && result->violations == 0)
		snprintf(
			result->violation, sizeof(result->violation), "%.16s: %.480s", scenario->name, world.violation);
	result->violations += world.violations;
	world_free(&world);
}

void run_seed(uint64_t seed, const struct scenario *scenario, bool tracing, struct run_result *result_out)
{
	*result_out = (struct run_result){.seed = seed};
	if (scenario != NULL) {
		run_one(seed, scenario, tracing, result_out);
		return;
	}
	for (unsigned i = 0; scenarios[i] != NULL; i++)
		if (!scenarios[i]->only_when_named)
			run_one(seed, scenarios[i], tracing, result_out);
}

static void add_outcome(struct outcome *to, const struct outcome *more)
{
	to->operations += more->operations;
	to->doubled += more->doubled;
	to->unknown += more->unknown;
	to->failovers += more->failovers;
	to->in_doubt += more->in_doubt;
	to->failed += more->failed;
	to->refused += more->refused;
	to->excluded += more->excluded;
	to->copied += more->copied;
	to->healed += more->healed;
	to->purged += more->purged;
	to->older_logs += more->older_logs;
	to->torn_logs += more->torn_logs;
	to->damaged_logs += more->damaged_logs;
	to->truncated += more->truncated;
	to->hit_recoveries += more->hit_recoveries;
	to->hit_returning += more->hit_returning;
	to->hit_buddies += more->hit_buddies;
	to->hit_deciders += more->hit_deciders;
}

static void add(struct run_sum *sum, const struct run_result *result)
{
	sum->seeds++;
	sum->events += result->events;
	sum->virtual_ns += result->virtual_ns;
	sum->hash += result->hash;
	for (unsigned i = 0; i < FAULT_KINDS; i++)
		sum->faults[i] += result->faults[i];
	add_outcome(&sum->outcome, &result->outcome);
	if (result->violations == 0)
		return;
	sum->violated++;
	if (sum->kept < RUNNER_KEPT)
		sum->violations[sum->kept++] = *result;
}

static void merge(struct run_sum *to, const struct run_sum *from)
{
	to->seeds += from->seeds;
	to->violated += from->violated;
	to->events += from->events;
	to->virtual_ns += from->virtual_ns;
	to->hash += from->hash;
	for (unsigned i = 0; i < FAULT_KINDS; i++)
		to->faults[i] += from->faults[i];
	add_outcome(&to->outcome, &from->outcome);
	for (unsigned i = 0; i < from->kept && to->kept < RUNNER_KEPT; i++)
		to->violations[to->kept++] = from->violations[i];
}

static void work(struct job *job, uint64_t first, uint64_t seeds, unsigned step, const struct scenario *scenario,
	bool stop_at_violation)
{
	for (uint64_t i = 0; i < seeds; i += step) {
		struct run_result result;

		job->current = first + i;
		run_seed(job->current, scenario, false, &result);
		add(&job->sum, &result);
		if (stop_at_violation && job->sum.violated > 0)
			break;
	}
	job->finished = true;
}

int run_seeds(uint64_t first, uint64_t seeds, unsigned jobs, const struct scenario *scenario, bool stop_at_violation,
	struct run_sum *sum_out, uint64_t *died_seed_out)
{
	struct job *shared =
		mmap(NULL, jobs * sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[RUNNER_JOBS_MAX];
	int rc = 0;

	*died_seed_out = 0;
	if (shared == MAP_FAILED)
		return -errno;
	ensure(jobs > 0 && jobs <= RUNNER_JOBS_MAX);
	fflush(stdout);
	for (unsigned i = 0; i < jobs; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			if (seeds > i)
				work(&shared[i], first + i, seeds - i, jobs, scenario, stop_at_violation);
			shared[i].finished = true;
			_exit(0);
		}
	}
	for (unsigned i = 0; i < jobs; i++) {
		int status = 0;

		if (pids[i] < 0 || waitpid(pids[i], &status, 0) < 0)
			rc = -errno;
		merge(sum_out, &shared[i].sum);
		if (!shared[i].finished) {
			rc = -ECHILD;
			*died_seed_out = shared[i].current;
		}
	}
	munmap(shared, jobs * sizeof(*shared));
	return rc;
}
