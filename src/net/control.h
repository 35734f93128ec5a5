/* control.h - the control channel of a node: reliable, ordered messages to each peer over all paths.
 *
 * A node listens on one endpoint for each rail and one for each management network. A path connects the endpoints of
 * two nodes with the same label. A node that connects needs one working address: the HELLO in reply lists the others,
 * and the node sets up all paths and keeps them up. One session runs over the paths (session.h).
 *
 * A peer is a name and an incarnation. When another incarnation has the name, or no message arrives for dead_ns, or
 * the peer sends BYE, `down` is called once and the peer is freed when that returns.
 *
 * A peer has proved that it has the secret and, with TLS, a certificate; without both, it is on this
 * host (handshake.h). A connection without this proof is closed without any effect; the number of such connections and
 * their time are bounded.
 *
 * Owned by a loop, which makes the callbacks; only control_enable and control_path_suspect report the paths that they
 * end from inside the call. After control_close and control_peer_close no callback follows. */
#ifndef HOLDFAST_NET_CONTROL_H
#define HOLDFAST_NET_CONTROL_H

#include <holdfast/loop.h>

#include "net/frame.h"
#include "net/secret.h"
#include "net/tls.h"

#define CONTROL_MESSAGE_MAX FRAME_BODY_MAX

struct control;
struct control_peer;

struct control_config {
	const char *name;
	uint64_t incarnation; /* never 0; another one at every start */
	uint64_t heartbeat_ns;
	unsigned misses;
	uint64_t dead_ns;
	unsigned endpoint_count;
	const struct frame_endpoint *endpoints; /* in order of preference; family AF_UNSPEC: no control there */
	const struct secret *secret;            /* what peers must know as well; NULL or empty: none */
	struct tls *tls;                        /* of every stream; NULL: plain. Taken over, also when opening fails */
};

struct control_events {
	void (*up)(struct control_peer *peer, void *context);
	void (*down)(struct control_peer *peer, void *context);
	void (*message)(struct control_peer *peer, const void *data, uint32_t bytes, void *context);
	void (*path)(struct control_peer *peer, unsigned endpoint, bool up, void *context);
	void (*died)(struct control_peer *peer, void *context); /* control_peer_died; NULL is legal */
};

int control_open(struct hf_loop *loop, const struct control_config *config, const struct control_events *events,
	void *context, struct control **control_out, struct hf_error *error);
/* Sends BYE to every peer, except where all sockets are full: such a peer gives this node up after dead_ns. NULL is
 * legal. */
void control_close(struct control *control);

/* An endpoint with its port down carries nothing, and its streams fall silent as if cut. */
void control_enable(struct control *control, unsigned endpoint, bool enabled);

/* Connects to the node that answers at one of these addresses; tries until it is closed. -EACCES: there is neither
 * secret nor TLS, and none of them is on this host. */
int control_connect(struct control *control, const struct hf_addr *addresses, unsigned n, void *context,
	struct control_peer **peer_out);
/* This node as its own peer: what is sent to one of the two ends is delivered by the other. They have no paths, end
 * together, and are not closed in a callback. Their contexts are set before `up` is called, in the next turn. */
int control_loop_back(struct control *control, struct control_peer *ends_out[2]);
/* Sends BYE; at a full socket as soon as it has room. */
void control_peer_close(struct control_peer *peer);
/* The peer with that address, connected or being dialed; NULL: none. */
struct control_peer *control_find(struct control *control, const struct hf_addr *address);

/* Where it can be dialed; also in `down`. */
unsigned control_peer_addresses(const struct control_peer *peer, struct hf_addr addresses_out[FRAME_ENDPOINTS_MAX]);

/* It will be delivered unless the peer goes down first, which it does when the message cannot be kept: it acknowledges
 * nothing for too long, or there is no memory. -ENOTCONN then, and later. */
int control_send(struct control_peer *peer, const void *data, uint32_t bytes);

/* Handles pending messages of the peer before the loop does. Not from inside a callback. */
void control_hear(struct control_peer *peer);

/* The peer's messages are malformed, or cannot be kept: the peer goes down. */
void control_peer_fail(struct control_peer *peer, const char *why);

/* In `down`: its process has let go of all that it had with this one before it was heard, since it said BYE, or another
 * incarnation answers. False: it may go on, and believe that it is connected. */
bool control_peer_ended(const struct control_peer *peer);
/* Its process has ended, as far as sockets tell (R-G5): it closed every path and refuses connections. `down` follows
 * after dead_ns. False again when a path comes up. */
bool control_peer_died(const struct control_peer *peer);
const char *control_peer_name(const struct control_peer *peer);
uint64_t control_peer_incarnation(const struct control_peer *peer);
bool control_path_up(const struct control_peer *peer, unsigned endpoint);
int control_path_used(const struct control_peer *peer); /* where messages leave; -1: there is none */
/* The caller has detected that this path is broken before its heartbeats were missed: messages move to another path at
 * once, if there is one, and this one has to come up again. */
void control_path_suspect(struct control_peer *peer, unsigned endpoint);
void control_peer_set_context(struct control_peer *peer, void *context);
void *control_peer_context(const struct control_peer *peer);

#endif
