/* The generator's state depends on the seed alone, so a run can be repeated on any machine. */
#include "sim/rng.h"

#include <string.h>

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void rng_seed(struct rng *rng, uint64_t seed)
{
	for (unsigned i = 0; i < 4; i++)
		rng->state[i] = splitmix64(&seed);
}

static uint64_t rotate_left(uint64_t value, int bits)
{
	return value << bits | value >> (64 - bits);
}

uint64_t rng_next(struct rng *rng)
{
	uint64_t *s = rng->state;
	uint64_t result = rotate_left(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate_left(s[3], 45);
	return result;
}

void rng_fill(struct rng *rng, void *data, size_t bytes)
{
	char *at = data;
	uint64_t value;

	for (; bytes >= sizeof(value); bytes -= sizeof(value), at += sizeof(value)) {
		value = rng_next(rng);
		memcpy(at, &value, sizeof(value));
	}
	if (bytes > 0) {
		value = rng_next(rng);
		memcpy(at, &value, bytes);
	}
}
