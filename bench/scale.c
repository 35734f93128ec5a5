/* Many vqps at once: the memory that they take, and how soon the first and all of them are back after a cut. */
#include "bench/failover.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH        32u
#define BYTES        64u
#define QP_TIMEOUT   14u            /* 67 ms, four times */
#define CLIENT_BYTES BYTES          /* the application's memory is not what is weighed */
#define ROUNDS       3u             /* of full queues: rings that are larger than that have been through as well */
#define FAILBACK_NS  60000000000ull /* not while we look */
#define STALL_NS     60000000000ull
#define SETTLE_NS    1000000000ull
#define TURN_EVERY   4u
/* Between two cuts: standby qps are made again, some at every tick, and then the far side has fallen asleep. */
#define REST_NS     100000000ull
#define REST_VQP_NS 100000u /* and so much more for each vqp */
#define CUTS        21u
#define CUTS_MANY   7u /* of thousands of vqps, which take longer */
#define MANY_VQPS   1000u
#define POLL_WCS    64
#define KB          1024.0

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

	malloc_trim(0);
	if (hf_file_open(env, "/proc/self/smaps_rollup", 0, &file) != 0)
		return 0;
	n = hf_file_read_at(file, text, sizeof(text) - 1, 0);
	hf_file_close(file);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "\nPss:");
	return at == NULL ? 0 : strtod(at + sizeof("\nPss:") - 1, NULL) * KB;
}

/* So many at once, of which the last is signaled. */
static int post_to(struct bench_nodes *nodes, unsigned client, unsigned wrs)
{
	struct ibv_send_wr list[DEPTH], *bad;
	struct ibv_sge sges[DEPTH];

	bench_list(&nodes->clients[client], BENCH_WRITE, BYTES, wrs, 0, client, list, sges);
	return hf_vqp_post_send(nodes->clients[client].vqp, list, &bad);
}

static int take(struct bench_nodes *nodes, unsigned *left, uint64_t *first_ns)
{
	struct ibv_wc wcs[POLL_WCS];
	int n = hf_vcq_poll(nodes->cq, POLL_WCS, wcs);

	for (int i = 0; i < n; i++)
		if (wcs[i].status != IBV_WC_SUCCESS)
			return -EIO;
	if (n > 0 && *first_ns == 0)
		*first_ns = hf_env_now_ns(nodes->bed.env);
	*left -= (unsigned)n;
	return n;
}

/* `wrs` to every client, and their completions, as an application does both that polls between its posts. The time of
 * the first completion is kept. */
static int post_and_take_all(struct bench_nodes *nodes, unsigned wrs, uint64_t *first_ns)
{
	uint64_t end_ns = hf_env_now_ns(nodes->bed.env) + STALL_NS;
	unsigned left = nodes->setup->clients, posted = 0, turns = 0;

	*first_ns = 0;
	while (left > 0) {
		int n, rc = 0;

		if (posted < nodes->setup->clients)
			rc = post_to(nodes, posted++, wrs);
		n = rc == 0 ? take(nodes, &left, first_ns) : rc;
		if (n < 0)
			return n;
		if (++turns % TURN_EVERY == 0 || (n == 0 && posted == nodes->setup->clients))
			bench_nodes_turn(nodes);
		if (nodes->broken || nodes->down > 0 || hf_env_now_ns(nodes->bed.env) > end_ns)
			return -ETIMEDOUT;
	}
	return 0;
}

static int fill_queues(struct bench_nodes *nodes)
{
	uint64_t first_ns;
	int rc = 0;

	for (unsigned round = 0; round < ROUNDS && rc == 0; round++)
		rc = post_and_take_all(nodes, DEPTH, &first_ns);
	return rc;
}

/* What is made in the background meanwhile (standby qps) is part of what a policy costs. */
static int settle(struct bench_nodes *nodes)
{
	uint64_t end_ns = hf_env_now_ns(nodes->bed.env) + SETTLE_NS;

	while (!nodes->broken && hf_env_now_ns(nodes->bed.env) < end_ns)
		bench_nodes_turn(nodes);
	return nodes->broken ? -EPIPE : 0;
}

static int cut_and_wait(struct bench_nodes *nodes, struct hf_dev *dev, double *first_us, double *all_us)
{
	uint64_t cut_ns = hf_env_now_ns(nodes->bed.env), first_ns;
	int rc;

	hf_dev_set_link(dev, HF_LINK_BOTH, false);
	rc = post_and_take_all(nodes, 1, &first_ns);
	if (rc != 0)
		return rc;
	*first_us = (double)(first_ns - cut_ns) / 1e3;
	*all_us = (double)(hf_env_now_ns(nodes->bed.env) - cut_ns) / 1e3;
	return 0;
}

static bool all_have_own_qps(const struct bench_nodes *nodes)
{
	for (unsigned i = 0; i < nodes->made; i++)
		if (hf_vqp_state(nodes->clients[i].vqp) != HF_VQP_UP || !hf_vqp_is_dedicated(nodes->clients[i].vqp))
			return false;
	return true;
}

/* Until all is as it was before the cut, but for the rail that traffic is on. */
static int rest(struct bench_nodes *nodes)
{
	uint64_t now_ns = hf_env_now_ns(nodes->bed.env), end_ns = now_ns + STALL_NS,
		 until_ns = now_ns + REST_NS + (uint64_t)nodes->setup->clients * REST_VQP_NS;

	while (!nodes->broken && nodes->down == 0 && now_ns < end_ns) {
		bench_nodes_turn(nodes);
		now_ns = hf_env_now_ns(nodes->bed.env);
		if (now_ns >= until_ns && all_have_own_qps(nodes))
			return 0;
	}
	return -ETIMEDOUT;
}

