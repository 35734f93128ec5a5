/* Record batches, with their CRC made right, so that what lies under it is looked at too. What is right stays right
 * when it is committed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "broker/log/batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t *copy = malloc(bytes == 0 ? 1 : bytes);
	int64_t offset, timestamp;
	struct batch batch;

	memcpy(copy, data, bytes);
	if (bytes >= 17)
		copy[16] = 2;
	if (bytes >= BATCH_HEADER_BYTES && bytes < INT32_MAX && (data[0] & 1) != 0)
		put_be32(copy + 8, (uint32_t)(bytes - 12));
	if (batch_read(copy, bytes, &batch) == BATCH_RIGHT) {
		ensure(batch.length >= (int32_t)BATCH_HEADER_BYTES && (size_t)batch.length <= bytes && batch.count > 0);
		put_be32(copy + 17, crc32c(0, copy + 21, (size_t)batch.length - 21));
		ensure(batch_read(copy, bytes, &batch) == BATCH_RIGHT);
		if (batch_check(copy, &batch) == BATCH_RIGHT) {
			batch_commit(copy, 1000, 1);
			ensure(batch_read(copy, bytes, &batch) == BATCH_RIGHT &&
				batch_check(copy, &batch) == BATCH_RIGHT);
			batch_find_time(copy, &batch, batch.max_timestamp_ms, &offset, &timestamp);
			ensure(offset >= 1000 && offset <= batch_last_offset(&batch));
		}
	}
	free(copy);
	return 0;
}
