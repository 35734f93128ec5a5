/* Control streams and their handshake: from a stranger to a path of a session. The picture is in peer_table.h. */
#include "net/peer_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"

static struct conn *conn_of(struct framed *framed)
{
	return container_of(framed, struct conn, framed);
}

static bool conn_is_stranger(const struct conn *conn)
{
	return !conn->dialed && (conn->state == CONN_HELLO || conn->state == CONN_READY);
}

/* Leaves the session, if it was a path of one. */
static void conn_detach(struct conn *conn)
{
	struct control_peer *peer = conn->peer;

	if (conn_is_stranger(conn))
		conn->control->strangers--;
	conn->peer = NULL;
	if (peer == NULL || peer->paths[conn->endpoint] != conn)
		return;
	peer->paths[conn->endpoint] = NULL;
	if (conn->state == CONN_PATH)
		control_peer_path_lost(peer, conn->endpoint);
}

void conn_close(struct conn *conn)
{
	if (conn->state == CONN_DEAD)
		return;
	conn_detach(conn);
	conn->state = CONN_DEAD;
	framed_close(&conn->framed);
	control_soon(conn->control);
}

void conn_leave(struct conn *conn)
{
	if (conn->state == CONN_DEAD)
		return;
	conn_detach(conn);
	conn->state = CONN_DEAD;
	conn->framed.muted = true;
	control_later(conn->control);
}

static void conn_part(struct conn *conn)
{
	if (!conn->bye_left && framed_has_room(&conn->framed)) {
		framed_send(&conn->framed, &(struct frame){.type = FRAME_BYE, .ack = conn->bye_ack});
		conn->bye_left = true;
	}
	if (conn->bye_left && framed_is_sent(&conn->framed))
		conn_close(conn);
}

void conn_say_bye(struct conn *conn)
{
	ensure(conn->state == CONN_PATH);
	conn->bye_ack = conn->peer->session.delivered;
	conn->deadline_ns = hf_loop_now_ns(conn->control->loop) + conn->control->dead_ns;
	conn_detach(conn);
	conn->state = CONN_BYE;
	conn_part(conn);
}

void conn_mute(struct conn *conn)
{
	conn_detach(conn);
	conn->state = CONN_MUTED;
	conn->framed.muted = true;
	control_later(conn->control);
}

void conn_free(struct conn *conn)
{
	conn_close(conn);
	framed_close(&conn->framed);
	list_remove(&conn->node);
	free(conn);
}

static void conn_drop(struct conn *conn, const char *reason)
{
	char text[HF_ADDR_TEXT];
	uint64_t suppressed;

	if (log_limit_allows(&conn->control->limit, hf_loop_now_ns(conn->control->loop), &suppressed))
		log_warn("control: the stream of %s is closed: %s (%llu more since the last line)",
			hf_addr_format(&conn->remote, text), reason, (unsigned long long)suppressed);
	conn_close(conn);
}

/* The other node hears why, so that its log says it too. */
static void conn_refuse(struct conn *conn, enum refusal refusal)
{
	uint8_t body[FRAME_REFUSED_BYTES];
	struct frame frame = {.type = FRAME_REFUSED, .body = body, .body_bytes = sizeof(body)};

	put_le32(body, refusal);
	if (framed_has_room(&conn->framed))
		framed_send(&conn->framed, &frame);
	conn_drop(conn, refusal_here(refusal));
}

static void conn_refused(struct conn *conn, const struct frame *frame)
{
	char text[HF_ADDR_TEXT];
	uint64_t suppressed;

	if (log_limit_allows(&conn->control->limit, hf_loop_now_ns(conn->control->loop), &suppressed))
		log_warn("control: the node at %s refuses this node: %s (%llu more since the last line)",
			hf_addr_format(&conn->remote, text), refusal_there(get_le32(frame->body)),
			(unsigned long long)suppressed);
	conn_close(conn);
}

/* A stream that the other end has closed, or a connection that it refuses, may be the death of its process (R-G5). */
static void conn_note_death(struct conn *conn, int error)
{
	struct control_peer *peer = conn->peer;

	if (peer == NULL || peer->paths[conn->endpoint] != conn)
		return;
	if (conn->state == CONN_PATH && (error == 0 || error == -ECONNRESET || error == -EPIPE))
		control_peer_path_closed(peer, conn->endpoint);
	else if (conn->state == CONN_HELLO && error == -ECONNREFUSED)
		control_peer_path_refused(peer, conn->endpoint);
}

