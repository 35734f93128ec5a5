/* One connection: requests in, one after the other, answers out. */
#include "net/http_conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/ensure.h"
#include "base/states.h"

#define NS_PER_S 1000000000ull

static void conn_move(struct http_conn *conn, enum http_conn_state to)
{
	static const struct state states[] = {
		[HTTP_CONN_READING] = {"reading", BIT(HTTP_CONN_ANSWERING)},
		[HTTP_CONN_ANSWERING] = {"answering", BIT(HTTP_CONN_READING) | BIT(HTTP_CONN_LINGERING)},
		[HTTP_CONN_LINGERING] = {"lingering", 0},
	};
	static const uint64_t limit_ns[] = {
		[HTTP_CONN_READING] = HTTP_IDLE_NS,
		[HTTP_CONN_ANSWERING] = HTTP_ANSWER_NS,
		[HTTP_CONN_LINGERING] = HTTP_REQUEST_NS,
	};

	states_move_often(
		"http", states, &conn->state, to, "%s", hf_addr_format(&conn->remote, (char[HF_ADDR_TEXT]){0}));
	hf_loop_set_timer(conn->server->loop, &conn->timer, hf_loop_now_ns(conn->server->loop) + limit_ns[to]);
}

static void conn_want(struct http_conn *conn)
{
	unsigned wanted = stream_wanted(conn->stream, conn->state == HTTP_CONN_ANSWERING);

	if (conn->state == HTTP_CONN_ANSWERING)
		wanted &= ~(unsigned)HF_READABLE; /* the next request waits in the socket */
	if (conn->watch.wanted != wanted)
		hf_loop_watch(conn->server->loop, &conn->watch, conn->stream->io, wanted);
}

/* ---- answering ---- */

