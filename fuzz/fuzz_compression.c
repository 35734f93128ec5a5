/* Records of a batch as they came packed: {u8 codec, u8 log2 of the bytes that are allowed, data}. They are refused, or
 * unpack to no more than that; what we pack is unpacked again. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "broker/codec/compression.h"
#include "broker/log/records.h"

#define HEAD 2u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* As a consumer does: until the end, or where a record contradicts its lengths. */
static void read_records(const struct compression_buffer *from)
{
	struct records_reader reader = {from->at, from->at + from->bytes};
	struct record record;

	while (records_next(&reader, &record)) {
		ensure(reader.at <= reader.end);
		ensure(record.value.bytes <= (int64_t)from->bytes && record.key.bytes <= (int64_t)from->bytes);
	}
}

static void there_and_back(unsigned codec, const uint8_t *data, size_t bytes)
{
	size_t room = 2 * bytes + 1024, n;
	struct compression_buffer buffer = {0};
	uint8_t *packed = malloc(room);

	ensure(packed != NULL);
	n = compression_pack((enum hf_codec)codec, data, bytes, packed, room);
	ensure(n > 0 && n <= room);
	ensure(compression_unpack(codec, packed, n, &buffer, bytes) == 0 && buffer.bytes == bytes &&
		memcmp(buffer.at, data, bytes) == 0);
	compression_free(&buffer);
	ensure(bytes == 1 || compression_unpack(codec, packed, n, &buffer, bytes - 1) == -EMSGSIZE);
	compression_free(&buffer);
	free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct compression_buffer buffer = {0};
	unsigned codec;
	size_t most;

	if (bytes <= HEAD)
		return 0;
	codec = data[0] % HF_CODECS;
	most = (size_t)1 << data[1] % 21;
	if (compression_unpack(codec, data + HEAD, bytes - HEAD, &buffer, most) == 0) {
		ensure(buffer.bytes <= most);
		read_records(&buffer);
	}
	compression_free(&buffer);
	if (codec != HF_CODEC_NONE)
		there_and_back(codec, data + HEAD, bytes - HEAD);
	return 0;
}
