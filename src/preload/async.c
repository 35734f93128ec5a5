/* Asynchronous events: a port is up while any rail of its bond is; a queue pair of a shared receive queue that fails
 * takes no more receives. */
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

static void raise_event(struct context *context, const struct ibv_async_event *what)
{
	struct async_event *event = queued(context) < EVENTS_MAX ? calloc(1, sizeof(*event)) : NULL;

	if (event == NULL)
		return;
	event->event = *what;
	list_push_back(&context->events, &event->node);
	tally_add(context->verbs.context.async_fd);
}

void async_port_changed(struct bond *bond, bool up)
{
	const struct ibv_async_event event = {
		.element.port_num = 1, .event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR};

	list_for_each (at, &bond->contexts)
		raise_event(container_of(at, struct context, bond_link), &event);
}

void async_last_wqe(struct queue_pair *qp)
{
	const struct ibv_async_event event = {.element.qp = &qp->qp, .event_type = IBV_EVENT_QP_LAST_WQE_REACHED};

	if (qp->last_told)
		return;
	qp->last_told = true;
	raise_event(context_of(qp->qp.context), &event);
}

void async_forget(struct queue_pair *qp)
{
	struct context *context = context_of(qp->qp.context);

	drive_lock();
	list_for_each_safe (at, &context->events) {
		struct async_event *event = container_of(at, struct async_event, node);

		if (event->event.event_type != IBV_EVENT_QP_LAST_WQE_REACHED || event->event.element.qp != &qp->qp)
			continue;
		list_remove(at);
		free(event);
		(void)tally_drop(context->verbs.context.async_fd);
	}
	drive_unlock();
	pthread_mutex_lock(&qp->qp.mutex);
	while (qp->qp.events_completed != qp->events_got)
		pthread_cond_wait(&qp->qp.cond, &qp->qp.mutex);
	pthread_mutex_unlock(&qp->qp.mutex);
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
	first = at == NULL ? NULL : container_of(at, struct async_event, node);
	if (first != NULL && first->event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
		container_of(first->event.element.qp, struct queue_pair, qp)->events_got++;
	drive_unlock();
	if (first == NULL) {
		errno = EAGAIN;
		return -1;
	}
	*event = first->event;
	free(first);
	return 0;
}

static void acknowledge(struct ibv_qp *qp)
{
	pthread_mutex_lock(&qp->mutex);
	qp->events_completed++;
	pthread_cond_signal(&qp->cond);
	pthread_mutex_unlock(&qp->mutex);
}

/* Events of ports need no acknowledgement. */
void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch ((unsigned)event->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		return;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		if (context_is_ours(event->element.qp->context)) {
			acknowledge(event->element.qp);
			return;
		}
		REAL(ibv_ack_async_event)(event);
		return;
	default:
		REAL(ibv_ack_async_event)(event);
	}
}
