#include "batches.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "broker/codec/compression.h"

static uint8_t *put_varint(uint8_t *at, int64_t value)
{
	uint64_t zigzag = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);

	for (; zigzag > 127; zigzag >>= 7)
		*at++ = (uint8_t)(zigzag | 128);
	*at++ = (uint8_t)zigzag;
	return at;
}

static uint8_t *put_record(uint8_t *at, int32_t i, uint32_t value_bytes)
{
	uint8_t body[64], *end = body;

	*end++ = 0;                /* attributes */
	end = put_varint(end, i);  /* timestamp delta */
	end = put_varint(end, i);  /* offset delta */
	end = put_varint(end, -1); /* no key */
	end = put_varint(end, value_bytes);
	at = put_varint(at, (end - body) + value_bytes + 1);
	memcpy(at, body, (size_t)(end - body));
	at += end - body;
	memset(at, 'a' + i % 26, value_bytes);
	at += value_bytes;
	*at++ = 0; /* no headers */
	return at;
}

void batches_seal(uint8_t *batch, size_t bytes)
{
	put_be32(batch + 17, crc32c(0, batch + 21, bytes - 21));
}

size_t batches_make(const struct batch_wish *wish, uint8_t *to)
{
	uint8_t *at = to + 61;
	size_t bytes;

	memset(to, 0, 61);
	for (int32_t i = 0; i < wish->records; i++)
		at = put_record(at, i, wish->value_bytes);
	bytes = (size_t)(at - to);
	put_be32(to + 8, (uint32_t)(bytes - 12));
	put_be32(to + 12, UINT32_MAX);
	to[16] = 2;
	put_be32(to + 23, (uint32_t)(wish->records - 1));
	put_be64(to + 27, (uint64_t)wish->timestamp_ms);
	put_be64(to + 35, (uint64_t)(wish->timestamp_ms + wish->records - 1));
	put_be64(to + 43, (uint64_t)wish->producer_id);
	put_be16(to + 51, (uint16_t)wish->epoch);
	put_be32(to + 53, (uint32_t)wish->sequence);
	put_be32(to + 57, (uint32_t)wish->records);
	batches_seal(to, bytes);
	return bytes;
}

size_t batches_pack(uint8_t *batch, size_t bytes, unsigned codec)
{
	uint8_t *packed = malloc(bytes + 200);
	size_t n = packed == NULL ? 0
				  : compression_pack((enum hf_codec)codec, batch + 61, bytes - 61, packed, bytes + 200);

	ensure(n > 0);
	memcpy(batch + 61, packed, n);
	free(packed);
	put_be32(batch + 8, (uint32_t)(61 + n - 12));
	put_be16(batch + 21, (uint16_t)codec);
	batches_seal(batch, 61 + n);
	return 61 + n;
}
