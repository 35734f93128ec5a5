/* resp.h - RESP2, the protocol of Redis, as steps: bytes in, a request or a reply out. No clock, socket or memory of
 * its own; writers are in resp_out.h.
 *
 *   request   *2\r\n$3\r\nGET\r\n$1\r\nk\r\n    an array of bulk strings
 *             GET k\r\n                         or a line, with quotes as redis-cli has them
 *   reply     +OK  -ERR words  :1  $3 bulk string, $-1 null  *2 array of replies, *-1 null; each ends with \r\n
 *
 * The caller keeps the bytes of a request, or of a reply, from its first byte on in one piece, and calls again with
 * more bytes behind them; bytes are parsed once. The piece may move between calls. Refusals have the texts of
 * Redis, which also ends the connection then. */
#ifndef HOLDFAST_NET_RESP_H
#define HOLDFAST_NET_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESP_ARGS_MAX    (1u << 20)   /* of a request: Redis' own limit */
#define RESP_BULK_MAX    (512u << 20) /* bytes of a bulk string, likewise */
#define RESP_LINE_MAX    (64u << 10)  /* bytes of an inline request, a count, a simple string or an error, likewise */
#define RESP_ERROR_BYTES 80u

enum resp_outcome {
	RESP_MORE,    /* not whole yet */
	RESP_WHOLE,   /* read; *used_out bytes */
	RESP_REFUSED, /* no RESP, or beyond a limit: nothing more can be read */
};

/* ---- requests ---- */

struct resp_arg {
	uint32_t at, bytes; /* from the first byte of the request */
};

struct resp_request {
	struct resp_arg *args; /* the caller's: args_max of them */
	unsigned args_max;
	uint32_t bytes_max;           /* of a request as a whole, its counts included */
	unsigned arg_count;           /* of a whole request; 0: an empty one, to which there is no reply */
	char error[RESP_ERROR_BYTES]; /* of a refusal: "ERR Protocol error: ..." */
	size_t wanted;                /* after RESP_MORE: nothing is complete before this many bytes are there */
	size_t at;                    /* this and what follows: the reader's */
	unsigned left;
	bool begun;
};

void resp_request_init(struct resp_request *request, struct resp_arg *args, unsigned args_max, uint32_t bytes_max);
/* Reads one request. Quotes and escapes of an inline request are resolved in place. */
enum resp_outcome resp_request_read(struct resp_request *request, uint8_t *data, size_t bytes, size_t *used_out);

/* ---- replies ---- */

enum resp_type {
	RESP_SIMPLE,  /* text */
	RESP_ERROR,   /* text, without its '-' */
	RESP_INTEGER, /* number */
	RESP_BULK,    /* text */
	RESP_ARRAY,   /* number: the count of elements that follow */
	RESP_NULL,    /* a null bulk string or a null array */
};

/* An element of a reply: itself, or the head of an array. */
struct resp_element {
	enum resp_type type;
	int64_t number;
	const uint8_t *text;
	size_t bytes; /* of text */
};

/* Reads the element that begins at `data`. */
enum resp_outcome resp_element_read(const uint8_t *data, size_t bytes, struct resp_element *element, size_t *used_out);

/* A reply with all of its elements; zeroed before the first call, and by RESP_WHOLE. */
struct resp_reply {
	size_t at;
	uint64_t left;
	bool begun;
};

enum resp_outcome resp_reply_read(struct resp_reply *reply, const uint8_t *data, size_t bytes, size_t *used_out);

/* A whole decimal number as Redis takes it: no blanks, no '+', no leading zeros. */
bool resp_number(const uint8_t *text, size_t bytes, int64_t *number_out);

#endif
