/* A frame is decoded where it was read; see frame.c for its layout. */
#include "net/framed.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"

static void framed_want(struct framed *framed)
{
	unsigned wanted = framed->muted ? 0 : stream_wanted(framed->stream, framed->out_to > framed->out_from);

	if (framed->watch.wanted != wanted)
		hf_loop_watch(framed->loop, &framed->watch, framed->stream->io, wanted);
}

/* Words for what read or write answered. */
static const char *framed_reason(const struct framed *framed, ssize_t rc)
{
	const char *fault = stream_fault(framed->stream);

	return fault != NULL ? fault : strerror((int)-rc);
}

/* Writes what the stream takes: 0, or -errno when it broke. */
static ssize_t framed_flush(struct framed *framed)
{
	ssize_t n = stream_flush(framed->stream);

	if (n < 0)
		return n;
	while (framed->out_from < framed->out_to) {
		n = stream_write(framed->stream, framed->out + framed->out_from, framed->out_to - framed->out_from);
		if (n == -EAGAIN || n == -ENOTCONN) /* full, or still connecting */
			break;
		if (n <= 0)
			return n == 0 ? -EIO : n;
		framed->out_from += (uint32_t)n;
	}
	if (framed->out_from == framed->out_to)
		framed->out_from = framed->out_to = 0;
	framed_want(framed);
	return 0;
}

/* Hands up every whole frame; false when the stream is gone. */
static bool framed_deliver(struct framed *framed)
{
	uint32_t at = 0, bytes = 0;
	const char *reason = NULL;
	struct frame frame;

	for (;;) {
		enum frame_outcome outcome =
			frame_decode(framed->in + at, framed->in_bytes - at, &frame, &bytes, &reason);

		if (outcome == FRAME_BAD) {
			framed->broken(framed, -EPROTO, reason);
			return false;
		}
		if (outcome == FRAME_MORE)
			break;
		framed->frame(framed, &frame);
		if (framed->stream == NULL || framed->muted)
			return false;
		at += bytes;
	}
	memmove(framed->in, framed->in + at, framed->in_bytes - at);
	framed->in_bytes -= at;
	return true;
}

/* False: there is no more to read, or the stream is gone. */
static bool framed_read(struct framed *framed)
{
	ssize_t n = stream_read(framed->stream, framed->in + framed->in_bytes, FRAMED_IN_BYTES - framed->in_bytes);

	if (n == -EAGAIN || n == -ENOTCONN)
		return false;
	if (n <= 0) {
		framed->broken(framed, (int)n, n == 0 ? "closed by the peer" : framed_reason(framed, n));
		return false;
	}
	framed->in_bytes += (uint32_t)n;
	return framed_deliver(framed);
}

/* One buffer of the socket a turn: a peer that sends without end does not keep the loop from its other work. */
void framed_receive(struct framed *framed)
{
	while (framed_read(framed) && stream_pending(framed->stream))
		;
	if (framed->stream != NULL)
		framed_want(framed); /* TLS may have something to say itself, or can write now */
}

static void framed_ready(struct hf_watch *watch, unsigned ready)
{
	struct framed *framed = (struct framed *)(void *)((char *)watch - offsetof(struct framed, watch));

	if (framed->muted)
		return;
	if (ready & HF_WRITABLE) {
		ssize_t rc = framed_flush(framed);

		if (rc != 0) {
			framed->broken(framed, (int)rc, framed_reason(framed, rc));
			return;
		}
		if (framed_has_room(framed))
			framed->room(framed);
	}
	if (framed->stream != NULL && !framed->muted && (ready & HF_READABLE))
		framed_receive(framed);
}

int framed_open(struct framed *framed, struct hf_loop *loop, struct stream *stream)
{
	int rc;

	framed->loop = loop;
	framed->stream = stream;
	framed->muted = false;
	framed->in_bytes = framed->out_from = framed->out_to = 0;
	framed->watch = (struct hf_watch){.ready = framed_ready};
	rc = hf_loop_watch(loop, &framed->watch, stream->io, HF_READABLE);
	if (rc != 0)
		framed_close(framed);
	return rc;
}

void framed_close(struct framed *framed)
{
	if (framed->stream == NULL)
		return;
	hf_loop_unwatch(&framed->watch);
	stream_close(framed->stream);
	framed->stream = NULL;
}

void framed_mute(struct framed *framed)
{
	framed->muted = true;
	framed_want(framed);
}

bool framed_has_room(const struct framed *framed)
{
	return FRAMED_OUT_BYTES - framed->out_to >= FRAME_MAX;
}

bool framed_is_sent(const struct framed *framed)
{
	return (stream_wanted(framed->stream, framed->out_to > framed->out_from) & HF_WRITABLE) == 0;
}

void framed_send(struct framed *framed, const struct frame *frame)
{
	ensure(framed_has_room(framed));
	framed->out_to += frame_encode(frame, framed->out + framed->out_to);
	if (framed_flush(framed) != 0)
		framed_want(framed); /* the loop finds it broken and says so; not inside the caller's call */
}
