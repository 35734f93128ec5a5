#include "cli/transfer/journal.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"

#define MAGIC        "HOLDFASTCOPY"
#define MAGIC_BYTES  12u
#define RECORD_BYTES 8u /* before its message */

_Static_assert(MAGIC_BYTES + sizeof(uint32_t) == COPY_JOURNAL_HEADER_BYTES, "the version follows the magic");

void copy_journal_header(uint8_t at[COPY_JOURNAL_HEADER_BYTES])
{
	memcpy(at, MAGIC, MAGIC_BYTES);
	put_le32(at + MAGIC_BYTES, COPY_VERSION);
}

uint32_t copy_journal_record(const struct copy_message *message, uint8_t *at)
{
	uint32_t bytes = copy_message_write(message, at + RECORD_BYTES);

	put_le32(at, bytes);
	put_le32(at + 4, crc32c(0, at + RECORD_BYTES, bytes));
	return RECORD_BYTES + bytes;
}

size_t copy_journal_read(
	const void *at, size_t bytes, void (*found)(const struct copy_message *message, void *context), void *context)
{
	const uint8_t *from = at;
	uint8_t header[COPY_JOURNAL_HEADER_BYTES];
	struct copy_message message;
	size_t used = COPY_JOURNAL_HEADER_BYTES;

	copy_journal_header(header);
	if (bytes < used || memcmp(from, header, used) != 0)
		return 0;
	while (bytes - used >= RECORD_BYTES) {
		uint32_t length = get_le32(from + used);

		if (length > bytes - used - RECORD_BYTES ||
			crc32c(0, from + used + RECORD_BYTES, length) != get_le32(from + used + 4) ||
			!copy_message_read(from + used + RECORD_BYTES, length, &message))
			break;
		found(&message, context);
		used += RECORD_BYTES + length;
	}
	return used;
}
