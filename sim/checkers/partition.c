/* One partition's account. */
#include "sim/checkers/partition.h"

#include <inttypes.h>
#include <string.h>

#define HEADER_BYTES 61u

void partition_account_init(struct partition_account *account, struct world *world, const char *name)
{
	memset(account, 0, sizeof(*account));
	account->world = world;
	account->name = name;
}

/* ---- bytes ---- */

static uint64_t big(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

static uint64_t little(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = bytes; i > 0; i--)
		value = value << 8 | at[i - 1];
	return value;
}

/* What a byte does to the remainder of CRC-32C. */
static uint32_t remainder_of(uint32_t byte)
{
	for (unsigned bit = 0; bit < 8; bit++)
		byte = byte >> 1 ^ ((byte & 1) != 0 ? 0x82f63b78u : 0);
	return byte;
}

static uint32_t castagnoli(const uint8_t *at, size_t bytes)
{
	static uint32_t remainders[256];
	uint32_t crc = ~0u;

	for (uint32_t byte = 0; remainders[255] == 0 && byte < 256; byte++)
		remainders[byte] = remainder_of(byte);
	for (size_t i = 0; i < bytes; i++)
		crc = crc >> 8 ^ remainders[(uint8_t)crc ^ at[i]];
	return ~crc;
}

/* A zigzag varint; false: behind the end. */
static bool varint(const uint8_t **at, const uint8_t *end, int64_t *out)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
		uint8_t byte = *(*at)++;

		value |= (uint64_t)(byte & 127) << shift;
		if (byte < 128) {
			*out = (value & 1) != 0 ? -(int64_t)(value >> 1) - 1 : (int64_t)(value >> 1);
			return true;
		}
	}
	return false;
}

/* The value of the record at the front, which is {length, attributes, two deltas, no key, value, no headers}. */
static const uint8_t *value_of(const uint8_t **at, const uint8_t *end)
{
	int64_t length, timestamp, offset, key, bytes;
	const uint8_t *value, *next;

	if (!varint(at, end, &length) || length < 1 || length > end - *at)
		return NULL;
	next = *at + length;
	(*at)++;
	if (!varint(at, next, &timestamp) || !varint(at, next, &offset) || !varint(at, next, &key) || key != -1 ||
		!varint(at, next, &bytes) || bytes != PARTITION_VALUE_BYTES || bytes > next - *at)
		return NULL;
	value = *at;
	*at = next;
	return value;
}

/* ---- reading ---- */

static void see(struct partition_account *account, uint64_t offset, const uint8_t *value)
{
	uint32_t producer = (uint32_t)little(value, 4);
	uint64_t number = little(value + 4, 8);
	struct partition_record *record = &account->records[offset];

	if (record->seen && (record->producer != producer || record->number != number))
		world_violate(account->world, "one-log", "%s: offset %" PRIu64 " was %u/%" PRIu64 " and is %u/%" PRIu64,
			account->name, offset, record->producer, record->number, producer, number);
	record->seen = true;
	record->producer = producer;
	record->number = number;
	if (offset + 1 > account->end)
		account->end = offset + 1;
}

/* The batch at the front; its bytes, or 0 when it is none. */
static size_t read_batch(
	struct partition_account *account, uint64_t *offset, bool first, const uint8_t *data, size_t bytes)
{
	uint64_t base, count, length;
	const uint8_t *at = data + HEADER_BYTES;

	if (bytes < HEADER_BYTES || data[16] != 2)
		return 0;
	base = big(data, 8);
	length = big(data + 8, 4) + 12;
	count = big(data + 57, 4);
	if (length < HEADER_BYTES || length > bytes || big(data + 12, 4) > INT32_MAX ||
		count != big(data + 23, 4) + 1 || big(data + 17, 4) != castagnoli(data + 21, length - 21) ||
		base + count > PARTITION_RECORDS_MAX)
		return 0;
	/* The first one holds the offset that was asked for, the others follow without a gap. */
	if (first ? base > *offset || base + count <= *offset : base != *offset)
		world_violate(account->world, "dense", "%s: a batch begins at %" PRIu64 " where %" PRIu64 " was due",
			account->name, base, *offset);
	for (uint64_t i = 0; i < count; i++) {
		const uint8_t *value = value_of(&at, data + length);

		if (value == NULL)
			return 0;
		see(account, base + i, value);
	}
	*offset = base + count;
	return at == data + length ? length : 0;
}

uint64_t partition_read(struct partition_account *account, uint64_t offset, const uint8_t *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		size_t length = read_batch(account, &offset, at == 0, data + at, bytes - at);

		if (length == 0) {
			world_violate(account->world, "batch",
				"%s: a reader got %zu bytes that are no batch, near offset %" PRIu64, account->name,
				bytes - at, offset);
			return offset;
		}
		at += length;
	}
	return offset;
}

void partition_given(struct partition_account *account, uint64_t offset, const uint8_t *value, size_t bytes)
{
	if (bytes != PARTITION_VALUE_BYTES || offset >= PARTITION_RECORDS_MAX)
		world_violate(account->world, "batch", "%s: a reader got %zu bytes at offset %" PRIu64, account->name,
			bytes, offset);
	else
		see(account, offset, value);
}

/* ---- what producers were told ---- */

void partition_acked(
	struct partition_account *account, uint64_t offset, uint32_t producer, uint64_t number, uint32_t count)
{
	for (uint32_t i = 0; i < count && offset + i < PARTITION_RECORDS_MAX; i++) {
		struct partition_record *record = &account->records[offset + i];

		if (record->acked && (record->acked_producer != producer || record->acked_number != number + i))
			world_violate(account->world, "kept", "%s: offset %" PRIu64 " was acknowledged for two records",
				account->name, offset + i);
		record->acked = true;
		record->acked_producer = producer;
		record->acked_number = number + i;
	}
}

void partition_given_up(struct partition_account *account, uint32_t producer, uint64_t number, uint32_t count)
{
	for (uint32_t i = 0; i < count && number + i < PARTITION_RECORDS_MAX; i++)
		account->given_up[producer][number + i] = true;
}

void partition_lost(struct partition_account *account)
{
	memset(account->records, 0, sizeof(account->records));
	account->end = 0;
	account->lossy = true;
}

void partition_settled(struct partition_account *account)
{
	uint64_t next[PARTITION_PRODUCERS_MAX] = {0};

	for (uint64_t i = 0; i < PARTITION_RECORDS_MAX; i++) {
		const struct partition_record *record = &account->records[i];

		if (record->acked && (!record->seen || record->producer != record->acked_producer ||
					     record->number != record->acked_number))
			world_violate(account->world, "kept",
				"%s: offset %" PRIu64 " was acknowledged for record %" PRIu64
				" of producer %u and is not it",
				account->name, i, record->acked_number, record->acked_producer);
		if (!record->seen || record->producer >= PARTITION_PRODUCERS_MAX || account->lossy)
			continue;
		if (record->number < PARTITION_RECORDS_MAX && account->given_up[record->producer][record->number])
			continue;
		if (record->number + 1 == next[record->producer])
			world_violate(account->world, "once", "%s: record %" PRIu64 " of producer %u is there twice",
				account->name, record->number, record->producer);
		else if (record->number < next[record->producer])
			world_violate(account->world, "order",
				"%s: record %" PRIu64 " of producer %u comes behind %" PRIu64, account->name,
				record->number, record->producer, next[record->producer] - 1);
		next[record->producer] = record->number + 1;
	}
}
