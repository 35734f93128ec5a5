/* session.h - the session of two incarnations of nodes over several paths, as a pure step: no clock, socket or
 * memory of its own. Messages are numbered; on any path, each is delivered once and in order.
 *
 * Messages are sent on one path at a time, the first that is up. A path is a reliable stream, so only the loss of a
 * path loses messages; then all unacknowledged messages are sent again on the next path, and the receiver drops
 * duplicates. Every path carries heartbeats; a path that is silent for `misses` intervals is lost. What the
 * own loop did not attend to is no silence (R-G2): messages of that time are yet to be read.
 *
 * The end of the other process closes its streams and its listeners. A stream alone may be closed for another reason,
 * and a firewall refuses connections to a process that runs: both together are the death of the process (R-G5).
 *
 * Invariants, checked by ensure() here and by the tests:
 *   NET-1  acked <= sent <= queued: acknowledged messages were sent, sent messages were queued.
 *   NET-2  Messages on a path begin at acked + 1 and have no gap, so a gap is an error of the peer.
 *   NET-3  The two ends of a path are of one session: an end that has lost it is another peer (session_mark). */
#ifndef HOLDFAST_NET_SESSION_H
#define HOLDFAST_NET_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#define SESSION_PATHS_MAX  16u
#define SESSION_QUEUED_MAX 65536u /* a peer that acknowledges none of this many messages is lost */
#define SESSION_PATH_NONE  (-1)

struct session_path {
	bool up;
	bool closed;              /* it was up, and the other side closed it; */
	bool refused;             /* since then, the other side refuses the connection */
	uint64_t heard_ns;        /* time of the peer's last message on it */
	uint64_t heartbeat_at_ns; /* when ours is due */
};

struct session {
	uint64_t heartbeat_ns;
	uint64_t silence_ns; /* a path silent for this time is lost */
	uint64_t dead_ns;    /* without any path for this time the peer is gone */
	uint64_t alone_since_ns;
	uint64_t gaps_ns;             /* up to the last tick */
	uint64_t queued, sent, acked; /* the last message that was queued, sent on the active path, acknowledged */
	uint64_t delivered;           /* the last message of the peer that was delivered */
	int active;                   /* the path that messages leave on, or SESSION_PATH_NONE */
	struct session_path paths[SESSION_PATHS_MAX];
};

/* The caller sets gaps_ns to the gaps so far. */
void session_init(struct session *session, uint64_t heartbeat_ns, unsigned misses, uint64_t dead_ns, uint64_t now_ns);

void session_path_up(struct session *session, unsigned path, uint64_t now_ns);
void session_path_lost(struct session *session, unsigned path, uint64_t now_ns);
/* The same for a path that the other side closed. */
void session_path_closed(struct session *session, unsigned path, uint64_t now_ns);
void session_path_refused(struct session *session, unsigned path); /* connecting was tried there */
/* The process of the other side has ended: no path is up, at least one was closed, and each of those is refused. */
bool session_has_died(const struct session *session);
/* Connecting there tells whether the process has ended. */
bool session_probes(const struct session *session, unsigned path);

/* Numbers a message; 0 when too many wait for their acknowledgement. The caller keeps it until it is <= acked. */
uint64_t session_queue(struct session *session);
/* The message that is to be written to the active path next, or 0; session_sent follows when it was. */
uint64_t session_next(const struct session *session);
void session_sent(struct session *session);

/* The position of a session. A later report of the other side, when it makes a path of another stream, is not lower,
 * unless it has lost this session: then its numbers begin again, and the two ends do not match. */
struct session_mark {
	uint64_t acked, delivered;
};
struct session_mark session_mark(const struct session *session);
bool session_is_remembered(struct session_mark before, uint64_t their_queued, uint64_t their_delivered);

enum session_outcome {
	SESSION_NOTHING,   /* not a message, or one that was delivered before */
	SESSION_DELIVER,   /* hand this message up */
	SESSION_VIOLATION, /* a gap, or an acknowledgement of what was never sent: the path is to be cut */
};
/* Any frame arrived on a path: `sequence` is 0 when it is no message. */
enum session_outcome session_heard(
	struct session *session, unsigned path, uint64_t sequence, uint64_t ack, uint64_t now_ns);

struct session_actions {
	uint32_t heartbeat; /* bit per path: send a heartbeat there, it carries `delivered` as its acknowledgement */
	uint32_t lost;      /* bit per path: it was silent for too long; close its stream */
	bool dead;          /* the peer is gone */
	uint64_t due_ns;    /* call again no later than this */
};
/* gaps_ns: hf_loop_gaps_ns, all of them so far. */
void session_tick(struct session *session, uint64_t now_ns, uint64_t gaps_ns, struct session_actions *actions);

#endif
