/* What it costs, while all is well, to note what a member could miss (HEAL's Missed_updates and MARK): the same load at
 * a store and at one whose members note nothing, by turns; of each round a ratio, and the median of those. */
#include <errno.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/kv_bench.h"

#define WARM_NS  200000000ull
#define SLICE_NS 1000000000ull

static const struct shape {
	const char *name;
	unsigned connections, batch, set_percent; /* connections: at each member of `everywhere`, or at the first one */
	bool everywhere;
	enum kv_keys_kind pick;
} shapes[] = {
	{"SET, c=16 P=16", 16, 16, 100, false, KV_KEYS_UNIFORM},
	{"SET one in five", 4, 1, 20, true, KV_KEYS_ZIPFIAN},
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

static int measure(struct kv_bench *bench, const struct kv_bed *bed, const struct shape *shape, double *rate_out)
{
	struct hf_addr to[KV_BED_MAX];
	unsigned count = shape->everywhere ? bed->count : 1;
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.to_count = count,
		.connections = shape->connections * count,
		.batch = shape->batch,
		.set_percent = shape->set_percent,
		.pick = shape->pick,
		.keys = KV_BENCH_KEYS,
		.value_bytes = KV_BENCH_BYTES};
	struct kv_load *load;
	int rc;

	for (unsigned i = 0; i < count; i++)
		to[i] = bed->members[i].clients;
	load = kv_load_open(bench->loop, &config);
	rc = load == NULL ? -ENOMEM : kv_load_measure(load, WARM_NS, SLICE_NS, rate_out);
	kv_load_close(load);
	return rc;
}

static int compare(
	struct kv_bench *bench, struct kv_bed *noted, struct kv_bed *unnoted, const struct shape *shape, json_t *rows)
{
	double ratio[KV_BENCH_ROUNDS_MAX], rate[KV_BENCH_ROUNDS_MAX], ratio_median;

	for (unsigned i = 0; i < bench->rounds; i++) {
		double with = 0, without = 0;
		bool first = i % 2 == 0; /* the first one may gain by it */
		int rc = measure(bench, first ? noted : unnoted, shape, first ? &with : &without);

		if (rc == 0)
			rc = measure(bench, first ? unnoted : noted, shape, first ? &without : &with);
		if (rc != 0)
			return rc;
		fprintf(bench->log, "  %-15s %8.0f/s, %8.0f/s when nothing is noted\n", shape->name, with, without);
		rate[i] = with;
		ratio[i] = with / without;
	}
	ratio_median = bench_median(ratio, bench->rounds);
	return json_array_append_new(rows,
		json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "shape", shape->name, "nodes", (int)noted->count,
			"rounds", (int)bench->rounds, "rate", bench_median(rate, bench->rounds), "rate_ratio",
			ratio_median, "cost_percent", 100 * (1 - ratio_median), "ratio_quarter",
			ratio[bench->rounds / 4], "ratio_three_quarters", ratio[bench->rounds * 3 / 4]));
}

int kv_bench_cost(struct kv_bench *bench, json_t *rows)
{
	struct kv_bed noted = {0}, unnoted = {0};
	int rc = kv_bed_open(&noted, bench->loop, &(struct kv_bed_settings){.count = bench->nodes}, &bench->error);

	if (rc == 0)
		rc = kv_bed_open(&unnoted, bench->loop,
			&(struct kv_bed_settings){.count = bench->nodes, .unnoted = true}, &bench->error);
	if (rc == 0)
		rc = kv_bench_fill(bench, &noted.members[0].clients, KV_BENCH_KEYS, KV_BENCH_BYTES);
	if (rc == 0)
		rc = kv_bench_fill(bench, &unnoted.members[0].clients, KV_BENCH_KEYS, KV_BENCH_BYTES);
	for (size_t i = 0; rc == 0 && i < SHAPES; i++)
		rc = compare(bench, &noted, &unnoted, &shapes[i], rows);
	kv_bed_close(&noted);
	kv_bed_close(&unnoted);
	return rc;
}
