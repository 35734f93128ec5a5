/* Peers and their sessions over time: dialing, ticking, queueing, dying. Streams are conn.c's. */
#include "net/peer_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

struct control_peer *control_peer_find(struct control *control, const char *name)
{
	list_for_each (at, &control->peers) {
		struct control_peer *peer = container_of(at, struct control_peer, node);

		if (peer->known && !peer->gone && strcmp(peer->name, name) == 0)
			return peer;
	}
	return NULL;
}

struct control_peer *control_peer_create(struct control *control, void *context)
{
	struct control_peer *peer = calloc(1, sizeof(*peer));

	if (peer == NULL)
		return NULL;
	peer->control = control;
	peer->context = context;
	peer->number = ++control->peers_made;
	list_init(&peer->outgoing);
	list_push_back(&control->peers, &peer->node);
	return peer;
}

/* The first answer: from here on the peer is this incarnation, until it is gone. */
void control_peer_know(struct control_peer *peer, const struct frame_hello *hello)
{
	struct control *control = peer->control;

	peer->remote_count = hello->endpoint_count;
	memcpy(peer->remote, hello->endpoints, sizeof(peer->remote));
	control_soon(control);
	if (peer->known)
		return;
	peer->known = true;
	memcpy(peer->name, hello->name, sizeof(peer->name));
	peer->incarnation = hello->incarnation;
	peer->known_at = ++control->moments;
	session_init(&peer->session, control->heartbeat_ns, control->misses, control->dead_ns,
		hf_loop_now_ns(control->loop));
	peer->session.gaps_ns = hf_loop_gaps_ns(control->loop);
}

void control_peer_gone(struct control_peer *peer)
{
	peer->gone = true;
	for (unsigned i = 0; i < FRAME_ENDPOINTS_MAX; i++)
		if (peer->paths[i] != NULL)
			conn_close(peer->paths[i]);
	control_soon(peer->control);
}

void control_peer_over(struct control_peer *peer)
{
	peer->ended = true;
	control_peer_gone(peer);
}

void control_peer_path_up(struct control_peer *peer, unsigned endpoint)
{
	struct control *control = peer->control;

	session_path_up(&peer->session, endpoint, hf_loop_now_ns(control->loop));
	peer->dial[endpoint].wait_ns = 0;
	peer->died = false;
	log_debug("control: peer %s: path %s is up", peer->name, control->endpoints[endpoint].label);
	if (!peer->told) {
		peer->told = true;
		control->events.up(peer, control->context);
	}
	control->events.path(peer, endpoint, true, control->context);
	control_peer_pump(peer);
	control_soon(control);
}

void control_peer_path_lost(struct control_peer *peer, unsigned endpoint)
{
	struct control *control = peer->control;

	session_path_lost(&peer->session, endpoint, hf_loop_now_ns(control->loop));
	log_debug("control: peer %s: path %s is down", peer->name, control->endpoints[endpoint].label);
	if (peer->gone)
		return;
	control->events.path(peer, endpoint, false, control->context);
	control_peer_pump(peer);
	control_later(control);
}

void control_peer_path_closed(struct control_peer *peer, unsigned endpoint)
{
	session_path_closed(&peer->session, endpoint, hf_loop_now_ns(peer->control->loop));
}

void control_peer_path_refused(struct control_peer *peer, unsigned endpoint)
{
	struct control *control = peer->control;

	session_path_refused(&peer->session, endpoint);
	if (peer->gone || peer->died || !session_has_died(&peer->session))
		return;
	peer->died = true;
	log_warn("control: the process of peer %s has ended: it closed its connections and accepts none; restart it",
		peer->name);
	if (control->events.died != NULL)
		control->events.died(peer, control->context);
}

static void peer_forget_acknowledged(struct control_peer *peer)
{
	list_for_each_safe (at, &peer->outgoing) {
		struct outgoing *out = container_of(at, struct outgoing, node);

		if (out->sequence > peer->session.acked)
			return;
		if (peer->left_last == out)
			peer->left_last = NULL;
		list_remove(at);
		free(out);
	}
}

void control_peer_heard(struct control_peer *peer, struct conn *conn, const struct frame *frame)
{
	struct control *control = peer->control;
	enum session_outcome outcome = session_heard(
		&peer->session, conn->endpoint, frame->sequence, frame->ack, hf_loop_now_ns(control->loop));

	if (outcome == SESSION_VIOLATION) {
		log_warn("control: peer %s: messages are missing; the stream is closed", peer->name);
		conn_close(conn);
		return;
	}
	if (frame->type == FRAME_BYE) {
		log_debug("control: peer %s closes the connection", peer->name);
		control_peer_over(peer);
		return;
	}
	peer_forget_acknowledged(peer);
	if (outcome == SESSION_DELIVER && !peer->gone)
		control->events.message(peer, frame->body, frame->body_bytes, control->context);
}

