/* frame.h - frames of a control stream, as bytes and as a struct. Pure; the layout is in frame.c.
 *
 * A frame that violates the layout is FRAME_BAD with a reason as text; its stream has to be closed, because the start
 * of the next frame is unknown. */
#ifndef HOLDFAST_NET_FRAME_H
#define HOLDFAST_NET_FRAME_H

#include <holdfast/env.h>

#define FRAME_HEADER_BYTES  32u
#define FRAME_BODY_MAX      2048u
#define FRAME_MAX           (FRAME_HEADER_BYTES + FRAME_BODY_MAX)
#define FRAME_NAME_BYTES    32u /* with its NUL */
#define FRAME_ENDPOINTS_MAX 16u
#define FRAME_NONCE_BYTES   32u
#define FRAME_PROOF_BYTES   32u
#define FRAME_REFUSED_BYTES 4u

enum frame_type {
	FRAME_HELLO = 1, /* first in either direction: the identity of the sender */
	FRAME_READY,     /* of the dialer, after the answer to its HELLO: its proof (handshake.h) */
	FRAME_HEARTBEAT, /* also carries an acknowledgement */
	FRAME_MESSAGE,   /* numbered, of the layer above */
	FRAME_BYE,       /* the node closes: it will not come back */
	FRAME_REFUSED,   /* instead of HELLO or READY: why the stream is closed (refusal.h) */
	FRAME_TYPES,
};

struct frame {
	enum frame_type type;
	uint64_t sequence; /* of a message, from 1; of HELLO and READY the last that is queued; 0 in other frames */
	uint64_t ack;      /* the last message that was delivered in order */
	const void *body;
	uint32_t body_bytes;
};

/* One end of a possible path: a rail's control address, or a management address. Ends with the same label pair. */
struct frame_endpoint {
	char label[FRAME_NAME_BYTES]; /* the rail's name, or "@0", "@1", ... */
	struct hf_addr addr;          /* where it listens; port 0: it does not */
};

struct frame_hello {
	uint64_t incarnation;
	char name[FRAME_NAME_BYTES];
	char label[FRAME_NAME_BYTES]; /* of the sender's end of this stream */
	bool has_secret;
	uint8_t nonce[FRAME_NONCE_BYTES];
	uint8_t proof[FRAME_PROOF_BYTES]; /* of the listener's; zero in the dialer's and without a secret */
	unsigned endpoint_count;
	struct frame_endpoint endpoints[FRAME_ENDPOINTS_MAX];
};

enum frame_outcome {
	FRAME_OK,
	FRAME_MORE, /* the bytes so far are the beginning of a frame */
	FRAME_BAD,
};

/* Writes header and body to `at` (FRAME_MAX bytes are enough); returns the frame's length. */
uint32_t frame_encode(const struct frame *frame, uint8_t *at);
/* *bytes_out is the frame's length when FRAME_OK; the body points into `at`. */
enum frame_outcome frame_decode(
	const uint8_t *at, size_t bytes, struct frame *frame_out, uint32_t *bytes_out, const char **reason_out);

/* What came is of TLS, not of a control stream. */
bool frame_is_tls(const uint8_t *at, size_t bytes);

/* The body of a HELLO; returns its length, at most FRAME_BODY_MAX. */
uint32_t frame_hello_encode(const struct frame_hello *hello, uint8_t *at);
enum frame_outcome frame_hello_decode(
	const uint8_t *at, size_t bytes, struct frame_hello *hello_out, const char **reason_out);

#endif
