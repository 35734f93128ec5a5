/* holdfast bench smr: what a proposal costs, and how long nobody leads.
 *
 * Three members over shm, in two processes on a core each (smr.h). In a round of proposals a bare cache line is
 * measured
 * before and behind. smr_failover.c has leaders that stop. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/smr.h"

#define ROUNDS_DEFAULT 11u
#define ROUNDS_MAX     99u
#define PROPOSALS      100000u
#define SLOTS          65536u
#define WARM           (SLOTS + 2000u) /* in the first lap of the ring each page of the logs is a fault, at all three */
#define FAILOVERS      20u
#define FAILOVERS_MAX  1000u
#define CALLS_MAX      (HF_SMR_BATCH_MAX * HF_SMR_WINDOW_MAX)

struct latency {
	double line_before, line_after, median, p99, p999;
	double batch_rate[2]; /* requests a second: 1 in flight, and as many as there may be */
};

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void answered(struct hf_smr_call *call)
{
	call->data = NULL;
}

/* Requests a second, with so many at a time. */
static double rate_of(struct smr_side *side, const void *data, unsigned at_a_time, unsigned total)
{
	static struct hf_smr_call calls[CALLS_MAX];
	uint64_t start_ns = hf_env_now_ns(hf_env_host());
	unsigned flushes = 0;

	for (unsigned left = total; left > 0; left -= at_a_time) {
		unsigned busy = at_a_time;

		for (unsigned i = 0; i < at_a_time; i++) {
			calls[i] = (struct hf_smr_call){.done = answered, .data = data, .bytes = SMR_BYTES};
			if (hf_smr_propose(side->members[0], &calls[i]) != 0)
				return 0;
		}
		while (busy > 0) {
			hf_smr_flush(side->members[0]);
			if (++flushes % 1024 == 0)
				(void)hf_loop_turn(side->loop, 0);
			busy = 0;
			for (unsigned i = 0; i < at_a_time; i++)
				busy += calls[i].data != NULL;
		}
		(void)hf_loop_turn(side->loop, 0);
	}
	return total / ((double)(hf_env_now_ns(hf_env_host()) - start_ns) / 1e9);
}

static int measure_latency(struct bench_meeting *meeting, void *context)
{
	static uint32_t times[PROPOSALS];
	static const uint8_t data[SMR_BYTES];
	const struct smr_task *task = context;
	struct latency *at = task->result;
	struct smr_side side = {0};
	uint32_t ns;
	int rc = smr_side_lead(&side, meeting, true, task);

	for (unsigned i = 0; rc == 0 && i < WARM; i++)
		rc = smr_side_propose(&side, data, &ns) ? 0 : -EAGAIN;
	for (unsigned i = 0; rc == 0 && i < PROPOSALS; i++) {
		rc = smr_side_propose(&side, data, &times[i]) ? 0 : -EAGAIN;
		if (i % 64 == 0)
			(void)hf_loop_turn(side.loop, 0);
	}
	if (rc == 0) {
		qsort(times, PROPOSALS, sizeof(times[0]), by_value);
		at->median = times[PROPOSALS / 2];
		at->p99 = times[PROPOSALS / 100 * 99];
		at->p999 = times[PROPOSALS / 1000 * 999];
		at->batch_rate[0] = rate_of(&side, data, HF_SMR_BATCH_MAX, 2000 * HF_SMR_BATCH_MAX);
		at->batch_rate[1] = rate_of(&side, data, CALLS_MAX, 400 * CALLS_MAX);
		rc = at->batch_rate[1] == 0 ? -EAGAIN : 0;
	}
	smr_side_close(&side);
	return rc;
}

static int follow(struct bench_meeting *meeting, void *context)
{
	struct smr_side side = {0};
	int rc = smr_side_follow(&side, meeting, false, context);

	while (rc == 0 && !bench_other_left(meeting, false))
		(void)hf_loop_turn(side.loop, 1000000);
	smr_side_close(&side);
	return rc;
}

/* ---- the report ---- */

static json_t *latencies(unsigned rounds, unsigned *generation, FILE *log)
{
	double medians[ROUNDS_MAX], tails[ROUNDS_MAX], lines[ROUNDS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < rounds; i++) {
		struct latency latency = {0}, *at = &latency;
		struct smr_task task = {.patient = true, .slots = SLOTS, .result = at};
		int rc = bench_cache_line_ns(&at->line_before);

		if (rc == 0)
			rc = smr_side_together(measure_latency, follow, &task, generation);
		if (rc != 0 || bench_cache_line_ns(&at->line_after) != 0)
			return NULL;
		fprintf(log,
			"  propose of 64 B: median %5.0f ns, p99 %5.0f, p99.9 %6.0f; cache line %3.0f %3.0f ns; "
			"batches of 128: %.2f M/s, 8 in flight: %.2f M/s\n",
			at->median, at->p99, at->p999, at->line_before, at->line_after, at->batch_rate[0] / 1e6,
			at->batch_rate[1] / 1e6);
		medians[n] = at->median;
		lines[n] = at->line_before;
		tails[n++] = at->p99;
	}
	return json_pack("{s:s, s:f, s:f, s:f, s:i}", "name", "smr_propose_64", "median_ns", bench_median(medians, n),
		"p99_ns", bench_median(tails, n), "cache_line_ns", bench_median(lines, n), "rounds", (int)n);
}

int bench_smr(int argc, char **argv)
{
	unsigned rounds = ROUNDS_DEFAULT, failovers = FAILOVERS, generation = 0;
	json_t *array = json_array(), *latency, *failover;
	bool json = false;
	FILE *log;
	int status;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0)
			json = true;
		else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
			rounds = (unsigned)strtoul(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--failovers") == 0 && i + 1 < argc)
			failovers = (unsigned)strtoul(argv[++i], NULL, 10);
		else
			return bench_refuse("there is no option", argv[i]);
	}
	if (rounds == 0 || rounds > ROUNDS_MAX)
		return bench_refuse("--rounds takes 1 to 99, not", "that");
	if (failovers == 0 || failovers > FAILOVERS_MAX)
		return bench_refuse("--failovers takes 1 to 1000, not", "that");
	log = json ? stderr : stdout;
	latency = latencies(rounds, &generation, log);
	failover = latency == NULL ? NULL : smr_failovers(failovers, &generation, log);
	status = latency == NULL || failover == NULL;
	if (latency != NULL)
		(void)json_array_append_new(array, latency);
	if (failover != NULL)
		(void)json_array_extend(array, failover);
	json_decref(failover);
	(void)json_dumpf(array, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	puts("");
	json_decref(array);
	return status;
}