static void format_date(struct http_conn *conn, char text[32])
{
	time_t seconds = (time_t)(hf_env_wall_ns(hf_loop_env(conn->server->loop)) / NS_PER_S);
	struct tm tm;

	text[0] = '\0';
	if (gmtime_r(&seconds, &tm) != NULL)
		(void)strftime(text, 32, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

/* Takes the answer's body. */
static void conn_answer(struct http_conn *conn, struct http_answer *answer, bool head)
{
	size_t bytes = answer->body == NULL ? 0 : strlen(answer->body);
	char date[32];
	int n;

	format_date(conn, date);
	n = snprintf(conn->head, sizeof(conn->head),
		"HTTP/1.1 %u %s\r\nDate: %s\r\nContent-Type: %.100s\r\nContent-Length: %zu\r\n%sConnection: %s\r\n\r\n",
		answer->status, http_reason(answer->status), date, answer->type, bytes,
		answer->status == 405 ? "Allow: GET, HEAD\r\n" : "", conn->keep_alive ? "keep-alive" : "close");
	ensure(n > 0 && (size_t)n < sizeof(conn->head));
	conn->head_bytes = (size_t)n;
	conn->body = answer->body;
	conn->body_bytes = head ? 0 : bytes;
	conn->sent = 0;
	conn_move(conn, HTTP_CONN_ANSWERING);
}

static void conn_refuse(struct http_conn *conn, unsigned status)
{
	struct http_answer answer;

	conn->refused = true;
	conn->keep_alive = false;
	http_refuse(status, &answer);
	conn_answer(conn, &answer, false);
}

/* Writes what the stream takes; 0, or -errno when it broke. */
static int conn_write(struct http_conn *conn)
{
	size_t all = conn->head_bytes + conn->body_bytes;
	int rc = stream_flush(conn->stream);

	while (rc == 0 && conn->sent < all) {
		bool in_head = conn->sent < conn->head_bytes;
		const char *at = in_head ? conn->head + conn->sent : conn->body + (conn->sent - conn->head_bytes);
		size_t bytes = in_head ? conn->head_bytes - conn->sent : all - conn->sent;
		ssize_t n = stream_write(conn->stream, at, bytes);

		if (n == -EAGAIN)
			return 0;
		rc = n > 0 ? 0 : n == 0 ? -EPIPE : (int)n;
		conn->sent += n > 0 ? (size_t)n : 0;
	}
	return rc;
}

/* ---- reading ---- */

/* Bytes of a request that is not whole have a time of their own, from the first one on. */
static void conn_wait(struct http_conn *conn, bool was_idle)
{
	struct hf_loop *loop = conn->server->loop;

	if (was_idle && !http_reader_is_idle(&conn->reader))
		hf_loop_set_timer(loop, &conn->timer, hf_loop_now_ns(loop) + HTTP_REQUEST_NS);
}

/* Until a request is answered or bytes are missing. */
static void conn_read_requests(struct http_conn *conn)
{
	bool was_idle = http_reader_is_idle(&conn->reader);
	struct http_answer answer;
	size_t used;

	if (conn->in_from == conn->in_to)
		return;
	switch (http_read(&conn->reader, conn->in + conn->in_from, conn->in_to - conn->in_from, &used)) {
	case HTTP_READ_MORE:
		conn->in_from = conn->in_to;
		conn_wait(conn, was_idle);
		break;
	case HTTP_READ_WHOLE:
		conn->in_from += (uint32_t)used;
		conn->keep_alive = conn->reader.request.keep_alive;
		http_serve(conn->server, &conn->reader.request, &answer);
		conn_answer(conn, &answer, conn->reader.request.head);
		break;
	case HTTP_READ_REFUSED:
		conn_refuse(conn, conn->reader.status);
		break;
	}
}

/* Reads when the buffer is empty; 0, or -errno when the connection is over. */
static int conn_fill(struct http_conn *conn)
{
	ssize_t n;

	if (conn->in_from < conn->in_to)
		return 0;
	n = stream_read(conn->stream, conn->in, sizeof(conn->in));
	if (n == -EAGAIN)
		return 0;
	conn->in_from = 0;
	conn->in_to = n > 0 ? (uint32_t)n : 0;
	return n > 0 ? 0 : n == 0 ? -EPIPE : (int)n;
}

/* What was written and read is done with; false: the connection is over. */
static bool conn_finish(struct http_conn *conn)
{
	if (conn->sent < conn->head_bytes + conn->body_bytes)
		return true;
	free(conn->body);
	conn->body = NULL;
	if (conn->keep_alive) {
		conn_move(conn, HTTP_CONN_READING);
		return true;
	}
	/* A refused client may be sending still: closed now, it would lose the answer to a reset. */
	if (conn->refused)
		conn_move(conn, HTTP_CONN_LINGERING);
	return conn->refused;
}

/* Takes one buffer of requests at most; false: the connection is over. */
static bool conn_turn(struct http_conn *conn)
{
	if (conn->state == HTTP_CONN_LINGERING) {
		conn->in_from = conn->in_to = 0;
		return conn_fill(conn) == 0;
	}
	if (conn->state == HTTP_CONN_READING) {
		if (conn_fill(conn) != 0)
			return false;
		conn_read_requests(conn);
	}
	while (conn->state == HTTP_CONN_ANSWERING) {
		size_t before = conn->sent;

		if (conn_write(conn) != 0 || !conn_finish(conn))
			return false;
		if (conn->state == HTTP_CONN_ANSWERING && conn->sent == before)
			break; /* no room */
		if (conn->state == HTTP_CONN_READING)
			conn_read_requests(conn); /* of those that came together */
	}
	return true;
}

static void conn_ready(struct hf_watch *watch, unsigned ready)
{
	struct http_conn *conn = container_of(watch, struct http_conn, watch);

	(void)ready;
	if (conn_turn(conn))
		conn_want(conn);
	else
		http_conn_close(conn);
}

/* The time of the state is over. A request that has begun is told; what else waits is closed. */
static void conn_late(struct hf_timer *timer, uint64_t now_ns)
{
	struct http_conn *conn = container_of(timer, struct http_conn, timer);

	(void)now_ns;
	if (conn->state != HTTP_CONN_READING || http_reader_is_idle(&conn->reader)) {
		http_conn_close(conn);
		return;
	}
	conn_refuse(conn, 408);
	if (conn_turn(conn))
		conn_want(conn);
	else
		http_conn_close(conn);
}

int http_conn_open(struct http_server *server, struct hf_io *io, const struct hf_addr *remote)
{
	struct http_conn *conn = calloc(1, sizeof(*conn));
	int rc;

	if (conn == NULL) {
		hf_io_close(io);
		return -ENOMEM;
	}
	conn->server = server;
	conn->remote = *remote;
	conn->watch.ready = conn_ready;
	conn->timer.fire = conn_late;
	http_reader_init(&conn->reader);
	list_push_back(&server->conns, &conn->node);
	server->conn_count++;
	rc = stream_plain(io, &conn->stream);
	if (rc == 0)
		rc = hf_loop_watch(server->loop, &conn->watch, io, HF_READABLE);
	if (rc != 0) {
		http_conn_close(conn);
		return rc;
	}
	hf_loop_set_timer(server->loop, &conn->timer, hf_loop_now_ns(server->loop) + HTTP_REQUEST_NS);
	return 0;
}

void http_conn_close(struct http_conn *conn)
{
	hf_loop_cancel_timer(conn->server->loop, &conn->timer);
	hf_loop_unwatch(&conn->watch);
	stream_close(conn->stream);
	list_remove(&conn->node);
	conn->server->conn_count--;
	free(conn->body);
	free(conn);
}
