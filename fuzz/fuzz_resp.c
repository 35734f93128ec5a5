/* Requests of a client, and replies of a server: the bytes are read whole, and again in pieces whose size the first
 * byte chooses; what is found must be the same, and within the limits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "net/resp.h"

#define ARGS_MAX  16u
#define BYTES_MAX 4096u
#define FOUND_MAX 64u
#define INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct found {
	unsigned count;
	bool refused;
	uint32_t hash;
};

static void add(struct found *found, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		found->hash = (found->hash ^ data[i]) * 16777619u;
	found->hash = (found->hash ^ (uint32_t)bytes) * 16777619u;
}

/* The reader sees copies of exact size: a read beyond what came is one beyond the memory. */
static struct found read_requests(const uint8_t *data, size_t bytes, size_t piece)
{
	struct resp_arg args[ARGS_MAX];
	struct resp_request request;
	struct found found = {0};
	size_t from = 0, to = 0;

	resp_request_init(&request, args, ARGS_MAX, BYTES_MAX);
	while (found.count < FOUND_MAX) {
		uint8_t *copy = malloc(to - from + 1);
		enum resp_outcome outcome;
		size_t used;

		ensure(copy != NULL);
		memcpy(copy, data + from, to - from);
		outcome = resp_request_read(&request, copy, to - from, &used);
		ensure(used <= to - from && (used > 0) == (outcome == RESP_WHOLE));
		if (outcome == RESP_WHOLE) {
			ensure(request.arg_count <= ARGS_MAX);
			for (unsigned i = 0; i < request.arg_count; i++) {
				ensure((size_t)args[i].at + args[i].bytes <= used);
				add(&found, copy + args[i].at, args[i].bytes);
			}
			found.count++;
			from += used;
		}
		free(copy);
		found.refused = outcome == RESP_REFUSED;
		if (found.refused) {
			ensure(strncmp(request.error, "ERR Protocol error: ", 20) == 0);
			add(&found, (const uint8_t *)request.error, strlen(request.error));
		}
		if (found.refused || (outcome == RESP_MORE && to == bytes))
			break;
		if (outcome == RESP_MORE)
			to = bytes - to < piece ? bytes : to + piece;
	}
	return found;
}

static struct found read_replies(const uint8_t *data, size_t bytes, size_t piece)
{
	struct resp_reply reply = {0};
	struct found found = {0};
	size_t from = 0, to = 0;

	while (found.count < FOUND_MAX) {
		size_t used;
		enum resp_outcome outcome = resp_reply_read(&reply, data + from, to - from, &used);

		ensure(used <= to - from);
		if (outcome == RESP_WHOLE) {
			add(&found, data + from, used);
			found.count++;
			from += used;
		}
		found.refused = outcome == RESP_REFUSED;
		if (found.refused || (outcome == RESP_MORE && to == bytes))
			break;
		if (outcome == RESP_MORE)
			to = bytes - to < piece ? bytes : to + piece;
	}
	return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct found whole, pieces;
	size_t piece;

	if (bytes < 1 || bytes > INPUT_MAX)
		return 0;
	piece = 1 + data[0] % 64;
	whole = read_requests(data + 1, bytes - 1, bytes);
	pieces = read_requests(data + 1, bytes - 1, piece);
	ensure(whole.count == pieces.count && whole.refused == pieces.refused && whole.hash == pieces.hash);
	whole = read_replies(data + 1, bytes - 1, bytes);
	pieces = read_replies(data + 1, bytes - 1, piece);
	ensure(whole.count == pieces.count && whole.refused == pieces.refused && whole.hash == pieces.hash);
	return 0;
}
