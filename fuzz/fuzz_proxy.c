/* Bytes that reach the proxy before Redis: a client's commands become records of an entry that reads back whole; an
 * entry, a snapshot and a server's list of commands are read within their bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "proxy/redis/command_list.h"
#include "proxy/redis/rewrite.h"
#include "proxy/stream.h"

#define ARGS_MAX  64u
#define INPUT_MAX 65536u
#define NOW_MS    1700000000000ull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A record is one command for the server, or one reply for the client; its key is one of its arguments. */
static void check_record(const struct entry_record *record)
{
	struct resp_arg *args = malloc((size_t)INPUT_MAX * sizeof(*args));
	uint8_t *copy = malloc(record->bytes + 1u);
	struct resp_request request;
	struct resp_reply reply = {0};
	size_t used;

	ensure(args != NULL && copy != NULL);
	memcpy(copy, record->data, record->bytes);
	if (record->reply == ENTRY_TEXT) {
		ensure(resp_reply_read(&reply, copy, record->bytes, &used) == RESP_WHOLE && used == record->bytes);
	} else {
		resp_request_init(&request, args, INPUT_MAX, UINT32_MAX);
		ensure(resp_request_read(&request, copy, record->bytes, &used) == RESP_WHOLE && used == record->bytes);
		ensure(request.arg_count > 0);
	}
	ensure(record->key == NULL ||
		(record->key >= record->data && record->key + record->key_bytes <= record->data + record->bytes));
	free(copy);
	free(args);
}

static void check_entry(const struct resp_out *entry, bool ours)
{
	struct entry_reader reader;
	struct entry_record record;

	if (!proxy_entry_read(&reader, entry->data, entry->bytes)) {
		ensure(!ours);
		return;
	}
	while (proxy_entry_next(&reader, &record)) {
		ensure(record.data >= entry->data && record.data + record.bytes <= entry->data + entry->bytes);
		if (ours)
			check_record(&record);
	}
	ensure(!ours || (reader.left == 0 && reader.at == reader.end));
}

static void rewrite_one(
	const struct commands *commands, const struct command_args *request, const uint8_t *answer, size_t answer_bytes)
{
	const struct command *command = proxy_command_find(request->data + request->args[0].at, request->args[0].bytes);
	struct resp_reply reply = {0};
	struct resp_out out = {0};
	char words[COMMAND_WORDS] = "";
	size_t used;

	if (!proxy_command_check(commands, command, request->data, request->args, request->count, words)) {
		ensure(words[0] != '\0' && strnlen(words, COMMAND_WORDS) < COMMAND_WORDS);
		return;
	}
	if (command->kind == COMMAND_READ && command->form >= FORM_TTL && request->count > 1)
		(void)proxy_rewrite_read(command, request, &out);
	out.bytes = 0;
	/* The longest of those that are rewritten has four arguments at least. */
	if ((command->kind == COMMAND_WRITE && request->count > 3) ||
		(command->kind == COMMAND_DRAW && request->count > 1)) {
		proxy_entry_begin(&out, ENTRY_OF_REDIS, ENTRY_WRITE, NOW_MS);
		if (command->form != FORM_SPOP)
			proxy_rewrite(command, request, NOW_MS, &out);
		else if (resp_reply_read(&reply, answer, answer_bytes, &used) == RESP_WHOLE)
			proxy_rewrite_drawn(request, answer, used, &out);
		check_entry(&out, true);
	}
	resp_out_free(&out);
}

static void read_requests(const uint8_t *data, size_t bytes)
{
	static struct commands commands;
	struct resp_arg args[ARGS_MAX];
	struct resp_request request;
	uint8_t *copy = malloc(bytes + 1);
	size_t at = 0, used;

	ensure(copy != NULL);
	memcpy(copy, data, bytes);
	commands.scripts = true;
	for (unsigned i = 0; i < command_list_count; i++)
		commands.arity[i] = -1;
	resp_request_init(&request, args, ARGS_MAX, INPUT_MAX);
	while (resp_request_read(&request, copy + at, bytes - at, &used) == RESP_WHOLE) {
		struct command_args one = {.data = copy + at, .args = args, .count = request.arg_count};

		at += used;
		if (one.count > 0)
			rewrite_one(&commands, &one, copy + at, bytes - at);
	}
	free(copy);
}

static uint32_t read_stream(const uint8_t *data, size_t bytes, size_t piece)
{
	struct stream_reader reader = {0};
	enum stream_outcome outcome = STREAM_MORE;
	struct stream_key key;
	size_t from = 0, to = 0, used;

	while (outcome == STREAM_MORE || outcome == STREAM_KEY) {
		outcome = proxy_stream_read(&reader, data + from, to - from, &key, &used);
		ensure(used <= to - from);
		if (outcome == STREAM_KEY)
			ensure(key.key >= data + from && key.value + key.value_bytes == data + from + used);
		from += used;
		if (outcome == STREAM_MORE && to == bytes)
			break;
		if (outcome == STREAM_MORE)
			to = bytes - to < piece ? bytes : to + piece;
	}
	return reader.keys;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct commands learned;
	struct resp_out entry = {.data = (uint8_t *)(uintptr_t)data, .bytes = bytes};

	if (bytes < 1 || bytes > INPUT_MAX)
		return 0;
	read_requests(data, bytes);
	check_entry(&entry, false);
	ensure(read_stream(data, bytes, bytes) == read_stream(data, bytes, 1 + data[0] % 64));
	(void)proxy_command_learn(&learned, data, bytes);
	return 0;
}
