/* wire.h - messages between engines over their channel. Pure; one byte of kind, then the fields of the struct.
 *
 *   SEGMENT   sent when the channel opens and whenever buffers come or go: the whole segment, under a new generation
 *   FENCE     a request to the target to end a tcp stream of the sender and to store nothing more of it (R-T3)
 *   FENCED    the reply
 *   RELEASED  the reply to each SEGMENT: no slice is in flight to a buffer that is not in it (R-T20)
 *
 * A segment is an engine's set of registered buffers. Incarnations tell a restarted process from the one before at the
 * same address (R-T22). */
#ifndef HOLDFAST_TRANSFER_WIRE_H
#define HOLDFAST_TRANSFER_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <holdfast/transfer.h>

#define WIRE_BUFFERS_MAX 16384u
#define WIRE_BYTES_MAX   (480u << 10) /* a message of a channel has up to 1 MiB */
#define PROBE_BYTES_MAX  (1u << 20)

enum wire_kind {
	WIRE_SEGMENT = 1,
	WIRE_FENCE,
	WIRE_FENCED,
	WIRE_RELEASED,
};

struct wire_buffer {
	uint64_t addr, bytes;
	uint64_t key; /* of this registration, for tcp: never used for another */
	uint32_t rkey;
	uint8_t permission;
};

struct wire_probe { /* memory that every peer may read: a probe of a rail reads all of it */
	uint64_t addr;
	uint32_t bytes, rkey;
};

struct wire_segment {
	uint64_t incarnation;
	struct wire_probe probe;
	uint32_t generation;
	uint32_t first_epoch; /* of the sender's tcp streams: one from before these two met again is refused */
	uint8_t tcp_family;   /* of its tcp port: 4, 6; 0: it has none */
	uint16_t tcp_port;
	uint8_t tcp_host[16];
	uint16_t count;
	struct wire_buffer buffers[WIRE_BUFFERS_MAX]; /* the rest is not there where a segment is kept (segment.h) */
};

struct wire_fence { /* FENCE, FENCED */
	uint32_t epoch;
	uint64_t answered; /* FENCED: id of the last slice of that stream that was placed or answered; 0: none */
};

struct wire_released {
	uint32_t generation;
};

union wire_message {
	struct wire_segment segment;
	struct wire_fence fence;
	struct wire_released released;
};

/* Returns the length, at most WIRE_BYTES_MAX. */
uint32_t wire_encode(enum wire_kind kind, const union wire_message *message, uint8_t *at);
/* False: it does not follow the layout. */
bool wire_decode(const uint8_t *at, size_t bytes, enum wire_kind *kind_out, union wire_message *message_out);

void wire_set_tcp(struct wire_segment *segment, const struct hf_addr *addr);
bool wire_tcp(const struct wire_segment *segment, struct hf_addr *addr_out); /* false: the engine has no tcp port */

#endif
