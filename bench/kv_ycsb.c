/* YCSB's workloads, in a closed loop at all members. E reads 1 to 100 records in the order of their keys (HFSCAN). */
#include <errno.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/kv_bench.h"

#define CONNECTIONS 4u /* at each member */
#define WARM_NS     200000000ull
#define SLICE_NS    1000000000ull

static const struct workload {
	const char *name;
	unsigned set, swap, insert, scan; /* of a hundred; an RMW is SET with GET */
	enum kv_keys_kind pick;
} workloads[] = {{"A", 50, 0, 0, 0, KV_KEYS_ZIPFIAN}, {"B", 5, 0, 0, 0, KV_KEYS_ZIPFIAN},
	{"C", 0, 0, 0, 0, KV_KEYS_ZIPFIAN}, {"D", 0, 0, 5, 0, KV_KEYS_LATEST}, {"E", 0, 0, 5, 95, KV_KEYS_ZIPFIAN},
	{"F", 0, 50, 0, 0, KV_KEYS_ZIPFIAN}};
#define WORKLOADS (sizeof(workloads) / sizeof(*workloads))

static int run_once(struct kv_load *load, double *rate, double *get_us, double *set_us)
{
	const struct kv_load_counts *counts = kv_load_counts(load);
	int rc = kv_load_measure(load, WARM_NS, SLICE_NS, rate);

	*get_us = (double)histogram_quantile(&counts->gets, 0.5) / NS_PER_US;
	*set_us = (double)histogram_quantile(&counts->sets, 0.5) / NS_PER_US;
	return rc;
}

static int run_workload(
	struct kv_bench *bench, const struct kv_bed *bed, const struct workload *workload, uint32_t *keys, json_t *rows)
{
	double rate[KV_BENCH_ROUNDS_MAX], get_us[KV_BENCH_ROUNDS_MAX], set_us[KV_BENCH_ROUNDS_MAX];
	struct hf_addr to[KV_BED_MAX];
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.to_count = bed->count,
		.connections = CONNECTIONS * bed->count,
		.batch = 1,
		.set_percent = workload->set,
		.swap_percent = workload->swap,
		.insert_percent = workload->insert,
		.scan_percent = workload->scan,
		.pick = workload->pick,
		.keys = *keys,
		.value_bytes = KV_BENCH_BYTES};
	struct kv_load *load;
	int rc = 0;

	for (unsigned i = 0; i < bed->count; i++)
		to[i] = bed->members[i].clients;
	load = kv_load_open(bench->loop, &config);
	if (load == NULL)
		return -ENOMEM;
	for (unsigned i = 0; rc == 0 && i < bench->rounds; i++)
		rc = run_once(load, &rate[i], &get_us[i], &set_us[i]);
	*keys = kv_load_keys(load);
	kv_load_close(load);
	if (rc != 0)
		return rc;
	fprintf(bench->log, "  YCSB %s: %8.0f/s, reads %6.1f us, writes %6.1f us\n", workload->name,
		bench_median(rate, bench->rounds), bench_median(get_us, bench->rounds),
		bench_median(set_us, bench->rounds));
	return json_array_append_new(
		rows, json_pack("{s:s, s:i, s:i, s:f, s:f, s:f}", "workload", workload->name, "nodes", (int)bed->count,
			      "rounds", (int)bench->rounds, "rate", bench_median(rate, bench->rounds), "read_us",
			      bench_median(get_us, bench->rounds), "write_us", bench_median(set_us, bench->rounds)));
}

int kv_bench_ycsb(struct kv_bench *bench, json_t *rows)
{
	struct kv_bed bed = {0};
	uint32_t keys = KV_BENCH_KEYS; /* each workload inserts behind those of the ones before */
	int rc = kv_bed_open(
		&bed, bench->loop, &(struct kv_bed_settings){.count = bench->nodes, .ordered = true}, &bench->error);

	if (rc == 0)
		rc = kv_bench_fill(bench, &bed.members[0].clients, KV_BENCH_KEYS, KV_BENCH_BYTES);
	for (unsigned i = 0; rc == 0 && i < WORKLOADS; i++)
		rc = run_workload(bench, &bed, &workloads[i], &keys, rows);
	kv_bed_close(&bed);
	return rc;
}
