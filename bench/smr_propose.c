/* What a proposal costs: one at a time, and in entries of several requests of which several are in flight.
 *
 * In each round a bare cache line is measured before and behind, and the machine's jitter by bursts of exchanges that
 * take as long as a proposal: their p99 divided by their median. */
#include <errno.h>
#include <stddef.h>

#include "bench/smr.h"

#define PROPOSALS 100000u
#define SLOTS     65536u
#define WARM      (SLOTS + 2000u) /* in the first lap of the ring each page of the logs is a fault, at all three */
#define ENTRIES   2000u           /* of each size, with each number in flight */
#define NEAR_NS   60.0            /* a cache line between near cores */

/* The limits of a proposal of 64 B. */
#define MEDIAN_NS      1300.0
#define MEDIAN_NEAR_NS 900.0
#define P99_NS         1600.0 /* times the jitter */

static const unsigned batches[] = {1, 2, 4, 8, 16, 32, 64, 128}, in_flight[] = {1, 2, 4, 8};
#define BATCHES   (sizeof(batches) / sizeof(*batches))
#define IN_FLIGHT (sizeof(in_flight) / sizeof(*in_flight))

struct cell {
	double rate, median; /* requests a second; ns of an entry */
};

struct round {
	double line_before, line_after, jitter, median, p99, p999, p99_by_jitter;
	struct cell cells[BATCHES][IN_FLIGHT];
};

/* ---- one at a time ---- */

/* With a turn of the loop now and then: a NIC in user space answers the others in turns. */
static int propose_each(struct smr_side *side, uint32_t *times, unsigned n)
{
	static const uint8_t data[SMR_BYTES];

	for (unsigned i = 0; i < n; i++) {
		if (!smr_side_propose(side, data, &times[i]))
			return -EAGAIN;
		if (i % 64 == 0)
			(void)hf_loop_turn(side->bed.loop, 0);
	}
	return 0;
}

/* ---- entries ---- */

struct entry {
	struct hf_smr_call calls[HF_SMR_BATCH_MAX];
	uint64_t began_ns;
};

static int send_entry(struct smr_side *side, struct entry *entry, unsigned batch)
{
	static const uint8_t data[SMR_BYTES];

	entry->began_ns = hf_env_now_ns(hf_env_host());
	for (unsigned i = 0; i < batch; i++) {
		entry->calls[i] = (struct hf_smr_call){.done = smr_side_answered, .data = data, .bytes = SMR_BYTES};
		if (hf_smr_propose(side->members[0], &entry->calls[i]) != 0)
			return -EAGAIN;
	}
	hf_smr_flush(side->members[0]); /* all that waits is one entry */
	return 0;
}

static int measure_cell(struct smr_side *side, unsigned batch, unsigned most, struct cell *cell)
{
	static struct entry entries[HF_SMR_WINDOW_MAX];
	static uint32_t times[ENTRIES];
	uint64_t start_ns = hf_env_now_ns(hf_env_host()), now_ns = start_ns;
	unsigned sent = 0, ended = 0, flushes = 0;
	int rc = 0;

	while (rc == 0 && ended < ENTRIES) {
		for (; rc == 0 && sent < ENTRIES && sent - ended < most; sent++)
			rc = send_entry(side, &entries[sent % most], batch);
		hf_smr_flush(side->members[0]);
		if (++flushes % 64 == 0)
			(void)hf_loop_turn(side->bed.loop, 0);
		now_ns = hf_env_now_ns(hf_env_host());
		for (; ended < sent && entries[ended % most].calls[batch - 1].data == NULL; ended++)
			times[ended] = (uint32_t)(now_ns - entries[ended % most].began_ns);
	}
	bench_sort_times(times, ENTRIES);
	cell->rate = (double)ENTRIES * batch * 1e9 / (double)(now_ns - start_ns);
	cell->median = times[ENTRIES / 2];
	return rc;
}

/* ---- a round ---- */

static int lead(struct bench_meeting *meeting, void *context)
{
	static uint32_t times[PROPOSALS > WARM ? PROPOSALS : WARM];
	const struct smr_task *task = context;
	struct round *at = task->result;
	struct smr_side side = {0};
	int rc = smr_side_lead(&side, meeting, true, task);

	if (rc == 0)
		rc = propose_each(&side, times, WARM);
	if (rc == 0)
		rc = propose_each(&side, times, PROPOSALS);
	if (rc == 0) {
		bench_sort_times(times, PROPOSALS);
		at->median = times[PROPOSALS / 2];
		at->p99 = times[PROPOSALS / 100 * 99];
		at->p999 = times[PROPOSALS / 1000 * 999];
	}
	for (unsigned i = 0; rc == 0 && i < BATCHES; i++)
		for (unsigned k = 0; rc == 0 && k < IN_FLIGHT; k++)
			rc = measure_cell(&side, batches[i], in_flight[k], &at->cells[i][k]);
	smr_side_close(&side);
	return rc;
}

