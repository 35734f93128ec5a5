#include "bench/transfer_sides.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/random_bytes.h"

#define MTU            IBV_MTU_4096
#define QP_TIMEOUT     12u /* 17 ms, four times: a busy machine does not look like a cut */
#define OPEN_NS        20000000000ull
#define STALL_NS       30000000000ull
#define TURN_NS        1000000u
#define BATCHES_LEAST  3u
#define WARM_BYTES     (16u << 20) /* slices for each rail */
#define RETRY_TURNS    50u
#define SAMPLES        65536u
#define SUBMITTERS_MAX 64u
#define BATCH_MAX      1024u
#define MANAGEMENT     (BED_RAILS - 1) /* the address beside those of the rails */

/* ---- opening ---- */

static void configure(const struct transfer_side *side, struct hf_node_config *config)
{
	const struct transfer_setup *setup = side->setup;
	bool near = side->bed.near;

	bed_configure(&side->bed, near ? "near" : "far", 0, setup->kind, setup->rails, !near, config);
	snprintf(config->name, sizeof(config->name), "%s", near ? "near" : "far");
	config->timeout = QP_TIMEOUT;
	for (unsigned i = 0; i < setup->rails; i++)
		config->rails[i].mtu = MTU;
	config->management[0] = bed_address(&side->bed, !near, MANAGEMENT, BED_CONTROL);
	config->management_count = 1;
}

static int open_engine(struct transfer_side *side)
{
	struct hf_transfer_config config = {.keep_requests_apart = true};
	struct hf_node_config node;
	const struct hf_node_events events = {0};
	uint64_t bytes = side->setup->bytes * (side->bed.near ? 2 : 1);
	void *memory = NULL;
	int failed;

	configure(side, &node);
	failed = bed_node(&side->bed, &node, &events, side, &side->node);
	if (side->setup->rails == 0) /* rails are measured without tcp beside them */
		config.listen = bed_address(&side->bed, !side->bed.near, MANAGEMENT, 0);
	if (!failed)
		failed = hf_transfer_open(side->node, &config, NULL, NULL, &side->transfer, &side->bed.error);
	if (!failed)
		failed = hf_mem_alloc(side->bed.env, bytes, &memory, &side->bed.error);
	side->memory = memory;
	if (!failed)
		(void)hf_mem_populate(side->bed.env, memory, bytes);
	if (!failed)
		failed = hf_transfer_register(side->transfer, memory, bytes,
			side->bed.near ? 0 : HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE, &side->bed.error);
	return failed;
}

static int find_far(struct transfer_side *side);

int transfer_sides_open(
	struct transfer_side *side, const struct transfer_setup *setup, struct bench_meeting *meeting, bool near)
{
	int mine, theirs = 0;

	*side = (struct transfer_side){.setup = setup};
	mine = bed_open(&side->bed, meeting, near);
	if (mine == 0)
		mine = open_engine(side);
	if (!bench_swap(meeting, near, &mine, &theirs, sizeof(mine)))
		return hf_error_set(&side->bed.error, -ETIMEDOUT, "the other engine did not open");
	if (mine != 0 || theirs != 0)
		return mine != 0 ? mine : theirs;
	return near ? find_far(side) : 0;
}

void transfer_sides_close(struct transfer_side *side)
{
	(void)hf_transfer_close(side->transfer);
	bed_close(&side->bed);
	if (side->memory != NULL)
		hf_mem_free(side->bed.env, side->memory);
}

/* ---- submitting ---- */

struct submitter {
	struct transfer_side *side;
	struct hf_transfer_batch *batch;
	bool idle;
	uint64_t begun_ns, ended_ns, offset;
};

static void on_idle(struct hf_transfer_batch *batch, void *context)
{
	struct submitter *submitter = context;

	(void)batch;
	submitter->idle = true;
	submitter->ended_ns = hf_env_now_ns(submitter->side->bed.env);
}

