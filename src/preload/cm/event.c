/* Events: they wait in the channel of their id until the program takes them. */
#include "preload/cm/cm.h"

#include <stdlib.h>

#include "base/log.h"
#include "dev/gid.h"
#include "env/tally.h"

struct event {
	struct list node;
	struct cm_id *id, *request;
	struct rdma_ucm_event_resp resp;
};

static bool queue(struct cm_id *id, const struct event *what)
{
	struct event *event = malloc(sizeof(*event));

	if (event == NULL) {
		log_error("rdma_cm id %u: no memory for an event of type %u; the program does not get it", id->handle,
			what->resp.event);
		return false;
	}
	*event = *what;
	event->id = id;
	list_push_back(&id->channel->events, &event->node);
	tally_add(id->channel->fd);
	return true;
}

/* What a program of datagrams needs to send some. */
static void describe_peer(
	const struct cm_id *id, const struct rdma_ucm_conn_param *params, struct rdma_ucm_ud_param *out)
{
	union ibv_gid gid = gid_of_addr(&id->peer);

	*out = (struct rdma_ucm_ud_param){.qp_num = params->qp_num,
		.qkey = params->qkey,
		.ah_attr = {.grh = {.hop_limit = 64}, .is_global = 1, .port_num = 1},
		.private_data_len = params->private_data_len};
	memcpy(out->ah_attr.grh.dgid, gid.raw, sizeof(gid.raw));
	memcpy(out->private_data, params->private_data, sizeof(out->private_data));
}

static void describe(const struct cm_id *id, const struct rdma_ucm_conn_param *params, struct rdma_ucm_event_resp *out)
{
	if (params == NULL)
		return;
	if (id->datagrams)
		describe_peer(id, params, &out->param.ud);
	else
		out->param.conn = *params;
}

void cm_event(struct cm_id *id, enum cm_event_type type, int status, const struct rdma_ucm_conn_param *params)
{
	struct event event = {.resp = {.id = id->handle, .event = type, .status = (uint32_t)status}};

	if (id->asked && id->uid == 0)
		return; /* the program has not accepted it, and finds out when it does */
	describe(id, params, &event.resp);
	(void)queue(id, &event);
}

bool cm_event_request(struct cm_id *listener, struct cm_id *request)
{
	struct event event = {.request = request, .resp = {.id = request->handle, .event = CM_EVENT_CONNECT_REQUEST}};

	describe(request, &request->theirs, &event.resp);
	if (!queue(listener, &event))
		return false;
	listener->requests++;
	return true;
}

bool cm_event_take(struct cm_channel *channel, struct rdma_ucm_event_resp *event_out)
{
	struct list *at = list_pop_front(&channel->events);
	struct event *event;

	if (at == NULL)
		return false;
	event = container_of(at, struct event, node);
	*event_out = event->resp;
	event_out->uid = event->id->uid;
	event->id->events_given++;
	if (event->request != NULL)
		event->id->requests--;
	free(event);
	return true;
}

static void move_id(struct cm_id *id, struct cm_channel *channel)
{
	list_remove(&id->channel_link);
	list_push_back(&channel->ids, &id->channel_link);
	id->channel = channel;
}

/* A thread that has taken the count of an event that is moved finds none, and waits on. */
void cm_event_migrate(struct cm_id *id, struct cm_channel *channel)
{
	struct cm_channel *from = id->channel;

	if (channel == from)
		return;
	list_for_each_safe (at, &from->events) {
		struct event *event = container_of(at, struct event, node);

		if (event->id != id)
			continue;
		(void)tally_drop(from->fd);
		list_remove(at);
		list_push_back(&channel->events, at);
		tally_add(channel->fd);
		if (event->request != NULL)
			move_id(event->request, channel);
	}
	move_id(id, channel);
}

void cm_event_drop(struct cm_id *id, void (*dropped)(struct cm_id *request))
{
	list_for_each_safe (at, &id->channel->events) {
		struct event *event = container_of(at, struct event, node);

		if (event->id != id)
			continue;
		list_remove(at);
		(void)tally_drop(id->channel->fd);
		if (event->request != NULL)
			dropped(event->request);
		free(event);
	}
}
