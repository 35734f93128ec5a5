/* runner.h - many seeds over several jobs, and what they showed together. */
#ifndef HOLDFAST_SIM_RUNNER_H
#define HOLDFAST_SIM_RUNNER_H

#include "sim/scenario.h"

#define RUNNER_JOBS_MAX 16u
#define RUNNER_KEPT     8u /* violations that are printed */

struct run_result {
	uint64_t seed, hash, events, virtual_ns;
	unsigned violations;
	char violation[WORLD_VIOLATION_BYTES];
	uint64_t faults[FAULT_KINDS];
	struct outcome outcome;
};

/* One seed through one scenario, or through all of them in turn (NULL): the hash covers all. */
void run_seed(uint64_t seed, const struct scenario *scenario, bool tracing, struct run_result *result_out);

struct run_sum {
	uint64_t seeds, violated, events, virtual_ns;
	uint64_t faults[FAULT_KINDS];
	struct outcome outcome;
	uint64_t hash; /* of all hashes, in whatever order */
	unsigned kept;
	struct run_result violations[RUNNER_KEPT];
};

/* Forks `jobs` and gives each every jobs-th seed. Returns 0, or -errno when a job could not be run to its end; then
 * *died_seed_out is the seed that it died of, or 0. */
int run_seeds(uint64_t first, uint64_t seeds, unsigned jobs, const struct scenario *scenario, bool stop_at_violation,
	struct run_sum *sum_out, uint64_t *died_seed_out);

#endif
