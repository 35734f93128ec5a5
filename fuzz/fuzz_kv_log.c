/* A segment of the store's log, from a disk that may hold anything: heads and entries as they are, and entries whose
 * CRC fits whatever they say. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "base/ensure.h"
#include "kv/log_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct log_entry *entry, const uint8_t *at, size_t bytes)
{
	uint32_t length = kv_log_entry_bytes(entry);
	uint8_t *again = malloc(length);
	struct log_entry same;

	ensure(again != NULL && length <= bytes && length % LOG_UNIT == 0);
	ensure(entry->key >= at && entry->value + entry->value_bytes <= at + length);
	kv_log_entry_write(entry, again);
	ensure(kv_log_entry_read(again, length, &same));
	ensure(same.kind == entry->kind && same.sequence == entry->sequence && same.life == entry->life);
	ensure(record_compare(same.ts, entry->ts) == 0 && same.flags == entry->flags);
	ensure(same.key_bytes == entry->key_bytes && same.value_bytes == entry->value_bytes);
	ensure(memcmp(same.key, entry->key, (size_t)entry->key_bytes + entry->value_bytes) == 0);
	free(again);
}

static void read_all(const uint8_t *data, size_t size)
{
	struct log_entry entry;

	for (size_t at = 0; kv_log_entry_read(data + at, size - at, &entry); at += kv_log_entry_bytes(&entry))
		check(&entry, data + at, size - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1);
	struct log_head head;

	ensure(copy != NULL);
	if (size > 0)
		memcpy(copy, data, size);
	(void)kv_log_head_read(copy, size, &head);
	read_all(copy, size);
	for (size_t at = 0; size - at >= LOG_UNIT;) {
		uint32_t length = get_le32(copy + at + 4);

		if (length < LOG_UNIT || length > size - at)
			break;
		put_le32(copy + at, crc32c(0, copy + at + 4, length - 4));
		at += length;
	}
	read_all(copy, size);
	free(copy);
	return 0;
}
