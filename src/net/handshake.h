/* handshake.h - how the two ends of a control stream introduce themselves, and prove that they know the secret. Pure:
 * no clock, socket or random number of its own; what follows from it for peers and paths is conn.c's.
 *
 *   dialer                                             listener
 *     | HELLO {name, incarnation, nonce} --------------> |
 *     | <------- HELLO {name, incarnation, nonce, proof} |   proof = HMAC(secret, "listener", both HELLOs)
 *     | READY {proof} ---------------------------------> |   proof = HMAC(secret, "dialer", both HELLOs, READY)
 *
 * HMAC is HMAC-SHA256. A HELLO is covered whole: its nonce, name, incarnation, addresses, and where the conversation
 * of the two nodes stood. So a recorded handshake proves nothing on another stream, whose other end chose another
 * nonce; a proof of one role is none of the other, so what a node says proves nothing to itself; and a HELLO that
 * was changed on its way does not fit the proof.
 *
 * Without a secret the proofs are zero, and the stream itself has to show who is at its other end (`trusted`): by TLS,
 * or because it comes from an address of this host. What follows the handshake is not covered: a machine in the path of
 * the packets can take the stream over, and only TLS keeps it out. */
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
 * proof are added here and the frame's body is written to `body`. The listener's is made after it heard the
 * dialer's. */
void handshake_say_hello(struct handshake *handshake, struct frame_hello *hello, struct frame *frame, uint8_t *body);
/* Makes our READY; `frame` has sequence and ack. */
void handshake_say_ready(const struct handshake *handshake, struct frame *frame, uint8_t body[FRAME_PROOF_BYTES]);

/* Takes the other end's HELLO into handshake->hello. REFUSAL_NONE: at the dialer, the listener has proved who it is;
 * at the listener, the dialer may, with READY. *fault_out, when not NULL, says why the frame is none of the
 * protocol, and the refusal says nothing then. */
enum refusal handshake_hear_hello(
	struct handshake *handshake, const char *our_name, const struct frame *frame, const char **fault_out);
/* At the listener. REFUSAL_NONE: the dialer has proved who it is. */
enum refusal handshake_hear_ready(const struct handshake *handshake, const struct frame *frame);

#endif
