/* stream.h - frames over one TCP stream: collects bytes until a frame is whole, writes frames as far as there is room.
 *
 * Owned by a loop. `frame` and `broken` may close the stream; it is not touched after that. */
#ifndef HOLDFAST_NET_STREAM_H
#define HOLDFAST_NET_STREAM_H

#include <holdfast/loop.h>

#include "net/frame.h"

#define STREAM_IN_BYTES  (16u * FRAME_MAX)
#define STREAM_OUT_BYTES (8u * FRAME_MAX)

struct stream {
	struct hf_loop *loop;
	struct hf_io *io; /* NULL: closed */
	struct hf_watch watch;
	void (*frame)(struct stream *stream, const struct frame *frame);
	void (*room)(struct stream *stream); /* what had filled up has room again */
	void (*broken)(struct stream *stream, const char *reason);
	bool muted;
	uint32_t in_bytes, out_from, out_to;
	uint8_t in[STREAM_IN_BYTES], out[STREAM_OUT_BYTES];
};

/* Takes over `io`, connecting or connected; the three callbacks are set. 0 or -errno, and then io is closed. */
int stream_open(struct stream *stream, struct hf_loop *loop, struct hf_io *io);
void stream_close(struct stream *stream);
/* From now on nothing is read or written, as if the cable had been pulled; the peer is not told by a FIN. */
void stream_mute(struct stream *stream);

void stream_receive(struct stream *stream);        /* what has come, without waiting for the loop to say so */
bool stream_has_room(const struct stream *stream); /* for one more frame of any size */
/* The frame leaves now or when the socket takes it. Needs room. */
void stream_send(struct stream *stream, const struct frame *frame);

#endif
