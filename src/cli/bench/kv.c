/* holdfast bench kv: the store beside a Redis with two replicas, after a kill, and when a member returns.
 *
 *   beside    the same client at both by turns; of each round a ratio, and the median of those
 *   kill      a writer at each survivor; from the kill to the end of the longest time without an answer at any of them.
 *             The victim is by turns the member that decides who is one, and another
 *   recovery  a member is killed, so many different records are written, and it is started again; the steps are its own
 *             (HEAL, figure 8). From exec to the first right answer beside them */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/kv_bed.h"
#include "cli/bench/kv_load.h"
#include "cli/cli.h"
#include "cli/page.h"
#include "cli/report_file.h"

#define ROUNDS_DEFAULT 7u
#define ROUNDS_MAX     99u
#define KEYS           100000u
#define BYTES          100u
#define SLICE_NS       700000000ull
#define WARM_NS        200000000ull
#define BEFORE_NS      300000000ull  /* of writing before a kill, */
#define AFTER_NS       1500000000ull /* and behind it */
#define MISSED_POINTS  4u
#define US             1e3
#define MS             1e6

enum part { PART_BESIDE, PART_KILL, PART_RECOVERY, PARTS };
static const char *const part_names[PARTS] = {"beside", "kill", "recovery"};
static const uint32_t missed_points[MISSED_POINTS] = {1000, 10000, 50000, 100000};

struct bench {
	unsigned rounds, nodes, parts;
	const char *out, *html;
	bool json;
	FILE *log;
	struct hf_loop *loop;
	struct hf_error error;
};

static uint64_t now_ns(const struct bench *bench)
{
	return hf_env_now_ns(hf_loop_env(bench->loop));
}

/* ---- beside ---- */

enum shape { SHAPE_SET, SHAPE_GET, SHAPE_RATE, SHAPES };
static const struct {
	const char *name;
	unsigned connections, batch, set_percent;
} shapes[SHAPES] = {{"SET, c=1", 1, 1, 100}, {"GET, c=1", 1, 1, 0}, {"SET, c=16 P=16", 16, 16, 100}};

struct slice {
	double p50_us, p99_us, rate;
};

static int measure(struct bench *bench, const struct kv_dialect *dialect, const struct hf_addr *to, enum shape shape,
	struct slice *slice_out)
{
	struct kv_load_config config = {.dialect = dialect,
		.to = to,
		.to_count = 1,
		.connections = shapes[shape].connections,
		.batch = shapes[shape].batch,
		.set_percent = shapes[shape].set_percent,
		.keys = KEYS,
		.value_bytes = BYTES};
	struct kv_load *load = kv_load_open(bench->loop, &config);
	const struct kv_load_counts *counts;
	uint64_t began_ns;
	int rc = load == NULL ? -ENOMEM : kv_load_run(load, now_ns(bench) + WARM_NS, 0);

	if (rc == 0) {
		kv_load_reset(load);
		began_ns = now_ns(bench);
		rc = kv_load_run(load, began_ns + SLICE_NS, 0);
		counts = kv_load_counts(load);
		const struct histogram *of = shape == SHAPE_GET ? &counts->gets : &counts->sets;

		*slice_out = (struct slice){.p50_us = (double)histogram_quantile(of, 0.5) / US,
			.p99_us = (double)histogram_quantile(of, 0.99) / US,
			.rate = (double)counts->done / ((double)(now_ns(bench) - began_ns) / 1e9)};
	}
	kv_load_close(load);
	return rc;
}

static int fill(struct bench *bench, const struct hf_addr *to)
{
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.to_count = 1,
		.connections = 4,
		.batch = 32,
		.set_percent = 100,
		.keys = KEYS,
		.value_bytes = BYTES};
	struct kv_load *load = kv_load_open(bench->loop, &config);
	int rc = load == NULL ? -ENOMEM : kv_load_fill(load);

	kv_load_close(load);
	return rc;
}

