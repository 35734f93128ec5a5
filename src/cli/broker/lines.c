#include "cli/broker/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "cli/process.h"
#include "env/foreign.h"

#define READ_BYTES 65536u

static void readable(struct hf_watch *watch, unsigned ready)
{
	struct lines *lines = container_of(watch, struct lines, watch);

	(void)ready;
	lines->ready = true;
	(void)hf_loop_watch(lines->loop, &lines->watch, lines->io, 0); /* until it was read empty */
}

int lines_open(struct lines *lines, struct hf_loop *loop, int fd, char end_of_line)
{
	*lines = (struct lines){.loop = loop,
		.watch = {.ready = readable},
		.fd = fd,
		.flags = fcntl(fd, F_GETFL),
		.end_of_line = end_of_line,
		.ready = true};
	return foreign_io_open(fd, &lines->io);
}

void lines_close(struct lines *lines)
{
	if (lines->loop == NULL)
		return;
	hf_loop_unwatch(&lines->watch);
	hf_io_close(lines->io);
	if (lines->flags >= 0)
		(void)fcntl(lines->fd, F_SETFL, lines->flags);
	free(lines->data);
	*lines = (struct lines){0};
}

static int make_room(struct lines *lines)
{
	size_t have = lines->to - lines->from;
	char *data;

	if (lines->from > 0)
		memmove(lines->data, lines->data + lines->from, have);
	lines->searched -= lines->from;
	lines->from = 0;
	lines->to = have;
	if (lines->room - have >= READ_BYTES)
		return 0;
	data = realloc(lines->data, have + 2 * READ_BYTES);
	if (data == NULL)
		return -ENOMEM;
	lines->data = data;
	lines->room = have + 2 * READ_BYTES;
	return 0;
}

static int pull(struct lines *lines)
{
	int rc = make_room(lines);
	ssize_t n = rc != 0 ? rc : process_read(lines->fd, lines->data + lines->to, READ_BYTES);

	if (n == -EAGAIN) { /* not of a file, which no loop can watch */
		lines->ready = false;
		return hf_loop_watch(lines->loop, &lines->watch, lines->io, HF_READABLE);
	}
	if (n < 0)
		return (int)n;
	lines->ended = n == 0;
	lines->to += (size_t)n;
	return 0;
}

static int give(struct lines *lines, size_t bytes, size_t end_bytes, const char **line_out, size_t *bytes_out)
{
	*line_out = lines->data + lines->from;
	*bytes_out = bytes;
	lines->from += bytes + end_bytes;
	lines->searched = lines->from;
	return 1;
}

int lines_next(struct lines *lines, size_t most, const char **line_out, size_t *bytes_out)
{
	for (;;) {
		size_t have = lines->to - lines->from;
		const char *end = lines->searched == lines->to
					  ? NULL
					  : memchr(lines->data + lines->searched, lines->end_of_line,
						    lines->to - lines->searched);
		size_t bytes = end == NULL ? have : (size_t)(end - lines->data) - lines->from;
		int rc;

		lines->searched = lines->to;
		if (bytes > most)
			return -EMSGSIZE;
		if (end != NULL)
			return give(lines, bytes, 1, line_out, bytes_out);
		if (lines->ended)
			return have == 0 ? -ENODATA : give(lines, have, 0, line_out, bytes_out);
		if (!lines->ready)
			return 0;
		rc = pull(lines);
		if (rc != 0)
			return rc;
	}
}
