#include "bench/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bars.h"
#include "bench/slices.h"

#define QP_TIMEOUT       15u               /* 134 ms: a busy machine is not a cut */
#define HEARTBEAT_MISSES 1000u             /* of 50 ms: neither is a busy one that does not come to answer */
#define BUDGET_NS        (120 * SECOND_NS) /* a lease of half of it: nor a machine that stands still */
#define CLIENT_BYTES     (1u << 20)
#define SECOND_NS        1000000000ull
#define POINT_NS         40000000ull /* of a round */
#define UNDECIDED_NS     80000000ull
#define TABLES_MAX       (2 * BENCH_FLEET_MAX)
#define FEW              4u

/* clang-format off */
#define SYNC  BENCH_WRITE, false
#define BATCH BENCH_WRITE, true
static const struct verbs_point points[] = {
	{8, SYNC, 16, VERBS_CLIENTS}, {8, SYNC, 64, VERBS_CLIENTS}, {8, SYNC, 256, VERBS_CLIENTS},
	{8, SYNC, 1024, VERBS_CLIENTS}, {8, SYNC, 4096, VERBS_CLIENTS},
	{8, SYNC, 16384, VERBS_CLIENTS}, {8, SYNC, 65536, VERBS_CLIENTS},
	{8, SYNC, 262144, VERBS_CLIENTS}, {8, SYNC, 1048576, VERBS_CLIENTS},
	{8, BATCH, 8, VERBS_CLIENTS}, {8, BATCH, 16, VERBS_CLIENTS}, {8, BATCH, 64, VERBS_CLIENTS},
	{8, BATCH, 256, VERBS_CLIENTS}, {8, BATCH, 1024, VERBS_CLIENTS}, {8, BATCH, 4096, VERBS_CLIENTS},
	{8, BATCH, 16384, VERBS_CLIENTS}, {8, BATCH, 65536, VERBS_CLIENTS},
	{8, BATCH, 262144, FEW}, {8, BATCH, 1048576, FEW},
	{9, SYNC, 4096, 1}, {9, SYNC, 4096, 2}, {9, SYNC, 4096, 4},
	{9, SYNC, 4096, 8}, {9, SYNC, 4096, 16},
	{9, BENCH_CAS, false, 8, 1}, {9, BENCH_CAS, false, 8, 2}, {9, BENCH_CAS, false, 8, 4},
	{9, BENCH_CAS, false, 8, 8}, {9, BENCH_CAS, false, 8, 16},
	{10, BATCH, 4096, 1}, {10, BATCH, 4096, 2}, {10, BATCH, 4096, 4},
	{10, BATCH, 4096, 8}, {10, BATCH, 4096, 16},
	{10, BENCH_CAS_READS, true, 8, 1}, {10, BENCH_CAS_READS, true, 8, 2}, {10, BENCH_CAS_READS, true, 8, 4},
	{10, BENCH_CAS_READS, true, 8, 8}, {10, BENCH_CAS_READS, true, 8, 16},
};
/* clang-format on */
#define POINTS (sizeof(points) / sizeof(points[0]))
_Static_assert(POINTS <= VERBS_POINTS_MAX, "every point has a place in a table");

unsigned verbs_points(const struct verbs_point **points_out)
{
	*points_out = points;
	return POINTS;
}

const char *verbs_op_name(const struct verbs_point *point)
{
	if (point->op == BENCH_CAS_READS)
		return "CAS + 3 READ";
	return point->op == BENCH_CAS ? "CAS" : "WRITE";
}

/* ---- one round: every point that is due, in new processes ---- */

struct run {
	const struct verbs_options *options;
	const char *kind;
	unsigned round;
	struct bench_fleet fleet;
	struct slices *slices; /* by mode of the fleet, then point */
	uint32_t due[POINTS];  /* bit per mode; 0: the point is done */
};

static struct slices *slices_of(struct run *run, unsigned mode, unsigned point)
{
	return &run->slices[mode * POINTS + point];
}

static int measure_points(struct bench_fleet *fleet, void *context)
{
	struct run *run = context;
	uint64_t for_ns = run->round < run->options->rounds ? POINT_NS : UNDECIDED_NS;
	int rc = 0;

	for (unsigned p = 0; p < POINTS && rc == 0; p++) {
		struct slices *into[BENCH_FLEET_MAX];

		if (run->due[p] == 0)
			continue;
		for (unsigned m = 0; m < fleet->n; m++)
			into[m] = slices_of(run, m, p);
		rc = slices_measure(fleet, &points[p], run->due[p], for_ns, run->options->handicap, into);
		if (rc != 0 && fleet->error.text[0] == '\0')
			hf_error_set(&fleet->error, rc, "%s: %s of %u bytes, %u clients, failed: %s", run->kind,
				verbs_op_name(&points[p]), points[p].bytes, points[p].clients, strerror(-rc));
	}
	return rc;
}

/* ---- which points are due ---- */

