/* Messages of a copy, and a journal of them. What is read is within its ranges and can be written again; a journal that
 * is read to a place is read the same when it is cut off there. */
#include <stdint.h>
#include <string.h>

#include "base/ensure.h"
#include "cli/transfer/journal.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	fuzz_message(data, bytes);
	fuzz_journal(data, bytes);
	return 0;
}