static int compare(struct bench *bench, struct kv_bed *store, struct kv_bed *redis, enum shape shape, json_t *figures)
{
	/* A GET needs no replica, and a rate is of what two replicas have. */
	const struct kv_dialect *others = shape == SHAPE_GET ? &kv_dialect_resp : &kv_dialect_resp_wait;
	double p50[ROUNDS_MAX], p99[ROUNDS_MAX], rate[ROUNDS_MAX], ours_p50[ROUNDS_MAX], ours_rate[ROUNDS_MAX];

	for (unsigned i = 0; i < bench->rounds; i++) {
		struct slice ours, theirs;
		int rc = measure(bench, &kv_dialect_resp, &store->members[0].clients, shape, &ours);

		if (rc == 0)
			rc = measure(bench, others, &redis->members[0].clients, shape, &theirs);
		if (rc != 0)
			return hf_error_set(
				&bench->error, rc, "%s gave no figures: %s", shapes[shape].name, strerror(-rc));
		fprintf(bench->log, "  %-15s ours %7.1f us, p99 %7.1f, %8.0f/s   Redis %7.1f us, p99 %7.1f, %8.0f/s\n",
			shapes[shape].name, ours.p50_us, ours.p99_us, ours.rate, theirs.p50_us, theirs.p99_us,
			theirs.rate);
		p50[i] = ours.p50_us / theirs.p50_us;
		p99[i] = ours.p99_us / theirs.p99_us;
		rate[i] = ours.rate / theirs.rate;
		ours_p50[i] = ours.p50_us;
		ours_rate[i] = ours.rate;
	}
	return json_array_append_new(
		figures, json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "shape", shapes[shape].name, "beside",
				 others->name, "rounds", (int)bench->rounds, "p50_us",
				 bench_median(ours_p50, bench->rounds), "rate", bench_median(ours_rate, bench->rounds),
				 "p50_ratio", bench_median(p50, bench->rounds), "p99_ratio",
				 bench_median(p99, bench->rounds), "rate_ratio", bench_median(rate, bench->rounds)));
}

static int run_beside(struct bench *bench, json_t *figures)
{
	struct kv_bed store = {0}, redis = {0};
	int rc = kv_bed_open(&store, bench->loop, bench->nodes, "heal", &bench->error);

	if (rc == 0)
		rc = kv_bed_open_redis(&redis, bench->loop, &bench->error);
	if (rc == -ENOENT) {
		json_array_append_new(figures, json_pack("{s:s}", "skipped", bench->error.text));
		kv_bed_close(&store);
		kv_bed_close(&redis);
		return 0;
	}
	if (rc == 0)
		rc = fill(bench, &store.members[0].clients);
	if (rc == 0)
		rc = fill(bench, &redis.members[0].clients);
	for (unsigned i = 0; rc == 0 && i < SHAPES; i++)
		rc = compare(bench, &store, &redis, (enum shape)i, figures);
	kv_bed_close(&store);
	kv_bed_close(&redis);
	return rc;
}

/* ---- kill ---- */

static unsigned find_decider(struct kv_bed *bed)
{
	for (unsigned i = 0; i < bed->count; i++) {
		json_t *status = kv_bed_status(bed, i);
		bool decides = json_is_true(json_object_get(status, "decides"));

		json_decref(status);
		if (decides)
			return i;
	}
	return 0;
}

static int kill_once(struct bench *bench, struct kv_bed *bed, unsigned victim, double *ms_out)
{
	struct hf_addr to[KV_BED_MAX];
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.batch = 1,
		.set_percent = 100,
		.keys = KEYS,
		.value_bytes = BYTES};
	struct kv_load *load;
	uint64_t killed_ns, end_ns;
	int rc;

	for (unsigned i = 0; i < bed->count; i++)
		if (i != victim)
			to[config.to_count++] = bed->members[i].clients;
	config.connections = config.to_count;
	load = kv_load_open(bench->loop, &config);
	rc = load == NULL ? -ENOMEM : kv_load_run(load, now_ns(bench) + BEFORE_NS, 0);
	if (rc == 0) {
		kv_load_reset(load);
		killed_ns = now_ns(bench);
		kv_bed_kill(bed, victim);
		rc = kv_load_run(load, killed_ns + AFTER_NS, 0);
		(void)kv_load_longest_gap_ns(load, &end_ns);
		*ms_out = (double)(end_ns - killed_ns) / MS;
	}
	kv_load_close(load);
	return rc == 0 ? kv_bed_return(bed, victim, &bench->error) : rc;
}

