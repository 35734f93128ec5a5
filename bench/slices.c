#include "bench/slices.h"

#include <errno.h>
#include <string.h>

#define SLICE_NS     1000000ull
#define LISTS_MAX    1000000u
#define WARM_UP_PART 8u
#define BLOCKS_LEAST 2u
#define BLOCKS_MAX   512u
#define CALIBRATIONS 4u
#define STALL_NS     10000000000ull
#define TURN_EVERY   64u /* polls; what is due in the background can wait as long */
#define POLL_WCS     16
#define PER_CENT     100u

struct work {
	struct ibv_send_wr wrs[VERBS_CLIENTS][BENCH_BATCH];
	struct ibv_sge sges[VERBS_CLIENTS][BENCH_BATCH];
	uint64_t posted_ns[VERBS_CLIENTS];
};

/* One slice of one mode. */
struct slice {
	struct bench_fleet *fleet;
	struct bench_nodes *nodes;
	unsigned at; /* in the fleet */
	const struct verbs_point *point;
	struct work *work;
	struct histogram *latency; /* NULL: not wanted */
	uint64_t lists, warm_up;   /* to post in all; completed before the time begins */
	uint64_t posted, completed;
	uint64_t from_ns, from_cpu_ns, ns, cpu_ns;
};

static unsigned list_wrs(const struct verbs_point *point)
{
	return point->batch ? BENCH_BATCH : 1;
}

static int post_client(struct slice *slice, unsigned client, uint64_t now_ns)
{
	struct ibv_send_wr *bad;

	if (slice->posted == slice->lists)
		return 0;
	slice->posted++;
	slice->work->posted_ns[client] = now_ns;
	return hf_vqp_post_send(slice->nodes->clients[client].vqp, slice->work->wrs[client], &bad);
}

static void begin_time(struct slice *slice)
{
	slice->from_cpu_ns = bench_cpu_ns(slice->fleet->meeting);
	slice->from_ns = hf_env_now_ns(slice->nodes->bed.env);
}

static int take(struct slice *slice, uint64_t now_ns)
{
	struct ibv_wc wcs[POLL_WCS];
	int n = hf_vcq_poll(slice->nodes->cq, POLL_WCS, wcs), rc = 0;

	if (n == 0)
		return 0;
	now_ns = hf_env_now_ns(slice->nodes->bed.env);
	for (int i = 0; i < n && rc == 0; i++) {
		unsigned client = (unsigned)wcs[i].wr_id;

		if (wcs[i].status != IBV_WC_SUCCESS)
			return -EIO;
		slice->completed++;
		if (slice->latency != NULL && slice->from_ns != 0)
			histogram_add(slice->latency, now_ns - slice->work->posted_ns[client]);
		if (slice->completed == slice->warm_up)
			begin_time(slice);
		rc = post_client(slice, client, now_ns);
	}
	return rc;
}

/* Between slices the lists are made anew at the same place, so that no mode has them warmer than another. */
static void make_lists(struct slice *slice)
{
	for (unsigned i = 0; i < slice->point->clients; i++)
		bench_list(&slice->nodes->clients[i], slice->point->op, slice->point->bytes, list_wrs(slice->point), 0,
			i, slice->work->wrs[i], slice->work->sges[i]);
}

static int run_slice(struct slice *slice)
{
	uint64_t now_ns = hf_env_now_ns(slice->nodes->bed.env), end_ns = now_ns + STALL_NS;
	unsigned polls = 0;
	int rc;

	bench_fleet_use(slice->fleet, slice->at);
	rc = bench_fleet_turn(slice->fleet, slice->at, now_ns);
	make_lists(slice);
	if (slice->warm_up == 0)
		begin_time(slice);
	for (unsigned i = 0; i < slice->point->clients && rc == 0; i++)
		rc = post_client(slice, i, hf_env_now_ns(slice->nodes->bed.env));
	while (slice->completed < slice->lists && rc == 0) {
		rc = take(slice, now_ns);
		if (rc == 0 && ++polls % TURN_EVERY == 0) {
			now_ns = hf_env_now_ns(slice->nodes->bed.env);
			rc = now_ns > end_ns ? -ETIMEDOUT : bench_fleet_turn(slice->fleet, slice->at, now_ns);
		}
	}
	slice->ns = hf_env_now_ns(slice->nodes->bed.env) - slice->from_ns;
	slice->cpu_ns = bench_cpu_ns(slice->fleet->meeting) - slice->from_cpu_ns;
	return rc;
}

/* ---- a block ---- */

/* Of one mode in one round. */
struct pairs {
	unsigned n; /* of the first mode: blocks */
	double per_op_ns[BLOCKS_MAX], ratio[BLOCKS_MAX], cost_ns[BLOCKS_MAX], cpu[BLOCKS_MAX];
};

struct series {
	struct pairs pairs[BENCH_FLEET_MAX];
	struct bench_fleet *fleet;
	const struct verbs_point *point;
	struct work work;
	uint64_t lists; /* that are measured in a slice */
	unsigned handicap;
	uint64_t random;
};

/* Of an operation, in the better one of a mode's two slices: now and then another process has the core in the other. */
struct best {
	double ns[BENCH_FLEET_MAX], cpu_ns[BENCH_FLEET_MAX]; /* 0: none yet */
};

