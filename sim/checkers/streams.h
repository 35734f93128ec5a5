/* streams.h - what a channel promises: messages arrive whole, in order and once, while both ends stay.
 *
 * A stream is what one end sends from one `open` to its end. Each message names its stream and its number in it, and
 * its bytes follow from both. A receiver's end hears one stream from its `open` to its end, from the first message on.
 * This looks at messages and callbacks alone; it shares no code with the product. */
#ifndef HOLDFAST_SIM_CHECKERS_STREAMS_H
#define HOLDFAST_SIM_CHECKERS_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAMS_MAX        512u
#define STREAM_BYTES_LEAST 16u /* of a message */

struct stream_sent {
	unsigned sender, receiver; /* ends, by numbers of the scenario's */
	uint32_t sent, received;
};

struct streams {
	struct stream_sent at[STREAMS_MAX]; /* from 1 */
	uint32_t count;
};

/* A receiver's end. */
struct stream_end {
	bool open;
	uint32_t stream; /* that it hears; 0: nothing was heard yet */
};

/* The sender's end has opened; 0: there is no room for another. */
uint32_t streams_begin(struct streams *streams, unsigned sender, unsigned receiver);
void streams_fill(const struct streams *streams, uint32_t stream, uint8_t *at, size_t bytes); /* the next message */
void streams_sent(struct streams *streams, uint32_t stream);                                  /* and it was accepted */
/* NULL: it is what was due. Otherwise what is wrong, in words. */
const char *streams_hear(struct streams *streams, struct stream_end *end, unsigned sender, unsigned receiver,
	const uint8_t *data, size_t bytes);
/* All of it has arrived at an end that is open. */
bool streams_complete(const struct streams *streams, uint32_t stream, const struct stream_end *end);

#endif
