/* channel.h - lines of JSON over a file descriptor of process.h: one object a line, both ways. */
#ifndef HOLDFAST_CLI_CHANNEL_H
#define HOLDFAST_CLI_CHANNEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CHANNEL_LINE_BYTES 16384 /* three paths of PATH_MAX and some words */

struct channel {
	int fd;
	bool ended; /* end of file, an error, or a line that is no JSON object: nothing more will come */
	size_t used;
	char in[CHANNEL_LINE_BYTES];
};

void channel_init(struct channel *channel, int fd);
/* Sends and drops the reference; 0 or -errno (-ENOMEM for NULL). */
int channel_send(struct channel *channel, json_t *message);
/* The next message that has arrived, the caller's to drop; NULL when there is none. Never blocks. */
json_t *channel_receive(struct channel *channel);

/* The pure part: cuts the first line out of `in`. NULL with *bad_out: a line too long or malformed. */
json_t *channel_cut_line(char *in, size_t *used, bool *bad_out);

#endif
