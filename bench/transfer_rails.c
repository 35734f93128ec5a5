/* Two soft rails of the same rate carry more than one; one is cut, silently or not, restored, and slowed down.
 *
 * The near side WRITEs all the time, and every 10 ms (a window) looks how much each rail has carried. */
#include <holdfast/fabric.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/transfer.h"

#define MIB          (1ull << 20)
#define MS           1000000ull
#define BYTES        (16 * MIB)
#define BLOCK        MIB
#define SUBMITTERS   16u
#define WINDOW_NS    (10 * MS)
#define WINDOWS_MAX  1000u
#define SETTLE_NS    (1000 * MS)
#define PHASE_NS     (2000 * MS)
#define SHARE_NS     (100 * MS) /* that a share is taken over */
#define TURN_NS      200000u
#define LASTING      10u /* windows */
#define RAILS        2u
#define TWO_LEAST    1.8
#define LEFT_LEAST   0.95
#define CUT_MOST_MS  50.0
#define SILENT_MS    200.0
#define BACK_MOST_MS 2000.0
#define SLOW_MOST    0.2  /* of the bytes, for a rail of a tenth of the speed */
#define EQUAL_LEAST  0.45 /* of the bytes, for each rail again */

struct writer {
	struct rails *rails;
	struct hf_transfer_batch *batch;
	bool idle;
	uint64_t offset;
};

struct rails {
	const struct transfer_options *options;
	struct transfer_setup setup;
	struct transfer_side side;
	struct hf_fabric *fabric;
	struct writer writers[SUBMITTERS];
	unsigned failed_tasks;
	uint64_t begun_ns, window_ns; /* of the phase, of the window */
	uint64_t at[RAILS];
	struct window {
		double ms, mb_s[RAILS];
	} windows[WINDOWS_MAX];
	unsigned window_count;
	json_t *object;
	struct hf_error *error;
	bool missed;
};

/* ---- traffic ---- */

static void on_idle(struct hf_transfer_batch *batch, void *context)
{
	(void)batch;
	((struct writer *)context)->idle = true;
}

static int write_on(struct writer *writer)
{
	struct transfer_side *side = &writer->rails->side;
	const struct hf_transfer_request request = {.opcode = HF_TRANSFER_WRITE,
		.source = side->memory + writer->offset,
		.segment = side->segment,
		.target_offset = side->target + writer->offset,
		.length = BLOCK};
	unsigned first;
	int failed;

	if (writer->batch != NULL && hf_transfer_batch_status(writer->batch) != HF_TRANSFER_COMPLETED)
		writer->rails->failed_tasks++;
	(void)hf_transfer_batch_free(writer->batch);
	writer->idle = false;
	failed = hf_transfer_batch_alloc(side->transfer, 1, on_idle, writer, &writer->batch);
	return failed ? failed : hf_transfer_submit(writer->batch, &request, 1, &first, &side->bed.error);
}

static void look(struct rails *rails, uint64_t now_ns)
{
	struct window *window = &rails->windows[rails->window_count];
	struct hf_transfer_counters counters;
	double took_ms = (double)(now_ns - rails->window_ns) / (double)MS;

	hf_transfer_counters(rails->side.transfer, &counters);
	window->ms = (double)(now_ns - rails->begun_ns) / (double)MS;
	for (unsigned i = 0; i < RAILS; i++) {
		window->mb_s[i] = (double)(counters.rail_bytes[i] - rails->at[i]) / took_ms / 1e3;
		rails->at[i] = counters.rail_bytes[i];
	}
	rails->window_ns = now_ns;
	if (rails->window_count + 1 < WINDOWS_MAX)
		rails->window_count++;
}

/* A phase: its windows begin anew. */
static int run_for(struct rails *rails, uint64_t duration_ns)
{
	uint64_t now_ns = hf_env_now_ns(rails->side.bed.env);
	int failed = 0;

	rails->begun_ns = rails->window_ns = now_ns;
	look(rails, now_ns + 1);
	rails->window_count = 0;
	while (!failed && now_ns < rails->begun_ns + duration_ns) {
		for (unsigned i = 0; !failed && i < SUBMITTERS; i++)
			if (rails->writers[i].idle)
				failed = write_on(&rails->writers[i]);
		hf_loop_turn(rails->side.bed.loop, TURN_NS);
		now_ns = hf_env_now_ns(rails->side.bed.env);
		if (now_ns >= rails->window_ns + WINDOW_NS)
			look(rails, now_ns);
	}
	return failed;
}

