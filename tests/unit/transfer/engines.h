/* engines.h - two engines in one process, over two rails and tcp, each with one registered buffer; a has opened b's
 * segment. */
#ifndef HOLDFAST_TEST_TRANSFER_ENGINES_H
#define HOLDFAST_TEST_TRANSFER_ENGINES_H

#include <holdfast/transfer.h>

#include "../vqp/pair.h"

struct engines {
	struct pair pair;
	struct hf_transfer_config config; /* of both engines; the caller's, before engines_open */
	struct hf_transfer *a, *b;
	size_t bytes;               /* of each buffer */
	uint8_t *from, *to;         /* a's, which is filled, and b's, which is zero */
	struct hf_segment *segment; /* of b */
	uint64_t target;            /* where it begins */
};

/* The events, and their context, are those of both engines; NULL: none. */
void engines_open(struct engines *engines, size_t bytes, const struct hf_transfer_events *events, void *context);
void engines_close(struct engines *engines);
void engines_turn(struct engines *engines);

#endif
