#include "smr/wal.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"

#define HEAD_MAGIC  0x324c41576c6f4831ull
#define BATCH_MAGIC 0x68637442u
#define HEAD_CRC    44u
#define AT_CRC      4u
#define AT_SEQUENCE 8u
#define AT_NUMBER   16u
#define AT_COMMIT   24u
#define AT_BYTES    32u

_Static_assert(AT_BYTES + 8 == SMR_WAL_BATCH_HEAD, "the layout of wal.h");

void smr_wal_head_put(const struct smr_wal_head *head, uint8_t out[SMR_WAL_HEAD])
{
	memset(out, 0, SMR_WAL_HEAD);
	put_le64(out, HEAD_MAGIC);
	put_le64(out + 8, head->cluster[0]);
	put_le64(out + 16, head->cluster[1]);
	put_le64(out + 24, head->incarnation);
	put_le64(out + 32, head->generation);
	put_le32(out + HEAD_CRC, crc32c(0, out, HEAD_CRC));
}

bool smr_wal_head_read(const uint8_t *data, size_t bytes, struct smr_wal_head *head_out)
{
	if (bytes < SMR_WAL_HEAD || get_le64(data) != HEAD_MAGIC ||
		get_le32(data + HEAD_CRC) != crc32c(0, data, HEAD_CRC))
		return false;
	*head_out = (struct smr_wal_head){.cluster = {get_le64(data + 8), get_le64(data + 16)},
		.incarnation = get_le64(data + 24),
		.generation = get_le64(data + 32)};
	return true;
}

void smr_wal_seal(uint32_t seed, const struct smr_wal_batch *batch, uint8_t *out)
{
	put_le32(out, BATCH_MAGIC);
	put_le64(out + AT_SEQUENCE, batch->sequence);
	put_le64(out + AT_NUMBER, batch->number);
	put_le64(out + AT_COMMIT, batch->commit);
	put_le32(out + AT_BYTES, batch->bytes);
	put_le32(out + AT_BYTES + 4, 0);
	put_le32(out + AT_CRC, crc32c(seed, out + AT_SEQUENCE, SMR_WAL_BATCH_HEAD - AT_SEQUENCE + batch->bytes));
}

size_t smr_wal_length(const uint8_t *head)
{
	uint32_t bytes = get_le32(head + AT_BYTES);

	if (get_le32(head) != BATCH_MAGIC || bytes > SMR_WAL_BATCH_MAX - SMR_WAL_BATCH_HEAD || bytes % 8 != 0)
		return 0;
	return SMR_WAL_BATCH_HEAD + bytes;
}

size_t smr_wal_open(uint32_t seed, const uint8_t *data, size_t bytes, struct smr_wal_batch *batch_out)
{
	size_t length = bytes < SMR_WAL_BATCH_HEAD ? 0 : smr_wal_length(data);

	if (length == 0 || length > bytes ||
		crc32c(seed, data + AT_SEQUENCE, length - AT_SEQUENCE) != get_le32(data + AT_CRC))
		return 0;
	*batch_out = (struct smr_wal_batch){.sequence = get_le64(data + AT_SEQUENCE),
		.number = get_le64(data + AT_NUMBER),
		.commit = get_le64(data + AT_COMMIT),
		.bytes = (uint32_t)length - SMR_WAL_BATCH_HEAD,
		.records = data + SMR_WAL_BATCH_HEAD};
	return length;
}

uint32_t smr_wal_put(uint8_t *records, uint32_t at, enum smr_wal_type type, const void *data, uint32_t bytes)
{
	put_le32(records + at, bytes);
	put_le32(records + at + 4, type);
	memcpy(records + at + SMR_WAL_RECORD_HEAD, data, bytes);
	memset(records + at + SMR_WAL_RECORD_HEAD + bytes, 0, smr_wal_room(bytes) - SMR_WAL_RECORD_HEAD - bytes);
	return at + smr_wal_room(bytes);
}

bool smr_wal_next(const struct smr_wal_batch *batch, uint32_t *at, struct smr_wal_record *record_out)
{
	uint32_t left = batch->bytes - *at;

	if (left < SMR_WAL_RECORD_HEAD)
		return false;
	*record_out = (struct smr_wal_record){.bytes = get_le32(batch->records + *at),
		.type = get_le32(batch->records + *at + 4),
		.data = batch->records + *at + SMR_WAL_RECORD_HEAD};
	if (record_out->bytes > SMR_WAL_BATCH_MAX || smr_wal_room(record_out->bytes) > left)
		return false;
	*at += smr_wal_room(record_out->bytes);
	return true;
}

bool smr_wal_promises(const struct smr_wal_batch *batch)
{
	struct smr_wal_record record;
	uint32_t at = 0;

	while (smr_wal_next(batch, &at, &record))
		if (record.type != SMR_WAL_SEEN)
			return true;
	return false;
}
