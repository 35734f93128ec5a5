#include "net/stream.h"

#include <errno.h>
#include <stdlib.h>

static ssize_t plain_read(struct stream *stream, void *data, size_t bytes)
{
	return hf_stream_read(stream->io, data, bytes);
}

static ssize_t plain_write(struct stream *stream, const void *data, size_t bytes)
{
	return hf_stream_write(stream->io, data, bytes);
}

static void plain_close(struct stream *stream)
{
	hf_io_close(stream->io);
	free(stream);
}

static const struct stream_ops plain_ops = {.read = plain_read, .write = plain_write, .close = plain_close};

int stream_plain(struct hf_io *io, struct stream **stream_out)
{
	struct stream *stream = malloc(sizeof(*stream));

	*stream_out = stream;
	if (stream == NULL) {
		hf_io_close(io);
		return -ENOMEM;
	}
	*stream = (struct stream){.ops = &plain_ops, .io = io};
	return 0;
}

void stream_close(struct stream *stream)
{
	if (stream != NULL)
		stream->ops->close(stream);
}

ssize_t stream_read(struct stream *stream, void *data, size_t bytes)
{
	return stream->ops->read(stream, data, bytes);
}

ssize_t stream_write(struct stream *stream, const void *data, size_t bytes)
{
	return stream->ops->write(stream, data, bytes);
}

int stream_flush(struct stream *stream)
{
	return stream->ops->flush == NULL ? 0 : stream->ops->flush(stream);
}

bool stream_pending(const struct stream *stream)
{
	return stream->ops->pending != NULL && stream->ops->pending(stream);
}

unsigned stream_wanted(const struct stream *stream, bool output)
{
	if (stream->ops->wanted != NULL)
		return stream->ops->wanted(stream, output);
	return output ? HF_READABLE | HF_WRITABLE : HF_READABLE;
}

const char *stream_fault(const struct stream *stream)
{
	return stream->ops->fault == NULL ? NULL : stream->ops->fault(stream);
}