/* What leaves next follows what left last, or is the oldest: after a change of paths, or when all that left is
 * acknowledged. Thousands may be waiting for their acknowledgement then, so none is searched for. */
static const struct outgoing *outgoing_next(const struct control_peer *peer)
{
	const struct session *session = &peer->session;
	const struct outgoing *last = peer->left_last;
	struct list *at = session->sent == session->acked ? peer->outgoing.next : NULL;

	if (at == NULL && last != NULL && last->sequence == session->sent)
		at = last->node.next;
	ensure(at != NULL && at != &peer->outgoing);
	return container_of(at, struct outgoing, node);
}

void control_peer_pump(struct control_peer *peer)
{
	struct session *session = &peer->session;
	uint64_t sequence;

	while (!peer->gone && (sequence = session_next(session)) != 0) {
		struct conn *conn = peer->paths[session->active];
		const struct outgoing *out = outgoing_next(peer);
		struct frame frame = {.type = FRAME_MESSAGE, .sequence = sequence, .ack = session->delivered};

		ensure(conn != NULL && conn->state == CONN_PATH && out->sequence == sequence);
		if (!framed_has_room(&conn->framed))
			return;
		frame.body = out->data;
		frame.body_bytes = out->bytes;
		session_sent(session);
		peer->left_last = out;
		framed_send(&conn->framed, &frame);
	}
}

/* Nothing is left out of what a peer is told: it would wait for it for ever, or believe something else. */
static int give_up(struct control_peer *peer, const char *why)
{
	log_error("control: peer %s is down until it connects again: %s", peer->name, why);
	control_peer_gone(peer);
	return -ENOTCONN;
}

void control_peer_fail(struct control_peer *peer, const char *why)
{
	(void)give_up(peer, why);
}

int control_send(struct control_peer *peer, const void *data, uint32_t bytes)
{
	struct outgoing *out;
	uint64_t sequence;

	ensure(bytes > 0 && bytes <= CONTROL_MESSAGE_MAX);
	if (!peer->known || peer->gone)
		return -ENOTCONN;
	if (peer->twin != NULL)
		return loopback_send(peer, data, bytes) == 0 ? 0 : give_up(peer, "no memory for a message to it");
	sequence = session_queue(&peer->session);
	if (sequence == 0)
		return give_up(peer, "too many messages to it are unacknowledged");
	out = malloc(sizeof(*out) + bytes);
	if (out == NULL)
		return give_up(peer, "no memory for a message to it");
	out->sequence = sequence;
	out->bytes = bytes;
	memcpy(out->data, data, bytes);
	list_push_back(&peer->outgoing, &out->node);
	control_peer_pump(peer);
	return 0;
}

void control_hear(struct control_peer *peer)
{
	int active = peer->session.active;

	if (peer->twin != NULL) {
		loopback_hear(peer);
		return;
	}
	if (peer->known && !peer->gone && active != SESSION_PATH_NONE && peer->paths[active] != NULL)
		framed_receive(&peer->paths[active]->framed);
}

static void peer_free(struct control_peer *peer)
{
	struct list *at;

	list_for_each (node, &peer->control->conns) {
		struct conn *conn = container_of(node, struct conn, node);

		if (conn->peer == peer)
			conn_close(conn);
	}
	while ((at = list_pop_front(&peer->outgoing)) != NULL)
		free(container_of(at, struct outgoing, node));
	list_remove(&peer->node);
	free(peer);
}

static void peer_say_bye(struct control_peer *peer)
{
	for (unsigned i = 0; i < FRAME_ENDPOINTS_MAX; i++)
		if (peer->paths[i] != NULL && peer->paths[i]->state == CONN_PATH)
			conn_say_bye(peer->paths[i]);
}

static void end_twin(struct control_peer *peer)
{
	if (peer->twin == NULL)
		return;
	control_peer_over(peer->twin);
	peer->twin->twin = NULL;
}

void control_peer_close(struct control_peer *peer)
{
	if (peer == NULL)
		return;
	peer->gone = true;
	peer_say_bye(peer);
	end_twin(peer);
	peer_free(peer);
}

/* ---- dialing ---- */

static const struct hf_addr *remote_of(const struct control_peer *peer, const char *label)
{
	for (unsigned i = 0; i < peer->remote_count; i++)
		if (strcmp(peer->remote[i].label, label) == 0 && hf_addr_port(&peer->remote[i].addr) != 0)
			return &peer->remote[i].addr;
	return NULL;
}

