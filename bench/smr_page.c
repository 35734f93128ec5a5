/* The page of `holdfast bench smr`: proposals by entry and number in flight, fail-overs, and other systems. */
#include <string.h>

#include "bench/page_rows.h"
#include "bench/smr.h"

static const struct page_rows batches[] = {
	{.title = "Requests of 64 B a second, by requests an entry and entries in flight",
		.unit = "1/s",
		.label = "batch",
		.values = {{"per_s_1", "1"}, {"per_s_2", "2"}, {"per_s_4", "4"}, {"per_s_8", "8 in flight"}},
		.lines = true},
	{.title = "From proposal to decision of an entry, by requests an entry and entries in flight: medians",
		.unit = "ns",
		.label = "batch",
		.values = {{"entry_ns_1", "1"}, {"entry_ns_2", "2"}, {"entry_ns_4", "4"},
			{"entry_ns_8", "8 in flight"}},
		.lines = true},
};

static const struct page_rows failovers[] = {
	{"Without a leader, by how it stopped: median and p99", "us", NULL, "leader",
		{{"median_us", "median"}, {"p99_us", "p99"}}, false},
	{"The median's parts", "us", NULL, "leader",
		{{"seen_us", "last sign of life"}, {"detected_us", "detection"}, {"granted_us", "grants"},
			{"leading_us", "catching up"}},
		false},
};

static const struct page_rows others[] = {
	{"One request of 64 B after the other: medians", "us", "propose", "name", {{"median_us", NULL}}, false},
	{"The same on disks", "us", "durable", "name", {{"median_us", NULL}}, false},
	{"redis-benchmark, SET, one client", "us", "one client", "name", {{"median_us", "median"}, {"p99_us", "p99"}},
		false},
	{"SETs of 16 clients, pipelines of 16", "1/s", "16 by 16", "name", {{"requests_a_second", NULL}}, false},
	{"From kill -9 of the leader to the next answered write", "s", "fail-over", "name", {{"seconds", NULL}}, false},
};

static void put_charts(FILE *to, const struct page_rows *charts, size_t n, const json_t *rows)
{
	for (size_t i = 0; rows != NULL && i < n; i++)
		page_rows_chart(to, &charts[i], rows);
}

/* A row for each bucket in which some fail-over is, with a number for each way in which a leader stops. */
static json_t *buckets_of(const json_t *ways)
{
	json_t *rows = json_array(), *way, *bucket;
	size_t i, k;

	json_array_foreach(ways, i, way)
	{
		json_array_foreach(json_object_get(way, "histogram"), k, bucket)
		{
			double to_us = json_number_value(json_object_get(bucket, "to_us"));
			json_t *row, *found = NULL;
			size_t at, behind = 0;
			char text[PAGE_LABEL_BYTES];

			json_array_foreach(rows, at, row)
			{
				double its_us = json_number_value(json_object_get(row, "to_us"));

				found = its_us == to_us ? row : found;
				behind += its_us < to_us;
			}
			if (found == NULL) {
				(void)snprintf(text, sizeof(text), "to %g ms", to_us / 1e3);
				found = json_pack("{s:f, s:s}", "to_us", to_us, "to", text);
				json_array_insert_new(rows, behind, found);
			}
			json_object_set(found, json_string_value(json_object_get(way, "leader")),
				json_object_get(bucket, "failovers"));
		}
	}
	return rows;
}

static void put_failovers(FILE *to, const json_t *ways)
{
	static const struct page_rows chart = {.title = "Fail-overs by their length",
		.unit = "fail-overs",
		.label = "to",
		.values = {{"asleep", "asleep"}, {"stopped", "stopped"}, {"killed", "killed"}}};
	json_t *buckets;

	if (ways == NULL)
		return;
	buckets = buckets_of(ways);
	page_rows_chart(to, &chart, buckets);
	json_decref(buckets);
	put_charts(to, failovers, sizeof(failovers) / sizeof(*failovers), ways);
}

static void put_page(FILE *to, const void *context)
{
	static const char *const tables[] = {"bars", "propose", "batches", "failover", "steady", "durable", "others"};
	static const char *const titles[] = {"What was to be shown", "One proposal after the other",
		"Entries of several requests", "Fail-overs", "What does not hold a leader up", "Proposals on disks",
		"Other systems, medians of the rounds"};
	const json_t *all = context;

	put_charts(to, batches, sizeof(batches) / sizeof(*batches), json_object_get(all, "batches"));
	put_failovers(to, json_object_get(all, "failover"));
	put_charts(to, others, sizeof(others) / sizeof(*others), json_object_get(all, "others"));
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		if (json_object_get(all, tables[i]) != NULL)
			page_rows_table(to, titles[i], json_object_get(all, tables[i]));
}

int smr_page(const char *path, const json_t *all)
{
	return page_write(path, "A replicated log: proposals, fail-overs, and other systems", put_page, all);
}
