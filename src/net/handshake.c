#include "net/handshake.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/bytes.h"
#include "base/ensure.h"

#define ROLE_BYTES 32u

/* What a proof covers. */
struct transcript {
	char role[ROLE_BYTES];
	uint8_t dialer[HANDSHAKE_DIGEST_BYTES], listener[HANDSHAKE_DIGEST_BYTES];
	uint8_t sequence[8], ack[8]; /* of READY */
};

_Static_assert(sizeof(struct transcript) == 112, "a proof covers no padding");
_Static_assert(FRAME_PROOF_BYTES == HANDSHAKE_DIGEST_BYTES, "a proof is a SHA-256");

static const char role_listener[ROLE_BYTES] = "holdfast control listener";
static const char role_dialer[ROLE_BYTES] = "holdfast control dialer";

void handshake_init(struct handshake *handshake, const struct secret *secret, bool dialed, bool trusted,
	const uint8_t nonce[FRAME_NONCE_BYTES])
{
	*handshake = (struct handshake){.secret = secret, .dialed = dialed, .trusted = trusted};
	memcpy(handshake->nonce, nonce, FRAME_NONCE_BYTES);
}

/* Of a HELLO as it travels, its proof left out. */
static void digest_hello(struct handshake *handshake, const struct frame *frame, const struct frame_hello *hello,
	uint8_t digest_out[HANDSHAKE_DIGEST_BYTES])
{
	uint8_t covered[16 + FRAME_BODY_MAX];
	struct frame_hello unproved = *hello;
	uint32_t bytes;

	memset(unproved.proof, 0, sizeof(unproved.proof));
	put_le64(covered, frame->sequence);
	put_le64(covered + 8, frame->ack);
	bytes = 16 + frame_hello_encode(&unproved, covered + 16);
	/* A thread of the library may be here while main() returns: libcrypto must not free its locks then. */
	(void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
	if (EVP_Digest(covered, bytes, digest_out, NULL, EVP_sha256(), NULL) != 1)
		handshake->failed = true;
}

/* False: libcrypto could not. */
static bool prove(const struct handshake *handshake, const char role[ROLE_BYTES], const struct frame *ready,
	uint8_t proof_out[FRAME_PROOF_BYTES])
{
	struct transcript transcript = {0};

	memset(proof_out, 0, FRAME_PROOF_BYTES);
	if (handshake->secret->bytes == 0)
		return !handshake->failed;
	memcpy(transcript.role, role, ROLE_BYTES);
	memcpy(transcript.dialer, handshake->dialed ? handshake->ours : handshake->theirs, HANDSHAKE_DIGEST_BYTES);
	memcpy(transcript.listener, handshake->dialed ? handshake->theirs : handshake->ours, HANDSHAKE_DIGEST_BYTES);
	if (ready != NULL) {
		put_le64(transcript.sequence, ready->sequence);
		put_le64(transcript.ack, ready->ack);
	}
	return !handshake->failed &&
	       HMAC(EVP_sha256(), handshake->secret->data, (int)handshake->secret->bytes,
		       (const unsigned char *)&transcript, sizeof(transcript), proof_out, NULL) != NULL;
}

static enum refusal judge(const struct handshake *handshake, const char role[ROLE_BYTES], const struct frame *ready,
	const uint8_t proof[FRAME_PROOF_BYTES])
{
	uint8_t expected[FRAME_PROOF_BYTES];

	if (!prove(handshake, role, ready, expected) || CRYPTO_memcmp(expected, proof, sizeof(expected)) != 0)
		return REFUSAL_SECRET_DIFFERS;
	return REFUSAL_NONE;
}

void handshake_say_hello(struct handshake *handshake, struct frame_hello *hello, struct frame *frame, uint8_t *body)
{
	hello->has_secret = handshake->secret->bytes != 0;
	memcpy(hello->nonce, handshake->nonce, FRAME_NONCE_BYTES);
	memset(hello->proof, 0, sizeof(hello->proof));
	digest_hello(handshake, frame, hello, handshake->ours);
	if (!handshake->dialed)
		(void)prove(handshake, role_listener, NULL, hello->proof); /* a proof of zeros is refused there */
	frame->type = FRAME_HELLO;
	frame->body = body;
	frame->body_bytes = frame_hello_encode(hello, body);
}

void handshake_say_ready(const struct handshake *handshake, struct frame *frame, uint8_t body[FRAME_PROOF_BYTES])
{
	ensure(handshake->dialed);
	(void)prove(handshake, role_dialer, frame, body); /* likewise */
	frame->type = FRAME_READY;
	frame->body = body;
	frame->body_bytes = FRAME_PROOF_BYTES;
}

enum refusal handshake_hear_hello(
	struct handshake *handshake, const char *our_name, const struct frame *frame, const char **fault_out)
{
	const struct frame_hello *hello = &handshake->hello;

	*fault_out = NULL;
	if (frame->type != FRAME_HELLO)
		*fault_out = "it did not begin with a HELLO";
	else
		(void)frame_hello_decode(frame->body, frame->body_bytes, &handshake->hello, fault_out);
	if (*fault_out != NULL)
		return REFUSAL_NONE;
	if (handshake->secret->bytes == 0 && !handshake->trusted)
		return REFUSAL_OTHER_HOST;
	if (hello->has_secret != (handshake->secret->bytes != 0))
		return hello->has_secret ? REFUSAL_SECRET_UNKNOWN : REFUSAL_SECRET_MISSING;
	digest_hello(handshake, frame, hello, handshake->theirs);
	if (handshake->dialed && judge(handshake, role_listener, NULL, hello->proof) != REFUSAL_NONE)
		return REFUSAL_SECRET_DIFFERS;
	return strcmp(hello->name, our_name) == 0 ? REFUSAL_NAME : REFUSAL_NONE;
}

enum refusal handshake_hear_ready(const struct handshake *handshake, const struct frame *frame)
{
	ensure(!handshake->dialed && frame->type == FRAME_READY && frame->body_bytes == FRAME_PROOF_BYTES);
	return judge(handshake, role_dialer, frame, frame->body);
}