static int submit(
	struct submitter *submitter, const struct transfer_point *point, enum transfer_mix mix, uint64_t local_offset)
{
	static struct hf_transfer_request requests[BATCH_MAX];
	struct transfer_side *side = submitter->side;
	unsigned first;
	int failed = hf_transfer_batch_alloc(side->transfer, point->batch, on_idle, submitter, &submitter->batch);

	for (unsigned i = 0; i < point->batch; i++) {
		uint64_t at = submitter->offset + i * point->block;
		bool reads = mix == TRANSFER_READS || (mix == TRANSFER_MIX && i % 2 == 1);

		requests[i] = (struct hf_transfer_request){.opcode = reads ? HF_TRANSFER_READ : HF_TRANSFER_WRITE,
			.source = side->memory + local_offset + at,
			.segment = side->segment,
			.target_offset = side->target + at,
			.length = point->block};
	}
	submitter->idle = false;
	submitter->begun_ns = hf_env_now_ns(side->bed.env);
	return failed ? failed : hf_transfer_submit(submitter->batch, requests, point->batch, &first, &side->bed.error);
}

static int take_end(struct submitter *submitter)
{
	enum hf_transfer_status status = hf_transfer_batch_status(submitter->batch);

	(void)hf_transfer_batch_free(submitter->batch);
	submitter->batch = NULL;
	if (status == HF_TRANSFER_COMPLETED)
		return 0;
	return hf_error_set(&submitter->side->bed.error, -EIO, "a batch ended with status %d", (int)status);
}

static int wait_for(struct submitter *submitter)
{
	uint64_t limit_ns = hf_env_now_ns(submitter->side->bed.env) + STALL_NS;

	while (!submitter->idle) {
		if (hf_env_now_ns(submitter->side->bed.env) > limit_ns)
			return hf_error_set(&submitter->side->bed.error, -ETIMEDOUT, "a batch did not end");
		hf_loop_turn(submitter->side->bed.loop, TURN_NS);
	}
	return take_end(submitter);
}

static void make_submitters(struct transfer_side *side, const struct transfer_point *point, struct submitter *made)
{
	for (unsigned i = 0; i < point->submitters; i++)
		made[i] = (struct submitter){.side = side, .idle = true, .offset = i * point->batch * point->block};
}

/* Lanes come up in the background, and without tcp a request fails until one is up. */
static int wait_for_rails(struct transfer_side *side, uint64_t limit_ns)
{
	const struct transfer_point point = {.block = WARM_BYTES, .batch = 1};
	struct submitter submitter = {.side = side};
	struct hf_transfer_counters counters;
	bool all;

	do {
		int failed = submit(&submitter, &point, TRANSFER_READS, 0);

		if (failed)
			return failed;
		failed = wait_for(&submitter);
		if (hf_env_now_ns(side->bed.env) > limit_ns)
			return failed ? failed : hf_error_set(&side->bed.error, -ETIMEDOUT, "a rail carries no data");
		for (unsigned i = 0; failed && i < RETRY_TURNS; i++)
			hf_loop_turn(side->bed.loop, TURN_NS);
		hf_transfer_counters(side->transfer, &counters);
		all = failed == 0;
		for (unsigned i = 0; i < side->setup->rails; i++)
			all = all && counters.rail_bytes[i] > 0;
	} while (!all);
	return 0;
}

static int find_far(struct transfer_side *side)
{
	const struct hf_addr to = bed_address(&side->bed, 1, MANAGEMENT, BED_CONTROL);
	uint64_t limit_ns = hf_env_now_ns(side->bed.env) + OPEN_NS, bytes;
	int failed = hf_peer_connect(side->node, &to, 1, &side->peer, &side->bed.error);

	while (!failed && side->segment == NULL) {
		if (hf_env_now_ns(side->bed.env) > limit_ns)
			return hf_error_set(&side->bed.error, -ETIMEDOUT, "the other engine sent no segment");
		hf_loop_turn(side->bed.loop, TURN_NS);
		side->segment = hf_transfer_segment(side->transfer, side->peer);
		if (side->segment != NULL && !hf_segment_buffer(side->segment, 0, &side->target, &bytes))
			side->segment = NULL;
	}
	return failed ? failed : wait_for_rails(side, limit_ns);
}