static void end_traffic(struct rails *rails)
{
	for (unsigned i = 0; i < SUBMITTERS; i++) {
		uint64_t limit_ns = hf_env_now_ns(rails->side.bed.env) + 30000 * MS;

		while (!rails->writers[i].idle && hf_env_now_ns(rails->side.bed.env) < limit_ns)
			hf_loop_turn(rails->side.bed.loop, TURN_NS);
		(void)hf_transfer_batch_free(rails->writers[i].batch);
	}
}

/* ---- what the windows say ---- */

static double window_sum(const struct window *window)
{
	return window->mb_s[0] + window->mb_s[1];
}

static double mean_mb_s(const struct rails *rails, int rail)
{
	double sum = 0;

	for (unsigned i = 0; i < rails->window_count; i++)
		sum += rail < 0 ? window_sum(&rails->windows[i]) : rails->windows[i].mb_s[rail];
	return rails->window_count == 0 ? 0 : sum / rails->window_count;
}

/* From when on what is left carries its share: nine of the next ten windows do; -1: never. */
static double ms_until(const struct rails *rails, double least_mb_s)
{
	for (unsigned i = 0; i + LASTING <= rails->window_count; i++) {
		unsigned good = 0;

		for (unsigned k = i; k < i + LASTING; k++)
			good += window_sum(&rails->windows[k]) >= least_mb_s;
		if (good + 1 >= LASTING)
			return i == 0 ? 0 : rails->windows[i - 1].ms;
	}
	return -1;
}

/* When, taken over SHARE_NS, the sum is that and each rail has that share of it; -1: never. */
static double ms_until_shared(const struct rails *rails, double least_mb_s, double share)
{
	const unsigned n = (unsigned)(SHARE_NS / WINDOW_NS);

	for (unsigned i = 0; i + n <= rails->window_count; i++) {
		double sums[RAILS] = {0};

		for (unsigned k = i; k < i + n; k++)
			for (unsigned r = 0; r < RAILS; r++)
				sums[r] += rails->windows[k].mb_s[r] / n;
		if (sums[0] + sums[1] >= least_mb_s && sums[0] >= share * (sums[0] + sums[1]) &&
			sums[1] >= share * (sums[0] + sums[1]))
			return rails->windows[i + n - 1].ms;
	}
	return -1;
}

static void say(struct rails *rails, const char *name, double value, const char *unit, bool at_least, double bar)
{
	bool met = value >= 0 && (at_least ? value >= bar : value <= bar);

	rails->missed = rails->missed || !met;
	fprintf(rails->options->log, "  %-28s %8.2f %-5s (%s %.2f: %s)\n", name, value, unit,
		at_least ? "at least" : "at most", bar, met ? "met" : "missed");
	fflush(rails->options->log);
	json_object_set_new(rails->object, name,
		json_pack("{s:f, s:s, s:f, s:b}", "value", value, "unit", unit, "bar", bar, "met", met));
}

/* ---- phases ---- */

static int set_rate(struct rails *rails, unsigned rail, double mb_s)
{
	return hf_fabric_set_rate(rails->fabric, "near", rail == 0 ? "r0" : "r1", (uint32_t)mb_s, rails->error);
}

static int set_link(struct rails *rails, const char *node, enum hf_link direction, bool up)
{
	return hf_fabric_set_link(rails->fabric, node, "r1", direction, up, rails->error);
}

/* r1 is cut at that node and direction, and restored. `both`: what the two carried. */
static int cut_and_restore(struct rails *rails, const char *node, enum hf_link direction, const char *kind,
	double most_ms, double one, double both)
{
	char name[48];
	int failed = set_link(rails, node, direction, false);

	if (!failed)
		failed = run_for(rails, PHASE_NS);
	snprintf(name, sizeof(name), "%s_ms_to_95_percent", kind);
	say(rails, name, ms_until(rails, LEFT_LEAST * one), "ms", false, most_ms);
	if (!failed)
		failed = set_link(rails, node, direction, true);
	if (!failed)
		failed = run_for(rails, PHASE_NS + SETTLE_NS);
	snprintf(name, sizeof(name), "%s_restored_ms", kind);
	say(rails, name, ms_until_shared(rails, both < TWO_LEAST * one ? both * LEFT_LEAST : TWO_LEAST * one, 0), "ms",
		false, BACK_MOST_MS);
	return failed;
}

