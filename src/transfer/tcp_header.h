/* tcp_header.h - the header of each payload on a transfer stream. Pure; the layout is in tcp_header.c.
 *
 *   initiator                                target
 *     | HELLO{incarnations, epoch} ------------>  the stream belongs to this epoch, which TFENCE can name
 *     | WRITE{id, key, offset} payload -------->  checked before its payload is read; received in place
 *     | <-------------------------- ACK{id}       every byte is in place
 *     | READ{id, key, offset} ----------------->
 *     | <-------------------------- DATA{id} payload
 *     | <-------------------------- NAK{id, reason}   refused; the payload of a WRITE was dropped
 *
 * A header that violates the layout ends the stream, because the start of the next one is unknown. */
#ifndef HOLDFAST_TRANSFER_TCP_HEADER_H
#define HOLDFAST_TRANSFER_TCP_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#define TCP_HEADER_BYTES  48u
#define TCP_PAYLOAD_BYTES (1u << 30) /* of one WRITE or READ at the most */

enum tcp_header_type {
	TCP_HELLO = 1,
	TCP_WRITE,
	TCP_READ,
	TCP_ACK,
	TCP_DATA,
	TCP_NAK,
	TCP_HEADER_TYPES,
};

enum tcp_nak {
	TCP_NAK_NONE,       /* of every other type */
	TCP_NAK_KEY,        /* no buffer has this key: it was unregistered, or is of an earlier generation */
	TCP_NAK_BOUNDS,     /* the range does not lie in the buffer */
	TCP_NAK_PERMISSION, /* the buffer does not permit this */
	TCP_NAKS,
};

struct tcp_header {
	enum tcp_header_type type;
	enum tcp_nak reason;
	uint32_t epoch;  /* of the initiator's, one for each stream that it ever opens */
	uint32_t length; /* of the payload; READ: the requested length */
	uint64_t id;     /* of the slice; HELLO: incarnation of the initiator */
	uint64_t key;    /* of the buffer; HELLO: incarnation of the target */
	uint64_t offset; /* in the buffer */
};

void tcp_header_encode(const struct tcp_header *header, uint8_t *at); /* TCP_HEADER_BYTES */
/* NULL: filled; else why the bytes are no header. */
const char *tcp_header_decode(const uint8_t *at, struct tcp_header *header_out);
/* Whether bytes of the payload follow this header. */
bool tcp_header_has_payload(const struct tcp_header *header);

#endif
