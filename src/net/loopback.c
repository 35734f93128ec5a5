/* A node as its own peer: two peers of one control, each of which delivers what the other sends. There is no stream
 * between them, so they have no paths and no session, and end together. */
#include "net/peer_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct control_peer *make_end(struct control *control)
{
	struct control_peer *peer = control_peer_create(control, NULL);

	if (peer == NULL)
		return NULL;
	peer->known = true;
	memcpy(peer->name, control->name, sizeof(peer->name));
	peer->incarnation = control->incarnation;
	return peer;
}

int control_loop_back(struct control *control, struct control_peer *ends_out[2])
{
	ends_out[0] = make_end(control);
	ends_out[1] = ends_out[0] == NULL ? NULL : make_end(control);
	if (ends_out[1] == NULL) {
		control_peer_close(ends_out[0]);
		return -ENOMEM;
	}
	ends_out[0]->twin = ends_out[1];
	ends_out[1]->twin = ends_out[0];
	control_soon(control);
	return 0;
}

int loopback_send(struct control_peer *peer, const void *data, uint32_t bytes)
{
	struct outgoing *out = malloc(sizeof(*out) + bytes);

	if (out == NULL)
		return -ENOMEM;
	out->sequence = 0;
	out->bytes = bytes;
	memcpy(out->data, data, bytes);
	list_push_back(&peer->outgoing, &out->node);
	control_soon(peer->control);
	return 0;
}

void loopback_hear(struct control_peer *peer)
{
	struct control *control = peer->control;
	struct list *sent = &peer->twin->outgoing;
	unsigned n = 0;

	if (!peer->told) {
		peer->told = true;
		control->events.up(peer, control->context);
	}
	list_for_each (at, sent)
		n++;
	while (n-- > 0) { /* what is sent meanwhile is delivered at the next call */
		struct outgoing *out = container_of(list_pop_front(sent), struct outgoing, node);

		control->events.message(peer, out->data, out->bytes, control->context);
		free(out);
	}
}
