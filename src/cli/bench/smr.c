/* holdfast bench smr: what a proposal costs, and how long nobody leads.
 *
 * Three members over shm, in two processes on a core each (smr.h). In a round of proposals a bare cache line is
 * measured before and behind. smr_failover.c has leaders that stop, smr_steady.c what must not hold a leader up. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/smr.h"
#include "cli/cli.h"

#define ROUNDS_DEFAULT 11u
#define ROUNDS_MAX     99u
#define PROPOSALS      100000u
#define SLOTS          65536u
#define WARM           (SLOTS + 2000u) /* in the first lap of the ring each page of the logs is a fault, at all three */
#define FAILOVERS      20u
#define FAILOVERS_MAX  1000u
#define CUTS           20u
#define CUTS_MAX       1000u
#define MISS_SECONDS   3u
#define MISS_ENTRIES   100000u
#define CALLS_MAX      (HF_SMR_BATCH_MAX * HF_SMR_WINDOW_MAX)

struct latency {
	double line_before, line_after, median, p99, p999;
	double batch_rate[2]; /* requests a second: 1 in flight, and as many as there may be */
};

static void answered(struct hf_smr_call *call)
{
	call->data = NULL;
}

/* Requests a second, with so many at a time. */
static double rate_of(struct smr_side *side, const void *data, unsigned at_a_time, unsigned total)
{
	static struct hf_smr_call calls[CALLS_MAX];
	uint64_t start_ns = hf_env_now_ns(hf_env_host());
	unsigned flushes = 0;

	for (unsigned left = total; left > 0; left -= at_a_time) {
		unsigned busy = at_a_time;

		for (unsigned i = 0; i < at_a_time; i++) {
			calls[i] = (struct hf_smr_call){.done = answered, .data = data, .bytes = SMR_BYTES};
			if (hf_smr_propose(side->members[0], &calls[i]) != 0)
				return 0;
		}
		while (busy > 0) {
			hf_smr_flush(side->members[0]);
			if (++flushes % 1024 == 0)
				(void)hf_loop_turn(side->loop, 0);
			busy = 0;
			for (unsigned i = 0; i < at_a_time; i++)
				busy += calls[i].data != NULL;
		}
		(void)hf_loop_turn(side->loop, 0);
	}
	return total / ((double)(hf_env_now_ns(hf_env_host()) - start_ns) / 1e9);
}

/* One after the other, with a turn of the loop now and then: a NIC in user space answers the others in turns. */
static int propose_each(struct smr_side *side, const void *data, uint32_t *times, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!smr_side_propose(side, data, &times[i]))
			return -EAGAIN;
		if (i % 64 == 0)
			(void)hf_loop_turn(side->loop, 0);
	}
	return 0;
}

static int measure_latency(struct bench_meeting *meeting, void *context)
{
	static uint32_t times[PROPOSALS > WARM ? PROPOSALS : WARM];
	static const uint8_t data[SMR_BYTES];
	const struct smr_task *task = context;
	struct latency *at = task->result;
	struct smr_side side = {0};
	int rc = smr_side_lead(&side, meeting, true, task);

	if (rc == 0)
		rc = propose_each(&side, data, times, WARM);
	if (rc == 0)
		rc = propose_each(&side, data, times, PROPOSALS);
	if (rc == 0) {
		bench_sort_times(times, PROPOSALS);
		at->median = times[PROPOSALS / 2];
		at->p99 = times[PROPOSALS / 100 * 99];
		at->p999 = times[PROPOSALS / 1000 * 999];
		at->batch_rate[0] = rate_of(&side, data, HF_SMR_BATCH_MAX, 2000 * HF_SMR_BATCH_MAX);
		at->batch_rate[1] = rate_of(&side, data, CALLS_MAX, 400 * CALLS_MAX);
		rc = at->batch_rate[1] == 0 ? -EAGAIN : 0;
	}
	smr_side_close(&side);
	return rc;
}

/* ---- the report ---- */

static json_t *latencies(unsigned rounds, struct smr_bed *bed, FILE *log)
{
	double medians[ROUNDS_MAX], tails[ROUNDS_MAX], lines[ROUNDS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < rounds; i++) {
		struct latency latency = {0}, *at = &latency;
		struct smr_task task = {.patient = true, .slots = SLOTS, .result = at};
		int rc = bench_cache_line_ns(&at->line_before);

		if (rc == 0)
			rc = smr_side_together(measure_latency, smr_side_only_follow, &task, bed);
		if (rc != 0 || bench_cache_line_ns(&at->line_after) != 0)
			return NULL;
		fprintf(log,
			"  propose of 64 B: median %5.0f ns, p99 %5.0f, p99.9 %6.0f; cache line %3.0f %3.0f ns; "
			"batches of 128: %.2f M/s, 8 in flight: %.2f M/s\n",
			at->median, at->p99, at->p999, at->line_before, at->line_after, at->batch_rate[0] / 1e6,
			at->batch_rate[1] / 1e6);
		medians[n] = at->median;
		lines[n] = at->line_before;
		tails[n++] = at->p99;
	}
	return json_pack("{s:s, s:f, s:f, s:f, s:i}", "name", "smr_propose_64", "median_ns", bench_median(medians, n),
		"p99_ns", bench_median(tails, n), "cache_line_ns", bench_median(lines, n), "rounds", (int)n);
}

