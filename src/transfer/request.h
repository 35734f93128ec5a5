/* request.h - one request of a submit, resolved to its two buffers. Pure data. */
#ifndef HOLDFAST_TRANSFER_REQUEST_H
#define HOLDFAST_TRANSFER_REQUEST_H

#include <holdfast/transfer.h>

struct buffer;

struct task_request {
	enum hf_transfer_opcode opcode;
	uint8_t hint;    /* of the transport that the caller prefers: enum hf_transport; HF_TRANSPORTS: none */
	uint8_t *source; /* local, also of a READ; the library's until the terminal status (R-T6) */
	struct hf_segment *segment;
	uint64_t offset, length;
	uint64_t deadline_ns;  /* UINT64_MAX: none */
	struct buffer *local;  /* the registered buffer that holds the source */
	struct buffer *target; /* segment 0: the one that holds the target; else NULL */
	uint32_t remote;       /* and which of the segment's holds the target */
};

#endif
