/* A frame is decoded where it was read; see frame.c for its layout. */
#include "net/framed.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"

static void framed_want(struct framed *framed)
{
	unsigned wanted = HF_READABLE;

	if (framed->muted)
		wanted = 0;
	else if (framed->out_to > framed->out_from)
		wanted |= HF_WRITABLE;
	if (framed->watch.wanted != wanted)
		hf_loop_watch(framed->loop, &framed->watch, framed->io, wanted);
}

/* Writes what the socket takes; a reason when the stream broke. */
static const char *framed_flush(struct framed *framed)
{
	ssize_t n;

	while (framed->out_from < framed->out_to) {
		n = hf_stream_write(framed->io, framed->out + framed->out_from, framed->out_to - framed->out_from);
		if (n == -EAGAIN || n == -ENOTCONN) /* full, or still connecting */
			break;
		if (n <= 0)
			return n == 0 ? "cannot write" : strerror((int)-n);
		framed->out_from += (uint32_t)n;
	}
	if (framed->out_from == framed->out_to)
		framed->out_from = framed->out_to = 0;
	framed_want(framed);
	return NULL;
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
			framed->broken(framed, reason);
			return false;
		}
		if (outcome == FRAME_MORE)
			break;
		framed->frame(framed, &frame);
		if (framed->io == NULL || framed->muted)
			return false;
		at += bytes;
	}
	memmove(framed->in, framed->in + at, framed->in_bytes - at);
	framed->in_bytes -= at;
	return true;
}

/* One buffer a turn: a peer that sends without end does not keep the loop from its other work. */
void framed_receive(struct framed *framed)
{
	ssize_t n = hf_stream_read(framed->io, framed->in + framed->in_bytes, FRAMED_IN_BYTES - framed->in_bytes);

	if (n == -EAGAIN || n == -ENOTCONN)
		return;
	if (n <= 0) {
		framed->broken(framed, n == 0 ? "closed by the peer" : strerror((int)-n));
		return;
	}
	framed->in_bytes += (uint32_t)n;
	(void)framed_deliver(framed);
}

static void framed_ready(struct hf_watch *watch, unsigned ready)
{
	struct framed *framed = (struct framed *)(void *)((char *)watch - offsetof(struct framed, watch));

	if (framed->muted)
		return;
	if (ready & HF_WRITABLE) {
		const char *reason = framed_flush(framed);

		if (reason != NULL) {
			framed->broken(framed, reason);
			return;
		}
		if (framed_has_room(framed))
			framed->room(framed);
	}
	if (framed->io != NULL && !framed->muted && (ready & HF_READABLE))
		framed_receive(framed);
}

int framed_open(struct framed *framed, struct hf_loop *loop, struct hf_io *io)
{
	int rc;

	framed->loop = loop;
	framed->io = io;
	framed->muted = false;
	framed->in_bytes = framed->out_from = framed->out_to = 0;
	framed->watch = (struct hf_watch){.ready = framed_ready};
	rc = hf_loop_watch(loop, &framed->watch, io, HF_READABLE);
	if (rc != 0)
		framed_close(framed);
	return rc;
}

void framed_close(struct framed *framed)
{
	if (framed->io == NULL)
		return;
	hf_loop_unwatch(&framed->watch);
	hf_io_close(framed->io);
	framed->io = NULL;
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

void framed_send(struct framed *framed, const struct frame *frame)
{
	ensure(framed_has_room(framed));
	framed->out_to += frame_encode(frame, framed->out + framed->out_to);
	if (framed_flush(framed) != NULL)
		framed_want(framed); /* the loop finds it broken and says so; not inside the caller's call */
}
