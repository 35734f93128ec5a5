/* Messages of a copy, a journal and a pack of them. What is read is within its ranges and can be written again; a
 * journal that is read to a place is read the same when it is cut off there. */
#include <stdint.h>
#include <string.h>

#include "base/ensure.h"
#include "cli/transfer/journal.h"
#include "cli/transfer/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct tally {
	unsigned records;
};

static void count(const struct copy_message *message, void *context)
{
	ensure(message->kind < COPY_KINDS);
	((struct tally *)context)->records++;
}

static void fuzz_message(const uint8_t *data, size_t bytes)
{
	struct copy_message message;
	uint8_t again[COPY_MESSAGE_BYTES];

	if (!copy_message_read(data, bytes, &message))
		return;
	if (message.kind == COPY_FILE)
		ensure(message.file.name[0] != '/' && strstr(message.file.name, "/../") == NULL);
	if (message.kind == COPY_FILE && copy_link_stays(message.file.name, message.file.target))
		ensure(message.file.target[0] != '/' && message.file.target[0] != '\0');
	if (message.kind == COPY_BEGIN)
		ensure(strchr(message.begin.name, '/') == NULL && message.begin.name[0] != '\0');
	ensure(copy_message_write(&message, again) == bytes);
	if (message.kind != COPY_FAIL) /* whose text is made printable */
		ensure(memcmp(again, data, bytes) == 0);
}

static void fuzz_journal(const uint8_t *data, size_t bytes)
{
	struct tally whole = {0}, cut = {0};
	size_t used = copy_journal_read(data, bytes, count, &whole);

	ensure(used <= bytes);
	if (used == 0)
		return;
	ensure(copy_journal_read(data, used, count, &cut) == used && cut.records == whole.records);
}

/* What is read of a pack lies in it, and is written the same. */
static void fuzz_pack(const uint8_t *data, size_t bytes)
{
	static uint8_t memory[COPY_CHUNK_BYTES];
	struct copy_pack pack = {.at = memory};
	struct copy_packed entry;
	size_t used = 0, before = 0;

	while (copy_pack_next(data, bytes, &used, &entry)) {
		uint8_t *content = copy_pack_add(&pack, &entry.file);

		ensure(used <= bytes && entry.content >= data + before &&
			entry.content + entry.file.bytes == data + used);
		if (content == NULL) /* more than a slot */
			return;
		memcpy(content, entry.content, entry.file.bytes);
		if (entry.file.entry == COPY_REGULAR)
			copy_pack_seal(&pack, entry.sha256);
		ensure(pack.bytes == used && memcmp(memory + before, data + before, used - before) == 0);
		before = used;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	fuzz_message(data, bytes);
	fuzz_pack(data, bytes);
	fuzz_journal(data, bytes);
	return 0;
}
