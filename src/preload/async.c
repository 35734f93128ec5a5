/* Asynchronous events: a port is up while any rail of its bond is. */
#include "preload/objects.h"

#include <errno.h>
#include <stdlib.h>

#include "env/tally.h"
#include "preload/drive.h"
#include "preload/real.h"

#define EVENTS_MAX 256u /* of one context; a program that reads none is told no more */

static unsigned queued(const struct context *context)
{
	unsigned n = 0;

	list_for_each (at, &context->events)
		n++;
	return n;
}

void async_port_changed(struct bond *bond, bool up)
{
	list_for_each (at, &bond->contexts) {
		struct context *context = container_of(at, struct context, bond_link);
		struct async_event *event = queued(context) < EVENTS_MAX ? calloc(1, sizeof(*event)) : NULL;

		if (event == NULL)
			continue;
		event->event.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
		event->event.element.port_num = 1;
		list_push_back(&context->events, &event->node);
		tally_add(context->verbs.context.async_fd);
	}
}

void async_free(struct context *context)
{
	struct list *at;

	while ((at = list_pop_front(&context->events)) != NULL)
		free(container_of(at, struct async_event, node));
}

int ibv_get_async_event(struct ibv_context *base, struct ibv_async_event *event)
{
	struct async_event *first = NULL;
	struct list *at;
	int rc;

	if (!context_is_ours(base))
		return REAL(ibv_get_async_event)(base, event);
	rc = tally_take(base->async_fd);
	if (rc != 0) {
		errno = -rc;
		return -1;
	}
	drive_lock();
	at = list_pop_front(&context_of(base)->events);
	drive_unlock();
	if (at == NULL) {
		errno = EAGAIN;
		return -1;
	}
	first = container_of(at, struct async_event, node);
	*event = first->event;
	free(first);
	return 0;
}

/* Events of ports need no acknowledgement, and ours are of no other kind. */
void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch ((unsigned)event->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		return;
	default:
		REAL(ibv_ack_async_event)(event);
	}
}