static int slow_down(struct rails *rails, double one)
{
	double rate = (double)rails->options->rail_rate, slow, all;
	int failed = set_rate(rails, 1, rate / 10);

	if (!failed)
		failed = run_for(rails, SETTLE_NS);
	if (!failed)
		failed = run_for(rails, PHASE_NS);
	slow = mean_mb_s(rails, 1);
	all = mean_mb_s(rails, -1);
	say(rails, "slow_rail_share", all > 0 ? slow / all : -1, "", false, SLOW_MOST);
	say(rails, "slow_total_to_one", one > 0 ? all / one : -1, "", true, 1.0);
	if (!failed)
		failed = set_rate(rails, 1, rate);
	if (!failed)
		failed = run_for(rails, PHASE_NS + SETTLE_NS);
	say(rails, "slow_then_equal_ms", ms_until_shared(rails, 0, EQUAL_LEAST), "ms", false, BACK_MOST_MS);
	return failed;
}

static int run_phases(struct rails *rails)
{
	double one, two;
	int failed = set_link(rails, "near", HF_LINK_BOTH, false);

	if (!failed)
		failed = run_for(rails, SETTLE_NS);
	if (!failed)
		failed = run_for(rails, PHASE_NS);
	one = mean_mb_s(rails, -1);
	if (!failed)
		failed = set_link(rails, "near", HF_LINK_BOTH, true);
	if (!failed)
		failed = run_for(rails, PHASE_NS);
	if (!failed)
		failed = run_for(rails, PHASE_NS);
	two = mean_mb_s(rails, -1);
	fprintf(rails->options->log, "rails of %u MB/s: one carries %.1f MB/s, two %.1f MB/s\n",
		rails->options->rail_rate, one, two);
	say(rails, "two_to_one", one > 0 ? two / one : -1, "", true, TWO_LEAST);
	if (!failed)
		failed = cut_and_restore(rails, "near", HF_LINK_BOTH, "port_event", CUT_MOST_MS, one, two);
	if (!failed)
		failed = cut_and_restore(rails, "far", HF_LINK_RX, "silent", SILENT_MS, one, two);
	if (!failed)
		failed = slow_down(rails, one);
	say(rails, "failed_tasks", rails->failed_tasks, "", false, 0);
	return failed;
}

static int near(struct bench_meeting *meeting, void *context)
{
	struct rails *rails = context;
	char fabric[HF_NAME_BYTES];
	int failed = transfer_sides_open(&rails->side, &rails->setup, meeting, true);

	if (failed)
		hf_error_set(rails->error, failed, "%.200s", rails->side.bed.error.text);
	bench_fabric_name(fabric, rails->side.bed.pid);
	if (!failed)
		failed = hf_fabric_open(fabric, false, &rails->fabric, rails->error);
	for (unsigned i = 0; !failed && i < RAILS; i++)
		failed = set_rate(rails, i, rails->options->rail_rate);
	for (unsigned i = 0; i < SUBMITTERS; i++)
		rails->writers[i] = (struct writer){.rails = rails, .idle = true, .offset = i * BLOCK};
	if (!failed) {
		failed = run_phases(rails);
		end_traffic(rails);
	}
	hf_fabric_close(rails->fabric);
	transfer_sides_close(&rails->side);
	return failed;
}

static int far(struct bench_meeting *meeting, void *context)
{
	struct rails *rails = context;
	int failed = transfer_sides_open(&rails->side, &rails->setup, meeting, false);

	if (!failed)
		bed_serve(&rails->side.bed, 0);
	transfer_sides_close(&rails->side);
	return failed;
}

int transfer_rails(const struct transfer_options *options, json_t *object, struct hf_error *error)
{
	static struct rails rails;
	int failed;

	rails = (struct rails){.options = options,
		.setup = {.kind = "soft", .rails = RAILS, .bytes = BYTES},
		.object = object,
		.error = error};
	failed = bench_together(near, far, &rails);
	return failed ? failed : rails.missed ? 1 : 0;
}
