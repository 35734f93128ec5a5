/* The axes of tebench: block sizes, batches, submitters, reads, writes and a mix, each checked for its bytes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/transfer.h"

#define MIB            (1ull << 20)
#define BYTES          (64 * MIB)
#define POINT_NS       150000000u
#define POINT_QUICK_NS 30000000u
#define RAILS          2u

static const struct transfer_device {
	const char *kind;
	unsigned rails;
} devices[] = {{"shm", RAILS}, {"soft", RAILS}, {"tcp", 0}};
static const char *const mixes[] = {[TRANSFER_READS] = "read", [TRANSFER_WRITES] = "write", [TRANSFER_MIX] = "mix"};

struct sweep {
	const struct transfer_options *options;
	struct transfer_setup setup;
	json_t *rows;
	struct hf_error *error;
	bool wrong; /* bytes */
};

static int run_point(struct sweep *sweep, struct transfer_side *side, const struct transfer_point *point)
{
	struct transfer_figures figures;
	int failed = transfer_sides_measure(side, point, sweep->options->quick ? POINT_QUICK_NS : POINT_NS, &figures);
	bool same = false;

	if (!failed) {
		failed = transfer_sides_check(side, point, point->block + point->batch);
		same = failed == 0;
		failed = failed == -EBADMSG ? 0 : failed;
	}
	if (failed)
		return failed;
	sweep->wrong = sweep->wrong || !same;
	fprintf(sweep->options->log,
		"  %-4s  %-5s  %9llu B  batch %3u  submitters %u  %9.1f MB/s  %10.1f us  p99 %10.1f us%s\n",
		sweep->setup.kind, mixes[point->mix], (unsigned long long)point->block, point->batch, point->submitters,
		figures.mb_s, figures.median_us, figures.p99_us, same ? "" : "  WRONG BYTES");
	fflush(sweep->options->log);
	json_array_append_new(sweep->rows,
		json_pack("{s:s, s:s, s:I, s:i, s:i, s:f, s:f, s:f, s:i, s:b}", "device", sweep->setup.kind, "op",
			mixes[point->mix], "block", (json_int_t)point->block, "batch", (int)point->batch, "submitters",
			(int)point->submitters, "mb_s", figures.mb_s, "median_us", figures.median_us, "p99_us",
			figures.p99_us, "batches", (int)figures.batches, "consistent", same));
	return 0;
}

static int run_points(struct sweep *sweep, struct transfer_side *side)
{
	static const unsigned batches[] = {1, 16}, submitters[] = {1, 4};
	unsigned step = sweep->options->quick ? 16 : 4;
	int failed = 0;

	for (enum transfer_mix mix = TRANSFER_READS; mix <= TRANSFER_MIX; mix++)
		for (uint64_t block = 4096; block <= BYTES; block *= step)
			for (unsigned b = 0; b < 2; b++)
				for (unsigned s = 0; s < (sweep->options->quick ? 1 : 2); s++) {
					const struct transfer_point point = {.mix = mix,
						.block = block,
						.batch = batches[b],
						.submitters = submitters[s]};

					if (mix == TRANSFER_MIX && point.batch == 1)
						continue;
					if (!failed && block * point.batch * point.submitters <= BYTES)
						failed = run_point(sweep, side, &point);
				}
	return failed;
}

static int near(struct bench_meeting *meeting, void *context)
{
	struct sweep *sweep = context;
	static struct transfer_side side;
	int failed = transfer_sides_open(&side, &sweep->setup, meeting, true);

	if (!failed)
		failed = run_points(sweep, &side);
	if (failed)
		hf_error_set(sweep->error, failed, "%s: %.200s", sweep->setup.kind, side.bed.error.text);
	transfer_sides_close(&side);
	return failed;
}

static int far(struct bench_meeting *meeting, void *context)
{
	const struct sweep *sweep = context;
	static struct transfer_side side;
	int failed = transfer_sides_open(&side, &sweep->setup, meeting, false);

	if (!failed)
		bed_serve(&side.bed, 0);
	transfer_sides_close(&side);
	return failed;
}

int transfer_sweep(const struct transfer_options *options, json_t *rows, struct hf_error *error)
{
	struct sweep sweep = {.options = options, .rows = rows, .error = error};
	int failed = 0;

	for (unsigned i = 0; !failed && i < sizeof(devices) / sizeof(devices[0]); i++) {
		if (options->device != NULL && strcmp(options->device, devices[i].kind) != 0)
			continue;
		sweep.setup =
			(struct transfer_setup){.kind = devices[i].kind, .rails = devices[i].rails, .bytes = BYTES};
		failed = bench_together(near, far, &sweep);
	}
	return failed ? failed : sweep.wrong ? 1 : 0;
}
