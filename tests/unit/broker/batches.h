/* batches.h - record batches for tests, made without the product's code for them (but its CRC). */
#ifndef HOLDFAST_TESTS_UNIT_BROKER_BATCHES_H
#define HOLDFAST_TESTS_UNIT_BROKER_BATCHES_H

#include <stddef.h>
#include <stdint.h>

struct batch_wish {
	int32_t records;      /* at least 1 */
	uint32_t value_bytes; /* of each */
	int64_t producer_id;  /* -1: none */
	int16_t epoch;
	int32_t sequence;
	int64_t timestamp_ms; /* of the first; each next one is 1 later */
};

/* Bytes written to `to`, which has room for 200 and records * (value_bytes + 20). */
size_t batches_make(const struct batch_wish *wish, uint8_t *to);
/* Packs its records with a codec (hf_codec); the bytes of the batch then. There is room for 200 more than before. */
size_t batches_pack(uint8_t *batch, size_t bytes, unsigned codec);
/* Sets the CRC of a batch of so many bytes anew. */
void batches_seal(uint8_t *batch, size_t bytes);

#endif
