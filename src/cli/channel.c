#include "cli/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/process.h"

void channel_init(struct channel *channel, int fd)
{
	memset(channel, 0, sizeof(*channel));
	channel->fd = fd;
}

int channel_send(struct channel *channel, json_t *message)
{
	char *line = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;
	size_t bytes;
	int failed;

	json_decref(message);
	if (line == NULL)
		return -ENOMEM;
	bytes = strlen(line);
	line[bytes] = '\n'; /* in place of the terminator */
	failed = process_write(channel->fd, line, bytes + 1);
	free(line);
	return failed;
}

json_t *channel_cut_line(char *in, size_t *used, bool *bad_out)
{
	char *end = memchr(in, '\n', *used);
	json_t *message;
	size_t bytes;

	*bad_out = end == NULL && *used == CHANNEL_LINE_BYTES;
	if (end == NULL)
		return NULL;
	bytes = (size_t)(end - in);
	message = json_loadb(in, bytes, 0, NULL);
	*used -= bytes + 1;
	memmove(in, end + 1, *used);
	*bad_out = !json_is_object(message);
	if (!*bad_out)
		return message;
	json_decref(message);
	return NULL;
}

json_t *channel_receive(struct channel *channel)
{
	for (;;) {
		bool bad;
		json_t *message = channel_cut_line(channel->in, &channel->used, &bad);
		ssize_t n;

		if (message != NULL)
			return message;
		if (bad)
			channel->ended = true;
		if (channel->ended)
			return NULL;
		n = process_read(channel->fd, channel->in + channel->used, CHANNEL_LINE_BYTES - channel->used);
		if (n == -EAGAIN)
			return NULL;
		if (n <= 0)
			channel->ended = true; /* what is buffered is cut first: it had no newline */
		else
			channel->used += (size_t)n;
	}
}
