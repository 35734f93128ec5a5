/* A member is killed, so many different records are written, and it is started again; the steps are its own (HEAL,
 * figure 8). From exec to when it serves beside them. */
#include <errno.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/kv_bench.h"

#define KEYS            250000u /* more than is missed at most */
#define TAO_KEYS        400000u
#define TAO_BYTES       150u    /* of a record, */
#define TAO_MISSED      128000u /* 19.2 MB of them: HEAL's figure */
#define TAO_SET_PERCENT 20u
#define TAO_CONNECTIONS 8u
#define TAO_MEASURE_NS  1000000000ull
#define MANY_STORE_MB   1024u

struct steps {
	double start, catch_up, apply, total, exec, records;
};

/* What returns, and from what. */
struct point {
	const char *way, *workload;
	unsigned nodes;
	uint32_t missed, keys, value_bytes;
	bool loaded; /* half of what the survivors can do goes on meanwhile */
};

/* Different records, so that each write is one that is missed. */
static int write_missed(struct kv_bench *bench, const struct hf_addr *to, const struct point *point)
{
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.to_count = 1,
		.connections = 4,
		.batch = 32,
		.set_percent = 100,
		.keys = point->keys,
		.value_bytes = point->value_bytes,
		.distinct = true};
	struct kv_load *load = kv_load_open(bench->loop, &config);
	int rc = load == NULL ? -ENOMEM : kv_load_run(load, UINT64_MAX, point->missed);

	kv_load_close(load);
	return rc;
}

/* heal-tao at the survivors: without rests to learn what they can do, then at half of it. */
static int open_tao(struct kv_bench *bench, struct kv_bed *bed, const struct point *point, struct hf_addr *to,
	struct kv_load **load_out)
{
	struct kv_load_config config = {.dialect = &kv_dialect_resp,
		.to = to,
		.to_count = bed->count - 1,
		.connections = TAO_CONNECTIONS,
		.batch = 1,
		.set_percent = TAO_SET_PERCENT,
		.keys = point->keys,
		.value_bytes = point->value_bytes,
		.distinct = true};
	struct kv_load *load;
	int rc;

	for (unsigned i = 0; i + 1 < bed->count; i++)
		to[i] = bed->members[i].clients;
	load = kv_load_open(bench->loop, &config);
	rc = load == NULL ? -ENOMEM : kv_load_run(load, kv_bench_now_ns(bench) + TAO_MEASURE_NS, 0);
	if (rc == 0)
		config.rate = (double)kv_load_counts(load)->done * NS_PER_S / (double)TAO_MEASURE_NS / 2;
	kv_load_close(load);
	*load_out = rc == 0 ? kv_load_open(bench->loop, &config) : NULL;
	return rc == 0 && *load_out == NULL ? -ENOMEM : rc;
}

static int read_steps(
	struct kv_bench *bench, struct kv_bed *bed, unsigned victim, struct steps *steps_out, bool *healed)
{
	json_t *status = kv_bed_status(bed, victim);
	const json_t *recovery = json_array_get(json_object_get(status, "recoveries"), 0);
	int rc = recovery == NULL ? hf_error_set(&bench->error, -EPROTO, "the member reports no recovery") : 0;

	steps_out->start = kv_bench_number(recovery, "start_to_ack_us") / NS_PER_US;
	steps_out->catch_up = kv_bench_number(recovery, "catch_up_to_resp_us") / NS_PER_US;
	steps_out->apply = kv_bench_number(recovery, "apply_to_end_us") / NS_PER_US;
	steps_out->records = kv_bench_number(recovery, "records");
	steps_out->total = steps_out->start + steps_out->catch_up + steps_out->apply;
	*healed = json_is_true(json_object_get(recovery, "healed"));
	json_decref(status);
	return rc;
}

static int return_once(
	struct kv_bench *bench, struct kv_bed *bed, const struct point *point, struct steps *steps_out, bool *healed)
{
	unsigned victim = bed->count - 1;
	struct hf_addr to[KV_BED_MAX];
	struct kv_load *load = NULL;
	uint64_t began_ns;
	int rc;

	kv_bed_kill(bed, victim);
	rc = write_missed(bench, &bed->members[0].clients, point);
	if (rc == 0 && point->loaded)
		rc = open_tao(bench, bed, point, to, &load);
	if (rc == 0 && point->loaded)
		rc = kv_load_run(load, kv_bench_now_ns(bench) + TAO_MEASURE_NS, 0);
	began_ns = kv_bench_now_ns(bench);
	if (rc == 0)
		rc = kv_bed_return(bed, victim, &bench->error);
	*steps_out = (struct steps){.exec = (double)(kv_bench_now_ns(bench) - began_ns) / NS_PER_MS};
	kv_load_close(load);
	return rc != 0 ? rc : read_steps(bench, bed, victim, steps_out, healed);
}