static void conn_broken(struct framed *framed, int error, const char *reason)
{
	struct conn *conn = conn_of(framed);
	char text[HF_ADDR_TEXT];

	conn_note_death(conn, error);
	/* A stream that ends is no fault of the other end; garbage is. */
	if (conn_is_stranger(conn) && frame_is_tls(conn->framed.in, conn->framed.in_bytes)) {
		conn_refuse(conn, REFUSAL_TLS);
		return;
	}
	if (conn->framed.in_bytes > 0 || stream_fault(framed->stream) != NULL) {
		conn_drop(conn, reason);
		return;
	}
	log_debug("control: %s: %s", hf_addr_format(&conn->remote, text), reason);
	conn_close(conn);
}

static void conn_room(struct framed *framed)
{
	struct conn *conn = conn_of(framed);

	if (conn->state == CONN_PATH)
		control_peer_pump(conn->peer);
	else if (conn->state == CONN_BYE)
		conn_part(conn);
}

/* The conversation that a stream would join as things are; NULL: a new one. */
static struct control_peer *conn_would_join(const struct conn *conn)
{
	struct control_peer *peer =
		conn->dialed ? conn->peer : control_peer_find(conn->control, conn->handshake.hello.name);

	if (peer == NULL || !peer->known)
		return NULL;
	return conn->dialed || peer->incarnation == conn->handshake.hello.incarnation ? peer : NULL;
}

static void conn_send_hello(struct conn *conn)
{
	const struct control_peer *peer = conn_would_join(conn);
	struct control *control = conn->control;
	struct frame_hello hello = {.incarnation = control->incarnation};
	uint8_t body[FRAME_BODY_MAX];
	struct frame frame = {0};

	memcpy(hello.name, control->name, sizeof(hello.name));
	memcpy(hello.label, control->endpoints[conn->endpoint].label, sizeof(hello.label));
	for (unsigned i = 0; i < control->endpoint_count; i++)
		if (control->endpoints[i].addr.sa.sa_family != AF_UNSPEC)
			hello.endpoints[hello.endpoint_count++] = control->endpoints[i];
	if (peer != NULL) {
		conn->known_as = peer->number;
		conn->mark = session_mark(&peer->session);
		frame.sequence = peer->session.queued;
		frame.ack = peer->session.delivered;
	}
	handshake_say_hello(&conn->handshake, &hello, &frame, body);
	framed_send(&conn->framed, &frame);
}

/* Of two streams for one path, both sides keep the one that the lower name dialed; of two from the same side, the
 * newer, because a side that dials again has lost the older. */
static bool conn_wins(const struct conn *conn, const struct conn *against)
{
	bool we_are_lower = strcmp(conn->control->name, conn->handshake.hello.name) < 0;

	return conn->dialed == against->dialed || conn->dialed == we_are_lower;
}

static bool conn_is_remembered(const struct conn *conn, const struct control_peer *peer, const struct frame *theirs)
{
	return conn->known_as != peer->number || session_is_remembered(conn->mark, theirs->sequence, theirs->ack);
}

static void conn_attach(struct conn *conn, struct control_peer *peer)
{
	struct conn *against = peer->paths[conn->endpoint];

	if (against != NULL && against != conn) {
		if (against->state == CONN_PATH && !conn_wins(conn, against)) {
			conn_close(conn);
			return;
		}
		conn_close(against);
	}
	if (conn_is_stranger(conn))
		conn->control->strangers--;
	conn->peer = peer;
	conn->state = CONN_PATH;
	peer->paths[conn->endpoint] = conn;
	control_peer_path_up(peer, conn->endpoint);
}

static bool conn_labels_match(const struct conn *conn)
{
	return strcmp(conn->handshake.hello.label, conn->control->endpoints[conn->endpoint].label) == 0;
}

/* It speaks for another incarnation, which may have died since: a younger stream will tell. */
static bool conn_may_be_stale(const struct conn *conn, const struct control_peer *peer)
{
	return peer != NULL && peer->incarnation != conn->handshake.hello.incarnation && conn->born < peer->known_at;
}

/* An address of the peer leads to another node. */
static bool conn_is_with_another(const struct conn *conn, const struct control_peer *peer)
{
	return peer->known && strcmp(peer->name, conn->handshake.hello.name) != 0;
}

