/* handshake.h - the handshake of a control stream: identification of both ends, and proof of the secret. Pure:
 * no clock, socket or random number of its own; conn.c applies its result to peers and paths.
 *
 *   dialer                                             listener
 *     | HELLO {name, incarnation, nonce} --------------> |
 *     | <------- HELLO {name, incarnation, nonce, proof} |   proof = HMAC(secret, "listener", both HELLOs)
 *     | READY {proof} ---------------------------------> |   proof = HMAC(secret, "dialer", both HELLOs, READY)
 *
 * HMAC is HMAC-SHA256 over the whole HELLO: nonce, name, incarnation, addresses, and the position of the two nodes'
 * session. So a recorded handshake proves nothing on another stream, whose other end chose another
 * nonce; a proof of one role is not valid for the other, so a reflected proof is useless; and a modified HELLO
 * does not match the proof.
 *
 * Without a secret the proofs are zero, and the stream itself has to authenticate the other end (`trusted`): by TLS,
 * or because it comes from an address of this host. Bytes after the handshake are not covered: a machine on the path of
 * the packets can take the stream over; only TLS prevents that. */
#ifndef HOLDFAST_NET_HANDSHAKE_H
#define HOLDFAST_NET_HANDSHAKE_H

#include "net/frame.h"
#include "net/refusal.h"
#include "net/secret.h"

#define HANDSHAKE_DIGEST_BYTES 32u

struct handshake {
	const struct secret *secret; /* the node's; it outlives the handshake */
	bool dialed;
	bool trusted;
	bool failed; /* libcrypto has no memory: nothing is proved */
	uint8_t nonce[FRAME_NONCE_BYTES];
	uint8_t ours[HANDSHAKE_DIGEST_BYTES], theirs[HANDSHAKE_DIGEST_BYTES]; /* of the HELLOs */
	struct frame_hello hello;                                             /* the other end's */
};

/* `nonce` is fresh from hf_env_entropy. */
void handshake_init(struct handshake *handshake, const struct secret *secret, bool dialed, bool trusted,
	const uint8_t nonce[FRAME_NONCE_BYTES]);

/* Makes our HELLO: `hello` has our name, incarnation, label and addresses, `frame` has sequence and ack; nonce and
 * proof are added here and the frame's body is written to `body`. The listener's is made after it received the
 * dialer's. */
void handshake_say_hello(struct handshake *handshake, struct frame_hello *hello, struct frame *frame, uint8_t *body);
/* Makes our READY; `frame` has sequence and ack. */
void handshake_say_ready(const struct handshake *handshake, struct frame *frame, uint8_t body[FRAME_PROOF_BYTES]);

/* Takes the other end's HELLO into handshake->hello. REFUSAL_NONE: at the dialer, the listener has proved its identity;
 * at the listener, the dialer may, with READY. *fault_out, when not NULL, is the reason why the frame violates the
 * protocol; the refusal is not valid then. */
enum refusal handshake_hear_hello(
	struct handshake *handshake, const char *our_name, const struct frame *frame, const char **fault_out);
/* At the listener. REFUSAL_NONE: the dialer has proved its identity. */
enum refusal handshake_hear_ready(const struct handshake *handshake, const struct frame *frame);

#endif