static int measure(struct round *at, struct smr_bed *bed, FILE *log)
{
	struct smr_task task = {.patient = true, .slots = SLOTS, .result = at};
	int rc = bench_cache_line_ns(&at->line_before);

	if (rc == 0)
		rc = bench_jitter(&at->jitter);
	if (rc == 0)
		rc = smr_side_together(lead, smr_side_only_follow, &task, bed);
	if (rc == 0)
		rc = bench_cache_line_ns(&at->line_after);
	at->p99_by_jitter = at->p99 / at->jitter;
	if (rc == 0)
		fprintf(log,
			"  propose of 64 B: median %5.0f ns, p99 %5.0f, p99.9 %6.0f; cache line %3.0f %3.0f ns, "
			"jitter %.2f; entries of 128: %.2f M/s, 8 in flight: %.2f M/s\n",
			at->median, at->p99, at->p999, at->line_before, at->line_after, at->jitter,
			at->cells[BATCHES - 1][0].rate / 1e6, at->cells[BATCHES - 1][IN_FLIGHT - 1].rate / 1e6);
	return rc;
}

/* ---- the report ---- */

static bool was_near(const struct round *at)
{
	return at->line_before <= NEAR_NS && at->line_after <= NEAR_NS;
}

static double median_of(const struct round *rounds, unsigned n, size_t member)
{
	return bench_median_at(rounds, n, sizeof(*rounds), member);
}

static void add_bar(json_t *rows, FILE *log, const char *words, double value, double most)
{
	const char *verdict = value <= most ? "met" : "missed";

	fprintf(log, "  %s: %.0f ns (%s)\n", words, value, verdict);
	json_array_append_new(rows, json_pack("{s:s, s:f, s:f, s:s}", "bar", words, "value_ns", value, "most_ns", most,
					    "verdict", verdict));
}

static json_t *judge(const struct round *rounds, unsigned n, FILE *log)
{
	json_t *rows = json_array();
	double worst = 0, worst_near = 0;

	for (unsigned i = 0; i < n; i++) {
		worst = rounds[i].median > worst ? rounds[i].median : worst;
		if (was_near(&rounds[i]))
			worst_near = rounds[i].median > worst_near ? rounds[i].median : worst_near;
	}
	add_bar(rows, log, "the slowest round's median, at most 1,300", worst, MEDIAN_NS);
	if (worst_near > 0)
		add_bar(rows, log, "that of rounds with a cache line of at most 60 ns, at most 900", worst_near,
			MEDIAN_NEAR_NS);
	add_bar(rows, log, "p99 divided by the jitter, at most 1,600",
		median_of(rounds, n, offsetof(struct round, p99_by_jitter)), P99_NS);
	return rows;
}

static json_t *one_at_a_time(const struct round *rounds, unsigned n)
{
	return json_pack("[{s:f, s:f, s:f, s:f, s:f, s:i}]", "median_ns",
		median_of(rounds, n, offsetof(struct round, median)), "p99_ns",
		median_of(rounds, n, offsetof(struct round, p99)), "p999_ns",
		median_of(rounds, n, offsetof(struct round, p999)), "cache_line_ns",
		median_of(rounds, n, offsetof(struct round, line_before)), "jitter",
		median_of(rounds, n, offsetof(struct round, jitter)), "rounds", (int)n);
}

/* A row for each size of an entry, with a rate and a time for each number in flight. */
static json_t *in_batches(const struct round *rounds, unsigned n)
{
	json_t *rows = json_array();

	for (unsigned i = 0; i < BATCHES; i++) {
		json_t *row = json_pack("{s:i}", "batch", (int)batches[i]);

		for (unsigned k = 0; k < IN_FLIGHT; k++) {
			size_t cell = offsetof(struct round, cells) + (i * IN_FLIGHT + k) * sizeof(struct cell);
			char key[32];

			(void)snprintf(key, sizeof(key), "per_s_%u", in_flight[k]);
			json_object_set_new(
				row, key, json_real(median_of(rounds, n, cell + offsetof(struct cell, rate))));
			(void)snprintf(key, sizeof(key), "entry_ns_%u", in_flight[k]);
			json_object_set_new(
				row, key, json_real(median_of(rounds, n, cell + offsetof(struct cell, median))));
		}
		json_array_append_new(rows, row);
	}
	return rows;
}

bool smr_propose(unsigned count, struct smr_bed *bed, json_t *all, FILE *log)
{
	static struct round rounds[SMR_ROUNDS_MAX];

	for (unsigned i = 0; i < count; i++)
		if (measure(&rounds[i], bed, log) != 0)
			return false;
	json_object_set_new(all, "propose", one_at_a_time(rounds, count));
	json_object_set_new(all, "batches", in_batches(rounds, count));
	json_object_set_new(all, "bars", judge(rounds, count, log));
	return true;
}