static bool endpoint_dials(const struct control *control, unsigned i)
{
	return control->endpoints[i].addr.sa.sa_family != AF_UNSPEC && control->listeners[i].enabled;
}

static void dial_pause(struct dial_pause *pause, uint64_t now_ns)
{
	pause->wait_ns = pause->wait_ns == 0 ? DIAL_MIN_NS : pause->wait_ns * 2;
	if (pause->wait_ns > DIAL_MAX_NS)
		pause->wait_ns = DIAL_MAX_NS;
	pause->until_ns = now_ns + pause->wait_ns;
}

/* No answer yet: dials each address in turn, from each endpoint in turn. */
static void peer_ask(struct control_peer *peer, uint64_t now_ns)
{
	struct control *control = peer->control;

	if (now_ns < peer->ask.until_ns)
		return;
	for (unsigned i = 0; i < peer->bootstrap_count; i++) {
		unsigned endpoint = (i + peer->bootstrap_turn) % control->endpoint_count;

		if (endpoint_dials(control, endpoint))
			(void)conn_dial(peer, endpoint, &peer->bootstrap[i], true);
	}
	peer->bootstrap_turn++;
	dial_pause(&peer->ask, now_ns);
}

static void peer_dial(struct control_peer *peer, unsigned i, uint64_t now_ns)
{
	struct control *control = peer->control;
	const struct hf_addr *remote = remote_of(peer, control->endpoints[i].label);

	if (peer->paths[i] != NULL || remote == NULL || !endpoint_dials(control, i) || now_ns < peer->dial[i].until_ns)
		return;
	(void)conn_dial(peer, i, remote, false);
	dial_pause(&peer->dial[i], now_ns);
}

/* ---- time ---- */

static void twin_tick(struct control_peer *peer, uint64_t now_ns, uint64_t *due_ns)
{
	loopback_hear(peer);
	if (!list_empty(&peer->outgoing) || !list_empty(&peer->twin->outgoing))
		*due_ns = now_ns;
}

static void peer_tick(struct control_peer *peer, uint64_t now_ns, uint64_t *due_ns)
{
	struct frame heartbeat = {.type = FRAME_HEARTBEAT};
	struct session_actions actions;

	if (peer->dials && !peer->known)
		peer_ask(peer, now_ns);
	if (!peer->known)
		return;
	for (unsigned i = 0; i < peer->control->endpoint_count; i++)
		if (peer->dials || session_probes(&peer->session, i))
			peer_dial(peer, i, now_ns);
	session_tick(&peer->session, now_ns, hf_loop_gaps_ns(peer->control->loop), &actions);
	heartbeat.ack = peer->session.delivered;
	for (unsigned i = 0; i < SESSION_PATHS_MAX; i++) {
		struct conn *conn = peer->paths[i];

		if ((actions.lost & 1u << i) != 0 && conn != NULL)
			conn_close(conn);
		else if ((actions.heartbeat & 1u << i) != 0 && conn != NULL && framed_has_room(&conn->framed))
			framed_send(&conn->framed, &heartbeat);
	}
	if (actions.dead) {
		log_warn("control: peer %s is down: no control path for %llu ms", peer->name,
			(unsigned long long)(peer->control->dead_ns / 1000000));
		control_peer_gone(peer);
	}
	if (actions.due_ns < *due_ns)
		*due_ns = actions.due_ns;
}

/* While we had no core, what an introduction waits for may have come: that time does not count against it. */
static void control_reap(struct control *control, uint64_t late_ns, uint64_t now_ns)
{
	list_for_each_safe (at, &control->conns) {
		struct conn *conn = container_of(at, struct conn, node);

		conn->deadline_ns += late_ns;
		if ((conn->state == CONN_HELLO || conn->state == CONN_READY || conn->state == CONN_BYE) &&
			now_ns >= conn->deadline_ns)
			conn_close(conn);
		if (conn->state == CONN_MUTED)
			framed_mute(&conn->framed);
		if (conn->state == CONN_DEAD)
			conn_free(conn);
	}
}

static void control_listen(struct control *control)
{
	for (unsigned i = 0; i < control->endpoint_count; i++) {
		struct listener *listener = &control->listeners[i];

		if (listener->io != NULL)
			(void)hf_loop_watch(
				control->loop, &listener->watch, listener->io, listener->enabled ? HF_READABLE : 0);
	}
}

static struct control_peer *find_gone(struct control *control)
{
	list_for_each (at, &control->peers)
		if (container_of(at, struct control_peer, node)->gone)
			return container_of(at, struct control_peer, node);
	return NULL;
}

