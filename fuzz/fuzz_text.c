/* Bytes that reach the proxy before memcached: what clients and servers say is read within its bounds, the same in
 * whatever pieces it comes, and what a client stores becomes a record that reads back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "proxy/memcached/inject.h"
#include "proxy/memcached/text.h"

#define ARGS_MAX  64u
#define INPUT_MAX 65536u
#define NOW_MS    1700000000000ull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_entry(const struct resp_out *entry)
{
	struct resp_arg *args = malloc(ARGS_MAX * sizeof(*args));
	struct entry_reader reader;
	struct entry_record record;
	struct resp_request request;
	size_t used;

	ensure(args != NULL && proxy_entry_read(&reader, entry->data, entry->bytes));
	ensure(proxy_entry_next(&reader, &record) && reader.left == 0);
	resp_request_init(&request, args, ARGS_MAX, UINT32_MAX);
	ensure(resp_request_read(&request, (uint8_t *)(uintptr_t)record.data, record.bytes, &used) == RESP_WHOLE);
	ensure(used == record.bytes && request.arg_count >= 2);
	free(args);
}

static void take_one(const struct command_args *request)
{
	const struct command *command = proxy_text_find(request->data + request->args[0].at, request->args[0].bytes);
	struct resp_out entry = {0};

	if (command == NULL || command->kind != COMMAND_WRITE)
		return;
	proxy_entry_begin(&entry, ENTRY_OF_MEMCACHED, ENTRY_WRITE, NOW_MS);
	proxy_memcached_rewrite(command, request, NOW_MS, &entry);
	check_entry(&entry);
	resp_out_free(&entry);
}

/* In one piece of exactly its size. */
static void read_requests(const uint8_t *data, size_t bytes)
{
	struct resp_arg args[ARGS_MAX];
	enum resp_outcome outcome = RESP_WHOLE;
	size_t used = 0, skip = 0;

	for (size_t at = 0; at < bytes && outcome == RESP_WHOLE; at += used + skip) {
		uint8_t *copy = malloc(bytes - at);
		struct resp_request request;

		ensure(copy != NULL);
		memcpy(copy, data + at, bytes - at);
		resp_request_init(&request, args, ARGS_MAX, INPUT_MAX / 2);
		outcome = proxy_text_read(&request, copy, bytes - at, &used, &skip);
		ensure(used <= bytes - at && (outcome != RESP_WHOLE || used > 0));
		ensure(outcome != RESP_MORE || request.wanted > bytes - at);
		if (outcome == RESP_WHOLE && request.arg_count > 0) {
			ensure(request.error[0] == '\0');
			for (unsigned i = 0; i < request.arg_count; i++)
				ensure((size_t)args[i].at + args[i].bytes <= used);
			take_one(&(struct command_args){.data = copy, .args = args, .count = request.arg_count});
		}
		free(copy);
	}
}

static size_t read_reply(const uint8_t *data, size_t bytes, size_t piece)
{
	struct resp_reply reply = {0};
	size_t used = 0;

	for (size_t n = piece < bytes ? piece : bytes;; n = bytes - n < piece ? bytes : n + piece) {
		enum resp_outcome outcome = proxy_text_reply_read(&reply, data, n, &used);

		ensure(used <= n);
		if (outcome == RESP_WHOLE)
			return used;
		if (outcome == RESP_REFUSED || n == bytes)
			return 0;
	}
}

/* Of a reply to gets, with a unique for every n-th of its VALUEs and for others. */
static void put_uniques(const uint8_t *reply, size_t bytes, unsigned n)
{
	struct resp_out out = {0}, uniques = {0};
	struct text_value value;
	size_t used;

	for (size_t at = 0, i = 0; proxy_text_value(reply + at, bytes - at, &value, &used); at += used, i++) {
		if (i % n == 0 && value.key_bytes <= TEXT_KEY_MOST)
			proxy_text_put_unique(&uniques, i, value.key, value.key_bytes);
		proxy_text_put_unique(&uniques, i, (const uint8_t *)"left out", 8);
	}
	(void)proxy_text_put_gets(&out, reply, bytes, uniques.data, uniques.bytes);
	resp_out_free(&out);
	resp_out_free(&uniques);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	size_t used;

	if (bytes < 1 || bytes > INPUT_MAX)
		return 0;
	read_requests(data, bytes);
	used = read_reply(data, bytes, bytes);
	ensure(used == read_reply(data, bytes, 1 + data[0] % 64));
	if (used > 0)
		put_uniques(data, used, 1 + data[0] % 3);
	return 0;
}
