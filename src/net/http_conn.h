/* http_conn.h - shared by http.c (server, routes) and http_conn.c (one connection). */
#ifndef HOLDFAST_NET_HTTP_CONN_H
#define HOLDFAST_NET_HTTP_CONN_H

#include "base/list.h"
#include "net/http.h"
#include "net/stream.h"

#define HTTP_IN_BYTES   4096u
#define HTTP_HEAD_BYTES 512u /* of an answer: status line and header fields */

enum http_conn_state {
	HTTP_CONN_READING,   /* waiting for a request, or the rest of one */
	HTTP_CONN_ANSWERING, /* waiting for room: what is left of the answer */
	HTTP_CONN_LINGERING, /* a refusal is sent; what the client still sends is dropped until it closes */
};

struct http_conn {
	struct list node; /* of the server, the oldest first */
	struct http_server *server;
	struct stream *stream;
	struct hf_addr remote;
	struct hf_watch watch;
	struct hf_timer timer; /* of the state */
	enum http_conn_state state;
	struct http_reader reader;
	bool refused, keep_alive;
	uint32_t in_from, in_to;
	uint8_t in[HTTP_IN_BYTES];
	char head[HTTP_HEAD_BYTES];
	char *body; /* of the answer; NULL: none */
	size_t head_bytes, body_bytes, sent;
};

/* Takes over `io`, also when it fails. */
int http_conn_open(struct http_server *server, struct hf_io *io, const struct hf_addr *remote);
void http_conn_close(struct http_conn *conn); /* frees */

struct http_route {
	const char *path;
	http_handler *handler;
	void *context;
};

struct http_server {
	struct hf_loop *loop;
	struct hf_io *listener;
	struct hf_watch watch;
	struct list conns;
	unsigned conn_count, route_count;
	struct http_route routes[HTTP_ROUTES_MAX];
};

/* The answer to a whole request. */
void http_serve(struct http_server *server, const struct http_request *request, struct http_answer *answer);
/* Status and a sentence of it. */
void http_refuse(unsigned status, struct http_answer *answer);
const char *http_reason(unsigned status);

#endif
