/* resp_out.h - an output buffer of RESP: replies, and requests to a server.
 *
 * It grows with its contents. When memory is short, `failed` is set and further writes are ignored; the owner checks
 * `failed` before it sends. */
#ifndef HOLDFAST_NET_RESP_OUT_H
#define HOLDFAST_NET_RESP_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct resp_out { /* zeroed: empty */
	uint8_t *data;
	size_t bytes, room;
	bool failed;
};

void resp_out_free(struct resp_out *out); /* and zeroes it */
/* Drops the first n bytes. */
void resp_out_drop(struct resp_out *out, size_t n);
/* Room for n bytes behind those there are, for the caller to fill and count in out->bytes; NULL: no memory. */
uint8_t *resp_out_reserve(struct resp_out *out, size_t n);

void resp_out_raw(struct resp_out *out, const void *data, size_t bytes);
void resp_out_simple(struct resp_out *out, const char *text);
/* "ERR words": a code in capitals first, as Redis' clients expect; line ends become blanks. */
void resp_out_error(struct resp_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void resp_out_integer(struct resp_out *out, int64_t number);
void resp_out_bulk(struct resp_out *out, const void *data, size_t bytes);
void resp_out_text(struct resp_out *out, const char *text);  /* the same of a string */
void resp_out_decimal(struct resp_out *out, int64_t number); /* the same of a number's digits */
void resp_out_null(struct resp_out *out);                    /* a null bulk string */
void resp_out_null_array(struct resp_out *out);
void resp_out_array(struct resp_out *out, size_t count); /* count elements follow */
/* count pairs follow; with RESP2 an array of twice as many. */
void resp_out_map(struct resp_out *out, bool resp3, size_t count);

#endif
