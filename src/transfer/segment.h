/* segment.h - the registered buffers of an engine, as its last message has them: a peer's, or our own.
 *
 * Kept as long as its count. Buffers are found by their address in logarithmic time: each slice looks. Owned by the
 * engine's loop. */
#ifndef HOLDFAST_TRANSFER_SEGMENT_H
#define HOLDFAST_TRANSFER_SEGMENT_H

#include "transfer/wire.h"

struct peer;

struct hf_segment {
	struct peer *peer;
	struct wire_segment *view; /* incarnation 0: no message yet */
	uint16_t *by_addr;         /* indexes of view->buffers, in order once `sorted` */
	bool sorted;
	bool opened; /* by the caller, which may name it */
};

int segment_init(struct hf_segment *segment, struct peer *peer); /* 0, -ENOMEM */
void segment_free(struct hf_segment *segment);
int segment_set(struct hf_segment *segment, const struct wire_segment *said); /* 0; -ENOMEM: it stays as it was */

bool segment_has(const struct hf_segment *segment, uint64_t key);
/* The buffer that holds all of [offset, offset + length), which are addresses there; -1: none. */
int segment_buffer(struct hf_segment *segment, uint64_t offset, uint64_t length);

#endif
