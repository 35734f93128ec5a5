/* framed.h - frames over a byte stream: collects bytes until a frame is complete, writes frames while there is room.
 *
 * Owned by a loop. `frame` and `broken` may close the stream; it is not touched after that. */
#ifndef HOLDFAST_NET_FRAMED_H
#define HOLDFAST_NET_FRAMED_H

#include <holdfast/loop.h>

#include "net/frame.h"
#include "net/stream.h"

#define FRAMED_IN_BYTES  (16u * FRAME_MAX)
#define FRAMED_OUT_BYTES (8u * FRAME_MAX)

struct framed {
	struct hf_loop *loop;
	struct stream *stream; /* NULL: closed */
	struct hf_watch watch;
	void (*frame)(struct framed *framed, const struct frame *frame);
	void (*room)(struct framed *framed); /* what had filled up has room again */
	/* error: 0 when the other end closed the stream, -EPROTO for bytes that are no frames, else of the stream. */
	void (*broken)(struct framed *framed, int error, const char *reason);
	bool muted;
	uint32_t in_bytes, out_from, out_to;
	uint8_t in[FRAMED_IN_BYTES], out[FRAMED_OUT_BYTES];
};

/* Takes over `stream`; the three callbacks are set. 0 or -errno, and then the stream is closed. */
int framed_open(struct framed *framed, struct hf_loop *loop, struct stream *stream);
void framed_close(struct framed *framed);
/* From now on nothing is read or written, as if the cable had been pulled; the peer gets no FIN. */
void framed_mute(struct framed *framed);

void framed_receive(struct framed *framed);        /* what has come, without waiting for the loop to say so */
bool framed_has_room(const struct framed *framed); /* for one more frame of any size */
bool framed_is_sent(const struct framed *framed);  /* the socket has taken every frame */
/* The frame leaves now or when the socket takes it. Needs room. */
void framed_send(struct framed *framed, const struct frame *frame);

#endif
