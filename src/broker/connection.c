/* One client over TCP. */
#include "broker/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/states.h"
#include "base/log.h"

#define BUFFER_KEEP_BYTES (1u << 20) /* a larger one is given back when it is empty */
#define TURN_REQUESTS     64u        /* of one connection, before others have their turn */
#define SIZE_BYTES        4u

static void connection_move(struct connection *connection, enum connection_state to)
{
	static const struct state states[CONNECTION_STATES] = {
		[CONNECTION_READING] = {"reading", BIT(CONNECTION_SERVING)},
		[CONNECTION_SERVING] = {"serving", BIT(CONNECTION_WRITING) | BIT(CONNECTION_READING)},
		[CONNECTION_WRITING] = {"writing", BIT(CONNECTION_READING)},
	};

	states_move_often("connection", states, &connection->state, to, "%s",
		hf_addr_format(&connection->remote, (char[HF_ADDR_TEXT]){0}));
}

static void connection_want(struct connection *connection)
{
	unsigned wanted = 0;

	switch (connection->state) {
	case CONNECTION_READING:
		wanted = list_empty(&connection->memory_node) ? HF_READABLE : 0;
		break;
	case CONNECTION_SERVING: /* what follows waits in the socket */
		break;
	case CONNECTION_WRITING:
		wanted = HF_WRITABLE;
		break;
	case CONNECTION_STATES:
		ensure(false);
	}
	if (connection->watch.wanted != wanted)
		hf_loop_watch(connection->broker->loop, &connection->watch, connection->io, wanted);
}

/* ---- reading ---- */

/* Room for a request of `bytes` at the front of the buffer. Beyond 1 MiB it grows with what came, not with what was
 * announced. 1: not now, there is no memory for it. */
static int make_room(struct connection *connection, size_t bytes)
{
	size_t have = connection->in_to - connection->in_from, capacity = connection->in_capacity;
	uint8_t *in;

	if (connection->in_from > 0) {
		memmove(connection->in, connection->in + connection->in_from, have);
		connection->in_from = 0;
		connection->in_to = have;
	}
	if (have < capacity)
		return 0;
	capacity = capacity == 0                  ? CONNECTION_BUFFER_BYTES
		   : capacity < BUFFER_KEEP_BYTES ? BUFFER_KEEP_BYTES
						  : capacity * 2;
	if (capacity > bytes && bytes > CONNECTION_BUFFER_BYTES)
		capacity = bytes;
	if (!connection_memory_allows(&connection->broker->memory, connection, capacity))
		return 1;
	in = realloc(connection->in, capacity);
	if (in == NULL)
		return -ENOMEM;
	connection->in = in;
	connection->in_capacity = capacity;
	connection_memory_count(&connection->broker->memory, connection);
	return 0;
}

/* Not while a request is served: its strings point into the buffer. What follows it, if that is little, is moved. */
static void shrink(struct connection *connection, size_t most)
{
	size_t have = connection->in_to - connection->in_from;
	uint8_t *in = NULL;

	if (connection->state == CONNECTION_SERVING || connection->in_capacity <= most ||
		have > CONNECTION_BUFFER_BYTES)
		return;
	if (have > 0) {
		in = malloc(CONNECTION_BUFFER_BYTES);
		if (in == NULL)
			return;
		memcpy(in, connection->in + connection->in_from, have);
	}
	free(connection->in);
	connection->in = in;
	connection->in_from = 0;
	connection->in_to = have;
	connection->in_capacity = in == NULL ? 0 : CONNECTION_BUFFER_BYTES;
}

void connection_give_up_room(struct connection *connection)
{
	if (!list_empty(&connection->memory_node))
		return; /* it waits for more */
	shrink(connection, CONNECTION_BUFFER_BYTES);
	connection_memory_count(&connection->broker->memory, connection);
}

void connection_resume(struct connection *connection)
{
	list_remove(&connection->ready_node);
	list_push_back(&connection->broker->ready, &connection->ready_node);
}

