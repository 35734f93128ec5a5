/* rng.h - the world's only source of chance: xoshiro256** started by splitmix64 from the seed. */
#ifndef HOLDFAST_SIM_RNG_H
#define HOLDFAST_SIM_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
	uint64_t state[4];
};

void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);
void rng_fill(struct rng *rng, void *data, size_t bytes);

/* Uniform enough in [low, high]; the bias of a modulo does not matter here. */
static inline uint64_t rng_range(struct rng *rng, uint64_t low, uint64_t high)
{
	return low + rng_next(rng) % (high - low + 1);
}

static inline bool rng_ppm(struct rng *rng, uint32_t parts_per_million)
{
	return parts_per_million != 0 && rng_next(rng) % 1000000 < parts_per_million;
}

#endif
