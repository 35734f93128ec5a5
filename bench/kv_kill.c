/* A writer at each survivor; from the kill until each of them has had an answer again. Before the victim's lease is
 * over no write is answered but those that it had acknowledged: answers count from half a lease on. The victim is by
 * turns the member that decides on members, and another. */
#include <errno.h>

#include "bench/bench.h"
#include "bench/kv_bench.h"

#define BEFORE_NS 300000000ull /* of writing before a kill */
#define LAST_NS   50000000ull  /* half a lease: the last answers of before the kill */
#define STEP_NS   10000000ull
#define AFTER_NS  20000000000ull

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

static int kill_once(struct kv_bench *bench, struct kv_bed *bed, unsigned victim, double *ms_out)
{
	struct hf_addr to[KV_BED_MAX];
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.batch = 1,
		.set_percent = 100,
		.keys = KV_BENCH_KEYS,
		.value_bytes = KV_BENCH_BYTES};
	struct kv_load *load;
	uint64_t killed_ns = 0;
	int rc;

	for (unsigned i = 0; i < bed->count; i++)
		if (i != victim)
			to[config.to_count++] = bed->members[i].clients;
	config.connections = config.to_count;
	load = kv_load_open(bench->loop, &config);
	rc = load == NULL ? -ENOMEM : kv_load_run(load, kv_bench_now_ns(bench) + BEFORE_NS, 0);
	if (rc == 0) {
		killed_ns = kv_bench_now_ns(bench);
		kv_bed_kill(bed, victim);
		rc = kv_load_run(load, killed_ns + LAST_NS, 0);
		kv_load_reset(load);
	}
	while (rc == 0 && kv_load_all_written_ns(load) == 0) {
		rc = kv_load_run(load, kv_bench_now_ns(bench) + STEP_NS, 0);
		if (rc == 0 && kv_bench_now_ns(bench) > killed_ns + AFTER_NS)
			rc = -ETIMEDOUT;
	}
	if (rc == 0)
		*ms_out = (double)(kv_load_all_written_ns(load) - killed_ns) / NS_PER_MS;
	kv_load_close(load);
	return rc == 0 ? kv_bed_return(bed, victim, &bench->error) : rc;
}

int kv_bench_kill(struct kv_bench *bench, json_t *rows)
{
	struct kv_bed bed = {0};
	int rc = kv_bed_open(&bed, bench->loop, &(struct kv_bed_settings){.count = bench->nodes}, &bench->error);

	for (unsigned decider = 0; rc == 0 && decider < 2; decider++) {
		double ms[KV_BENCH_ROUNDS_MAX], median;

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
		json_array_append_new(
			rows, json_pack("{s:s, s:i, s:f, s:f}", "victim", decider != 0 ? "decides" : "other", "rounds",
				      (int)bench->rounds, "median_ms", median, "longest_ms", ms[bench->rounds - 1]));
	}
	kv_bed_close(&bed);
	return rc;
}