/* The request at the front: 1 whole, 0 not yet, -EMSGSIZE. */
static int whole_request(struct connection *connection, size_t *bytes_out)
{
	static struct log_limit too_large;
	size_t have = connection->in_to - connection->in_from;
	uint64_t left_out;
	uint32_t size;

	*bytes_out = 0;
	if (have < SIZE_BYTES)
		return 0;
	size = get_be32(connection->in + connection->in_from);
	if (size > connection->broker->config.request_max_bytes) {
		char text[HF_ADDR_TEXT];

		if (log_limit_allows(&too_large, hf_loop_now_ns(connection->broker->loop), &left_out))
			log_warn("broker: %s sent a request of %u bytes, above socket.request.max.bytes; the "
				 "connection ends (%llu lines suppressed)",
				hf_addr_format(&connection->remote, text), size, (unsigned long long)left_out);
		return -EMSGSIZE;
	}
	*bytes_out = SIZE_BYTES + (size_t)size;
	return have >= *bytes_out;
}

/* Serves what is in the buffer; 1: a request was served, 0: bytes are missing, -errno: the connection is over. */
static int serve_one(struct connection *connection)
{
	struct broker *broker = connection->broker;
	const uint8_t *data;
	size_t bytes;
	int rc = whole_request(connection, &bytes);

	if (rc != 1)
		return rc;
	hf_loop_set_timer(broker->loop, &connection->idle, hf_loop_now_ns(broker->loop) + broker->config.idle_ns);
	data = connection->in + connection->in_from + SIZE_BYTES;
	connection->in_from += bytes;
	connection_move(connection, CONNECTION_SERVING);
	return request_serve(&connection->request, data, bytes - SIZE_BYTES) ? 1 : -EPROTO;
}

/* 1: bytes came, 0: none are there, -errno. */
static int fill(struct connection *connection)
{
	size_t bytes;
	ssize_t n;
	int rc = whole_request(connection, &bytes);

	if (rc == 0)
		rc = make_room(connection, bytes);
	if (rc != 0)
		return rc == 1 ? 0 : rc;
	n = hf_stream_read(
		connection->io, connection->in + connection->in_to, connection->in_capacity - connection->in_to);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n == 0 ? -EPIPE : (int)n;
	connection->in_to += (size_t)n;
	return 1;
}

/* ---- writing ---- */

static void answer_sent(struct connection *connection)
{
	request_end(&connection->request);
	connection->out_count = 0;
	connection_move(connection, CONNECTION_READING);
}

static void skip(struct connection *connection, size_t bytes)
{
	while (bytes > 0) {
		struct iovec *piece = &connection->out[0];

		if (bytes < piece->iov_len) {
			piece->iov_base = (uint8_t *)piece->iov_base + bytes;
			piece->iov_len -= bytes;
			return;
		}
		bytes -= piece->iov_len;
		connection->out++;
		connection->out_count--;
	}
}

/* 1: all is sent, 0: the socket is full, -errno. */
static int drain(struct connection *connection)
{
	while (connection->out_count > 0) {
		ssize_t n = hf_stream_writev(connection->io, connection->out, connection->out_count);

		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return (int)n;
		skip(connection, (size_t)n);
	}
	answer_sent(connection);
	return 1;
}

void connection_answer(struct connection *connection, struct iovec *pieces, unsigned n)
{
	if (n == 0) {
		request_end(&connection->request);
		connection_move(connection, CONNECTION_READING);
	} else {
		connection->out = pieces;
		connection->out_count = n;
		connection_move(connection, CONNECTION_WRITING);
	}
	if (!connection->in_turn) {
		list_remove(&connection->ready_node);
		list_push_back(&connection->broker->ready, &connection->ready_node);
	}
}

/* ---- turns ---- */