/* `down` may connect to others and close others, so the list is read from its start after each. */
static void control_bury(struct control *control)
{
	struct control_peer *peer;

	while ((peer = find_gone(control)) != NULL) {
		control->events.down(peer, control->context);
		end_twin(peer);
		peer_free(peer);
	}
}

static void control_fire(struct hf_timer *timer, uint64_t now_ns)
{
	struct control *control = container_of(timer, struct control, timer);
	uint64_t late_ns = now_ns - timer->due_ns;
	uint64_t due_ns = now_ns + (control->heartbeat_ns < DIAL_MIN_NS ? control->heartbeat_ns : DIAL_MIN_NS);

	/* With every peer's paths up, heartbeats alone set the pace. */
	list_for_each (at, &control->peers) {
		struct control_peer *peer = container_of(at, struct control_peer, node);

		if (peer->twin != NULL)
			twin_tick(peer, now_ns, &due_ns);
		else
			peer_tick(peer, now_ns, &due_ns);
	}
	control_bury(control);
	control_reap(control, late_ns, now_ns);
	control_listen(control);
	hf_loop_set_timer(control->loop, timer, due_ns);
}

void control_soon(struct control *control)
{
	hf_loop_set_timer(control->loop, &control->timer, hf_loop_now_ns(control->loop));
}

void control_later(struct control *control)
{
	uint64_t due_ns = hf_loop_now_ns(control->loop) + LATER_NS;

	if (control->timer.heap_slot == 0 || control->timer.due_ns > due_ns)
		hf_loop_set_timer(control->loop, &control->timer, due_ns);
}

/* Whether a stream to or from there can become a path. */
bool control_admits(const struct control *control, const struct hf_addr *remote)
{
	return control->secret.bytes != 0 || control->tls != NULL || hf_addr_is_local(control->env, remote);
}

/* ---- listening ---- */

static void listener_ready(struct hf_watch *watch, unsigned ready)
{
	struct listener *listener = container_of(watch, struct listener, watch);
	struct control *control = listener->control;
	struct hf_addr remote;
	struct hf_io *io;

	(void)ready;
	if (listener->enabled && hf_stream_accept(listener->io, &io, &remote) == 0)
		(void)conn_accept(control, (unsigned)(listener - control->listeners), io, &remote);
}

static int listener_open(struct control *control, unsigned i, struct hf_error *error)
{
	struct listener *listener = &control->listeners[i];
	const struct hf_addr *addr = &control->endpoints[i].addr;
	int rc;

	listener->control = control;
	listener->enabled = true;
	listener->watch.ready = listener_ready;
	if (addr->sa.sa_family == AF_UNSPEC || hf_addr_port(addr) == 0)
		return 0;
	rc = hf_stream_listen(control->env, addr, &listener->io, error);
	if (rc != 0)
		return rc;
	rc = hf_loop_watch(control->loop, &listener->watch, listener->io, HF_READABLE);
	return rc == 0 ? 0 : hf_error_set(error, rc, "control: cannot watch a listener: %s", strerror(-rc));
}

void control_enable(struct control *control, unsigned endpoint, bool enabled)
{
	struct listener *listener = &control->listeners[endpoint];

	if (listener->enabled == enabled)
		return;
	listener->enabled = enabled;
	list_for_each (at, &control->conns) {
		struct conn *conn = container_of(at, struct conn, node);

		if (conn->endpoint != endpoint || conn->state == CONN_DEAD)
			continue;
		if (enabled)
			conn_close(conn);
		else
			conn_mute(conn);
	}
	list_for_each (at, &control->peers) {
		struct control_peer *peer = container_of(at, struct control_peer, node);

		peer->ask = peer->dial[endpoint] = (struct dial_pause){0};
	}
	if (enabled)
		control_soon(control);
	else
		control_later(control);
}

int control_open(struct hf_loop *loop, const struct control_config *config, const struct control_events *events,
	void *context, struct control **control_out, struct hf_error *error)
{
	struct control *control = calloc(1, sizeof(*control));
	int rc = 0;

	if (control == NULL) {
		tls_free(config->tls);
		return hf_error_set(error, -ENOMEM, "no memory for the control channel");
	}
	control->tls = config->tls;
	ensure(config->endpoint_count > 0 && config->endpoint_count <= FRAME_ENDPOINTS_MAX);
	control->loop = loop;
	control->env = hf_loop_env(loop);
	control->events = *events;
	control->context = context;
	control->incarnation = config->incarnation;
	control->heartbeat_ns = config->heartbeat_ns;
	control->misses = config->misses;
	control->dead_ns = config->dead_ns;
	control->endpoint_count = config->endpoint_count;
	if (config->secret != NULL)
		control->secret = *config->secret;
	memcpy(control->name, config->name, strnlen(config->name, sizeof(control->name) - 1));
	memcpy(control->endpoints, config->endpoints, config->endpoint_count * sizeof(*config->endpoints));
	list_init(&control->peers);
	list_init(&control->conns);
	control->timer.fire = control_fire;
	for (unsigned i = 0; rc == 0 && i < control->endpoint_count; i++)
		rc = listener_open(control, i, error);
	if (rc != 0) {
		control_close(control);
		return rc;
	}
	control_soon(control);
	*control_out = control;
	return 0;
}

