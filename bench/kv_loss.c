/* heal-ycsb: zipfian, of five operations one a SET, in a closed loop at the survivors. A member is killed, is away, and
 * returns. What is lost is judged from 1 s before the kill to 2 s after the return, beside as long a window in which
 * nothing fails, by turns. */
#include <errno.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/kv_bench.h"

#define CONNECTIONS 4u /* at each survivor */
#define SET_PERCENT 20u
#define WARM_NS     300000000ull
#define BEFORE_NS   1000000000ull
#define AFTER_NS    2000000000ull

static int run_for(struct kv_bench *bench, struct kv_load *load, uint64_t ns)
{
	return kv_load_run(load, kv_bench_now_ns(bench) + ns, 0);
}

/* Operations a second in a window in which a member fails; the window's length too. */
static int fail_once(
	struct kv_bench *bench, struct kv_bed *bed, struct kv_load *load, double *rate_out, uint64_t *window_out)
{
	unsigned victim = bed->count - 1;
	uint64_t began_ns;
	int rc;

	kv_load_reset(load);
	began_ns = kv_bench_now_ns(bench);
	rc = run_for(bench, load, BEFORE_NS);
	if (rc == 0) {
		kv_bed_kill(bed, victim);
		rc = run_for(bench, load, (uint64_t)(bench->absence_s * NS_PER_S));
	}
	if (rc == 0)
		rc = kv_bed_return(bed, victim, &bench->error);
	if (rc == 0)
		rc = run_for(bench, load, AFTER_NS);
	*window_out = kv_bench_now_ns(bench) - began_ns;
	*rate_out = (double)kv_load_counts(load)->done * NS_PER_S / (double)*window_out;
	return rc;
}

static int stay_once(struct kv_bench *bench, struct kv_load *load, uint64_t window_ns, double *rate_out)
{
	uint64_t began_ns = kv_bench_now_ns(bench);
	int rc;

	kv_load_reset(load);
	rc = run_for(bench, load, window_ns);
	*rate_out = (double)kv_load_counts(load)->done * NS_PER_S / (double)(kv_bench_now_ns(bench) - began_ns);
	return rc;
}

static int measure(struct kv_bench *bench, struct kv_bed *bed, struct kv_load *load, const char *way, json_t *rows)
{
	double lost[KV_BENCH_ROUNDS_MAX], rate[KV_BENCH_ROUNDS_MAX];
	int rc = run_for(bench, load, WARM_NS);

	for (unsigned i = 0; rc == 0 && i < bench->rounds; i++) {
		uint64_t window_ns = 0;
		double failing = 0;

		rc = fail_once(bench, bed, load, &failing, &window_ns);
		if (rc == 0)
			rc = stay_once(bench, load, window_ns, &rate[i]);
		lost[i] = 100 * (1 - failing / rate[i]);
		if (rc == 0)
			fprintf(bench->log, "  %-4s heal-ycsb: %8.0f/s, %8.0f/s with a failure: %5.1f %% lost\n", way,
				rate[i], failing, lost[i]);
	}
	if (rc != 0)
		return rc;
	return json_array_append_new(rows,
		json_pack("{s:s, s:s, s:i, s:f, s:i, s:f, s:f}", "recovery", way, "workload", "heal-ycsb", "nodes",
			(int)bed->count, "absence_s", bench->absence_s, "rounds", (int)bench->rounds, "rate",
			bench_median(rate, bench->rounds), "lost_percent", bench_median(lost, bench->rounds)));
}

static int lose(struct kv_bench *bench, const char *way, json_t *rows)
{
	struct hf_addr to[KV_BED_MAX];
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.batch = 1,
		.set_percent = SET_PERCENT,
		.pick = KV_KEYS_ZIPFIAN,
		.keys = KV_BENCH_KEYS,
		.value_bytes = KV_BENCH_BYTES};
	struct kv_load *load = NULL;
	struct kv_bed bed = {0};
	int rc = kv_bed_open(
		&bed, bench->loop, &(struct kv_bed_settings){.count = bench->nodes, .recovery = way}, &bench->error);

	if (rc == 0)
		rc = kv_bench_fill(bench, &bed.members[0].clients, KV_BENCH_KEYS, KV_BENCH_BYTES);
	if (rc == 0) {
		for (unsigned i = 0; i + 1 < bed.count; i++)
			to[config.to_count++] = bed.members[i].clients;
		config.connections = CONNECTIONS * config.to_count;
		load = kv_load_open(bench->loop, &config);
		rc = load == NULL ? -ENOMEM : measure(bench, &bed, load, way, rows);
	}
	kv_load_close(load);
	kv_bed_close(&bed);
	return rc;
}

int kv_bench_loss(struct kv_bench *bench, json_t *rows)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < KV_BENCH_WAYS; i++)
		if (kv_bench_goes(bench, kv_bench_ways[i]))
			rc = lose(bench, kv_bench_ways[i], rows);
	return rc;
}
