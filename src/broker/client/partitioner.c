#include "broker/client/partitioner.h"

#include "base/bytes.h"

#define SEED     0x9747b28cu
#define MULTIPLY 0x5bd1e995u
#define ROTATE   24

uint32_t partitioner_hash(const void *key, size_t bytes)
{
	const uint8_t *at = key;
	uint32_t hash = SEED ^ (uint32_t)bytes;
	size_t left = bytes;

	for (; left >= 4; at += 4, left -= 4) {
		uint32_t word = get_le32(at) * MULTIPLY;

		word ^= word >> ROTATE;
		hash = hash * MULTIPLY ^ word * MULTIPLY;
	}
	if (left > 0) {
		for (size_t i = 0; i < left; i++)
			hash ^= (uint32_t)at[i] << 8 * i;
		hash *= MULTIPLY;
	}
	hash ^= hash >> 13;
	hash *= MULTIPLY;
	return hash ^ hash >> 15;
}

int32_t partitioner_without_key(
	struct partitioner_sticky *sticky, uint64_t bytes, uint64_t batch_bytes, int32_t partitions, uint32_t random)
{
	if (sticky->bytes == 0 || sticky->bytes >= batch_bytes || sticky->partition >= partitions)
		*sticky = (struct partitioner_sticky){.partition = (int32_t)(random % (uint32_t)partitions)};
	sticky->bytes += bytes + 1;
	return sticky->partition;
}
