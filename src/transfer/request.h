/* request.h - one request of a submit, resolved: what is moved, between which buffers. Pure data. */
#ifndef HOLDFAST_TRANSFER_REQUEST_H
#define HOLDFAST_TRANSFER_REQUEST_H

#include <stdint.h>

enum transfer_opcode {
	TRANSFER_READ,  /* from the segment into local memory */
	TRANSFER_WRITE, /* from local memory into the segment */
};

struct segment;

struct transfer_request {
	enum transfer_opcode opcode;
	uint8_t hint;    /* of the transport that the caller prefers: enum transport_kind; TRANSPORT_KINDS: none */
	uint8_t *source; /* local, also of a READ; the library's until the terminal status (R-T6) */
	struct segment *segment;
	uint64_t offset, length;
	uint64_t deadline_ns;                 /* UINT64_MAX: none */
	uint32_t local_buffer, remote_buffer; /* which registered buffers they lie in */
};

#endif
