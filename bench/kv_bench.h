/* kv_bench.h - the parts of `holdfast bench kv`. Each measures on members of its own and appends rows of figures.
 *
 *   beside    kv_beside.c   SET and GET, alternating with a Redis that has two replicas
 *   ycsb      kv_ycsb.c     YCSB's workloads A to F
 *   cost      kv_cost.c     the cost of recording missed updates, without failures
 *   kill      kv_kill.c     from a kill to the next acknowledged write at every survivor
 *   recovery  kv_return.c   the steps of a recovery, by the amount missed, the members, the size of the store (HEAL,
 *                           figures 6 and 8)
 *   loss      kv_loss.c     throughput lost while a member is away and returns (HEAL, figure 7)
 *
 * Elsewhere: the processes (kv_bed.h), the clients (kv_load.h, kv_keys.h). */
#ifndef HOLDFAST_BENCH_KV_BENCH_H
#define HOLDFAST_BENCH_KV_BENCH_H

#include <jansson.h>
#include <stdio.h>

#include "bench/files.h"
#include "bench/kv_bed.h"
#include "bench/kv_load.h"

#define KV_BENCH_ROUNDS_MAX 99u
#define KV_BENCH_KEYS       100000u
#define KV_BENCH_BYTES      100u
#define NS_PER_US           1e3
#define NS_PER_MS           1e6
#define NS_PER_S            1e9

enum kv_bench_part {
	KV_BENCH_BESIDE,
	KV_BENCH_YCSB,
	KV_BENCH_COST,
	KV_BENCH_KILL,
	KV_BENCH_RECOVERY,
	KV_BENCH_LOSS,
	KV_BENCH_PARTS
};
extern const char *const kv_bench_part_names[KV_BENCH_PARTS];

struct kv_bench {
	unsigned rounds, nodes, parts; /* nodes: 0: 3, and where the number counts 4 and 5 too */
	unsigned missed;               /* 0: several amounts */
	double absence_s;              /* of a member in `loss` */
	const char *recovery;          /* of the ways to return only this one; NULL: all */
	struct bench_files files;      /* with: of scripts/bench_kv.py */
	FILE *log;
	struct hf_loop *loop;
	struct hf_error error;
};

/* 0, or -errno, maybe with words in bench->error. */
int kv_bench_beside(struct kv_bench *bench, json_t *rows);
int kv_bench_ycsb(struct kv_bench *bench, json_t *rows);
int kv_bench_cost(struct kv_bench *bench, json_t *rows);
int kv_bench_kill(struct kv_bench *bench, json_t *rows);
int kv_bench_recovery(struct kv_bench *bench, json_t *rows);
int kv_bench_loss(struct kv_bench *bench, json_t *rows);
#define KV_BENCH_WAYS 3u
extern const char *const kv_bench_ways[KV_BENCH_WAYS];

/* ---- kv.c ---- */
bool kv_bench_goes(const struct kv_bench *bench, const char *way); /* members that return so are measured */
uint64_t kv_bench_now_ns(const struct kv_bench *bench);
double kv_bench_number(const json_t *row, const char *key); /* 0: it has none */
/* Writes each key once. 0 or -errno. */
int kv_bench_fill(struct kv_bench *bench, const struct hf_addr *to, uint32_t keys, uint32_t value_bytes);

#endif
