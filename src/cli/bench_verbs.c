#include "cli/bench_verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/histogram.h"

#define CLIENTS      16u
#define QP_TIMEOUT   15u /* 134 ms: a busy machine is not a cut */
#define CLIENT_BYTES (1u << 20)
#define WARM_UP_NS   10000000ull
#define POINT_NS     60000000ull
#define SLICE_NS     2000000ull /* the rate is that of the median slice: the machine is shared, and stops us at times */
#define SLICES       ((unsigned)(POINT_NS / SLICE_NS))
#define SLICE_LISTS  64.0 /* with fewer in the median slice, the rate is that of the whole time */
#define ATTEMPTS     6u
#define STALL_NS     10000000000ull
#define TURN_EVERY   64u /* polls; the control channel's heartbeats can wait as long */
#define POLL_WCS     16
#define TABLES_MAX   32u

/* clang-format off */
#define SYNC  BENCH_WRITE, false
#define BATCH BENCH_WRITE, true
static const struct verbs_point points[] = {
	{8, SYNC, 16, CLIENTS}, {8, SYNC, 64, CLIENTS}, {8, SYNC, 256, CLIENTS},
	{8, SYNC, 1024, CLIENTS}, {8, SYNC, 4096, CLIENTS},
	{8, SYNC, 16384, CLIENTS}, {8, SYNC, 65536, CLIENTS},
	{8, SYNC, 262144, CLIENTS}, {8, SYNC, 1048576, CLIENTS},
	{8, BATCH, 8, CLIENTS}, {8, BATCH, 16, CLIENTS}, {8, BATCH, 64, CLIENTS},
	{8, BATCH, 256, CLIENTS}, {8, BATCH, 1024, CLIENTS}, {8, BATCH, 4096, CLIENTS},
	{8, BATCH, 16384, CLIENTS}, {8, BATCH, 65536, CLIENTS},
	{8, BATCH, 262144, CLIENTS}, {8, BATCH, 1048576, CLIENTS},
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

/* ---- one point ---- */

struct work {
	struct ibv_send_wr wrs[CLIENTS][BENCH_BATCH];
	struct ibv_sge sges[CLIENTS][BENCH_BATCH];
	uint64_t posted_ns[CLIENTS];
	struct histogram latency;
	double slices[SLICES]; /* lists completed in each */
};

struct measured {
	double median_ns, p99_ns, ops_per_s;
};

static int post_client(struct bench_nodes *nodes, struct work *work, unsigned client, uint64_t now_ns)
{
	struct ibv_send_wr *bad;

	work->posted_ns[client] = now_ns;
	return hf_vqp_post_send(nodes->clients[client].vqp, work->wrs[client], &bad);
}

/* Lets every client post again when its list has completed, until end_ns; then waits for those in flight. */
static int drive(struct bench_nodes *nodes, struct work *work, unsigned clients, uint64_t from_ns, uint64_t until_ns)
{
	unsigned in_flight = clients, polls = 0;
	uint64_t now_ns = hf_env_now_ns(nodes->env);
	struct ibv_wc wcs[POLL_WCS];
	int rc = 0;

	for (unsigned i = 0; i < clients && rc == 0; i++)
		rc = post_client(nodes, work, i, now_ns);
	while (in_flight > 0 && rc == 0) {
		int n = hf_vcq_poll(nodes->cq, POLL_WCS, wcs);

		if (++polls % TURN_EVERY == 0)
			bench_nodes_turn(nodes);
		now_ns = hf_env_now_ns(nodes->env);
		if (nodes->broken || nodes->down > 0 || now_ns > until_ns + STALL_NS)
			return -EIO;
		for (int i = 0; i < n && rc == 0; i++) {
			unsigned client = (unsigned)wcs[i].wr_id;

			if (wcs[i].status != IBV_WC_SUCCESS)
				return -EIO;
			if (now_ns >= from_ns && now_ns < until_ns) {
				histogram_add(&work->latency, now_ns - work->posted_ns[client]);
				if (now_ns - from_ns < POINT_NS)
					work->slices[(now_ns - from_ns) / SLICE_NS]++;
			}
			if (now_ns < until_ns)
				rc = post_client(nodes, work, client, now_ns);
			else
				in_flight--;
		}
	}
	return rc;
}

static double lists_per_s(struct work *work, uint64_t window_ns)
{
	double median = bench_median(work->slices, SLICES);

	return median >= SLICE_LISTS ? median * 1e9 / SLICE_NS : (double)work->latency.count * 1e9 / (double)window_ns;
}

static int run_point(
	struct bench_nodes *nodes, struct work *work, const struct verbs_point *point, struct measured *measured_out)
{
	unsigned n = point->batch ? BENCH_BATCH : 1;
	uint64_t window_ns = POINT_NS / 2;
	int rc = 0;

	for (unsigned i = 0; i < point->clients; i++)
		bench_list(&nodes->clients[i], point->op, point->bytes, n, 0, i, work->wrs[i], work->sges[i]);
	histogram_reset(&work->latency);
	/* Nothing may complete in so short a time when somebody else has the core, or the lists are long. */
	for (unsigned i = 0; i < ATTEMPTS && work->latency.count == 0 && rc == 0; i++) {
		uint64_t from_ns = hf_env_now_ns(nodes->env) + WARM_UP_NS;

		memset(work->slices, 0, sizeof(work->slices));
		window_ns *= 2;
		rc = drive(nodes, work, point->clients, from_ns, from_ns + window_ns);
	}
	if (rc == 0 && work->latency.count == 0)
		rc = -ETIMEDOUT;
	*measured_out = (struct measured){.median_ns = (double)histogram_quantile(&work->latency, 0.5),
		.p99_ns = (double)histogram_quantile(&work->latency, 0.99),
		.ops_per_s = lists_per_s(work, window_ns) * n};
	return rc;
}

/* ---- one mode ---- */

struct job {
	struct bench_setup setup;
	unsigned only_figure;
	struct measured measured[POINTS];
	struct hf_error error;
};

static int run_near(struct bench_meeting *meeting, void *context)
{
	struct job *job = context;
	struct work *work = calloc(1, sizeof(*work));
	struct bench_nodes nodes;
	int rc;

	if (work == NULL)
		return -ENOMEM;
	rc = bench_nodes_open(&nodes, &job->setup, meeting, true);
	if (rc != 0)
		job->error = nodes.error;
	for (unsigned i = 0; i < POINTS && rc == 0; i++)
		if (job->only_figure == 0 || job->only_figure == points[i].figure) {
			rc = run_point(&nodes, work, &points[i], &job->measured[i]);
			if (rc != 0)
				hf_error_set(&job->error, rc, "%s, %s: %s of %u bytes failed: %s", job->setup.kind,
					job->setup.mode->name, verbs_op_name(&points[i]), points[i].bytes,
					strerror(-rc));
		}
	bench_leave(meeting, true);
	bench_nodes_close(&nodes);
	free(work);
	return rc;
}

static int run_far(struct bench_meeting *meeting, void *context)
{
	struct job *job = context;
	struct bench_nodes nodes;
	int rc = bench_nodes_open(&nodes, &job->setup, meeting, false);

	if (rc == 0)
		bench_nodes_serve(&nodes);
	else
		fprintf(stderr, "holdfast bench: the server: %s\n", nodes.error.text);
	bench_nodes_close(&nodes);
	return rc;
}

/* ---- rounds ---- */

struct samples {
	double median_ns[VERBS_ROUNDS_MAX], p99_ns[VERBS_ROUNDS_MAX], ops[VERBS_ROUNDS_MAX];
	double latency_ratio[VERBS_ROUNDS_MAX], ops_ratio[VERBS_ROUNDS_MAX];
};

static bool wanted(const struct verbs_options *options, const struct bench_mode *mode)
{
	return options->only_mode == NULL || mode == &bench_modes[0] || strcmp(options->only_mode, mode->name) == 0;
}

/* Every mode once; the first one is what the others of this round are compared with. */
static int one_round(const struct verbs_options *options, const char *kind, unsigned round, struct samples *samples,
	struct hf_error *error)
{
	static struct job job, base;
	unsigned column = 0;

	for (unsigned m = 0; m < bench_mode_count; m++) {
		int rc;

		if (!wanted(options, &bench_modes[m]))
			continue;
		job = (struct job){.setup = {.kind = kind,
					   .mode = &bench_modes[m],
					   .clients = CLIENTS,
					   .depth = 2 * BENCH_BATCH,
					   .timeout = QP_TIMEOUT,
					   .client_bytes = CLIENT_BYTES},
			.only_figure = options->only_figure};
		rc = bench_together(run_near, run_far, &job);
		bench_nodes_clean();
		if (rc != 0) {
			*error = job.error;
			return rc;
		}
		if (m == 0)
			base = job;
		for (unsigned p = 0; p < POINTS; p++) {
			const struct measured *now = &job.measured[p], *none = &base.measured[p];
			struct samples *into = &samples[column * POINTS + p];

			into->median_ns[round] = now->median_ns;
			into->p99_ns[round] = now->p99_ns;
			into->ops[round] = now->ops_per_s;
			into->latency_ratio[round] = none->median_ns > 0 ? now->median_ns / none->median_ns : 0;
			into->ops_ratio[round] = none->ops_per_s > 0 ? now->ops_per_s / none->ops_per_s : 0;
		}
		fprintf(options->log, "  round %u: %s %s\n", round + 1, kind, bench_modes[m].name);
		fflush(options->log);
		column++;
	}
	return 0;
}

static void summarize(struct samples *samples, unsigned rounds, struct verbs_table *table)
{
	for (unsigned p = 0; p < POINTS; p++) {
		struct samples *of = &samples[p];
		double ops = bench_median(of->ops, rounds);

		table->results[p] = (struct verbs_result){.median_ns = bench_median(of->median_ns, rounds),
			.p99_ns = bench_median(of->p99_ns, rounds),
			.ops_per_s = ops,
			.mb_per_s = ops * points[p].bytes / 1e6,
			.latency_ratio = bench_median(of->latency_ratio, rounds),
			.bandwidth_ratio = bench_median(of->ops_ratio, rounds)};
	}
}

int verbs_run(
	const struct verbs_options *options, struct verbs_table **tables_out, unsigned *n_out, struct hf_error *error)
{
	struct samples *samples = calloc((size_t)bench_mode_count * POINTS, sizeof(*samples));
	struct verbs_table *tables = calloc(TABLES_MAX, sizeof(*tables));
	unsigned n = 0;
	int rc = samples == NULL || tables == NULL ? -ENOMEM : 0;

	for (const char *const *kind = options->kinds; *kind != NULL && rc == 0; kind++) {
		unsigned column = 0;

		for (unsigned round = 0; round < options->rounds && rc == 0; round++)
			rc = one_round(options, *kind, round, samples, error);
		for (unsigned m = 0; m < bench_mode_count && rc == 0; m++) {
			if (!wanted(options, &bench_modes[m]))
				continue;
			tables[n] = (struct verbs_table){.kind = *kind, .mode = &bench_modes[m]};
			summarize(&samples[column++ * POINTS], options->rounds, &tables[n++]);
		}
	}
	free(samples);
	if (rc != 0) {
		free(tables);
		if (error->text[0] == '\0')
			hf_error_set(error, rc, "not measured: %s", strerror(-rc));
		return rc;
	}
	*tables_out = tables;
	*n_out = n;
	return 0;
}
