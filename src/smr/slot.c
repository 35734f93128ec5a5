#include "smr/slot.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/order.h"

#define AT_INDEX    8u
#define AT_BYTES    16u
#define AT_KIND     20u
#define AT_REQUESTS 22u
#define AT_ORIGIN   24u
#define AT_CRC      SMR_SLOT_CRC
#define AT_CHECK    SMR_SLOT_CHECK
#define AT_COMMIT   40u
#define WORD_SALT   0x5a17u /* so that memory of zeros is no word */

_Static_assert(AT_COMMIT + 8 == SMR_SLOT_HEADER, "the layout of slot.h");

static uint32_t crc_of(const struct smr_geometry *geometry, const uint8_t *header, const uint8_t *payload, size_t bytes)
{
	return crc32c(crc32c(geometry->seed, header + AT_INDEX, AT_CRC - AT_INDEX), payload, bytes);
}

static uint32_t check_of(const struct smr_geometry *geometry, const uint8_t *header)
{
	return crc32c(crc32c(geometry->seed, header + AT_INDEX, 8), header + AT_COMMIT, 8);
}

enum smr_slot_state smr_slot_judge(
	const struct smr_geometry *geometry, const uint8_t *at, uint64_t index, struct smr_slot *slot_out)
{
	uint8_t header[SMR_SLOT_HEADER];

	memcpy(header, at, sizeof(header));
	confirm();
	*slot_out = (struct smr_slot){.accept = get_le64(header),
		.index = get_le64(header + AT_INDEX),
		.origin = get_le64(header + AT_ORIGIN),
		.commit = get_le64(header + AT_COMMIT),
		.bytes = get_le32(header + AT_BYTES),
		.crc = get_le32(header + AT_CRC),
		.kind = get_le16(header + AT_KIND),
		.requests = get_le16(header + AT_REQUESTS)};
	if (slot_out->index < index)
		return SMR_SLOT_EMPTY;
	if (slot_out->accept == 0 || slot_out->bytes > geometry->slot_bytes - SMR_SLOT_HEADER ||
		(slot_out->accept & 0xffffff) != (slot_out->crc & 0xffffff) ||
		crc_of(geometry, header, at + SMR_SLOT_HEADER, slot_out->bytes) != slot_out->crc)
		return SMR_SLOT_BROKEN;
	if (get_le32(header + AT_CHECK) != check_of(geometry, header) || slot_out->commit > slot_out->index)
		slot_out->commit = 0;
	return slot_out->index == index ? SMR_SLOT_VALID : SMR_SLOT_LATER;
}

uint32_t smr_slot_bytes(const struct smr_slot *slot)
{
	return (SMR_SLOT_HEADER + slot->bytes + 7) & ~7u;
}

uint32_t smr_slot_store(const struct smr_geometry *geometry, uint8_t *at, const struct smr_slot *slot, uint64_t number,
	const void *payload)
{
	uint32_t crc;

	put_le64(at, 0);
	put_le64(at + AT_INDEX, slot->index);
	put_le32(at + AT_BYTES, slot->bytes);
	put_le16(at + AT_KIND, slot->kind);
	put_le16(at + AT_REQUESTS, slot->requests);
	put_le64(at + AT_ORIGIN, slot->origin);
	if (slot->bytes > 0)
		memcpy(at + SMR_SLOT_HEADER, payload, slot->bytes);
	crc = crc_of(geometry, at, at + SMR_SLOT_HEADER, slot->bytes);
	put_le32(at + AT_CRC, crc);
	put_le64(at + AT_COMMIT, slot->commit);
	put_le32(at + AT_CHECK, check_of(geometry, at));
	put_le64(at, smr_slot_word(number, crc));
	return smr_slot_bytes(slot);
}

void smr_slot_copy(const struct smr_geometry *geometry, uint8_t *at, const uint8_t *from, uint64_t number)
{
	uint32_t bytes = get_le32(from + AT_BYTES), crc = get_le32(from + AT_CRC);

	(void)geometry;
	put_le64(at, 0);
	memcpy(at + AT_INDEX, from + AT_INDEX, SMR_SLOT_HEADER - AT_INDEX + bytes);
	put_le64(at, smr_slot_word(number, crc));
}

bool smr_slot_same(const uint8_t *a, const uint8_t *b)
{
	uint32_t bytes = get_le32(a + AT_BYTES);

	return memcmp(a + AT_INDEX, b + AT_INDEX, AT_CHECK - AT_INDEX) == 0 &&
	       memcmp(a + SMR_SLOT_HEADER, b + SMR_SLOT_HEADER, bytes) == 0;
}

static uint16_t crc16_of(uint64_t value)
{
	uint8_t bytes[8];

	put_le64(bytes, value);
	return (uint16_t)(crc32c(WORD_SALT, bytes, 6) & 0xffff);
}

uint64_t smr_slot_seal(uint64_t value)
{
	return value << 16 | crc16_of(value);
}

bool smr_slot_open(uint64_t word, uint64_t *value_out)
{
	*value_out = word >> 16;
	return (word & 0xffff) == crc16_of(word >> 16);
}
