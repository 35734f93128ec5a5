/* A frame is decoded where it was read; see frame.c for its layout. */
#include "net/stream.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"

static void stream_want(struct stream *stream)
{
	unsigned wanted = HF_READABLE;

	if (stream->muted)
		wanted = 0;
	else if (stream->out_to > stream->out_from)
		wanted |= HF_WRITABLE;
	if (stream->watch.wanted != wanted)
		hf_loop_watch(stream->loop, &stream->watch, stream->io, wanted);
}

/* Writes what the socket takes; a reason when the stream broke. */
static const char *stream_flush(struct stream *stream)
{
	ssize_t n;

	while (stream->out_from < stream->out_to) {
		n = hf_stream_write(stream->io, stream->out + stream->out_from, stream->out_to - stream->out_from);
		if (n == -EAGAIN || n == -ENOTCONN) /* full, or still connecting */
			break;
		if (n <= 0)
			return n == 0 ? "cannot write" : strerror((int)-n);
		stream->out_from += (uint32_t)n;
	}
	if (stream->out_from == stream->out_to)
		stream->out_from = stream->out_to = 0;
	stream_want(stream);
	return NULL;
}

/* Hands up every whole frame; false when the stream is gone. */
static bool stream_deliver(struct stream *stream)
{
	uint32_t at = 0, bytes = 0;
	const char *reason = NULL;
	struct frame frame;

	for (;;) {
		enum frame_outcome outcome =
			frame_decode(stream->in + at, stream->in_bytes - at, &frame, &bytes, &reason);

		if (outcome == FRAME_BAD) {
			stream->broken(stream, reason);
			return false;
		}
		if (outcome == FRAME_MORE)
			break;
		stream->frame(stream, &frame);
		if (stream->io == NULL || stream->muted)
			return false;
		at += bytes;
	}
	memmove(stream->in, stream->in + at, stream->in_bytes - at);
	stream->in_bytes -= at;
	return true;
}

/* One buffer a turn: a peer that sends without end does not keep the loop from its other work. */
void stream_receive(struct stream *stream)
{
	ssize_t n = hf_stream_read(stream->io, stream->in + stream->in_bytes, STREAM_IN_BYTES - stream->in_bytes);

	if (n == -EAGAIN || n == -ENOTCONN)
		return;
	if (n <= 0) {
		stream->broken(stream, n == 0 ? "closed by the peer" : strerror((int)-n));
		return;
	}
	stream->in_bytes += (uint32_t)n;
	(void)stream_deliver(stream);
}

static void stream_ready(struct hf_watch *watch, unsigned ready)
{
	struct stream *stream = (struct stream *)(void *)((char *)watch - offsetof(struct stream, watch));

	if (stream->muted)
		return;
	if (ready & HF_WRITABLE) {
		const char *reason = stream_flush(stream);

		if (reason != NULL) {
			stream->broken(stream, reason);
			return;
		}
		if (stream_has_room(stream))
			stream->room(stream);
	}
	if (stream->io != NULL && !stream->muted && (ready & HF_READABLE))
		stream_receive(stream);
}

int stream_open(struct stream *stream, struct hf_loop *loop, struct hf_io *io)
{
	int rc;

	stream->loop = loop;
	stream->io = io;
	stream->muted = false;
	stream->in_bytes = stream->out_from = stream->out_to = 0;
	stream->watch = (struct hf_watch){.ready = stream_ready};
	rc = hf_loop_watch(loop, &stream->watch, io, HF_READABLE);
	if (rc != 0)
		stream_close(stream);
	return rc;
}

void stream_close(struct stream *stream)
{
	if (stream->io == NULL)
		return;
	hf_loop_unwatch(&stream->watch);
	hf_io_close(stream->io);
	stream->io = NULL;
}

void stream_mute(struct stream *stream)
{
	stream->muted = true;
	stream_want(stream);
}

bool stream_has_room(const struct stream *stream)
{
	return STREAM_OUT_BYTES - stream->out_to >= FRAME_MAX;
}

void stream_send(struct stream *stream, const struct frame *frame)
{
	ensure(stream_has_room(stream));
	stream->out_to += frame_encode(frame, stream->out + stream->out_to);
	if (stream_flush(stream) != NULL)
		stream_want(stream); /* the loop finds it broken and says so; not inside the caller's call */
}
