#include "transfer/tcp_pipe.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/ensure.h"
#include "base/list.h"

#define READ_BYTES_TURN (1u << 20) /* a stream that never runs dry leaves the loop to others after so much */
#define DROP_BYTES      16384u
#define KEEP_BYTES      65536u /* below that a copy is quicker than to keep pages */

/* A stream whose kernel lets go of a write is readable, and writable. */
static void want(struct tcp_pipe *pipe)
{
	bool readable = !pipe->paused || (pipe->held > 0 && pipe->count == 0);
	unsigned wanted = (readable ? HF_READABLE : 0) | (pipe->blocked ? HF_WRITABLE : 0);

	if (pipe->watch.wanted != wanted)
		(void)hf_loop_watch(pipe->loop, &pipe->watch, pipe->io, wanted);
}

/* Of all that are in the ring. */
static struct tcp_piece *piece_at(struct tcp_pipe *pipe, unsigned i)
{
	return &pipe->pieces[(pipe->first + i) % TCP_PIPE_PIECES];
}

/* What of the bytes behind `skip` is left of one part of a piece. */
static unsigned gather_part(struct iovec *at, const uint8_t *bytes, uint64_t length, uint64_t *skip)
{
	uint64_t skipped = *skip < length ? *skip : length;

	*skip -= skipped;
	if (skipped == length)
		return 0;
	*at = (struct iovec){.iov_base = (void *)(uintptr_t)&bytes[skipped], .iov_len = length - skipped};
	return 1;
}

/* Kept or copied. */
static ssize_t write_parts(struct tcp_pipe *pipe, const struct iovec *parts, unsigned n, uint64_t bytes)
{
	ssize_t written;

	if (!pipe->copies && bytes >= KEEP_BYTES) {
		written = hf_stream_writev_kept(pipe->io, parts, n);
		if (written > 0)
			pipe->kept++;
		if (written != -EOPNOTSUPP && written != -ENOBUFS)
			return written;
		pipe->copies = pipe->copies || written == -EOPNOTSUPP;
	}
	return hf_stream_writev(pipe->io, parts, n);
}

static ssize_t write_pieces(struct tcp_pipe *pipe)
{
	struct iovec parts[2 * TCP_PIPE_PIECES];
	uint64_t skip = pipe->written, bytes = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < pipe->count; i++) {
		const struct tcp_piece *piece = piece_at(pipe, pipe->held + i);

		n += gather_part(&parts[n], piece->header, TCP_HEADER_BYTES, &skip);
		n += gather_part(&parts[n], piece->payload, piece->payload_bytes, &skip);
	}
	for (unsigned i = 0; i < n; i++)
		bytes += parts[i].iov_len;
	return write_parts(pipe, parts, n, bytes);
}

/* `kept` was counted up if the bytes were kept; each piece that has some of them waits for that call. */
static void note_written(struct tcp_pipe *pipe, uint64_t bytes)
{
	pipe->written += bytes;
	pipe->moved += bytes;
	while (pipe->count > 0) {
		struct tcp_piece *piece = piece_at(pipe, pipe->held);
		uint64_t whole = TCP_HEADER_BYTES + (uint64_t)piece->payload_bytes;

		piece->keeper = pipe->kept;
		if (pipe->written < whole)
			return;
		pipe->written -= whole;
		pipe->held++;
		pipe->count--;
	}
}

/* Written pieces whose calls are over leave the ring. */
static void let_go(struct tcp_pipe *pipe)
{
	uint64_t gone = pipe->gone;

	while (pipe->held > 0 && (int32_t)(pipe->let_go - piece_at(pipe, 0)->keeper) >= 0) {
		pipe->first = (pipe->first + 1) % TCP_PIPE_PIECES;
		pipe->held--;
		pipe->gone++;
	}
	if (pipe->gone != gone && pipe->events->let_go != NULL)
		pipe->events->let_go(pipe);
}

static void hear_let_go(struct tcp_pipe *pipe)
{
	bool copied;

	pipe->let_go += hf_stream_let_go(pipe->io, &copied);
	pipe->copies = pipe->copies || copied;
	let_go(pipe);
}

/* Writes what the stream takes; a reason when it broke. */
static const char *flush(struct tcp_pipe *pipe)
{
	pipe->blocked = false;
	while (pipe->count > 0) {
		ssize_t n = write_pieces(pipe);

		pipe->blocked = n <= 0;
		if (n == -EAGAIN || n == -ENOTCONN) /* full, or still connecting */
			break;
		if (n <= 0)
			return n == 0 ? "cannot write" : strerror((int)-n);
		note_written(pipe, (uint64_t)n);
	}
	let_go(pipe);
	if (pipe->io != NULL)
		want(pipe);
	return NULL;
}

/* False: the pipe was closed, or broke. */
static bool take_header(struct tcp_pipe *pipe)
{
	const char *reason = tcp_header_decode(pipe->in_bytes, &pipe->in);

	pipe->in_used = 0;
	pipe->place = NULL;
	if (reason == NULL && pipe->events->header(pipe, &pipe->in, &pipe->place, &reason)) {
		pipe->payload_left = tcp_header_has_payload(&pipe->in) ? pipe->in.length : 0;
		return true;
	}
	if (reason != NULL)
		pipe->events->broken(pipe, reason);
	return false;
}

