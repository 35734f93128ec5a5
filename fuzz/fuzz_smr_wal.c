/* A WAL of any bytes. What is accepted lies within the file and says what it was written with. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "smr/wal.h"

#define SEED 7u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The same records, written again, are the same bytes. */
static void write_again(const struct smr_wal_batch *batch, const uint8_t *was, size_t length)
{
	uint8_t *again = malloc(length);
	struct smr_wal_record record;
	uint32_t at = 0, put = 0;

	ensure(again != NULL);
	while (smr_wal_next(batch, &at, &record)) {
		ensure(record.data + record.bytes <= was + length && at <= batch->bytes);
		put = smr_wal_put(
			again + SMR_WAL_BATCH_HEAD, put, (enum smr_wal_type)record.type, record.data, record.bytes);
		ensure(put == at);
	}
	free(again);
}

/* Also with a checksum that fits, so that what lies behind it is reached. */
static void read_sealed(const uint8_t *data, size_t bytes)
{
	struct smr_wal_batch batch = {.sequence = 1, .bytes = (uint32_t)(bytes & ~(size_t)7)}, read;
	uint8_t *sealed = malloc(SMR_WAL_BATCH_HEAD + bytes);

	ensure(sealed != NULL);
	memcpy(sealed + SMR_WAL_BATCH_HEAD, data, bytes);
	smr_wal_seal(SEED, &batch, sealed);
	if (smr_wal_open(SEED, sealed, SMR_WAL_BATCH_HEAD + batch.bytes, &read) != 0) {
		ensure(read.bytes == batch.bytes && read.sequence == 1);
		write_again(&read, sealed, SMR_WAL_BATCH_HEAD + bytes);
	}
	free(sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct smr_wal_head head;
	struct smr_wal_batch batch;
	size_t length;

	(void)smr_wal_head_read(data, bytes, &head);
	for (size_t at = 0; at < bytes; at += length == 0 ? 8 : length) {
		length = smr_wal_open(SEED, data + at, bytes - at, &batch);
		ensure(length <= bytes - at);
		if (length != 0)
			write_again(&batch, data + at, length);
	}
	if (bytes < SMR_WAL_BATCH_MAX)
		read_sealed(data, bytes);
	return 0;
}
