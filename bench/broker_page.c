/* The page of `holdfast bench broker`: KafkaDirect's figures from our numbers beside Kafka's, and stock clients. */
#include "bench/broker_bench.h"
#include "bench/page_rows.h"
#include "cli/page.h"

#define OURS_AND_THEIRS(key)                                                                                           \
	{                                                                                                              \
		{"holdfast_" key, "Holdfast"},                                                                         \
		{                                                                                                      \
			"kafka_" key, "Kafka"                                                                          \
		}                                                                                                      \
	}

static const struct page_rows charts[] = {
	{"Produce, 100 B, one in flight (figure 10)", "us", "produce", "name", {{"p50_us", NULL}}},
	{"Produce without batching (figure 11)", "MB/s", "bandwidth", "name",
		{{"b512_mb_s", "512 B"}, {"b32768_mb_s", "32 KiB"}}},
	{"Produce with three replicas, acks=all, 100 B (figure 14)", "us", "three replicas", "name",
		{{"p50_us", NULL}}},
	{"The same without batching (figure 15)", "MB/s", "three replicas", "name",
		{{"b512_mb_s", "512 B"}, {"b32768_mb_s", "32 KiB"}}},
	{"Three replicas, 512 B, by the most bytes of a replication batch (figure 17)", "MB/s", "replication batch",
		"name", {{"mb_s", NULL}}},
	{"A preloaded record of 100 B (figure 18)", "us", "consume", "name", {{"p50_us", NULL}}},
	{"From producer to consumer, 100 B (figure 19)", "us", "end to end", "name", {{"p50_us", NULL}}},
	{"Records of 32 KiB, one a fetch (figure 20)", "MB/s", "consume", "name", {{"mb_s", NULL}}},
	{"Looks that find nothing (section 5.3)", "a second", "empty", "name", {{"per_s", NULL}}},
	{"Mean delay of events, 400 a second and a burst of 1,000 every ten seconds (figure 21)", "us", "events",
		"name", {{"constant_us", "constant"}, {"burst_us", "burst"}, {"mean_us", "all"}}},
	{"Records of 512 B, 32 in flight, extents of 16 MiB, segments of 128 MiB: p99.9", "us", "rolls", "name",
		{{"around_p999_us", "around a roll"}, {"between_p999_us", "others"}}},
	{"Stock clients, one record in flight", "us", "stock latency", "name", OURS_AND_THEIRS("p50_us")},
	{"Stock clients, throughput, 100 B", "MB/s", "stock throughput, 100 B", "name", OURS_AND_THEIRS("mb_s")},
	{"Stock clients, throughput, 1 KiB", "MB/s", "stock throughput, 1 KiB", "name", OURS_AND_THEIRS("mb_s")},
	{"Stock clients, throughput, 32 KiB", "MB/s", "stock throughput, 32 KiB", "name", OURS_AND_THEIRS("mb_s")},
	{"Stock clients, Fetches that find nothing", "a second", "stock empty", "name", OURS_AND_THEIRS("per_s")},
	{"Memory of a broker without segments", "MiB", "memory", "name", OURS_AND_THEIRS("mib")},
};

static void put_skipped(FILE *to, const json_t *skipped)
{
	const char *name;
	json_t *why;

	json_object_foreach((json_t *)(uintptr_t)skipped, name, why)
	{
		fputs("<p class=\"bad\">Not measured: ", to);
		page_text(to, name);
		fputs(": ", to);
		page_text(to, json_string_value(why) == NULL ? "" : json_string_value(why));
		fputs("</p>\n", to);
	}
}

static void put_page(FILE *to, const void *context)
{
	const json_t *beside = context, *medians = json_object_get(beside, "medians");

	put_skipped(to, json_object_get(beside, "skipped"));
	page_rows_table(to, "What was to be shown", json_object_get(beside, "bars"));
	for (unsigned i = 0; i < sizeof(charts) / sizeof(*charts); i++)
		page_rows_chart(to, &charts[i], medians);
	page_rows_table(to, "Medians of the rounds", medians);
}

int broker_bench_page(const char *path, const json_t *beside)
{
	return page_write(path, "The broker beside Kafka 4.1.1", put_page, beside);
}
