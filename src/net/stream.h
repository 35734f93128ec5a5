/* stream.h - a stream of bytes between two processes: plain, or TLS over a plain one (tls.h).
 *
 * Owned by a loop, which watches stream->io for readiness. No call blocks. */
#ifndef HOLDFAST_NET_STREAM_H
#define HOLDFAST_NET_STREAM_H

#include <holdfast/loop.h>

struct stream {
	const struct stream_ops *ops;
	struct hf_io *io; /* what is watched; the stream closes it */
};

struct stream_ops {
	ssize_t (*read)(struct stream *stream, void *data, size_t bytes);
	ssize_t (*write)(struct stream *stream, const void *data, size_t bytes);
	int (*flush)(struct stream *stream);                          /* NULL: nothing is held back */
	bool (*pending)(const struct stream *stream);                 /* NULL: never */
	unsigned (*wanted)(const struct stream *stream, bool output); /* NULL: what plain streams want */
	const char *(*fault)(const struct stream *stream);            /* NULL: there is none */
	void (*close)(struct stream *stream);
};

/* Takes over `io`, connecting or connected; on failure (-ENOMEM) it is closed. */
int stream_plain(struct hf_io *io, struct stream **stream_out);
void stream_close(struct stream *stream); /* closes the io too; NULL is legal */

/* As hf_stream_read and hf_stream_write; -EPROTO: stream_fault has words. -ENOTCONN: it is still connecting. */
ssize_t stream_read(struct stream *stream, void *data, size_t bytes);
ssize_t stream_write(struct stream *stream, const void *data, size_t bytes);
/* Hands on what the stream holds of what was written, as far as there is room: 0 or -errno. */
int stream_flush(struct stream *stream);
/* Whether read has something though the io may not become readable: read on. */
bool stream_pending(const struct stream *stream);
/* What to watch the io for; `output`: the caller has more to write. */
unsigned stream_wanted(const struct stream *stream, bool output);
/* What the other end did against the rules of TLS, or NULL. */
const char *stream_fault(const struct stream *stream);

#endif
