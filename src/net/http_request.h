/* http_request.h - the head of an HTTP/1.1 request, as a step: bytes in, a request or the status of a refusal out. No
 * clock and no socket. The grammar is http-parser's; this file has the limits, and refuses methods
 * other than GET and HEAD, and requests with a body. */
#ifndef HOLDFAST_NET_HTTP_REQUEST_H
#define HOLDFAST_NET_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <http_parser.h>

#define HTTP_HEAD_BYTES_MAX 8192u /* request line and header fields */
#define HTTP_PATH_BYTES     256u  /* with its NUL */

struct http_request {
	char path[HTTP_PATH_BYTES]; /* as it was sent, without the query */
	bool head;                  /* HEAD: the answer has no body */
	bool keep_alive;
};

enum http_outcome {
	HTTP_READ_MORE,    /* not whole yet */
	HTTP_READ_WHOLE,   /* reader->request */
	HTTP_READ_REFUSED, /* reader->status; nothing more can be read */
};

struct http_reader {
	http_parser parser;
	struct http_request request;
	char target[HTTP_HEAD_BYTES_MAX];
	uint32_t target_bytes, head_bytes;
	bool whole;
	unsigned status; /* of the refusal: 400, 405, 431, 505 */
};

void http_reader_init(struct http_reader *reader);
/* Reads at most one request; *used_out bytes were taken. Call again with the rest for the next one. */
enum http_outcome http_read(struct http_reader *reader, const uint8_t *data, size_t bytes, size_t *used_out);
bool http_reader_is_idle(const struct http_reader *reader); /* nothing of a next request has come */

#endif
