/* The same client at the store and at a Redis with two replicas, by turns; of each round a ratio, and the median of
 * those. */
#include <errno.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/kv_bench.h"

#define SLICE_NS 700000000ull
#define WARM_NS  200000000ull

enum shape { SHAPE_SET, SHAPE_GET, SHAPE_RATE, SHAPES };
static const struct {
	const char *name;
	unsigned connections, batch, set_percent;
} shapes[SHAPES] = {{"SET, c=1", 1, 1, 100}, {"GET, c=1", 1, 1, 0}, {"SET, c=16 P=16", 16, 16, 100}};

struct slice {
	double p50_us, p99_us, rate;
};

static int measure(struct kv_bench *bench, const struct kv_dialect *dialect, const struct hf_addr *to, enum shape shape,
	struct slice *slice_out)
{
	struct kv_load_config config = {.dialect = dialect,
		.to = to,
		.to_count = 1,
		.connections = shapes[shape].connections,
		.batch = shapes[shape].batch,
		.set_percent = shapes[shape].set_percent,
		.keys = KV_BENCH_KEYS,
		.value_bytes = KV_BENCH_BYTES};
	struct kv_load *load = kv_load_open(bench->loop, &config);
	int rc = load == NULL ? -ENOMEM : kv_load_measure(load, WARM_NS, SLICE_NS, &slice_out->rate);

	if (rc == 0) {
		const struct kv_load_counts *counts = kv_load_counts(load);
		const struct histogram *of = shape == SHAPE_GET ? &counts->gets : &counts->sets;

		slice_out->p50_us = (double)histogram_quantile(of, 0.5) / NS_PER_US;
		slice_out->p99_us = (double)histogram_quantile(of, 0.99) / NS_PER_US;
	}
	kv_load_close(load);
	return rc;
}

static int compare(
	struct kv_bench *bench, struct kv_bed *store, struct kv_bed *redis, enum shape shape, json_t *figures)
{
	/* A GET needs no replica, and a rate is of what two replicas have. */
	const struct kv_dialect *others = shape == SHAPE_GET ? &kv_dialect_resp : &kv_dialect_resp_wait;
	double p50[KV_BENCH_ROUNDS_MAX], p99[KV_BENCH_ROUNDS_MAX], rate[KV_BENCH_ROUNDS_MAX],
		ours_p50[KV_BENCH_ROUNDS_MAX], ours_rate[KV_BENCH_ROUNDS_MAX];

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

int kv_bench_beside(struct kv_bench *bench, json_t *rows)
{
	struct kv_bed store = {0}, redis = {0};
	int rc = kv_bed_open(&store, bench->loop, &(struct kv_bed_settings){.count = bench->nodes}, &bench->error);

	if (rc == 0)
		rc = kv_bed_open_redis(&redis, bench->loop, &bench->error);
	if (rc == -ENOENT) {
		json_array_append_new(rows, json_pack("{s:s}", "skipped", bench->error.text));
		kv_bed_close(&store);
		kv_bed_close(&redis);
		return 0;
	}
	if (rc == 0)
		rc = kv_bench_fill(bench, &store.members[0].clients, KV_BENCH_KEYS, KV_BENCH_BYTES);
	if (rc == 0)
		rc = kv_bench_fill(bench, &redis.members[0].clients, KV_BENCH_KEYS, KV_BENCH_BYTES);
	for (unsigned i = 0; rc == 0 && i < SHAPES; i++)
		rc = compare(bench, &store, &redis, (enum shape)i, rows);
	kv_bed_close(&store);
	kv_bed_close(&redis);
	return rc;
}