struct samples {
	double us[SAMPLES];
	unsigned n;
};

static void note(struct samples *samples, const struct submitter *submitter)
{
	samples->us[samples->n++ % SAMPLES] = (double)(submitter->ended_ns - submitter->begun_ns) / 1e3;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void fill_figures(
	struct samples *samples, const struct transfer_point *point, uint64_t took_ns, struct transfer_figures *figures)
{
	unsigned n = samples->n < SAMPLES ? samples->n : SAMPLES;

	qsort(samples->us, n, sizeof(samples->us[0]), by_size);
	*figures = (struct transfer_figures){.batches = samples->n,
		.mb_s = (double)samples->n * (double)point->block * point->batch * 1e3 / (double)took_ns,
		.median_us = samples->us[n / 2],
		.p99_us = samples->us[n - 1 - n / 100]};
}

/* After a failure: what is left ends. */
static void drain(struct transfer_side *side, struct submitter *submitters, unsigned n)
{
	uint64_t limit_ns = hf_env_now_ns(side->bed.env) + STALL_NS;

	for (unsigned i = 0; i < n; i++) {
		while (submitters[i].batch != NULL && !submitters[i].idle && hf_env_now_ns(side->bed.env) < limit_ns)
			hf_loop_turn(side->bed.loop, TURN_NS);
		(void)hf_transfer_batch_free(submitters[i].batch);
	}
}

int transfer_sides_measure(struct transfer_side *side, const struct transfer_point *point, uint64_t duration_ns,
	struct transfer_figures *figures)
{
	static struct samples samples;
	static struct submitter submitters[SUBMITTERS_MAX];
	uint64_t begin_ns = hf_env_now_ns(side->bed.env), end_ns = begin_ns + duration_ns;
	unsigned running = 0;
	int failed = 0;

	samples.n = 0;
	make_submitters(side, point, submitters);
	do {
		bool more = hf_env_now_ns(side->bed.env) < end_ns || samples.n < BATCHES_LEAST;

		for (unsigned i = 0; !failed && i < point->submitters; i++) {
			if (!submitters[i].idle)
				continue;
			if (submitters[i].batch != NULL) {
				note(&samples, &submitters[i]);
				failed = take_end(&submitters[i]);
				running--;
			}
			if (!failed && more) {
				failed = submit(&submitters[i], point, point->mix, 0);
				running++;
			}
		}
		if (running > 0 && !failed)
			hf_loop_turn(side->bed.loop, 0); /* as the vqps beside it do, it polls without sleep */
		if (hf_env_now_ns(side->bed.env) > end_ns + STALL_NS)
			failed = hf_error_set(&side->bed.error, -ETIMEDOUT, "batches did not end");
	} while (running > 0 && !failed);
	if (failed)
		drain(side, submitters, point->submitters);
	else
		fill_figures(&samples, point, hf_env_now_ns(side->bed.env) - begin_ns, figures);
	return failed;
}

int transfer_sides_check(struct transfer_side *side, const struct transfer_point *point, uint64_t seed)
{
	uint64_t bytes = point->block * point->batch;
	struct submitter submitter = {.side = side};
	uint8_t *back = side->memory + side->setup->bytes;
	int failed;

	random_bytes_fill(&seed, side->memory, bytes);
	memset(back, 0, bytes);
	failed = submit(&submitter, point, TRANSFER_WRITES, 0);
	if (!failed)
		failed = wait_for(&submitter);
	if (!failed)
		failed = submit(&submitter, point, TRANSFER_READS, side->setup->bytes);
	if (!failed)
		failed = wait_for(&submitter);
	if (!failed && memcmp(side->memory, back, bytes) != 0)
		failed = hf_error_set(&side->bed.error, -EBADMSG, "the bytes read differ from the bytes written");
	return failed;
}