struct options {
	unsigned rounds, failovers, cuts, seconds, entries;
	const char *directory; /* durable proposals alone are measured */
	struct smr_bed bed;
	bool json;
};

static int read_device(struct smr_bed *bed, const char *kind)
{
	if (strcmp(kind, "shm") != 0 && strcmp(kind, "soft") != 0)
		return bench_refuse("devices are shm and soft, and --verbs takes addresses; not", kind);
	bed->kind = kind;
	return 0;
}

/* With a comma between them. */
static bool parse_addresses(const char *list, struct hf_addr addresses[SMR_MEMBERS])
{
	for (unsigned i = 0; i < SMR_MEMBERS; i++) {
		size_t bytes = strcspn(list, ",");
		char text[HF_ADDR_TEXT];

		(void)snprintf(text, sizeof(text), "%.*s", (int)bytes, list);
		if (bytes >= sizeof(text) || hf_addr_parse(text, &addresses[i]) != 0)
			return false;
		list += bytes + (list[bytes] == ',');
	}
	return *list == '\0';
}

static int read_verbs(struct options *options, const char *list)
{
	if (!parse_addresses(list, options->bed.devices))
		return bench_refuse("--verbs takes three addresses with commas between them, not", list);
	options->bed.kind = "verbs";
	options->cuts = 0;
	return 0;
}

static int read_options(int argc, char **argv, struct options *options)
{
	const struct {
		const char *name;
		unsigned *value, most;
	} numbers[] = {{"--rounds", &options->rounds, ROUNDS_MAX}, {"--failovers", &options->failovers, FAILOVERS_MAX},
		{"--cuts", &options->cuts, CUTS_MAX}, {"--seconds", &options->seconds, 3600},
		{"--entries", &options->entries, 1000000000}};
	int status = 0;

	for (int i = 1; status == 0 && i < argc; i++) {
		unsigned k = 0;

		options->json |= strcmp(argv[i], "--json") == 0;
		if (strcmp(argv[i], "--json") == 0)
			continue;
		if (strcmp(argv[i], "--durable") == 0 && i + 1 < argc) {
			options->directory = argv[++i];
			continue;
		}
		if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
			status = read_device(&options->bed, argv[++i]);
			continue;
		}
		if (strcmp(argv[i], "--verbs") == 0 && i + 1 < argc) {
			status = read_verbs(options, argv[++i]);
			continue;
		}
		while (k < sizeof(numbers) / sizeof(numbers[0]) && strcmp(argv[i], numbers[k].name) != 0)
			k++;
		if (k == sizeof(numbers) / sizeof(numbers[0]) || i + 1 == argc)
			return bench_refuse("there is no option", argv[i]);
		*numbers[k].value = (unsigned)strtoul(argv[++i], NULL, 10);
		if (*numbers[k].value > numbers[k].most)
			return bench_refuse("too many:", argv[i]);
	}
	return status;
}

static bool add(json_t *array, json_t *part)
{
	if (part == NULL)
		return false;
	if (json_is_array(part))
		(void)json_array_extend(array, part);
	else
		(void)json_array_append(array, part);
	json_decref(part);
	return true;
}

/* A part of which there are to be none is left out. */
int bench_smr(int argc, char **argv)
{
	struct options options = {
		ROUNDS_DEFAULT, FAILOVERS, CUTS, MISS_SECONDS, MISS_ENTRIES, NULL, {.kind = "shm"}, false};
	json_t *array = json_array();
	bool well = true;
	FILE *log;
	int status;

	if (argc > 1 && strcmp(argv[1], "members") == 0)
		return smr_changes(argc - 1, argv + 1);
	status = read_options(argc, argv, &options);
	if (status != 0)
		return status;
	log = options.json ? stderr : stdout;
	if (options.directory != NULL) {
		well = add(array, smr_durable(options.directory, &options.bed, log));
		options.rounds = options.failovers = options.cuts = 0;
	}
	if (options.rounds > 0)
		well = add(array, latencies(options.rounds, &options.bed, log));
	if (well && options.failovers > 0)
		well = add(array, smr_failovers(options.failovers, &options.bed, log));
	if (well && options.cuts > 0)
		well = add(array, smr_steady(options.cuts, options.seconds, options.entries, &options.bed, log));
	(void)json_dumpf(array, stdout, CLI_JSON_STYLE);
	puts("");
	json_decref(array);
	return !well;
}