static void keep_less(double *least, double value)
{
	if (*least == 0 || value < *least)
		*least = value;
}

static int add_slice(struct series *series, unsigned at, struct histogram *latency, struct best *best)
{
	uint64_t warm_up =
		series->lists >= (uint64_t)WARM_UP_PART * series->point->clients ? series->lists / WARM_UP_PART : 0;
	uint64_t more = at == 0 ? 0 : (series->lists * series->handicap + PER_CENT / 2) / PER_CENT;
	double ops = (double)series->lists * list_wrs(series->point);
	struct slice slice = {.fleet = series->fleet,
		.nodes = &series->fleet->nodes[at],
		.at = at,
		.point = series->point,
		.work = &series->work,
		.latency = latency,
		.warm_up = warm_up,
		.lists = warm_up + series->lists + more};
	int rc = run_slice(&slice);

	keep_less(&best->ns[at], (double)slice.ns / ops);
	keep_less(&best->cpu_ns[at], (double)slice.cpu_ns / ops);
	return rc;
}

/* How many lists of the first mode take a slice's time without disturbance; every client has one at least. */
static int calibrate(struct series *series)
{
	double least_ns = 0;
	int rc = 0;

	series->lists = series->point->clients;
	for (unsigned i = 0; i < CALIBRATIONS && rc == 0; i++) {
		struct best best = {0};

		rc = add_slice(series, 0, NULL, &best);
		keep_less(&least_ns, best.ns[0] * list_wrs(series->point) + 1);
		series->lists = (uint64_t)(SLICE_NS / least_ns);
		if (series->lists < series->point->clients)
			series->lists = series->point->clients;
		if (series->lists > LISTS_MAX)
			series->lists = LISTS_MAX;
	}
	return rc;
}

/* The first mode is warm by now; so that the others are in their first block. */
static int warm_up(struct series *series, uint32_t due)
{
	struct best ignored = {0};
	int rc = 0;

	for (unsigned at = 1; at < series->fleet->n && rc == 0; at++)
		for (unsigned i = 0; i < CALIBRATIONS && (due >> at & 1) != 0 && rc == 0; i++)
			rc = add_slice(series, at, NULL, &ignored);
	return rc;
}

static uint64_t next_random(struct series *series)
{
	series->random ^= series->random << 13;
	series->random ^= series->random >> 7;
	series->random ^= series->random << 17;
	return series->random;
}

static unsigned shuffle(struct series *series, uint32_t due, unsigned *order)
{
	unsigned n = 0;

	for (unsigned i = 0; i < series->fleet->n; i++)
		if (i == 0 || (due >> i & 1) != 0)
			order[n++] = i;
	for (unsigned i = n - 1; i > 0; i--) {
		unsigned other = (unsigned)(next_random(series) % (i + 1)), was = order[i];

		order[i] = order[other];
		order[other] = was;
	}
	return n;
}

static int add_block(struct series *series, uint32_t due, struct slices **into)
{
	unsigned order[BENCH_FLEET_MAX], n = shuffle(series, due, order);
	struct best best = {0};
	int rc = 0;

	for (unsigned i = 0; i < 2 * n && rc == 0; i++) {
		unsigned at = order[i < n ? i : 2 * n - 1 - i];

		rc = add_slice(series, at, &into[at]->latency, &best);
	}
	for (unsigned i = 0; i < n && rc == 0; i++) {
		unsigned at = order[i];
		struct pairs *of = &series->pairs[at];

		of->per_op_ns[of->n] = best.ns[at];
		of->ratio[of->n] = best.ns[at] / best.ns[0];
		of->cost_ns[of->n] = best.ns[at] - best.ns[0];
		of->cpu[of->n] = best.cpu_ns[0] > 0 ? best.cpu_ns[at] / best.cpu_ns[0] : 0;
		of->n++;
	}
	return rc;
}

static void add_round(struct pairs *pairs, struct slices *into)
{
	if (pairs->n == 0 || into->n == SLICES_ROUNDS_MAX)
		return;
	into->per_op_ns[into->n] = bench_median(pairs->per_op_ns, pairs->n);
	into->ratio[into->n] = bench_median(pairs->ratio, pairs->n);
	into->cost_ns[into->n] = bench_median(pairs->cost_ns, pairs->n);
	into->cpu[into->n] = bench_median(pairs->cpu, pairs->n);
	into->n++;
}

int slices_measure(struct bench_fleet *fleet, const struct verbs_point *point, uint32_t due, uint64_t for_ns,
	unsigned handicap, struct slices **into)
{
	static struct series series;
	struct hf_env *env = fleet->nodes[0].bed.env;
	uint64_t end_ns;
	int rc;

	series = (struct series){.fleet = fleet, .point = point, .handicap = handicap};
	hf_env_entropy(env, &series.random, sizeof(series.random));
	series.random |= 1;
	rc = calibrate(&series);
	if (rc == 0)
		rc = warm_up(&series, due);
	end_ns = hf_env_now_ns(env) + for_ns;
	for (unsigned i = 0; rc == 0 && i < BLOCKS_MAX && (i < BLOCKS_LEAST || hf_env_now_ns(env) < end_ns); i++)
		rc = add_block(&series, due, into);
	for (unsigned m = 0; m < fleet->n && rc == 0; m++)
		add_round(&series.pairs[m], into[m]);
	return rc;
}