/* A mode that has a bar at a point which is not decided beyond doubt. */
static bool undecided(struct run *run, unsigned mode, unsigned p)
{
	struct slices *slices = slices_of(run, mode, p);
	const char *name = run->fleet.modes[mode]->name;
	double ratio = verbs_bar_at(run->kind, name, &points[p], false);
	double cost = verbs_bar_at(run->kind, name, &points[p], true);
	struct paired paired;

	if (slices->n == SLICES_ROUNDS_MAX)
		return false;
	paired = paired_of(slices->ratio, slices->n);
	if (ratio > 0 && paired_judge(&paired, ratio) == PAIRED_UNDECIDED)
		return true;
	paired = paired_of(slices->cost_ns, slices->n);
	return cost > 0 && paired_judge(&paired, cost) == PAIRED_UNDECIDED;
}

/* False: nothing is due any more. */
static bool find_due(struct run *run)
{
	bool any = false;

	for (unsigned p = 0; p < POINTS; p++) {
		bool wanted = run->options->only_figure == 0 || run->options->only_figure == points[p].figure;

		run->due[p] = 0;
		for (unsigned m = 0; m < run->fleet.n && wanted; m++)
			if (run->round < run->options->rounds || (m > 0 && undecided(run, m, p)))
				run->due[p] |= 1u << m;
		any = any || run->due[p] != 0;
	}
	return any;
}

/* ---- a kind of devices ---- */

/* In steady state resend-cache is resend (as in the paper); `none` beside itself shows what the method is worth. */
static void choose_modes(const struct verbs_options *options, struct bench_fleet *fleet)
{
	fleet->modes[fleet->n++] = &bench_modes[0];
	if (options->only_mode != NULL) {
		fleet->modes[fleet->n++] = bench_mode_find(options->only_mode);
		return;
	}
	for (unsigned m = 1; m < bench_mode_count && fleet->n < BENCH_FLEET_MAX; m++)
		if (bench_modes[m].policy != HF_POLICY_RESEND_CACHE)
			fleet->modes[fleet->n++] = &bench_modes[m];
}

static int run_rounds(struct run *run)
{
	struct hf_env *env = hf_env_host();
	uint64_t end_ns = hf_env_now_ns(env) + run->options->seconds * SECOND_NS;
	int rc = 0;

	for (run->round = 0; rc == 0 && (run->round < run->options->rounds || hf_env_now_ns(env) < end_ns);
		run->round++) {
		unsigned due = 0;

		if (!find_due(run))
			break;
		for (unsigned p = 0; p < POINTS; p++)
			due += run->due[p] != 0;
		rc = bench_fleet_run(&run->fleet, measure_points, run);
		fprintf(run->options->log, "  %s, round %u: %u points\n", run->kind, run->round + 1, due);
		fflush(run->options->log);
	}
	return rc;
}

static void summarize(struct run *run, unsigned mode, struct verbs_table *table)
{
	*table = (struct verbs_table){.kind = run->kind, .mode = run->fleet.modes[mode]};
	for (unsigned p = 0; p < POINTS; p++) {
		struct slices *of = slices_of(run, mode, p);
		struct verbs_result *result = &table->results[p];

		if (of->n == 0)
			continue;
		result->median_ns = (double)histogram_quantile(&of->latency, 0.5);
		result->p99_ns = (double)histogram_quantile(&of->latency, 0.99);
		result->ops_per_s = 1e9 / bench_median(of->per_op_ns, of->n);
		result->mb_per_s = result->ops_per_s * points[p].bytes / 1e6;
		if (mode == 0)
			continue;
		result->time = paired_of(of->ratio, of->n);
		result->cost_ns = paired_of(of->cost_ns, of->n);
		result->cpu = paired_of(of->cpu, of->n);
	}
}

static int run_kind(struct run *run, struct verbs_table *tables, unsigned *n, struct hf_error *error)
{
	int rc;

	run->fleet = (struct bench_fleet){.setup = {.kind = run->kind,
						  .clients = VERBS_CLIENTS,
						  .depth = 2 * BENCH_BATCH,
						  .timeout = QP_TIMEOUT,
						  .heartbeat_misses = HEARTBEAT_MISSES,
						  .budget_ns = BUDGET_NS,
						  .client_bytes = CLIENT_BYTES}};
	choose_modes(run->options, &run->fleet);
	run->slices = calloc((size_t)run->fleet.n * POINTS, sizeof(*run->slices));
	if (run->slices == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < run->fleet.n * POINTS; i++)
		histogram_reset(&run->slices[i].latency);
	rc = run_rounds(run);
	for (unsigned m = 0; m < run->fleet.n && rc == 0; m++)
		summarize(run, m, &tables[(*n)++]);
	if (rc != 0)
		*error = run->fleet.error;
	free(run->slices);
	return rc;
}

int verbs_run(
	const struct verbs_options *options, struct verbs_table **tables_out, unsigned *n_out, struct hf_error *error)
{
	struct verbs_table *tables = calloc(TABLES_MAX, sizeof(*tables));
	static struct run run;
	int rc = tables == NULL ? -ENOMEM : 0;

	*n_out = 0;
	for (const char *const *kind = options->kinds; *kind != NULL && rc == 0; kind++) {
		run = (struct run){.options = options, .kind = *kind};
		rc = run_kind(&run, tables, n_out, error);
	}
	if (rc != 0) {
		free(tables);
		if (error->text[0] == '\0')
			hf_error_set(error, rc, "not measured: %s", strerror(-rc));
		return rc;
	}
	*tables_out = tables;
	return 0;
}
