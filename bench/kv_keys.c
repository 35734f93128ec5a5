#include "bench/kv_keys.h"

#include <math.h>
#include <stdbool.h>

#define THETA 0.99
#define ALPHA (1.0 / (1.0 - THETA))

static double zeta(uint64_t n)
{
	double sum = 0;

	for (uint64_t i = 1; i <= n; i++)
		sum += pow(1.0 / (double)i, THETA);
	return sum;
}

void kv_keys_init(struct kv_keys *keys, enum kv_keys_kind kind, uint64_t count)
{
	*keys = (struct kv_keys){.kind = kind,
		.random = 88172645463325252ull,
		.count = count,
		.first_count = count,
		.zeta = 1,
		.eta = 1};
	if (kind == KV_KEYS_UNIFORM)
		return;
	keys->zeta = zeta(count);
	keys->eta = (1 - pow(2.0 / (double)count, 1 - THETA)) / (1 - zeta(2) / keys->zeta);
}

uint64_t kv_keys_random(struct kv_keys *keys)
{
	keys->random ^= keys->random << 13;
	keys->random ^= keys->random >> 7;
	keys->random ^= keys->random << 17;
	return keys->random;
}

/* The rank of a key by its frequency; Gray and others, "Quickly generating billion-record synthetic databases". */
static uint64_t draw_rank(struct kv_keys *keys)
{
	double u = (double)(kv_keys_random(keys) >> 11) / (double)(1ull << 53), at = u * keys->zeta;
	uint64_t rank;

	if (at < 1)
		return 0;
	if (at < 1 + pow(0.5, THETA))
		return 1;
	rank = (uint64_t)((double)keys->first_count * pow(keys->eta * u - keys->eta + 1, ALPHA));
	return rank < keys->first_count ? rank : keys->first_count - 1;
}

static uint64_t spread(uint64_t rank)
{
	rank = (rank ^ rank >> 30) * 0xbf58476d1ce4e5b9ull;
	rank = (rank ^ rank >> 27) * 0x94d049bb133111ebull;
	return rank ^ rank >> 31;
}

uint64_t kv_keys_draw(struct kv_keys *keys)
{
	switch (keys->kind) {
	case KV_KEYS_ZIPFIAN:
		return spread(draw_rank(keys)) % keys->first_count;
	case KV_KEYS_LATEST:
		return keys->count - 1 - draw_rank(keys);
	case KV_KEYS_UNIFORM:
		break;
	}
	return kv_keys_random(keys) % keys->count;
}

uint64_t kv_keys_insert(struct kv_keys *keys)
{
	return keys->count++;
}
