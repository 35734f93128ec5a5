/* pieces.h - messages of a channel that are longer than a frame, put together from their pieces.
 *
 *   message of 5,000 bytes:  piece {1,984 bytes, 3,016 left}  piece {1,984, 1,032}  piece {1,032, 0}
 *
 * Pieces of one channel arrive in order. Each but the last is full, so that no more pieces come than the message
 * needs. Memory grows with the bytes that have arrived, not with the length in the first piece. */
#ifndef HOLDFAST_NODE_PIECES_H
#define HOLDFAST_NODE_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#define PIECE_BYTES 1984u

struct pieces {
	uint8_t *data;
	uint32_t bytes, room; /* what has arrived; what fits into data */
	uint32_t left;        /* what is still to come; 0: no message is under way */
};

enum pieces_outcome {
	PIECES_MORE,      /* further ones follow */
	PIECES_WHOLE,     /* the message is complete */
	PIECES_VIOLATION, /* this is not the next piece of the message, or the message is too long */
	PIECES_NO_MEMORY,
};

/* WHOLE: the message is at *message_out, in `data` where it is of one piece, else in memory that pieces_reset frees. */
enum pieces_outcome pieces_add(struct pieces *pieces, const uint8_t *data, uint32_t bytes, uint32_t left,
	const uint8_t **message_out, uint32_t *bytes_out);
void pieces_reset(struct pieces *pieces);

/* The next piece of a message, of which `sent` bytes have left: its bytes. */
uint32_t pieces_next(uint32_t message_bytes, uint32_t sent);

#endif
