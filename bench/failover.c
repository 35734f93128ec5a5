#include "bench/failover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cut.h"

#define DEPTH        (2 * BENCH_BATCH)
#define QP_TIMEOUT   11u /* 8 ms, four times */
#define CLIENT_BYTES (BENCH_BATCH * 65536u)
#define FAILBACK_NS  20000000ull
#define PACKET_BYTES 4096.0

const char *const failover_cut_names[FAILOVER_CUT_KINDS] = {"both ways", "requests", "acknowledgements"};

static const struct failover_shape shapes[] = {
	{"WRITE 4 KB", BENCH_WRITE, 4096},
	{"WRITE 64 KB", BENCH_WRITE, 65536},
	{"CAS", BENCH_CAS, 8},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

bool failover_measures(const struct bench_mode *mode)
{
	/* With the log alone a wr may be unknown, and its vqp is in error then. */
	return mode->evidence != HF_EVIDENCE_LOG;
}

bool failover_recovers(const struct bench_mode *mode)
{
	return failover_measures(mode) && mode->policy != HF_POLICY_NONE;
}

bool failover_has_recovery_bar(const struct failover_result *result)
{
	return result->mode->policy == HF_POLICY_VARUNA && result->cut == FAILOVER_ACKS && result->post_ratio.n > 0;
}

bool failover_within_a_packet(const struct failover_result *result)
{
	return result->doubled_most <= result->vqps * PACKET_BYTES;
}

/* ---- one experiment: a kind of devices, a shape, a kind of cut; all policies ---- */

struct job {
	const struct failover_options *options;
	struct bench_fleet fleet;
	const struct failover_shape *shape;
	enum failover_cut cut;
	struct cut_sample samples[BENCH_FLEET_MAX][FAILOVER_CUTS_MAX];
	double series[BENCH_FLEET_MAX][FAILOVER_SERIES];
};

static int run_cuts(struct bench_fleet *fleet, void *context)
{
	struct job *job = context;
	struct cuts *cuts = NULL;
	int rc = cuts_open(fleet, job->shape, job->cut, &cuts);

	for (unsigned i = 0; i < job->options->cuts && rc == 0; i++)
		for (unsigned k = 0; k < fleet->n && rc == 0; k++) {
			unsigned m = (i + k) % fleet->n;

			rc = cuts_one(cuts, m, job->series[m], &job->samples[m][i]);
			if (rc != 0 && fleet->error.text[0] == '\0')
				hf_error_set(&fleet->error, rc, "%s, %s, %s, cut %u of %s: %s", fleet->setup.kind,
					fleet->modes[m]->name, job->shape->name, i + 1, failover_cut_names[job->cut],
					strerror(-rc));
		}
	cuts_close(cuts);
	return rc;
}

/* ---- what the cuts say ---- */

static double median_of(const struct cut_sample *samples, unsigned n, double (*value)(const struct cut_sample *sample))
{
	double values[FAILOVER_CUTS_MAX];
	unsigned found = 0;

	for (unsigned i = 0; i < n; i++)
		if (value(&samples[i]) > 0)
			values[found++] = value(&samples[i]);
	return found > 0 ? bench_median(values, found) : 0;
}

static double detection_of(const struct cut_sample *sample)
{
	return sample->detection_us;
}

static double first_of(const struct cut_sample *sample)
{
	return sample->first_us;
}

static double post_of(const struct cut_sample *sample)
{
	return sample->post_us;
}

static double all_of(const struct cut_sample *sample)
{
	return sample->all_us;
}

static struct paired compare(const struct cut_sample *samples, const struct cut_sample *resend, unsigned n,
	double (*value)(const struct cut_sample *sample))
{
	double ratios[FAILOVER_CUTS_MAX];
	unsigned found = 0;

	for (unsigned i = 0; i < n; i++)
		if (value(&samples[i]) > 0 && value(&resend[i]) > 0)
			ratios[found++] = value(&samples[i]) / value(&resend[i]);
	return paired_of(ratios, found);
}

static double p99_first(const struct cut_sample *samples, unsigned n)
{
	double values[FAILOVER_CUTS_MAX];

	for (unsigned i = 0; i < n; i++)
		values[i] = samples[i].first_us;
	bench_median(values, n);
	return values[(n * 99 - 1) / 100];
}

static void summarize(const struct job *job, unsigned mode, struct failover_result *result)
{
	const struct cut_sample *samples = job->samples[mode];
	unsigned n = job->options->cuts;

	*result = (struct failover_result){.kind = job->fleet.setup.kind,
		.mode = job->fleet.modes[mode],
		.shape = job->shape,
		.cut = job->cut,
		.cuts = n,
		.vqps = job->fleet.setup.clients,
		.detection_us = median_of(samples, n, detection_of),
		.first_us = median_of(samples, n, first_of),
		.first_p99_us = p99_first(samples, n),
		.post_us = median_of(samples, n, post_of),
		.all_us = median_of(samples, n, all_of),
		.step_us = (double)cut_step_ns(job->cut) / 1e3};
	for (unsigned i = 0; i < n; i++) {
		result->in_flight_bytes += samples[i].in_flight / n;
		result->post_failure_bytes += samples[i].post_failure / n;
		result->resent_bytes += samples[i].resent / n;
		result->doubled_bytes += samples[i].doubled / n;
		result->resumed += samples[i].first_us > 0;
		if (samples[i].doubled > result->doubled_most)
			result->doubled_most = samples[i].doubled;
	}
	result->unexecuted_bytes = result->resent_bytes - result->doubled_bytes;
	for (unsigned i = 0; i < FAILOVER_SERIES; i++)
		result->mb_per_s[i] = job->series[mode][i] / n / result->step_us;
}

/* The first mode is `resend`. */
static void summarize_all(const struct job *job, struct failover_result *results)
{
	for (unsigned m = 0; m < job->fleet.n; m++) {
		summarize(job, m, &results[m]);
		if (m == 0)
			continue;
		results[m].post_ratio = compare(job->samples[m], job->samples[0], job->options->cuts, post_of);
		results[m].all_ratio = compare(job->samples[m], job->samples[0], job->options->cuts, all_of);
		if (results[0].resent_bytes > 0)
			results[m].resent_ratio = results[m].resent_bytes / results[0].resent_bytes;
	}
}

static void tell(FILE *log, const struct failover_result *result)
{
	if (!failover_recovers(result->mode)) {
		fprintf(log,
			"  %-4s %-12s %-11s cut %-16s  wrs fail; new vqps come to another rail in %u of %u cuts, first "
			"%6.0f us\n",
			result->kind, result->mode->name, result->shape->name, failover_cut_names[result->cut],
			result->resumed, result->cuts, result->first_us);
		return;
	}
	fprintf(log,
		"  %-4s %-12s %-11s cut %-16s  found %6.0f us  first %6.0f us  recovery %7.0f us (post-failure "
		"%7.0f us)  sent again %9.0f B  not executed %9.0f B\n",
		result->kind, result->mode->name, result->shape->name, failover_cut_names[result->cut],
		result->detection_us, result->first_us, result->all_us, result->post_us, result->resent_bytes,
		result->unexecuted_bytes);
}

/* ---- all ---- */

static void choose_modes(const struct failover_options *options, struct bench_fleet *fleet)
{
	const struct bench_mode *resend = bench_mode_find("resend");

	fleet->modes[fleet->n++] = resend;
	for (unsigned m = 0; m < bench_mode_count && fleet->n < BENCH_FLEET_MAX; m++)
		if (&bench_modes[m] != resend && failover_measures(&bench_modes[m]) &&
			(options->only_mode == NULL || strcmp(options->only_mode, bench_modes[m].name) == 0))
			fleet->modes[fleet->n++] = &bench_modes[m];
}

static bool is_wanted(const char *only, unsigned shape, unsigned cut)
{
	char name[64];

	snprintf(name, sizeof(name), "%s cut %s", shapes[shape].name, failover_cut_names[cut]);
	return only == NULL || strstr(name, only) != NULL;
}

bool failover_wants_any(const char *only)
{
	bool any = false;

	for (unsigned shape = 0; shape < SHAPES; shape++)
		for (unsigned cut = 0; cut < FAILOVER_CUT_KINDS; cut++)
			any = any || is_wanted(only, shape, cut);
	return any;
}

static int run_job(struct job *job, const char *kind, struct failover_result *results, unsigned *n)
{
	int rc;

	job->fleet = (struct bench_fleet){.setup = {.kind = kind,
						  .clients = job->options->clients,
						  .depth = DEPTH,
						  .timeout = QP_TIMEOUT,
						  .client_bytes = CLIENT_BYTES,
						  .failback_ns = FAILBACK_NS}};
	memset(job->series, 0, sizeof(job->series));
	choose_modes(job->options, &job->fleet);
	if (*n + job->fleet.n > FAILOVER_TABLE_MAX)
		return 0;
	rc = bench_fleet_run(&job->fleet, run_cuts, job);
	if (rc != 0)
		return rc;
	summarize_all(job, &results[*n]);
	for (unsigned m = 0; m < job->fleet.n; m++)
		tell(job->options->log, &results[*n + m]);
	fflush(job->options->log);
	*n += job->fleet.n;
	return 0;
}

int failover_run(const struct failover_options *options, struct failover_result **results_out, unsigned *n_out,
	struct hf_error *error)
{
	struct failover_result *results = calloc(FAILOVER_TABLE_MAX, sizeof(*results));
	static struct job job;
	unsigned n = 0;
	int rc = results == NULL ? -ENOMEM : 0;

	job = (struct job){.options = options};
	for (const char *const *kind = options->kinds; *kind != NULL; kind++)
		for (unsigned shape = 0; shape < SHAPES; shape++)
			for (unsigned cut = 0; cut < FAILOVER_CUT_KINDS && rc == 0; cut++) {
				if (!is_wanted(options->only, shape, cut))
					continue;
				job.shape = &shapes[shape];
				job.cut = (enum failover_cut)cut;
				rc = run_job(&job, *kind, results, &n);
			}
	if (rc != 0) {
		free(results);
		*error = job.fleet.error;
		if (error->text[0] == '\0')
			hf_error_set(error, rc, "not measured: %s", strerror(-rc));
		return rc;
	}
	*results_out = results;
	*n_out = n;
	return 0;
}