static void note_read(struct tcp_pipe *pipe, uint32_t bytes)
{
	pipe->payload_left -= bytes;
	if (pipe->place != NULL)
		pipe->place += bytes;
	if (pipe->payload_left == 0 && pipe->place != NULL)
		pipe->events->placed(pipe, &pipe->in);
}

static ssize_t read_some(struct tcp_pipe *pipe)
{
	uint8_t dropped[DROP_BYTES];

	if (pipe->payload_left == 0)
		return hf_stream_read(pipe->io, &pipe->in_bytes[pipe->in_used], TCP_HEADER_BYTES - pipe->in_used);
	if (pipe->place != NULL)
		return hf_stream_read(pipe->io, pipe->place, pipe->payload_left);
	return hf_stream_read(pipe->io, dropped, pipe->payload_left < DROP_BYTES ? pipe->payload_left : DROP_BYTES);
}

static const char *may_read(struct tcp_pipe *pipe)
{
	return pipe->payload_left == 0 || pipe->place == NULL || pipe->events->may_place == NULL
		       ? NULL
		       : pipe->events->may_place(pipe);
}

/* False: the pipe was closed, and may be gone. */
static bool receive(struct tcp_pipe *pipe)
{
	for (uint64_t bytes = 0; bytes < READ_BYTES_TURN && pipe->io != NULL && !pipe->paused;) {
		const char *reason = may_read(pipe);
		ssize_t n;

		if (reason != NULL) {
			pipe->events->broken(pipe, reason);
			return false;
		}
		n = read_some(pipe);

		if (n == -EAGAIN || n == -ENOTCONN)
			return true;
		if (n <= 0) {
			pipe->events->broken(pipe, n == 0 ? "closed by the peer" : strerror((int)-n));
			return false;
		}
		bytes += (uint64_t)n;
		pipe->moved += (uint64_t)n;
		if (pipe->payload_left > 0) {
			note_read(pipe, (uint32_t)n);
			continue;
		}
		pipe->in_used += (uint32_t)n;
		if (pipe->in_used == TCP_HEADER_BYTES && !take_header(pipe))
			return false;
	}
	return true;
}

static void on_ready(struct hf_watch *watch, unsigned ready)
{
	struct tcp_pipe *pipe = container_of(watch, struct tcp_pipe, watch);
	const char *reason = NULL;

	if (pipe->held > 0)
		hear_let_go(pipe);
	if (pipe->io != NULL && (ready & HF_WRITABLE))
		reason = flush(pipe);
	if (reason != NULL) {
		pipe->events->broken(pipe, reason);
		return;
	}
	if (pipe->io != NULL && (ready & HF_READABLE) && !receive(pipe))
		return;
	tcp_pipe_push(pipe); /* the answers, several in one call */
	if (tcp_pipe_has_room(pipe))
		pipe->events->room(pipe);
}

int tcp_pipe_open(struct tcp_pipe *pipe, struct hf_loop *loop, struct hf_io *io, const struct tcp_pipe_events *events)
{
	int rc;

	*pipe = (struct tcp_pipe){.events = events, .loop = loop, .io = io, .watch = {.ready = on_ready}};
	rc = hf_loop_watch(loop, &pipe->watch, io, HF_READABLE);
	if (rc != 0)
		tcp_pipe_close(pipe);
	return rc;
}

void tcp_pipe_close(struct tcp_pipe *pipe)
{
	if (pipe->io == NULL)
		return;
	if (pipe->watch.io != NULL)
		hf_loop_unwatch(&pipe->watch);
	hf_io_close(pipe->io);
	pipe->io = NULL;
}

bool tcp_pipe_has_room(const struct tcp_pipe *pipe)
{
	return pipe->io != NULL && pipe->held + pipe->count < TCP_PIPE_PIECES;
}

void tcp_pipe_send(struct tcp_pipe *pipe, const struct tcp_header *header, const uint8_t *payload)
{
	struct tcp_piece *piece = piece_at(pipe, pipe->held + pipe->count);

	ensure(tcp_pipe_has_room(pipe));
	tcp_header_encode(header, piece->header);
	piece->payload = payload;
	piece->payload_bytes = tcp_header_has_payload(header) ? header->length : 0;
	pipe->count++;
	pipe->sent++;
}

void tcp_pipe_push(struct tcp_pipe *pipe)
{
	if (pipe->io != NULL && pipe->count > 0 && !pipe->blocked && flush(pipe) != NULL)
		want(pipe);
}

void tcp_pipe_pause(struct tcp_pipe *pipe, bool paused)
{
	pipe->paused = paused;
	want(pipe);
}

bool tcp_pipe_touches(const struct tcp_pipe *pipe, const void *memory, uint64_t bytes)
{
	const uint8_t *begin = memory, *end = begin + bytes;

	if (pipe->payload_left > 0 && pipe->place != NULL && pipe->place >= begin && pipe->place < end)
		return true;
	for (unsigned i = 0; i < pipe->held + pipe->count; i++) {
		const struct tcp_piece *piece = &pipe->pieces[(pipe->first + i) % TCP_PIPE_PIECES];

		if (piece->payload != NULL && piece->payload >= begin && piece->payload < end)
			return true;
	}
	return false;
}