static int measure(struct kv_bench *bench, struct kv_bed *bed, const struct point *point, json_t *rows)
{
	double start[KV_BENCH_ROUNDS_MAX], catch_up[KV_BENCH_ROUNDS_MAX], apply[KV_BENCH_ROUNDS_MAX],
		total[KV_BENCH_ROUNDS_MAX], exec[KV_BENCH_ROUNDS_MAX], records[KV_BENCH_ROUNDS_MAX];
	unsigned n = bench->rounds;

	for (unsigned i = 0; i < n; i++) {
		struct steps steps = {0};
		bool healed = false;
		int rc = return_once(bench, bed, point, &steps, &healed);

		if (rc != 0)
			return rc;
		fprintf(bench->log,
			"  %s, %u members, %s, %u records, %u missed: %.2f ms = start to ACK %.2f + catch-up to "
			"response %.2f + apply to end %.2f; %.1f ms from exec%s\n",
			point->way, bed->count, point->workload, point->keys, point->missed, steps.total, steps.start,
			steps.catch_up, steps.apply, steps.exec,
			healed == (strcmp(point->way, "copy") != 0) ? "" : " (the other way)");
		start[i] = steps.start;
		catch_up[i] = steps.catch_up;
		apply[i] = steps.apply;
		total[i] = steps.total;
		exec[i] = steps.exec;
		records[i] = steps.records;
	}
	return json_array_append_new(rows,
		json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "recovery", point->way,
			"workload", point->workload, "nodes", (int)bed->count, "store_records", (int)point->keys,
			"missed", (int)point->missed, "bytes", (int)point->value_bytes, "rounds", (int)n,
			"start_to_ack_ms", bench_median(start, n), "catch_up_to_resp_ms", bench_median(catch_up, n),
			"apply_to_end_ms", bench_median(apply, n), "total_ms", bench_median(total, n), "exec_ms",
			bench_median(exec, n), "records", bench_median(records, n)));
}

/* All points on one set of members, which differ in `missed` alone. */
static int run_points(struct kv_bench *bench, struct point point, const uint32_t *missed, unsigned n, json_t *rows)
{
	struct kv_bed_settings settings = {
		.count = point.nodes, .recovery = point.way, .store_mb = point.keys > TAO_KEYS ? MANY_STORE_MB : 0};
	struct kv_bed bed = {0};
	int rc = kv_bed_open(&bed, bench->loop, &settings, &bench->error);

	if (rc == 0)
		rc = kv_bench_fill(bench, &bed.members[0].clients, point.keys, point.value_bytes);
	for (unsigned i = 0; rc == 0 && i < n; i++) {
		point.missed = missed[i];
		rc = measure(bench, &bed, &point, rows);
	}
	kv_bed_close(&bed);
	return rc;
}

int kv_bench_recovery(struct kv_bench *bench, json_t *rows)
{
	static const uint32_t amounts[] = {1000, 10000, 50000, 100000}, sizes[] = {100000, 1000000};
	struct point point = {.workload = "missed", .nodes = bench->nodes, .keys = KEYS, .value_bytes = KV_BENCH_BYTES};
	uint32_t missed = TAO_MISSED;
	int rc = 0;

	if (bench->missed != 0) {
		point.way = "heal";
		return run_points(bench, point, &bench->missed, 1, rows);
	}
	for (unsigned i = 0; rc == 0 && i < KV_BENCH_WAYS; i++) {
		point.way = kv_bench_ways[i];
		if (kv_bench_goes(bench, point.way))
			rc = run_points(bench, point, amounts, sizeof(amounts) / sizeof(*amounts), rows);
	}
	point.way = "heal";
	if (!kv_bench_goes(bench, point.way))
		return rc;
	for (unsigned nodes = 4; rc == 0 && bench->nodes == 0 && nodes <= KV_BED_MAX; nodes++) {
		point.nodes = nodes;
		rc = run_points(bench, point, &amounts[3], 1, rows);
	}
	point.nodes = bench->nodes;
	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		point.keys = sizes[i];
		rc = run_points(bench, point, &amounts[1], 1, rows);
	}
	point.workload = "heal-tao";
	point.keys = TAO_KEYS;
	point.value_bytes = TAO_BYTES;
	point.loaded = true;
	return rc == 0 ? run_points(bench, point, &missed, 1, rows) : rc;
}
