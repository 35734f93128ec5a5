/* random_bytes.h - bytes that do not compress, as fast as memory takes them; from a seed. */
#ifndef HOLDFAST_CLI_RANDOM_BYTES_H
#define HOLDFAST_CLI_RANDOM_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Moves the seed on; `bytes` is a multiple of 8. */
void random_bytes_fill(uint64_t *seed, void *at, size_t bytes);

#endif
