/* memcpy.h - requests within our own segment (segment 0): the loop copies, a slice in each turn.
 *
 * No slice is ever in flight, so a withdrawal ends a job at once. Owned by the engine's loop. */
#ifndef HOLDFAST_TRANSFER_MEMCPY_H
#define HOLDFAST_TRANSFER_MEMCPY_H

#include "transfer/peer.h"
#include "transfer/transport.h"

struct memcpy_transport {
	struct transport transport;
	struct hf_loop *loop;
	struct peer self; /* its segment is ours; no other transport reaches it */
	struct list jobs;
	uint64_t block_bytes;
};

void memcpy_transport_init(
	struct memcpy_transport *own, struct hf_transfer *engine, struct hf_loop *loop, uint64_t block_bytes);
bool memcpy_turn(struct memcpy_transport *own); /* true: something was done */

#endif