static int run_kill(struct bench *bench, json_t *figures)
{
	struct kv_bed bed = {0};
	int rc = kv_bed_open(&bed, bench->loop, bench->nodes, "heal", &bench->error);

	for (unsigned decider = 0; rc == 0 && decider < 2; decider++) {
		double ms[ROUNDS_MAX], median;

		for (unsigned i = 0; rc == 0 && i < bench->rounds; i++) {
			unsigned leads = find_decider(&bed);
			unsigned victim = decider != 0 ? leads : (leads + 1) % bed.count;

			rc = kill_once(bench, &bed, victim, &ms[i]);
			if (rc == 0)
				fprintf(bench->log,
					"  kill -9 of %-14s next answered write at every survivor after %6.1f ms\n",
					decider != 0 ? "who decides:" : "another one:", ms[i]);
		}
		if (rc != 0)
			break;
		median = bench_median(ms, bench->rounds); /* sorts them */
		json_array_append_new(figures,
			json_pack("{s:s, s:i, s:f, s:f}", "victim", decider != 0 ? "decides" : "other", "rounds",
				(int)bench->rounds, "median_ms", median, "longest_ms", ms[bench->rounds - 1]));
	}
	kv_bed_close(&bed);
	return rc;
}

/* ---- recovery ---- */

struct steps {
	double start, catch_up, apply, total, exec, records;
};

/* Different records, so that each write is one that is missed. */
static int write_missed(struct bench *bench, const struct hf_addr *to, uint32_t missed)
{
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.to_count = 1,
		.connections = 4,
		.batch = 32,
		.set_percent = 100,
		.keys = KEYS,
		.value_bytes = BYTES,
		.distinct = true};
	struct kv_load *load = kv_load_open(bench->loop, &config);
	int rc = load == NULL ? -ENOMEM : kv_load_run(load, UINT64_MAX, missed);

	kv_load_close(load);
	return rc;
}

static double number(const json_t *json, const char *key)
{
	return json_number_value(json_object_get(json, key));
}

static int return_once(struct bench *bench, struct kv_bed *bed, uint32_t missed, struct steps *steps_out, bool *healed)
{
	unsigned victim = bed->count - 1;
	uint64_t began_ns;
	const json_t *recovery;
	json_t *status;
	int rc;

	kv_bed_kill(bed, victim);
	rc = write_missed(bench, &bed->members[0].clients, missed);
	began_ns = now_ns(bench);
	if (rc == 0)
		rc = kv_bed_return(bed, victim, &bench->error);
	if (rc != 0)
		return rc;
	*steps_out = (struct steps){.exec = (double)(now_ns(bench) - began_ns) / MS};
	status = kv_bed_status(bed, victim);
	recovery = json_array_get(json_object_get(status, "recoveries"), 0);
	steps_out->start = number(recovery, "start_to_ack_us") / US;
	steps_out->catch_up = number(recovery, "catch_up_to_resp_us") / US;
	steps_out->apply = number(recovery, "apply_to_end_us") / US;
	steps_out->records = number(recovery, "records");
	steps_out->total = steps_out->start + steps_out->catch_up + steps_out->apply;
	*healed = json_is_true(json_object_get(recovery, "healed"));
	rc = recovery == NULL ? hf_error_set(&bench->error, -EPROTO, "the member tells of no recovery") : 0;
	json_decref(status);
	return rc;
}

