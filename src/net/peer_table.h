/* peer_table.h - shared by control.c (peers, sessions, time) and conn.c (streams and their handshake).
 *
 *   dialer                listener
 *     | HELLO ---------------> |      the stream is unauthenticated
 *     | <--------------- HELLO |      the dialer has identified the listener (handshake.h)
 *     | READY ---------------> |      both are identified; the stream becomes a path of the session
 *
 * An unauthenticated stream has HANDSHAKE_NS and one of STRANGERS_MAX places. When all are taken, the oldest stream of
 * the address with the most is closed: a host that opens streams endlessly takes places from itself only.
 *
 * Without READY a HELLO proves nothing: a HELLO that a dead process left in a socket must not replace its successor.
 * The reply to a HELLO, or READY, proves that its sender lived when the stream was opened. So another incarnation than
 * the known one is a successor if the stream is younger than the known one, and may be a dead one on an older stream.
 *
 * BYE waits for a full socket, for dead_ns at most: the other side has given the peer up by then.
 *
 * A side that was cut off for long, or whose BYE was lost, may have dropped a peer that still has it. So each side
 * sends the position of its session in the handshake, and compares it with its own position at its HELLO. */
#ifndef HOLDFAST_NET_PEER_TABLE_H
#define HOLDFAST_NET_PEER_TABLE_H

#include "base/list.h"
#include "base/log.h"
#include "net/control.h"
#include "net/handshake.h"
#include "net/session.h"
#include "net/framed.h"

#define HANDSHAKE_NS  1000000000ull /* a stream that has not become a path after this time is closed */
#define DIAL_MIN_NS   20000000ull
#define DIAL_MAX_NS   1000000000ull
#define STRANGERS_MAX 64u /* accepted streams in their handshake */
#define BOOTSTRAP_MAX 16u
#define LATER_NS      1000000ull

enum conn_state {
	CONN_HELLO, /* waiting for the other side's HELLO */
	CONN_READY, /* accepted, HELLO answered, waiting for READY */
	CONN_PATH,  /* a path of its peer's session */
	CONN_BYE,   /* its peer was closed: it takes BYE when the socket has room, and is closed */
	CONN_MUTED, /* its endpoint went down under it: neither read nor closed, so that it looks cut */
	CONN_DEAD,  /* closed; freed at the next turn */
};

struct conn {
	struct framed framed;
	struct list node; /* of the control's conns */
	struct control *control;
	struct control_peer *peer; /* the peer it was dialed for, or belongs to */
	unsigned endpoint;         /* ours */
	bool dialed;
	enum conn_state state;
	uint64_t deadline_ns;
	uint64_t born; /* by control->moments */
	struct hf_addr remote;
	struct handshake handshake;
	uint64_t known_as;        /* the peer, when we sent HELLO: its number; 0: there was none yet */
	struct session_mark mark; /* and where the conversation with it stood */
	bool bye_left;            /* in CONN_BYE: it is among what the stream has to send */
	uint64_t bye_ack;
};

struct outgoing { /* a message until it is acknowledged */
	struct list node;
	uint64_t sequence;
	uint32_t bytes;
	uint8_t data[];
};

/* Between one try to dial and the next: doubles from DIAL_MIN_NS to DIAL_MAX_NS. */
struct dial_pause {
	uint64_t until_ns, wait_ns;
};

struct control_peer {
	struct list node;
	struct control *control;
	void *context;
	bool known; /* the peer answered: name, incarnation and session are set */
	bool told;  /* `up` was called */
	bool gone;  /* `down` is due at the next turn */
	bool ended; /* control_peer_ended */
	bool died;  /* control_peer_died */
	bool dials;
	struct control_peer *twin; /* the other end of a loopback; NULL: it is another node */
	char name[FRAME_NAME_BYTES];
	uint64_t incarnation;
	uint64_t number;   /* no other peer of this control has it, before or after */
	uint64_t known_at; /* by control->moments */
	struct session session;
	struct list outgoing;
	const struct outgoing *left_last; /* on the path in use, or before; NULL: acknowledged meanwhile */
	struct hf_addr bootstrap[BOOTSTRAP_MAX];
	unsigned bootstrap_count, bootstrap_turn;
	unsigned remote_count;
	struct frame_endpoint remote[FRAME_ENDPOINTS_MAX];
	struct conn *paths[FRAME_ENDPOINTS_MAX];          /* by our endpoint: dialing or up */
	struct dial_pause ask, dial[FRAME_ENDPOINTS_MAX]; /* without an answer; by our endpoint */
};

struct listener {
	struct hf_watch watch;
	struct control *control;
	struct hf_io *io; /* NULL: this endpoint only dials */
	bool enabled;
};

struct control {
	struct hf_loop *loop;
	struct hf_env *env;
	struct control_events events;
	void *context;
	char name[FRAME_NAME_BYTES];
	uint64_t incarnation, heartbeat_ns, dead_ns;
	unsigned misses;
	unsigned endpoint_count;
	struct frame_endpoint endpoints[FRAME_ENDPOINTS_MAX];
	struct listener listeners[FRAME_ENDPOINTS_MAX];
	struct secret secret;
	struct tls *tls; /* NULL: streams are plain */
	struct list peers, conns;
	uint64_t peers_made;
	uint64_t moments; /* counts streams and peers, in the order in which they came */
	unsigned strangers;
	struct hf_timer timer;
	struct log_limit limit;
};

/* conn.c */
int conn_accept(struct control *control, unsigned endpoint, struct hf_io *io, const struct hf_addr *remote);
/* Starts a stream to `remote`; it is in peer->paths[endpoint] unless it only identifies the node there. -EACCES: there
 * is no secret, and `remote` is not on this host. */
int conn_dial(struct control_peer *peer, unsigned endpoint, const struct hf_addr *remote, bool asks);
void conn_close(struct conn *conn);
/* The peer is being closed, and its end of the path with it: the other end is notified. */
void conn_say_bye(struct conn *conn);
void conn_leave(struct conn *conn); /* as conn_close, but the stream is closed later */
void conn_mute(struct conn *conn);
void conn_free(struct conn *conn);

/* loopback.c */
int loopback_send(struct control_peer *peer, const void *data, uint32_t bytes);
void loopback_hear(struct control_peer *peer); /* delivers what the twin has sent so far */

/* control.c */
bool control_admits(const struct control *control, const struct hf_addr *remote);
struct control_peer *control_peer_find(struct control *control, const char *name);
struct control_peer *control_peer_create(struct control *control, void *context);
void control_peer_know(struct control_peer *peer, const struct frame_hello *hello);
void control_peer_gone(struct control_peer *peer);
void control_peer_over(struct control_peer *peer); /* the same, and control_peer_ended */
void control_peer_path_up(struct control_peer *peer, unsigned endpoint);
void control_peer_path_lost(struct control_peer *peer, unsigned endpoint);
void control_peer_path_closed(struct control_peer *peer, unsigned endpoint);  /* by the other end; it is lost next */
void control_peer_path_refused(struct control_peer *peer, unsigned endpoint); /* connecting was */
void control_peer_heard(struct control_peer *peer, struct conn *conn, const struct frame *frame);
void control_peer_pump(struct control_peer *peer);
void control_soon(struct control *control); /* the timer fires in the next turn */
/* The cleanup of a lost path waits until the notified layers have found another: closing a stream takes longer than
 * their whole exchange. */
void control_later(struct control *control);

#endif