/* This side dialed, and that peer answered. */
static void conn_answered(struct conn *conn, const struct frame *hello)
{
	struct control_peer *peer = conn->peer, *other = control_peer_find(conn->control, conn->handshake.hello.name);
	uint8_t proof[FRAME_PROOF_BYTES];
	struct frame ready = {0};

	if (peer == NULL || conn_may_be_stale(conn, other)) {
		conn_close(conn);
		return;
	}
	if (other != NULL && other->incarnation != conn->handshake.hello.incarnation) {
		log_info("control: peer %s restarted; its old vqps end", conn->handshake.hello.name);
		control_peer_over(other);
		if (other == peer)
			return;
	} else if (other != NULL && other == peer && !conn_is_remembered(conn, peer, hello)) {
		log_info("control: peer %s has dropped this connection; the peer is down until it connects again",
			peer->name);
		control_peer_gone(peer);
		return;
	} else if (other != NULL && other != peer && !conn_is_with_another(conn, peer)) {
		log_warn("control: peer %s is connected already; the second connection is dropped", other->name);
		control_peer_gone(peer);
		return;
	}
	if (conn_is_with_another(conn, peer)) {
		conn_drop(conn, "another node answers at an address of the peer");
		return;
	}
	control_peer_know(peer, &conn->handshake.hello);
	if (!conn_labels_match(conn)) {
		conn_close(conn); /* it told where to connect to; the paths are dialed now */
		return;
	}
	ready.sequence = peer->session.queued;
	ready.ack = peer->session.delivered;
	handshake_say_ready(&conn->handshake, &ready, proof);
	framed_send(&conn->framed, &ready);
	conn_attach(conn, peer);
}

static struct control_peer *find_who_dials_it(struct control *control, const struct frame_hello *hello)
{
	list_for_each (at, &control->peers) {
		struct control_peer *peer = container_of(at, struct control_peer, node);

		for (unsigned i = 0; !peer->known && !peer->gone && i < peer->bootstrap_count; i++)
			for (unsigned k = 0; k < hello->endpoint_count; k++)
				if (hf_addr_equal(&peer->bootstrap[i], &hello->endpoints[k].addr))
					return peer;
	}
	return NULL;
}

/* The stream was accepted, and its dialer is alive. */
static void conn_introduced(struct conn *conn, const struct frame *ready)
{
	struct control *control = conn->control;
	struct control_peer *peer = control_peer_find(control, conn->handshake.hello.name);

	if (!conn_labels_match(conn)) {
		conn_drop(conn, "it connects two rails of different names; check the rails of both nodes");
		return;
	}
	if (conn_may_be_stale(conn, peer)) {
		conn_close(conn);
		return;
	}
	if (peer != NULL && peer->incarnation != conn->handshake.hello.incarnation) {
		log_info("control: peer %s restarted; its old vqps end", peer->name);
		control_peer_over(peer);
		peer = NULL;
	} else if (peer != NULL && !conn_is_remembered(conn, peer, ready)) {
		log_info("control: peer %s has dropped this connection; the peer is down until it connects again",
			peer->name);
		control_peer_gone(peer);
		peer = NULL;
	} else if (conn->known_as != 0 && (peer == NULL || peer->number != conn->known_as)) {
		conn_close(conn); /* it means one that is gone, and will dial its successor */
		return;
	}
	if (peer == NULL)
		peer = find_who_dials_it(control, &conn->handshake.hello);
	if (peer == NULL)
		peer = control_peer_create(control, NULL);
	if (peer == NULL) {
		conn_drop(conn, "no memory for another peer");
		return;
	}
	control_peer_know(peer, &conn->handshake.hello);
	conn_attach(conn, peer);
}

static void conn_hello(struct conn *conn, const struct frame *frame)
{
	const char *fault;
	enum refusal refusal = handshake_hear_hello(&conn->handshake, conn->control->name, frame, &fault);

	if (fault != NULL) {
		conn_drop(conn, fault);
	} else if (refusal != REFUSAL_NONE) {
		conn_refuse(conn, refusal);
	} else if (conn->dialed) {
		conn_answered(conn, frame);
	} else {
		conn->state = CONN_READY;
		conn_send_hello(conn);
	}
}

static void conn_ready(struct conn *conn, const struct frame *frame)
{
	enum refusal refusal;

	if (frame->type != FRAME_READY) {
		conn_drop(conn, "that node did not send READY after HELLO");
		return;
	}
	refusal = handshake_hear_ready(&conn->handshake, frame);
	if (refusal != REFUSAL_NONE)
		conn_refuse(conn, refusal);
	else
		conn_introduced(conn, frame);
}