static int measure_return(struct bench *bench, struct kv_bed *bed, const char *way, uint32_t missed, json_t *figures)
{
	double start[ROUNDS_MAX], catch_up[ROUNDS_MAX], apply[ROUNDS_MAX], total[ROUNDS_MAX], exec[ROUNDS_MAX],
		records[ROUNDS_MAX];

	for (unsigned i = 0; i < bench->rounds; i++) {
		struct steps steps;
		bool healed;
		int rc = return_once(bench, bed, missed, &steps, &healed);

		if (rc != 0)
			return rc;
		fprintf(bench->log,
			"  %-4s %6u missed: %7.2f ms = start to ACK %.2f + catch-up to response %.2f + apply to end "
			"%.2f; "
			"%.1f ms from exec%s\n",
			way, missed, steps.total, steps.start, steps.catch_up, steps.apply, steps.exec,
			healed == (strcmp(way, "heal") == 0) ? "" : " (the other way)");
		start[i] = steps.start;
		catch_up[i] = steps.catch_up;
		apply[i] = steps.apply;
		total[i] = steps.total;
		exec[i] = steps.exec;
		records[i] = steps.records;
	}
	return json_array_append_new(figures,
		json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "recovery", way, "nodes",
			(int)bench->nodes, "missed", (int)missed, "rounds", (int)bench->rounds, "start_to_ack_ms",
			bench_median(start, bench->rounds), "catch_up_to_resp_ms",
			bench_median(catch_up, bench->rounds), "apply_to_end_ms", bench_median(apply, bench->rounds),
			"total_ms", bench_median(total, bench->rounds), "exec_ms", bench_median(exec, bench->rounds),
			"records", bench_median(records, bench->rounds)));
}

static int run_recovery(struct bench *bench, json_t *figures)
{
	static const char *const ways[] = {"heal", "copy"};
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		struct kv_bed bed = {0};

		rc = kv_bed_open(&bed, bench->loop, bench->nodes, ways[i], &bench->error);
		if (rc == 0)
			rc = fill(bench, &bed.members[0].clients);
		for (unsigned k = 0; rc == 0 && k < MISSED_POINTS; k++)
			rc = measure_return(bench, &bed, ways[i], missed_points[k], figures);
		kv_bed_close(&bed);
	}
	return rc;
}

/* ---- the report ---- */

static const char *label(const struct page_chart *chart, unsigned at, char *text)
{
	(void)chart;
	snprintf(text, PAGE_LABEL_BYTES, "%u", missed_points[at]);
	return text;
}

static void put_chart(FILE *to, const json_t *rows)
{
	double values[2][MISSED_POINTS] = {{0}};
	struct page_chart chart = {.title = "Recovery by records of 100 B missed",
		.unit = "ms",
		.n = MISSED_POINTS,
		.label = label,
		.log_scale = true,
		.line_count = 2};
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) for (unsigned k = 0; k < MISSED_POINTS;
					      k++) if (number(row, "missed") == missed_points[k])
		values[strcmp(json_string_value(json_object_get(row, "recovery")), "copy") == 0][k] =
			number(row, "total_ms");
	for (unsigned k = 0; k < 2; k++) {
		chart.lines[k].name = k == 0 ? "heal" : "copy";
		chart.lines[k].color = k;
		chart.lines[k].values = values[k];
	}
	page_chart(to, &chart);
}

static void put_table(FILE *to, const char *title, const json_t *rows)
{
	json_t *row, *value;
	const char *key;
	size_t i;

	fprintf(to, "<h2>%s</h2>\n<table>\n", title);
	json_array_foreach(rows, i, row)
	{
		fputs("<tr>", to);
		json_object_foreach(row, key, value)
		{
			fprintf(to, "<td>%s ", key);
			if (json_is_string(value))
				page_text(to, json_string_value(value));
			else
				fprintf(to, "%.6g", json_number_value(value));
			fputs("</td>", to);
		}
		fputs("</tr>\n", to);
	}
	fputs("</table>\n", to);
}

