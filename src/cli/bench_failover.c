#include "cli/bench_failover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH        (2 * BENCH_BATCH)
#define SIGNAL_EVERY 8u
#define QP_TIMEOUT   11u /* 8 ms, four times */
#define CLIENT_BYTES (BENCH_BATCH * 65536u)
#define FAILBACK_NS  20000000ull
#define STEP_NS      500000ull /* of the series */
#define STEADY_NS    15000000ull
#define RANDOM_NS    8000000u
#define AFTER_NS     (STEP_NS * (FAILOVER_SERIES - FAILOVER_BEFORE))
#define STALL_NS     15000000000ull
#define TURN_EVERY   16u
#define POLL_WCS     32

const char *const failover_cut_names[FAILOVER_CUT_KINDS] = {"both ways", "requests", "acknowledgements"};
static const enum hf_link cut_links[FAILOVER_CUT_KINDS] = {HF_LINK_BOTH, HF_LINK_TX, HF_LINK_RX};

static const struct failover_shape shapes[] = {
	{"WRITE 4 KB", BENCH_WRITE, 4096},
	{"WRITE 64 KB", BENCH_WRITE, 65536},
	{"CAS", BENCH_CAS, 8},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* One client's list, and what of it has completed. */
struct lane {
	struct ibv_send_wr wrs[BENCH_BATCH];
	struct ibv_sge sges[BENCH_BATCH];
	unsigned done;   /* of the list in flight, in wrs */
	bool before_cut; /* the list in flight was posted before the failure was found */
};

struct run {
	struct bench_nodes nodes;
	const struct failover_shape *shape;
	struct lane *lanes;
	uint64_t bytes_done;
	bool stop; /* post no further list */
	unsigned in_flight;
	/* of the cut being measured */
	bool cut;
	uint64_t cut_ns, detected_ns, first_ns, recovered_ns;
	uint64_t in_flight_bytes;
	unsigned waiting; /* lanes whose list of then has not completed */
	double series[FAILOVER_SERIES];
	uint64_t start_ns; /* of the series */
};

static uint64_t now_ns(const struct run *run)
{
	return hf_env_now_ns(run->nodes.env);
}

static int post_lane(struct run *run, unsigned at)
{
	struct lane *lane = &run->lanes[at];
	struct ibv_send_wr *bad;

	lane->done = 0;
	lane->before_cut = false;
	run->in_flight++;
	return hf_vqp_post_send(run->nodes.clients[at].vqp, lane->wrs, &bad);
}

/* ---- completions ---- */

static void count_bytes(struct run *run, uint64_t bytes, uint64_t at_ns)
{
	uint64_t step;

	run->bytes_done += bytes;
	if (run->start_ns == 0 || at_ns < run->start_ns)
		return;
	step = (at_ns - run->start_ns) / STEP_NS;
	if (step < FAILOVER_SERIES)
		run->series[step] += (double)bytes;
}

static int list_done(struct run *run, unsigned at, uint64_t at_ns)
{
	struct lane *lane = &run->lanes[at];

	run->in_flight--;
	if (run->cut && lane->before_cut && --run->waiting == 0)
		run->recovered_ns = at_ns;
	return run->stop ? 0 : post_lane(run, at);
}

static int take(struct run *run)
{
	struct ibv_wc wcs[POLL_WCS];
	int n = hf_vcq_poll(run->nodes.cq, POLL_WCS, wcs), rc = 0;
	uint64_t at_ns = n > 0 ? now_ns(run) : 0;

	for (int i = 0; i < n && rc == 0; i++) {
		unsigned at = (unsigned)wcs[i].wr_id;
		struct lane *lane = &run->lanes[at];

		if (wcs[i].status != IBV_WC_SUCCESS)
			return -EIO;
		count_bytes(run, (uint64_t)SIGNAL_EVERY * run->shape->bytes, at_ns);
		lane->done += SIGNAL_EVERY;
		if (run->cut && run->first_ns == 0 && hf_vqp_rail(run->nodes.clients[at].vqp) != 0)
			run->first_ns = at_ns;
		if (lane->done == BENCH_BATCH)
			rc = list_done(run, at, at_ns);
	}
	return rc;
}

/* What is in flight now has to be recovered. */
static void mark_in_flight(struct run *run)
{
	for (unsigned i = 0; i < run->nodes.setup->clients; i++) {
		run->lanes[i].before_cut = true;
		run->waiting++;
		run->in_flight_bytes += (uint64_t)(BENCH_BATCH - run->lanes[i].done) * run->shape->bytes;
	}
	run->detected_ns = now_ns(run);
}

/* The first vqp that has left its rail. */
static void look_for_detection(struct run *run)
{
	for (unsigned i = 0; i < run->nodes.setup->clients && run->detected_ns == 0; i++)
		if (hf_vqp_state(run->nodes.clients[i].vqp) != HF_VQP_UP || hf_vqp_rail(run->nodes.clients[i].vqp) != 0)
			mark_in_flight(run);
}

static int turn(struct run *run, unsigned *turns)
{
	int rc = take(run);

	if (++*turns % TURN_EVERY == 0)
		bench_nodes_turn(&run->nodes);
	if (run->cut && run->detected_ns == 0)
		look_for_detection(run);
	return rc != 0 ? rc : run->nodes.broken || run->nodes.down > 0 ? -EIO : 0;
}

static int drive_until(struct run *run, uint64_t until_ns)
{
	unsigned turns = 0;
	int rc = 0;

	while (rc == 0 && now_ns(run) < until_ns)
		rc = turn(run, &turns);
	return rc;
}

/* ---- one cut ---- */

struct totals {
	uint64_t resent_bytes, resent_wrs, executed_bytes, log_bytes;
};

/* With nothing in flight: what the vqps sent again, and what the far side's devices executed, up to now. */
static int tally(struct run *run, struct totals *totals_out)
{
	uint64_t question = 0;

	*totals_out = (struct totals){0};
	for (unsigned i = 0; i < run->nodes.setup->clients; i++) {
		struct hf_vqp_counters counters;

		hf_vqp_counters(run->nodes.clients[i].vqp, &counters);
		totals_out->resent_bytes += counters.resent_bytes;
		totals_out->resent_wrs += counters.resent_wrs;
		totals_out->log_bytes += counters.log_bytes;
	}
	return bench_swap(run->nodes.meeting, true, &question, &totals_out->executed_bytes, sizeof(question)) ? 0
													      : -EPIPE;
}

static int start_lanes(struct run *run)
{
	int rc = 0;

	run->stop = false;
	for (unsigned i = 0; i < run->nodes.setup->clients && rc == 0; i++)
		rc = post_lane(run, i);
	return rc;
}

static int finish_lanes(struct run *run)
{
	uint64_t end_ns = now_ns(run) + STALL_NS;
	unsigned turns = 0;
	int rc = 0;

	run->stop = true;
	while (run->in_flight > 0 && rc == 0)
		rc = now_ns(run) > end_ns ? -ETIMEDOUT : turn(run, &turns);
	return rc;
}

static int wait_for_primary(struct run *run)
{
	uint64_t end_ns = now_ns(run) + STALL_NS;
	unsigned turns = 0, back;
	int rc = 0;

	do {
		back = 0;
		rc = turn(run, &turns);
		for (unsigned i = 0; i < run->nodes.setup->clients; i++)
			back += hf_vqp_rail(run->nodes.clients[i].vqp) == 0;
	} while (rc == 0 && back < run->nodes.setup->clients && now_ns(run) < end_ns);
	return rc != 0 ? rc : back < run->nodes.setup->clients ? -ETIMEDOUT : 0;
}

static void begin_cut(struct run *run)
{
	run->detected_ns = run->first_ns = run->recovered_ns = run->in_flight_bytes = 0;
	run->waiting = 0;
	run->cut = true;
	run->cut_ns = now_ns(run);
}

struct cut_sample {
	double in_flight, resent, doubled, first_us, recovered_us, detected_us;
};

static int one_cut(struct run *run, enum failover_cut cut, struct cut_sample *sample)
{
	struct hf_dev *dev = hf_node_dev(run->nodes.node, 0);
	uint64_t steady_ns, end_ns, bytes_before = run->bytes_done;
	struct totals before, after;
	unsigned turns = 0;
	uint32_t random;
	double executed;
	int rc;

	hf_env_entropy(run->nodes.env, &random, sizeof(random));
	if ((rc = tally(run, &before)) != 0 || (rc = start_lanes(run)) != 0)
		return rc;
	steady_ns = now_ns(run) + STEADY_NS + random % RANDOM_NS;
	run->start_ns = steady_ns - STEP_NS * FAILOVER_BEFORE;
	if ((rc = drive_until(run, steady_ns)) != 0)
		return rc;
	begin_cut(run);
	hf_dev_set_link(dev, cut_links[cut], false);
	end_ns = run->cut_ns + STALL_NS;
	while (rc == 0 && (run->recovered_ns == 0 || run->first_ns == 0))
		rc = now_ns(run) > end_ns ? -ETIMEDOUT : turn(run, &turns);
	if (rc == 0)
		rc = drive_until(run, run->cut_ns + AFTER_NS);
	run->cut = false;
	run->start_ns = 0;
	hf_dev_set_link(dev, cut_links[cut], true);
	if (rc != 0 || (rc = wait_for_primary(run)) != 0 || (rc = finish_lanes(run)) != 0 ||
		(rc = tally(run, &after)) != 0)
		return rc;
	executed = (double)(after.executed_bytes - before.executed_bytes);
	sample->in_flight = (double)run->in_flight_bytes;
	sample->resent = (double)(after.resent_bytes - before.resent_bytes);
	sample->doubled = executed - (double)(run->bytes_done - bytes_before);
	sample->doubled -= (double)(after.log_bytes - before.log_bytes);
	sample->first_us = (double)(run->first_ns - run->cut_ns) / 1e3;
	sample->recovered_us = (double)(run->recovered_ns - run->cut_ns) / 1e3;
	sample->detected_us = (double)(run->recovered_ns - run->detected_ns) / 1e3;
	return 0;
}

/* ---- one shape, mode and kind of cut ---- */

struct job {
	struct bench_setup setup;
	const struct failover_shape *shape;
	enum failover_cut cut;
	unsigned cuts;
	struct failover_result result;
	struct hf_error error;
};

static void summarize(struct job *job, const struct cut_sample *samples, const struct run *run)
{
	struct failover_result *result = &job->result;
	double first[FAILOVER_CUTS_MAX], recovered[FAILOVER_CUTS_MAX], detected[FAILOVER_CUTS_MAX];
	double n = job->cuts;

	for (unsigned i = 0; i < job->cuts; i++) {
		result->in_flight_bytes += samples[i].in_flight / n;
		result->resent_bytes += samples[i].resent / n;
		result->doubled_bytes += samples[i].doubled / n;
		first[i] = samples[i].first_us;
		recovered[i] = samples[i].recovered_us;
		detected[i] = samples[i].detected_us;
	}
	result->unexecuted_bytes = result->resent_bytes - result->doubled_bytes;
	result->executed_share =
		result->in_flight_bytes > 0 ? 1 - result->unexecuted_bytes / result->in_flight_bytes : 0;
	result->first_us = bench_median(first, job->cuts);
	result->first_p99_us = first[(job->cuts * 99 - 1) / 100];
	result->recovered_us = bench_median(recovered, job->cuts);
	result->from_detected_us = bench_median(detected, job->cuts);
	result->step_us = STEP_NS / 1e3;
	for (unsigned i = 0; i < FAILOVER_SERIES; i++)
		result->mb_per_s[i] = run->series[i] / n * 1e3 / STEP_NS;
}

static int run_near(struct bench_meeting *meeting, void *context)
{
	struct job *job = context;
	static struct run run;
	static struct cut_sample samples[FAILOVER_CUTS_MAX];
	int rc;

	run = (struct run){.shape = job->shape};
	run.lanes = calloc(job->setup.clients, sizeof(*run.lanes));
	if (run.lanes == NULL)
		return -ENOMEM;
	rc = bench_nodes_open(&run.nodes, &job->setup, meeting, true);
	if (rc != 0)
		job->error = run.nodes.error;
	for (unsigned i = 0; i < job->setup.clients && rc == 0; i++)
		bench_list(&run.nodes.clients[i], job->shape->op, job->shape->bytes, BENCH_BATCH, SIGNAL_EVERY, i,
			run.lanes[i].wrs, run.lanes[i].sges);
	for (unsigned i = 0; i < job->cuts && rc == 0; i++) {
		rc = one_cut(&run, job->cut, &samples[i]);
		if (rc != 0)
			hf_error_set(&job->error, rc, "%s, %s, %s, cut %u of %s: %s", job->setup.kind,
				job->setup.mode->name, job->shape->name, i + 1, failover_cut_names[job->cut],
				strerror(-rc));
	}
	if (rc == 0)
		summarize(job, samples, &run);
	bench_leave(meeting, true);
	bench_nodes_close(&run.nodes);
	free(run.lanes);
	return rc;
}

/* Serves, and tells what its devices have executed whenever the near side asks. */
static void serve(struct bench_nodes *nodes)
{
	while (!bench_other_left(nodes->meeting, false) && !nodes->broken) {
		uint64_t executed = 0, question;

		hf_loop_turn(nodes->loop, 100000);
		if (!bench_asked(nodes->meeting, false))
			continue;
		for (unsigned i = 0; i < BENCH_RAILS; i++) {
			struct hf_dev_counters counters;

			hf_dev_counters(hf_node_dev(nodes->node, i), &counters);
			executed += counters.executed_bytes;
		}
		if (!bench_swap(nodes->meeting, false, &executed, &question, sizeof(executed)))
			return;
	}
}

static int run_far(struct bench_meeting *meeting, void *context)
{
	struct job *job = context;
	struct bench_nodes nodes;
	int rc = bench_nodes_open(&nodes, &job->setup, meeting, false);

	if (rc == 0)
		serve(&nodes);
	else
		fprintf(stderr, "holdfast bench: the server: %s\n", nodes.error.text);
	bench_nodes_close(&nodes);
	return rc;
}

/* ---- all ---- */

static int measure(struct job *job, const struct failover_options *options, struct failover_result *result_out,
	struct hf_error *error)
{
	int rc = bench_together(run_near, run_far, job);

	bench_nodes_clean();
	if (rc != 0) {
		*error = job->error;
		return rc;
	}
	job->result.kind = job->setup.kind;
	job->result.mode = job->setup.mode;
	job->result.shape = job->shape;
	job->result.cut = job->cut;
	job->result.cuts = job->cuts;
	*result_out = job->result;
	fprintf(options->log,
		"  %-4s %-12s %-11s cut %-16s  first %8.0f us  recovered %8.0f us  sent again %9.0f B  not executed "
		"%9.0f B\n",
		job->setup.kind, job->setup.mode->name, job->shape->name, failover_cut_names[job->cut],
		job->result.first_us, job->result.recovered_us, job->result.resent_bytes, job->result.unexecuted_bytes);
	fflush(options->log);
	return 0;
}

static bool wanted(const struct failover_options *options, const struct bench_mode *mode)
{
	/* With the log alone a wr may be unknown, and its vqp is in error then. */
	return mode->policy != HF_POLICY_NONE && mode->evidence != HF_EVIDENCE_LOG &&
	       (options->only_mode == NULL || strcmp(options->only_mode, mode->name) == 0);
}

/* All kinds of cut of all shapes; the modes alternate within each, so that they can be compared. */
static int run_kind(const struct failover_options *options, const char *kind, struct failover_result *results,
	unsigned *n, struct hf_error *error)
{
	static struct job job;
	int rc = 0;

	for (unsigned shape = 0; shape < SHAPES; shape++)
		for (unsigned cut = 0; cut < FAILOVER_CUT_KINDS; cut++)
			for (unsigned mode = 0; mode < bench_mode_count && rc == 0; mode++) {
				if (!wanted(options, &bench_modes[mode]) || *n == FAILOVER_TABLE_MAX)
					continue;
				job = (struct job){.setup = {.kind = kind,
							   .mode = &bench_modes[mode],
							   .clients = options->clients,
							   .depth = DEPTH,
							   .timeout = QP_TIMEOUT,
							   .client_bytes = CLIENT_BYTES,
							   .failback_ns = FAILBACK_NS},
					.shape = &shapes[shape],
					.cut = (enum failover_cut)cut,
					.cuts = options->cuts};
				rc = measure(&job, options, &results[*n], error);
				*n += rc == 0;
			}
	return rc;
}

int failover_run(const struct failover_options *options, struct failover_result **results_out, unsigned *n_out,
	struct hf_error *error)
{
	struct failover_result *results = calloc(FAILOVER_TABLE_MAX, sizeof(*results));
	unsigned n = 0;
	int rc = results == NULL ? -ENOMEM : 0;

	for (const char *const *kind = options->kinds; *kind != NULL && rc == 0; kind++)
		rc = run_kind(options, *kind, results, &n, error);
	if (rc != 0) {
		free(results);
		if (error->text[0] == '\0')
			hf_error_set(error, rc, "not measured: %s", strerror(-rc));
		return rc;
	}
	*results_out = results;
	*n_out = n;
	return 0;
}
