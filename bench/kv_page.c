/* The page of `holdfast bench kv`: HEAL's figures 6 to 9 from our numbers, and all rows. */
#include <string.h>

#include "bench/kv_bench.h"
#include "bench/page_rows.h"

/* Where a row's point is; it is added when it is not there yet. */
static unsigned find_point(struct page_rows_labels *labels, unsigned *n, const char *text)
{
	for (unsigned i = 0; i < *n; i++)
		if (strcmp(labels->text[i], text) == 0)
			return i;
	if (*n == PAGE_ROWS_POINTS)
		return PAGE_ROWS_POINTS - 1;
	snprintf(labels->text[*n], PAGE_LABEL_BYTES, "%s", text);
	return (*n)++;
}

/* A chart whose lines have n points each, unless there are none. */
static void put_lines(
	FILE *to, struct page_chart *chart, const char *const names[], double (*values)[PAGE_ROWS_POINTS], unsigned n)
{
	chart->n = n;
	for (unsigned k = 0; k < chart->line_count; k++) {
		chart->lines[k].name = names[k];
		chart->lines[k].color = k;
		chart->lines[k].values = values[k];
	}
	if (n > 0)
		page_chart(to, chart);
}

/* ---- by the amount missed (figure 6) ---- */

static void put_amounts(FILE *to, const json_t *rows)
{
	static const char *const ways[] = {"heal", "copy", "stop"};
	double values[3][PAGE_ROWS_POINTS] = {{0}};
	struct page_rows_labels labels = {0};
	unsigned n = 0;
	struct page_chart chart = {.title = "Recovery by records missed (figure 6)",
		.unit = "ms",
		.label = page_rows_label,
		.context = &labels,
		.log_scale = true,
		.line_count = 3};
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		char text[PAGE_LABEL_BYTES];

		if (!page_rows_has(row, "workload", "missed") ||
			kv_bench_number(row, "store_records") !=
				kv_bench_number(json_array_get(rows, 0), "store_records"))
			continue;
		if (kv_bench_number(row, "nodes") != kv_bench_number(json_array_get(rows, 0), "nodes"))
			continue;
		snprintf(text, sizeof(text), "%.0f", kv_bench_number(row, "missed"));
		for (unsigned k = 0; k < 3; k++)
			if (page_rows_has(row, "recovery", ways[k]))
				values[k][find_point(&labels, &n, text)] = kv_bench_number(row, "total_ms");
	}
	put_lines(to, &chart, ways, values, n);
}

/* ---- the steps (figure 8) ---- */

static void put_steps(FILE *to, const json_t *rows)
{
	static const char *const keys[] = {"start_to_ack_ms", "catch_up_to_resp_ms", "apply_to_end_ms"};
	static const char *const names[] = {"start to ACK", "catch-up to response", "apply to end"};
	double values[3][PAGE_ROWS_POINTS] = {{0}};
	struct page_rows_labels labels = {0};
	unsigned n = 0;
	struct page_chart chart = {.title = "Steps of a recovery that missed 100,000 records, by members (figure 8)",
		.unit = "ms",
		.label = page_rows_label,
		.context = &labels,
		.bars = true,
		.line_count = 3};
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		char text[PAGE_LABEL_BYTES];
		unsigned at;

		if (!page_rows_has(row, "recovery", "heal") || !page_rows_has(row, "workload", "missed") ||
			kv_bench_number(row, "missed") != 100000)
			continue;
		snprintf(text, sizeof(text), "%.0f members", kv_bench_number(row, "nodes"));
		at = find_point(&labels, &n, text);
		for (unsigned k = 0; k < 3; k++)
			values[k][at] = kv_bench_number(row, keys[k]);
	}
	put_lines(to, &chart, names, values, n);
}

/* ---- bars of one value each ---- */

static void put_bars(FILE *to, const char *title, const char *unit, const json_t *rows, const char *kind,
	const char *name, const char *key)
{
	const struct page_rows what = {
		.title = title, .unit = unit, .kind = kind, .label = name, .values = {{.key = key}}};

	page_rows_chart(to, &what, rows);
}

static void put_others(FILE *to, const json_t *rows)
{
	put_bars(to, "Synchronisation after 100,000 updates of 100 B missed (figure 9)", "ms", rows, "recovery", "name",
		"sync_ms");
	put_bars(to, "From exec to the first right answer, the same (figure 9)", "ms", rows, "recovery", "name",
		"exec_ms");
	put_bars(to, "Throughput lost with a member that fails and returns (figure 9)", "%", rows, "loss", "name",
		"lost_percent");
	put_bars(to, "From kill -9 of the leader to the next answered write", "ms", rows, "fail-over", "name", "ms");
	put_bars(to, "One write at a time", "us", rows, "set", "name", "p50_us");
}

static void put_page(FILE *to, const void *context)
{
	const json_t *all = context;

	put_amounts(to, json_object_get(all, kv_bench_part_names[KV_BENCH_RECOVERY]));
	put_bars(to, "Throughput lost with a member that fails and returns, heal-ycsb (figure 7)", "%",
		json_object_get(all, kv_bench_part_names[KV_BENCH_LOSS]), NULL, "recovery", "lost_percent");
	put_steps(to, json_object_get(all, kv_bench_part_names[KV_BENCH_RECOVERY]));
	put_others(to, json_object_get(all, "others"));
	for (unsigned i = 0; i < KV_BENCH_PARTS; i++) {
		const json_t *rows = json_object_get(all, kv_bench_part_names[i]);

		if (rows != NULL)
			page_rows_table(to, kv_bench_part_names[i], rows);
	}
	if (json_object_get(all, "others") != NULL)
		page_rows_table(to, "others", json_object_get(all, "others"));
}

int kv_bench_page(const char *path, const json_t *all)
{
	return page_write(path, "The store: beside others, after a kill, and when a member returns", put_page, all);
}