static int write_page(const struct bench *bench, const json_t *all)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);
	int rc;

	if (to == NULL)
		return -ENOMEM;
	page_begin(to, "The store: beside Redis, after a kill, and when a member returns");
	for (unsigned i = 0; i < PARTS; i++) {
		const json_t *rows = json_object_get(all, part_names[i]);

		if (i == PART_RECOVERY && rows != NULL)
			put_chart(to, rows);
		if (rows != NULL)
			put_table(to, part_names[i], rows);
	}
	page_end(to);
	rc = fclose(to) == 0 ? report_write(hf_env_host(), NULL, bench->html, text) : -errno;
	free(text);
	return rc;
}

static int report(const struct bench *bench, json_t *all)
{
	if (bench->out != NULL && json_dump_file(all, bench->out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0) {
		cli_refuse("bench", "%s cannot be written: %s", bench->out, strerror(errno));
		return EXIT_FOUND;
	}
	if (bench->html != NULL && write_page(bench, all) != 0) {
		cli_refuse("bench", "%s cannot be written", bench->html);
		return EXIT_FOUND;
	}
	return bench->json ? cli_print_json(json_incref(all)) : cli_flush("bench");
}

static int take_part(struct bench *bench, const char *name)
{
	for (unsigned i = 0; i < PARTS; i++)
		if (strcmp(name, part_names[i]) == 0) {
			bench->parts |= 1u << i;
			return EXIT_DONE;
		}
	return bench_refuse("there is no part of `bench kv` called", name);
}

static int parse(int argc, char **argv, struct bench *bench)
{
	static const struct option known[] = {{"rounds", required_argument, NULL, 'r'},
		{"nodes", required_argument, NULL, 'n'}, {"out", required_argument, NULL, 'o'},
		{"html", required_argument, NULL, 'h'}, {"json", no_argument, NULL, 'j'}, {0}};
	int c, status = EXIT_DONE;
	double value = 0;

	opterr = 0;
	while (status == EXIT_DONE && (c = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		if (c == 'o')
			bench->out = optarg;
		else if (c == 'h')
			bench->html = optarg;
		else if (c == 'j')
			bench->json = true;
		else if (c == 'r' && cli_number(optarg, 1, ROUNDS_MAX, &value))
			bench->rounds = (unsigned)value;
		else if (c == 'n' && cli_number(optarg, 3, KV_BED_MAX, &value))
			bench->nodes = (unsigned)value;
		else
			status = c == 'r' || c == 'n'
					 ? bench_refuse("--rounds takes 1 to 99, --nodes 3 to 5, not", optarg)
					 : cli_refuse_option("bench", argv, c);
	}
	for (; status == EXIT_DONE && optind < argc; optind++)
		status = take_part(bench, argv[optind]);
	if (bench->parts == 0)
		bench->parts = (1u << PARTS) - 1;
	bench->log = bench->json ? stderr : stdout;
	return status;
}

int bench_kv(int argc, char **argv)
{
	static int (*const runs[PARTS])(struct bench *, json_t *) = {run_beside, run_kill, run_recovery};
	struct bench bench = {.rounds = ROUNDS_DEFAULT, .nodes = 3};
	int status = parse(argc, argv, &bench), rc = 0, written;
	json_t *all;

	if (status != EXIT_DONE)
		return status;
	if (hf_loop_create(hf_env_host(), &bench.loop) != 0)
		return cli_refuse("bench", "cannot make a loop");
	process_catch_signals();
	all = json_object();
	for (unsigned i = 0; i < PARTS && rc != -EINTR; i++) {
		json_t *figures = json_array();

		if ((bench.parts & 1u << i) == 0) {
			json_decref(figures);
			continue;
		}
		json_object_set_new(all, part_names[i], figures);
		rc = runs[i](&bench, figures);
		if (rc == 0)
			continue;
		status = rc == -EINTR ? EXIT_INTERRUPTED : EXIT_FOUND;
		cli_refuse("bench", "kv %s: %s", part_names[i],
			bench.error.text[0] != '\0' ? bench.error.text : strerror(-rc));
	}
	written = report(&bench, all);
	json_decref(all);
	hf_loop_destroy(bench.loop);
	return status != EXIT_DONE ? status : written;
}
