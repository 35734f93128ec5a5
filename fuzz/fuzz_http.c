/* Requests of a client: the bytes are read whole, and again in pieces whose sizes the first byte chooses; what is found
 * must be the same, and within the limits. */
#include <stdint.h>
#include <string.h>

#include "base/ensure.h"
#include "net/http_request.h"

#define REQUESTS_MAX 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct found {
	unsigned requests, status;
	uint32_t hash; /* of their paths */
};

static void note(struct found *found, const struct http_request *request)
{
	size_t length = strnlen(request->path, HTTP_PATH_BYTES);

	ensure(length > 0 && length < HTTP_PATH_BYTES);
	for (size_t i = 0; i <= length; i++)
		found->hash = (found->hash ^ (uint8_t)request->path[i]) * 16777619u;
	found->hash += request->head + 2u * request->keep_alive;
	found->requests++;
}

static struct found read_in_pieces(const uint8_t *data, size_t bytes, size_t piece)
{
	struct http_reader reader;
	struct found found = {0};
	size_t at = 0;

	http_reader_init(&reader);
	while (at < bytes && found.requests < REQUESTS_MAX) {
		size_t n = bytes - at < piece ? bytes - at : piece, used;
		enum http_outcome outcome = http_read(&reader, data + at, n, &used);

		ensure(used <= n);
		if (outcome == HTTP_READ_REFUSED) {
			found.status = reader.status;
			ensure(found.status >= 400 && found.status <= 505);
			ensure(http_read(&reader, data, 1, &used) == HTTP_READ_REFUSED && used == 0);
			break;
		}
		if (outcome == HTTP_READ_WHOLE)
			note(&found, &reader.request);
		ensure(outcome == HTTP_READ_WHOLE ? used > 0 : used == n);
		at += used;
	}
	return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct found whole, pieces;

	if (bytes < 1)
		return 0;
	whole = read_in_pieces(data + 1, bytes - 1, bytes);
	pieces = read_in_pieces(data + 1, bytes - 1, 1 + data[0] % 64);
	ensure(whole.requests == pieces.requests && whole.status == pieces.status && whole.hash == pieces.hash);
	return 0;
}
