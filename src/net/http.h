/* http.h - a small HTTP/1.1 server on a loop: /metrics, /health, and pages that layers register.
 *
 * GET and HEAD, keep-alive, no request bodies. Input is bounded: HTTP_CONNECTIONS_MAX
 * connections, of which the oldest of the address with the most is closed for another one; HTTP_HEAD_BYTES_MAX for a
 * request; HTTP_REQUEST_NS from its first byte to its last, HTTP_IDLE_NS between two, HTTP_ANSWER_NS to read an answer.
 * A refused request gets its status and a sentence in plain text.
 *
 * There is no access control: bind the address to loopback or an administrative network.
 *
 * Owned by a loop, on which handlers are called. */
#ifndef HOLDFAST_NET_HTTP_H
#define HOLDFAST_NET_HTTP_H

#include <holdfast/loop.h>

#include "net/http_request.h"

#define HTTP_CONNECTIONS_MAX 32u
#define HTTP_ROUTES_MAX      64u
#define HTTP_REQUEST_NS      10000000000ull
#define HTTP_IDLE_NS         60000000000ull
#define HTTP_ANSWER_NS       30000000000ull

struct http_server;

/* What a handler answers. */
struct http_answer {
	unsigned status;  /* 200 unless it is changed */
	const char *type; /* a constant: "text/plain; charset=utf-8" unless it is changed */
	char *body;       /* NUL terminated, for free(), the server's from here on; NULL: no memory, 500 is answered */
};
/* Answers /ready: whether the service of that node serves, with the reason why not; `wrong` NULL: it does. */
void http_answer_ready(struct http_answer *answer, const char *node, const char *wrong);
/* Does not block; `answer` is zeroed but for status and type. */
typedef void http_handler(const struct http_request *request, struct http_answer *answer, void *context);

/* Listens there. The errors of hf_stream_listen, with words. */
int http_open(
	struct hf_loop *loop, const struct hf_addr *address, struct http_server **server_out, struct hf_error *error);
void http_close(struct http_server *server); /* and every connection; NULL is legal; not from a handler */

/* Answers GET and HEAD of `path`, a constant that begins with '/'. -ENOSPC: too many; -EEXIST: it has a handler. */
int http_route(struct http_server *server, const char *path, http_handler *handler, void *context);

void http_unroute(struct http_server *server, const char *path); /* NULL, or no such route: nothing happens */

/* The pages of one service. */
struct http_page {
	const char *path;
	http_handler *handler;
};
struct http_pages {
	const struct http_page *pages;
	unsigned count; /* 0: none is served */
};
/* All of them, or none; `server` NULL: none. The errors of http_route, with words. */
int http_pages_open(struct http_pages *opened, struct http_server *server, const struct http_page *pages,
	unsigned count, void *context, struct hf_error *error);
void http_pages_close(struct http_pages *opened, struct http_server *server); /* what is not open is legal */

int http_address(const struct http_server *server, struct hf_addr *address_out); /* where it listens, port included */

#endif