/* The rails in turn: traffic does not return to the one that was cut, but leaves the other when that is cut next. */
static int cut_again_and_again(struct bench_nodes *nodes, struct failover_scale *scale)
{
	double first_us[FAILOVER_CUTS_MAX], all_us[FAILOVER_CUTS_MAX];
	unsigned cuts = nodes->setup->clients < MANY_VQPS ? CUTS : CUTS_MANY;
	int rc = 0;

	for (unsigned i = 0; i < cuts && rc == 0; i++) {
		struct hf_dev *dev = hf_node_dev(nodes->node, i % BENCH_RAILS);

		rc = cut_and_wait(nodes, dev, &first_us[i], &all_us[i]);
		hf_dev_set_link(dev, HF_LINK_BOTH, true);
		if (rc == 0)
			rc = rest(nodes);
	}
	if (rc != 0)
		return rc;
	scale->cuts = cuts;
	scale->cold_us = first_us[0];
	scale->first = paired_of(first_us, cuts);
	scale->first_p99_us = first_us[(cuts * 99 - 1) / 100];
	scale->all_us = bench_median(all_us, cuts);
	return 0;
}

/* What both processes take together; both call it. */
static int weigh(struct bench_nodes *nodes, double *sum_out)
{
	double mine = memory_bytes(nodes->bed.env), theirs;

	if (!bench_swap(nodes->bed.meeting, nodes->bed.near, &mine, &theirs, sizeof(mine)))
		return -EPIPE;
	*sum_out = mine + theirs;
	return 0;
}

/* With the log alone a wr without an entry is unknown, and its vqp is in error then. */
static bool is_cut(const struct bench_mode *mode)
{
	return mode->policy != HF_POLICY_NONE && mode->evidence != HF_EVIDENCE_LOG;
}

static void note_logs(const struct bench_nodes *nodes, struct failover_scale *scale)
{
	struct hf_vqp_memory memory;

	hf_vqp_memory(nodes->clients[0].vqp, &memory);
	scale->request_log_bytes = (double)memory.request_log_bytes;
	scale->completion_log_bytes = (double)memory.completion_log_bytes;
}

static int run_near(struct bench_meeting *meeting, void *context)
{
	struct job *job = context;
	struct bench_nodes nodes;
	int rc = bench_nodes_open(&nodes, &job->setup, meeting, true);

	if (rc != 0)
		job->error = nodes.bed.error;
	job->scale.connect_us = (double)nodes.connect_ns / 1e3;
	if (rc == 0)
		note_logs(&nodes, &job->scale);
	if (rc == 0)
		rc = settle(&nodes);
	if (rc == 0)
		rc = weigh(&nodes, &job->scale.connected_bytes);
	if (rc == 0)
		rc = fill_queues(&nodes);
	if (rc == 0)
		rc = weigh(&nodes, &job->scale.memory_bytes);
	if (rc == 0 && is_cut(job->setup.mode))
		rc = cut_again_and_again(&nodes, &job->scale);
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
		hf_loop_turn(nodes.bed.loop, 100000);
		if (bench_asked(meeting, false))
			rc = weigh(&nodes, &sum);
	}
	bench_nodes_close(&nodes);
	return rc;
}

/* Nodes that have no vqp to connect: what they take before. */
static int run_idle(struct bench_meeting *meeting, void *context)
{
	struct job *job = context;
	struct bench_nodes nodes;
	int rc = bench_nodes_open(&nodes, &job->setup, meeting, true);

	if (rc == 0)
		rc = settle(&nodes);
	if (rc == 0)
		rc = weigh(&nodes, &job->scale.nodes_bytes);
	if (rc != 0)
		hf_error_set(&job->error, rc, "%s without vqps: %s", job->setup.kind, strerror(-rc));
	bench_leave(meeting, true);
	bench_nodes_close(&nodes);
	return rc;
}

static int run_apart(void *context)
{
	struct job *job = context;
	unsigned vqps = job->setup.clients;
	int rc;

	job->setup.clients = 1; /* that is near enough to none, and they are connected */
	rc = bench_together(run_idle, run_far, job);
	bed_clean();
	job->setup.clients = vqps;
	if (rc == 0)
		rc = bench_together(run_near, run_far, job);
	bed_clean();
	return rc;
}

const struct scale_bar *failover_scale_bar(const struct failover_scale *scale)
{
	static const struct scale_bar bars[] = {
		{"shm", 64, 100}, {"soft", 64, 1000}, {"shm", 4096, 20000}, {"soft", 4096, 20000}};

	for (size_t i = 0; scale->mode->policy == HF_POLICY_VARUNA && i < sizeof(bars) / sizeof(bars[0]); i++)
		if (scale->cuts > 0 && scale->vqps == bars[i].vqps && strcmp(scale->kind, bars[i].kind) == 0)
			return &bars[i];
	return NULL;
}

int failover_scale(const char *kind, const struct bench_mode *mode, unsigned vqps, struct failover_scale *scale_out,
	struct hf_error *error)
{
	struct job job = {.setup = {.kind = kind,
				  .mode = mode,
				  .clients = vqps,
				  .depth = DEPTH,
				  .timeout = QP_TIMEOUT,
				  .client_bytes = CLIENT_BYTES,
				  .failback_ns = FAILBACK_NS},
		.scale = {.kind = kind, .mode = mode, .vqps = vqps}};
	int rc = bench_apart(run_apart, &job, sizeof(job)); /* nothing of other runs is in the heap that is weighed */

	*scale_out = job.scale;
	if (rc != 0)
		*error = job.error;
	if (rc != 0 && error->text[0] == '\0')
		hf_error_set(error, rc, "%s, %s, %u vqps: %s", kind, mode->name, vqps, strerror(-rc));
	return rc;
}