/* Serves and sends until bytes or room are missing; false: the connection is over. */
static bool turn(struct connection *connection)
{
	unsigned served = 0;
	int rc = 1;

	connection->in_turn = true;
	while (rc == 1 && served < TURN_REQUESTS) {
		switch (connection->state) {
		case CONNECTION_READING:
			rc = serve_one(connection);
			served += rc == 1;
			if (rc == 0)
				rc = fill(connection);
			break;
		case CONNECTION_SERVING:
			rc = 0;
			break;
		case CONNECTION_WRITING:
			rc = drain(connection);
			break;
		case CONNECTION_STATES:
			ensure(false);
		}
	}
	connection->in_turn = false;
	if (rc < 0)
		return false;
	shrink(connection, BUFFER_KEEP_BYTES);
	connection_memory_count(&connection->broker->memory, connection);
	if (rc == 1) { /* there may be more in the buffer */
		list_remove(&connection->ready_node);
		list_push_back(&connection->broker->ready, &connection->ready_node);
	}
	connection_want(connection);
	return true;
}

static void connection_ready(struct hf_watch *watch, unsigned ready)
{
	struct connection *connection = container_of(watch, struct connection, watch);
	struct broker *broker = connection->broker;

	/* An error or the end of the stream is reported while nothing is wanted: the client is gone. */
	if (connection->watch.wanted == 0) {
		if (ready != 0)
			connection_close(connection);
	} else if (!turn(connection)) {
		connection_close(connection);
	}
	connections_flush(broker);
}

/* Each connection that is in the list now has one turn; those that come in meanwhile have theirs at the next poll. */
void connections_flush(struct broker *broker)
{
	struct list now;

	if (list_empty(&broker->ready))
		return;
	list_init(&now);
	list_insert_before(&broker->ready, &now);
	list_remove(&broker->ready);
	while (!list_empty(&now)) {
		struct connection *connection = container_of(now.next, struct connection, ready_node);

		list_remove(&connection->ready_node);
		if (!turn(connection))
			connection_close(connection);
	}
}

static void connection_idle(struct hf_timer *timer, uint64_t now_ns)
{
	struct connection *connection = container_of(timer, struct connection, idle);

	(void)now_ns;
	connection_close(connection);
}

int connection_open(struct broker *broker, struct hf_io *io, const struct hf_addr *remote, unsigned listener)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	int rc;

	if (connection == NULL) {
		hf_io_close(io);
		return -ENOMEM;
	}
	connection->broker = broker;
	connection->io = io;
	connection->remote = *remote;
	connection->listener = listener;
	connection->watch.ready = connection_ready;
	connection->idle.fire = connection_idle;
	connection->request = (struct request){.broker = broker, .connection = connection};
	codec_arena_init(&connection->request.arena, REQUEST_ARENA_BYTES);
	list_init(&connection->ready_node);
	list_init(&connection->memory_node);
	list_push_back(&broker->connections, &connection->node);
	broker->connection_count++;
	rc = hf_loop_watch(broker->loop, &connection->watch, io, HF_READABLE);
	if (rc != 0) {
		connection_close(connection);
		return rc;
	}
	hf_loop_set_timer(broker->loop, &connection->idle, hf_loop_now_ns(broker->loop) + broker->config.idle_ns);
	return 0;
}

void connection_take_bytes(struct connection *connection, struct connection_bytes *bytes_out)
{
	*bytes_out = (struct connection_bytes){connection->broker, connection->in, connection->in_capacity};
	connection->broker->memory.held += connection->in_capacity;
	connection->in = NULL;
	connection->in_from = connection->in_to = connection->in_capacity = 0;
}

void connection_bytes_free(struct connection_bytes *bytes)
{
	free(bytes->at);
	connection_memory_give_back(&bytes->broker->memory, bytes->bytes);
	*bytes = (struct connection_bytes){0};
}

void connection_close(struct connection *connection)
{
	struct broker *broker = connection->broker;

	if (connection->state == CONNECTION_SERVING && connection->request.cancel != NULL)
		connection->request.cancel(&connection->request);
	request_end(&connection->request);
	hf_loop_cancel_timer(broker->loop, &connection->idle);
	hf_loop_unwatch(&connection->watch);
	hf_io_close(connection->io);
	list_remove(&connection->node);
	list_remove(&connection->ready_node);
	connection_memory_forget(&broker->memory, connection);
	broker->connection_count--;
	codec_arena_free(&connection->request.arena);
	free(connection->in);
	free(connection);
}
