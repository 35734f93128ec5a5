/* partitioner.h - the partition of a record, as Java's producer selects it: by murmur2 of its key; without a key,
 * one partition for a batch's worth of bytes, then another at random. Pure. */
#ifndef HOLDFAST_BROKER_PARTITIONER_H
#define HOLDFAST_BROKER_PARTITIONER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* MurmurHash2 with Kafka's seed. */
uint32_t partitioner_hash(const void *key, size_t bytes);
static inline int32_t partitioner_of_key(const void *key, size_t bytes, int32_t partitions)
{
	return (int32_t)(partitioner_hash(key, bytes) & INT32_MAX) % partitions;
}

/* Of one topic. */
struct partitioner_sticky {
	int32_t partition;
	uint64_t bytes; /* that went there; 0: none is chosen */
};
/* For a record of this many bytes. After a batch's worth of bytes another partition is due, which `random` selects. */
int32_t partitioner_without_key(
	struct partitioner_sticky *sticky, uint64_t bytes, uint64_t batch_bytes, int32_t partitions, uint32_t random);

#endif
