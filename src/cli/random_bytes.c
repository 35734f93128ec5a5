#include "cli/random_bytes.h"

#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void random_bytes_fill(uint64_t *seed, void *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		uint64_t word = next(seed);

		memcpy((char *)at + i, &word, sizeof(word));
	}
}
