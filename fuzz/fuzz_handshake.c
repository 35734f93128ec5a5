/* Frames of a stranger in a handshake: at a listener and at a dialer that have a secret, and at both without one. The
 * first byte chooses the role, whether there is a secret, and whether the proof is made right, so that what is behind
 * it is reached as well. Without that no input proves anything; nothing may crash. */
#include <stdint.h>
#include <string.h>

#include "base/ensure.h"
#include "net/handshake.h"

#define DIALED 1u
#define SECRET 2u
#define PROVES 4u
#define NAME   "node"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct secret secret;

static void say_hello(struct handshake *handshake, struct frame *frame, uint8_t *body)
{
	struct frame_hello hello = {.incarnation = 1, .name = NAME, .label = "r0"};

	*frame = (struct frame){0};
	handshake_say_hello(handshake, &hello, frame, body);
}

/* What a node that knows the secret answers to the dialer's HELLO, in the words of the input. */
static void prove_hello(struct handshake *dialer, const struct frame *ours, struct frame *theirs, uint8_t *body)
{
	static const uint8_t nonce[FRAME_NONCE_BYTES] = {2};
	struct handshake listener;
	struct frame_hello hello;
	const char *fault;

	if (frame_hello_decode(theirs->body, theirs->body_bytes, &hello, &fault) != FRAME_OK)
		return;
	handshake_init(&listener, dialer->secret, false, true, nonce);
	(void)handshake_hear_hello(&listener, hello.name, ours, &fault);
	handshake_say_hello(&listener, &hello, theirs, body);
}

static void dial(struct handshake *handshake, const struct frame *frame, bool proves)
{
	uint8_t ours_body[FRAME_BODY_MAX], theirs_body[FRAME_BODY_MAX], proof[FRAME_PROOF_BYTES];
	struct frame ours, theirs = *frame, ready = {0};
	const char *fault;
	enum refusal refusal;

	say_hello(handshake, &ours, ours_body);
	if (proves)
		prove_hello(handshake, &ours, &theirs, theirs_body);
	refusal = handshake_hear_hello(handshake, NAME, &theirs, &fault);
	ensure(refusal < REFUSALS);
	if (fault != NULL)
		return;
	ensure(refusal != REFUSAL_NONE || handshake->secret->bytes == 0 || proves);
	ensure(refusal == REFUSAL_NONE || refusal == REFUSAL_NAME || !proves);
	handshake_say_ready(handshake, &ready, proof);
}

static void listen_to(struct handshake *handshake, const struct frame *hello, const struct frame *ready)
{
	uint8_t body[FRAME_BODY_MAX];
	const char *fault;
	struct frame ours;

	if (handshake_hear_hello(handshake, NAME, hello, &fault) != REFUSAL_NONE || fault != NULL)
		return;
	say_hello(handshake, &ours, body);
	if (ready->type != FRAME_READY)
		return;
	ensure(handshake_hear_ready(handshake, ready) != REFUSAL_NONE || handshake->secret->bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct secret none;
	static const uint8_t nonce[FRAME_NONCE_BYTES] = {1};
	struct frame first = {0}, second = {0};
	struct handshake handshake;
	const char *reason;
	uint32_t used = 0;
	uint8_t how;

	if (bytes < 1)
		return 0;
	how = data[0];
	data++, bytes--;
	if (secret.bytes == 0)
		ensure(secret_set("a secret of the fuzzer", 22, &secret, NULL) == 0);
	if (frame_decode(data, bytes, &first, &used, &reason) != FRAME_OK) {
		/* A body without its frame, so that the checksum need not be found. */
		first = (struct frame){.type = FRAME_HELLO, .body = data};
		first.body_bytes = bytes > FRAME_BODY_MAX ? FRAME_BODY_MAX : (uint32_t)bytes;
	} else if (frame_decode(data + used, bytes - used, &second, &used, &reason) != FRAME_OK) {
		second = (struct frame){0};
	}
	handshake_init(&handshake, how & SECRET ? &secret : &none, (how & DIALED) != 0, true, nonce);
	if (how & DIALED)
		dial(&handshake, &first, (how & PROVES) != 0);
	else
		listen_to(&handshake, &first, &second);
	return 0;
}