void control_close(struct control *control)
{
	if (control == NULL)
		return;
	while (!list_empty(&control->peers))
		control_peer_close(container_of(control->peers.next, struct control_peer, node));
	while (!list_empty(&control->conns))
		conn_free(container_of(control->conns.next, struct conn, node));
	for (unsigned i = 0; i < control->endpoint_count; i++) {
		if (control->listeners[i].io == NULL)
			continue;
		hf_loop_unwatch(&control->listeners[i].watch);
		hf_io_close(control->listeners[i].io);
	}
	hf_loop_cancel_timer(control->loop, &control->timer);
	secret_forget(&control->secret);
	tls_free(control->tls);
	free(control);
}

int control_connect(struct control *control, const struct hf_addr *addresses, unsigned n, void *context,
	struct control_peer **peer_out)
{
	struct control_peer *peer;
	bool admitted = false;

	if (n == 0 || n > BOOTSTRAP_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < n && !admitted; i++)
		admitted = control_admits(control, &addresses[i]);
	if (!admitted)
		return -EACCES;
	peer = control_peer_create(control, context);
	if (peer == NULL)
		return -ENOMEM;
	peer->dials = true;
	peer->bootstrap_count = n;
	memcpy(peer->bootstrap, addresses, n * sizeof(*addresses));
	control_soon(control);
	*peer_out = peer;
	return 0;
}

static bool lives_at(const struct control_peer *peer, const struct hf_addr *address)
{
	for (unsigned i = 0; i < peer->remote_count; i++)
		if (hf_addr_equal(&peer->remote[i].addr, address))
			return true;
	for (unsigned i = 0; !peer->known && i < peer->bootstrap_count; i++)
		if (hf_addr_equal(&peer->bootstrap[i], address))
			return true;
	return false;
}

struct control_peer *control_find(struct control *control, const struct hf_addr *address)
{
	list_for_each (at, &control->peers) {
		struct control_peer *peer = container_of(at, struct control_peer, node);

		if (!peer->gone && lives_at(peer, address))
			return peer;
	}
	return NULL;
}

unsigned control_peer_addresses(const struct control_peer *peer, struct hf_addr addresses_out[FRAME_ENDPOINTS_MAX])
{
	unsigned n = 0;

	_Static_assert(BOOTSTRAP_MAX <= FRAME_ENDPOINTS_MAX, "what was dialed fits in as well");
	for (unsigned i = 0; peer->known && i < peer->remote_count; i++)
		if (hf_addr_port(&peer->remote[i].addr) != 0)
			addresses_out[n++] = peer->remote[i].addr;
	for (unsigned i = 0; !peer->known && i < peer->bootstrap_count; i++)
		addresses_out[n++] = peer->bootstrap[i];
	return n;
}

bool control_peer_died(const struct control_peer *peer)
{
	return peer->died;
}

bool control_peer_ended(const struct control_peer *peer)
{
	return peer->ended;
}

const char *control_peer_name(const struct control_peer *peer)
{
	return peer->name;
}

uint64_t control_peer_incarnation(const struct control_peer *peer)
{
	return peer->incarnation;
}

bool control_path_up(const struct control_peer *peer, unsigned endpoint)
{
	return peer->known && peer->session.paths[endpoint].up;
}

int control_path_used(const struct control_peer *peer)
{
	return peer->known ? peer->session.active : SESSION_PATH_NONE;
}

void control_peer_set_context(struct control_peer *peer, void *context)
{
	peer->context = context;
}

void *control_peer_context(const struct control_peer *peer)
{
	return peer->context;
}

void control_path_suspect(struct control_peer *peer, unsigned endpoint)
{
	bool another = false;

	for (unsigned i = 0; peer->known && i < SESSION_PATHS_MAX; i++)
		another = another || (i != endpoint && peer->session.paths[i].up);
	if (another && peer->paths[endpoint] != NULL && peer->paths[endpoint]->state == CONN_PATH)
		conn_leave(peer->paths[endpoint]);
}
