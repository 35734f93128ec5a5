/* kv_keys.h - the keys of a workload's operations: YCSB's distributions, each by a generator of its own. */
#ifndef HOLDFAST_BENCH_KV_KEYS_H
#define HOLDFAST_BENCH_KV_KEYS_H

#include <stdint.h>

enum kv_keys_kind {
	KV_KEYS_UNIFORM,
	KV_KEYS_ZIPFIAN, /* exponent 0.99; the frequent ones are spread over all */
	KV_KEYS_LATEST,  /* the same, and the frequent ones are those that were inserted last */
};

struct kv_keys {
	enum kv_keys_kind kind;
	uint64_t random, count, first_count;
	double zeta, eta;
};

void kv_keys_init(struct kv_keys *keys, enum kv_keys_kind kind, uint64_t count);
uint64_t kv_keys_random(struct kv_keys *keys);
uint64_t kv_keys_draw(struct kv_keys *keys);   /* one that is there */
uint64_t kv_keys_insert(struct kv_keys *keys); /* one that was not */

#endif
