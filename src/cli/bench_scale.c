/* Many vqps at once: the memory that they take, and how soon all of them are back after a cut. */
#include "cli/bench_failover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH        32u
#define BYTES        64u
#define QP_TIMEOUT   14u /* 67 ms, four times */
#define CLIENT_BYTES 4096u
#define FAILBACK_NS  60000000000ull /* not while we look */
#define STALL_NS     60000000000ull
#define TURN_EVERY   4u
#define POLL_WCS     64
#define KB           1024.0

struct job {
	struct bench_setup setup;
	struct failover_scale scale;
	struct hf_error error;
};

/* A share of shared pages counts as a share, so the two processes add up. */
static double memory_bytes(struct hf_env *env)
{
	char text[2048];
	struct hf_file *file;
	const char *at;
	ssize_t n;

	if (hf_file_open(env, "/proc/self/smaps_rollup", 0, &file) != 0)
		return 0;
	n = hf_file_read_at(file, text, sizeof(text) - 1, 0);
	hf_file_close(file);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "\nPss:");
	return at == NULL ? 0 : strtod(at + sizeof("\nPss:") - 1, NULL) * KB;
}

static int post_to(struct bench_nodes *nodes, unsigned client)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	bench_list(&nodes->clients[client], BENCH_WRITE, BYTES, 1, 0, client, &wr, &sge);
	return hf_vqp_post_send(nodes->clients[client].vqp, &wr, &bad);
}

static int take(struct bench_nodes *nodes, unsigned *left, uint64_t *first_ns)
{
	struct ibv_wc wcs[POLL_WCS];
	int n = hf_vcq_poll(nodes->cq, POLL_WCS, wcs);

	for (int i = 0; i < n; i++)
		if (wcs[i].status != IBV_WC_SUCCESS)
			return -EIO;
	if (n > 0 && *first_ns == 0)
		*first_ns = hf_env_now_ns(nodes->env);
	*left -= (unsigned)n;
	return n;
}

/* One wr to every client, and their completions, as an application does both that polls between its posts. The time of
 * the first completion is kept. */
static int post_and_take_all(struct bench_nodes *nodes, uint64_t *first_ns)
{
	uint64_t end_ns = hf_env_now_ns(nodes->env) + STALL_NS;
	unsigned left = nodes->setup->clients, posted = 0, turns = 0;

	*first_ns = 0;
	while (left > 0) {
		int n, rc = 0;

		if (posted < nodes->setup->clients)
			rc = post_to(nodes, posted++);
		n = rc == 0 ? take(nodes, &left, first_ns) : rc;
		if (n < 0)
			return n;
		if (++turns % TURN_EVERY == 0 || (n == 0 && posted == nodes->setup->clients))
			bench_nodes_turn(nodes);
		if (nodes->broken || nodes->down > 0 || hf_env_now_ns(nodes->env) > end_ns)
			return -ETIMEDOUT;
	}
	return 0;
}

static int cut_and_wait(struct bench_nodes *nodes, struct failover_scale *scale)
{
	uint64_t cut_ns = hf_env_now_ns(nodes->env), first_ns;
	int rc;

	hf_dev_set_link(hf_node_dev(nodes->node, 0), HF_LINK_BOTH, false);
	rc = post_and_take_all(nodes, &first_ns);
	if (rc != 0)
		return rc;
	scale->first_us = (double)(first_ns - cut_ns) / 1e3;
	scale->all_us = (double)(hf_env_now_ns(nodes->env) - cut_ns) / 1e3;
	return 0;
}

/* What both processes take together; both call it. */
static int weigh(struct bench_nodes *nodes, double *sum_out)
{
	double mine = memory_bytes(nodes->env), theirs;

	if (!bench_swap(nodes->meeting, nodes->near, &mine, &theirs, sizeof(mine)))
		return -EPIPE;
	*sum_out = mine + theirs;
	return 0;
}

/* With the log alone a wr without an entry is unknown, and its vqp is in error then. */
static bool is_cut(const struct bench_mode *mode)
{
	return mode->policy != HF_POLICY_NONE && mode->evidence != HF_EVIDENCE_LOG;
}

static int run_near(struct bench_meeting *meeting, void *context)
{
	struct job *job = context;
	struct bench_nodes nodes;
	uint64_t first_ns;
	int rc = bench_nodes_open(&nodes, &job->setup, meeting, true);

	if (rc != 0)
		job->error = nodes.error;
	if (rc == 0)
		rc = post_and_take_all(&nodes, &first_ns);
	if (rc == 0)
		rc = weigh(&nodes, &job->scale.memory_bytes);
	if (rc == 0 && is_cut(job->setup.mode))
		rc = cut_and_wait(&nodes, &job->scale);
	if (rc != 0 && job->error.text[0] == '\0')
		hf_error_set(&job->error, rc, "%s, %s, %u vqps: %s", job->setup.kind, job->setup.mode->name,
			job->setup.clients, strerror(-rc));
	bench_leave(meeting, true);
	bench_nodes_close(&nodes);
	return rc;
}

static int run_far(struct bench_meeting *meeting, void *context)
{
	struct job *job = context;
	struct bench_nodes nodes;
	double sum;
	int rc = bench_nodes_open(&nodes, &job->setup, meeting, false);

	while (rc == 0 && !bench_other_left(meeting, false) && !nodes.broken) {
		hf_loop_turn(nodes.loop, 100000);
		if (bench_asked(meeting, false))
			rc = weigh(&nodes, &sum);
	}
	bench_nodes_close(&nodes);
	return rc;
}

int failover_scale(const char *kind, const struct bench_mode *mode, unsigned vqps, struct failover_scale *scale_out,
	struct hf_error *error)
{
	static struct job job;
	int rc;

	job = (struct job){.setup = {.kind = kind,
				   .mode = mode,
				   .clients = vqps,
				   .depth = DEPTH,
				   .timeout = QP_TIMEOUT,
				   .client_bytes = CLIENT_BYTES,
				   .failback_ns = FAILBACK_NS},
		.scale = {.kind = kind, .mode = mode, .vqps = vqps}};
	rc = bench_together(run_near, run_far, &job);
	bench_nodes_clean();
	*scale_out = job.scale;
	if (rc != 0)
		*error = job.error;
	return rc;
}
