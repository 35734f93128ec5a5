/* tcp_pipe.h - headers and payloads over one byte stream, for either end of a tcp transfer.
 *
 * A payload is sent from its memory, and received directly into its place: the pipe copies headers only.
 * Large writes are sent without a copy in the kernel (MSG_ZEROCOPY), until the kernel reports that it copies. The
 * memory of such a write is held until the kernel has released it.
 *
 *   pieces:  first ... held, written and not released ... count, not written ...
 *
 * Owned by a loop; callbacks come from its turns, never from tcp_pipe_send. */
#ifndef HOLDFAST_TRANSFER_TCP_PIPE_H
#define HOLDFAST_TRANSFER_TCP_PIPE_H

#include <holdfast/loop.h>

#include "transfer/tcp_header.h"

#define TCP_PIPE_PIECES 64u /* headers that wait to be written */

struct tcp_pipe;

struct tcp_pipe_events {
	/* A header has come. True: *place_out is where its payload goes, NULL to drop it; false: the pipe was closed,
	 * or `reason` is set and it breaks. Headers without payload leave *place_out alone. */
	bool (*header)(
		struct tcp_pipe *pipe, const struct tcp_header *header, uint8_t **place_out, const char **reason);
	/* Before a part of a payload is received into place. A reason: nothing is, and the pipe breaks. */
	const char *(*may_place)(struct tcp_pipe *pipe);
	/* Its payload is in place. May close the pipe. */
	void (*placed)(struct tcp_pipe *pipe, const struct tcp_header *header);
	/* Nothing comes or goes any more. The owner closes the pipe. */
	void (*broken)(struct tcp_pipe *pipe, const char *reason);
	void (*room)(struct tcp_pipe *pipe); /* there is room at the end of an event */
	/* The kernel has released pieces. May close the pipe. May be NULL. */
	void (*let_go)(struct tcp_pipe *pipe);
};

struct tcp_piece {
	uint8_t header[TCP_HEADER_BYTES];
	const uint8_t *payload;
	uint32_t payload_bytes;
	uint32_t keeper; /* calls of hf_stream_writev_kept that are over before this is let go of */
};

struct tcp_pipe {
	const struct tcp_pipe_events *events;
	struct hf_loop *loop;
	struct hf_io *io; /* NULL: closed */
	struct hf_watch watch;
	uint8_t in_bytes[TCP_HEADER_BYTES];
	uint32_t in_used; /* of the header */
	struct tcp_header in;
	uint8_t *place;
	uint32_t payload_left; /* 0: a header comes next */
	struct tcp_piece pieces[TCP_PIPE_PIECES];
	unsigned first, held, count;
	uint64_t written;      /* of the first of `count` */
	uint64_t sent, gone;   /* pieces in all: given to the pipe, let go of */
	uint64_t moved;        /* bytes in all that the kernel took and gave */
	bool copies;           /* keeping gains nothing on this stream */
	uint32_t kept, let_go; /* calls of hf_stream_writev_kept: made, over */
	bool paused;           /* no header is read */
	bool blocked;          /* the stream took no more, or broke: the loop finds out when it is writable */
};

/* Takes over `io`, also when it fails. */
int tcp_pipe_open(struct tcp_pipe *pipe, struct hf_loop *loop, struct hf_io *io, const struct tcp_pipe_events *events);
void tcp_pipe_close(struct tcp_pipe *pipe); /* legal on a closed one */

bool tcp_pipe_has_room(const struct tcp_pipe *pipe);
/* With room. The payload (header->length bytes, if the type has one) must not change until the pipe is closed or the
 * other end has answered. It is queued until tcp_pipe_push, or the end of the event in which it was sent. A broken
 * stream is reported in a later turn. */
void tcp_pipe_send(struct tcp_pipe *pipe, const struct tcp_header *header, const uint8_t *payload);
/* Whether the kernel has let go of the n-th piece that was sent; the first one is 0. */
static inline bool tcp_pipe_has_let_go(const struct tcp_pipe *pipe, uint64_t n)
{
	return n < pipe->gone;
}
void tcp_pipe_push(struct tcp_pipe *pipe); /* writes what the stream takes; the loop writes the rest */
/* Whether a payload to or from this memory is under way. */
bool tcp_pipe_touches(const struct tcp_pipe *pipe, const void *memory, uint64_t bytes);
/* Reads no further headers, and does again: for an end that has no room for an answer. */
void tcp_pipe_pause(struct tcp_pipe *pipe, bool paused);

#endif
