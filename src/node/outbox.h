/* outbox.h - several messages sent together, as one message of the control channel. Pure.
 *
 * A box is a row of messages, each behind its length:  u16 bytes, message (message.c) */
#ifndef HOLDFAST_NODE_OUTBOX_H
#define HOLDFAST_NODE_OUTBOX_H

#include "node/message.h"

struct outbox {
	uint32_t used;
	uint8_t bytes[CONTROL_MESSAGE_MAX];
};

bool outbox_add(struct outbox *box, const struct message_head *message); /* false: no room left */
/* The messages in [*at, end), one a call; false: there is no further one (*at == end), or it violates the layout. */
bool outbox_next(const struct message_kinds *kinds, const uint8_t **at, const uint8_t *end, union message *message_out);

#endif