static void conn_frame(struct framed *framed, const struct frame *frame)
{
	struct conn *conn = conn_of(framed);

	if (frame->type == FRAME_REFUSED) {
		conn_refused(conn, frame);
		return;
	}
	switch (conn->state) {
	case CONN_HELLO:
		conn_hello(conn, frame);
		break;
	case CONN_READY:
		conn_ready(conn, frame);
		break;
	case CONN_PATH:
		if (frame->type == FRAME_HELLO || frame->type == FRAME_READY)
			conn_drop(conn, "that node sent HELLO or READY twice");
		else
			control_peer_heard(conn->peer, conn, frame);
		break;
	case CONN_BYE:
	case CONN_MUTED:
	case CONN_DEAD:
		break;
	}
}

/* Takes over `io`, also when it fails. */
static int open_stream(struct control *control, struct hf_io *io, bool dialed, struct stream **stream_out)
{
	int rc = stream_plain(io, stream_out);

	return rc != 0 || control->tls == NULL ? rc : tls_stream(control->tls, *stream_out, dialed, stream_out);
}

/* Takes over `io`, also when it fails. */
static struct conn *conn_create(
	struct control *control, unsigned endpoint, struct hf_io *io, const struct hf_addr *remote, bool dialed)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	uint8_t nonce[FRAME_NONCE_BYTES];
	struct stream *stream;

	if (conn == NULL) {
		hf_io_close(io);
		return NULL;
	}
	hf_env_entropy(control->env, nonce, sizeof(nonce));
	handshake_init(&conn->handshake, &control->secret, dialed, control_admits(control, remote), nonce);
	conn->dialed = dialed;
	conn->control = control;
	conn->endpoint = endpoint;
	conn->remote = *remote;
	conn->state = CONN_HELLO;
	conn->born = ++control->moments;
	conn->deadline_ns = hf_loop_now_ns(control->loop) + HANDSHAKE_NS;
	conn->framed.frame = conn_frame;
	conn->framed.room = conn_room;
	conn->framed.broken = conn_broken;
	if (open_stream(control, io, dialed, &stream) != 0 || framed_open(&conn->framed, control->loop, stream) != 0) {
		free(conn);
		return NULL;
	}
	list_push_back(&control->conns, &conn->node);
	return conn;
}

static bool same_host(const struct hf_addr *a, const struct hf_addr *b)
{
	struct hf_addr first = *a, second = *b;

	hf_addr_set_port(&first, 0);
	hf_addr_set_port(&second, 0);
	return hf_addr_equal(&first, &second);
}

static unsigned strangers_of(const struct control *control, const struct hf_addr *remote)
{
	unsigned n = 0;

	list_for_each (at, &control->conns) {
		const struct conn *conn = container_of(at, struct conn, node);

		n += conn_is_stranger(conn) && same_host(&conn->remote, remote);
	}
	return n;
}

/* The oldest of the host that has most: conns stand in the order in which they came. */
static void close_a_stranger(struct control *control)
{
	struct conn *chosen = NULL;
	unsigned most = 0;

	list_for_each (at, &control->conns) {
		struct conn *conn = container_of(at, struct conn, node);
		unsigned n = conn_is_stranger(conn) ? strangers_of(control, &conn->remote) : 0;

		if (n > most) {
			most = n;
			chosen = conn;
		}
	}
	ensure(chosen != NULL);
	conn_drop(chosen, "too many connections are in their handshake");
}

int conn_accept(struct control *control, unsigned endpoint, struct hf_io *io, const struct hf_addr *remote)
{
	struct conn *conn;

	if (control->strangers >= STRANGERS_MAX)
		close_a_stranger(control);
	conn = conn_create(control, endpoint, io, remote, false);
	if (conn == NULL)
		return -ENOMEM;
	control->strangers++;
	return 0;
}

int conn_dial(struct control_peer *peer, unsigned endpoint, const struct hf_addr *remote, bool asks)
{
	struct control *control = peer->control;
	struct hf_addr local = control->endpoints[endpoint].addr;
	struct hf_io *io;
	struct conn *conn;
	int rc;

	if (!control_admits(control, remote))
		return -EACCES;
	hf_addr_set_port(&local, 0);
	rc = hf_stream_connect(control->env, &local, remote, &io, NULL);
	if (rc != 0)
		return rc;
	conn = conn_create(control, endpoint, io, remote, true);
	if (conn == NULL)
		return -ENOMEM;
	conn->peer = peer;
	if (!asks)
		peer->paths[endpoint] = conn;
	conn_send_hello(conn);
	return 0;
}
