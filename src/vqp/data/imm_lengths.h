/* imm_lengths.h - the length in a receive when only the end of a WRITE_WITH_IMM arrives (docs/protocol.md, R8).
 *
 * If some of its packets executed on a path that failed, or all of them and only the receive completion was lost, the
 * rest is sent again, and the device counts the rest alone. So the requester sends the original lengths in one
 * list, before there is a new path; the next list replaces it. */
#ifndef HOLDFAST_VQP_DATA_IMM_LENGTHS_H
#define HOLDFAST_VQP_DATA_IMM_LENGTHS_H

#include "vqp/kinds.h"

#define LENGTHS_PER_MESSAGE 32u

/* The total length of the sender's k-th message, including bytes that have arrived. */
struct message_length {
	uint64_t message;
	uint32_t bytes;
};

struct lengths_message {
	struct message_head head;
	uint8_t more; /* another one follows */
	uint8_t count;
	struct message_length lengths[LENGTHS_PER_MESSAGE];
};

struct imm_lengths {
	struct message_length *list; /* ascending; NULL: empty */
	uint32_t count;
	bool more; /* the list is not complete */
};

/* Takes over a LENGTHS message. -ENOMEM, and -E2BIG when there are more than any vqp has in flight. */
int imm_lengths_learn(struct imm_lengths *lengths, const struct lengths_message *message);
/* True: *bytes_out is what the receive of the k-th message reports. */
bool imm_lengths_of(const struct imm_lengths *lengths, uint64_t message, uint32_t *bytes_out);
void imm_lengths_free(struct imm_lengths *lengths);

#endif
