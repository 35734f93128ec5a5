/* What wakes a sleeper: completion channels and asynchronous events; and the port's state. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dev/verbs/verbs.h"
#include "env/alarm.h"
#include "env/foreign.h"
#include "env/group.h"

/* ---- events for the owner ---- */

/* Without memory an event of an object is lost, but not that of the port. */
void verbs_tell(struct verbs_dev *dev, const struct hf_dev_event *event)
{
	struct verbs_event *one = dev->event_count < VERBS_EVENTS_MAX ? malloc(sizeof(*one)) : NULL;

	if (one == NULL)
		return;
	one->event = *event;
	list_push_back(&dev->events, &one->link);
	dev->event_count++;
}

static struct hf_dev_event take_event(struct verbs_dev *dev, struct verbs_event *one)
{
	struct hf_dev_event event = one->event;

	list_remove(&one->link);
	dev->event_count--;
	free(one);
	return event;
}

void verbs_forget_events(struct verbs_dev *dev, const void *object)
{
	list_for_each_safe (at, &dev->events) {
		struct verbs_event *one = container_of(at, struct verbs_event, link);

		if (one->event.qp != object && one->event.cq != object && one->event.srq != object)
			continue;
		(void)take_event(dev, one);
	}
}

static void note_port(struct verbs_dev *dev, bool up, uint64_t now_ns)
{
	if (up == dev->up)
		return; /* some NICs say everything twice */
	dev->up = up;
	dev->flapped |= !up;
	if (!up)
		dev->down_ns = now_ns;
}

static bool port_pends(const struct verbs_dev *dev)
{
	return dev->told_up ? !dev->up || dev->flapped : dev->up;
}

static struct hf_dev_event take_port(struct verbs_dev *dev)
{
	dev->told_up = !dev->told_up;
	dev->flapped = false;
	return (struct hf_dev_event){.type = dev->told_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR};
}

/* False: it is not to be told, because the qp was destroyed and waits for its grave, or because we told it. */
static bool translate_qp(struct verbs_dev *dev, const struct ibv_async_event *theirs, struct hf_dev_event *ours)
{
	struct verbs_qp *qp = table_get(&dev->by_num, theirs->element.qp->qp_num);
	bool last = theirs->event_type == IBV_EVENT_QP_LAST_WQE_REACHED;

	if (qp == NULL || (last && qp->last_told))
		return false;
	qp->last_told |= last;
	ours->qp = &qp->base;
	return true;
}

static void translate(struct verbs_dev *dev, const struct ibv_async_event *theirs, uint64_t now_ns)
{
	struct hf_dev_event ours = {.type = theirs->event_type};

	switch (theirs->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		if (theirs->element.port_num == dev->port.number)
			note_port(dev, theirs->event_type == IBV_EVENT_PORT_ACTIVE, now_ns);
		return;
	case IBV_EVENT_CQ_ERR:
		ours.cq = &((struct verbs_cq *)theirs->element.cq->cq_context)->base;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ours.srq = &((struct verbs_srq *)theirs->element.srq->srq_context)->base;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		if (!translate_qp(dev, theirs, &ours))
			return;
		break;
	case IBV_EVENT_GID_CHANGE:
		if (!verbs_port_find_gid_again(dev->lib, dev->context, &dev->port))
			log_warn("%s: the address of the port was removed; new paths fail until it is added again",
				dev->base.attr.name);
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_WQ_FATAL:
		break;
	}
	verbs_tell(dev, &ours);
}

static void take_events(struct verbs_dev *dev, uint64_t now_ns)
{
	struct ibv_async_event event;

	dev->events_ns = now_ns;
	while (dev->lib->get_async_event(dev->context, &event) == 0) {
		translate(dev, &event, now_ns);
		dev->lib->ack_async_event(&event);
	}
}

int verbs_get_event(struct hf_dev *base, struct hf_dev_event *event_out)
{
	struct verbs_dev *dev = verbs_of(base);

	if (list_empty(&dev->events) && !port_pends(dev))
		(void)verbs_poll(base, hf_env_now_ns(base->env));
	if (port_pends(dev))
		*event_out = take_port(dev);
	else if (!list_empty(&dev->events))
		*event_out = take_event(dev, container_of(dev->events.next, struct verbs_event, link));
	else
		return 0;
	return 1;
}

/* ---- completions ---- */

bool verbs_take_notifications(struct verbs_dev *dev)
{
	struct ibv_cq *cq;
	void *context;
	bool any = false;

	while (dev->armed > 0 && dev->lib->get_cq_event(dev->channel, &cq, &context) == 0) {
		verbs_cq_notify(context);
		any = true;
	}
	return any;
}

static bool something_pends(struct verbs_dev *dev)
{
	if (!list_empty(&dev->events) || port_pends(dev))
		return true;
	list_for_each (at, &dev->cqs)
		if (container_of(at, struct verbs_cq, link)->notified)
			return true;
	return false;
}

/* ---- driving ---- */

static enum ibv_port_state port_state(struct verbs_dev *dev)
{
	struct ibv_port_attr attr = {0};

	if (dev->lib->query_port(dev->context, dev->port.number, (struct _compat_ibv_port_attr *)(void *)&attr) != 0)
		return IBV_PORT_NOP;
	return attr.state;
}

static void ask_port(struct verbs_dev *dev, uint64_t now_ns)
{
	note_port(dev, port_state(dev) == IBV_PORT_ACTIVE, now_ns);
}

bool verbs_port_failed(struct verbs_dev *dev)
{
	uint64_t now_ns = hf_env_now_ns(dev->base.env);

	take_events(dev, now_ns);
	ask_port(dev, now_ns);
	return !dev->up || (dev->down_ns != 0 && !verbs_passed(now_ns, dev->down_ns, VERBS_LATELY_NS));
}

static void set_alarm(struct verbs_dev *dev, uint64_t at_ns)
{
	if (dev->alarm_ns != at_ns)
		alarm_io_set(dev->alarm, at_ns);
	dev->alarm_ns = at_ns;
}

static void look(struct verbs_dev *dev, uint64_t now_ns)
{
	dev->looked_ns = now_ns;
	set_alarm(dev, 0);
	ask_port(dev, now_ns);
	if (!dev->up)
		verbs_qps_lose_patience(dev, now_ns);
	verbs_answers_look(dev);
	verbs_qps_ring(dev, now_ns);
	verbs_qps_tell_last(dev, now_ns);
	verbs_bury(dev, now_ns);
}

enum hf_poll verbs_poll(struct hf_dev *base, uint64_t now_ns)
{
	struct verbs_dev *dev = verbs_of(base);
	bool any = verbs_take_notifications(dev);

	verbs_link_look(dev);
	if (verbs_passed(now_ns, dev->events_ns, VERBS_EVENT_NS))
		take_events(dev, now_ns);
	if (verbs_passed(now_ns, dev->looked_ns, VERBS_LOOK_NS))
		look(dev, now_ns);
	return any || !list_empty(&dev->events) || port_pends(dev) ? HF_BUSY : HF_IDLE;
}

struct hf_io *verbs_io(struct hf_dev *base)
{
	return verbs_of(base)->io;
}

bool verbs_arm(struct hf_dev *base)
{
	struct verbs_dev *dev = verbs_of(base);

	verbs_take_notifications(dev);
	take_events(dev, hf_env_now_ns(base->env));
	if (dev->fabric != NULL)
		fabric_port_bell_clear(dev->fabric); /* also after two switches that no look saw */
	verbs_link_look(dev);
	set_alarm(dev, verbs_qps_wait(dev) ? dev->looked_ns + VERBS_LOOK_NS : 0);
	return !something_pends(dev);
}

int verbs_events_open(struct verbs_dev *dev)
{
	struct hf_io *members[4];
	unsigned n = 0;
	int rc;

	dev->channel = dev->lib->create_comp_channel(dev->context);
	if (dev->channel == NULL)
		return errno == 0 ? -ENOMEM : -errno;
	if ((rc = foreign_io_open(dev->context->async_fd, &dev->async_io)) != 0 ||
		(rc = foreign_io_open(dev->channel->fd, &dev->channel_io)) != 0 ||
		(rc = alarm_io_open(&dev->alarm)) != 0)
		return rc;
	members[n++] = dev->alarm;
	members[n++] = dev->async_io;
	members[n++] = dev->channel_io;
	if (dev->fabric != NULL)
		members[n++] = fabric_port_bell(dev->fabric);
	verbs_answers_look(dev);
	dev->up = dev->told_up = port_state(dev) == IBV_PORT_ACTIVE;
	dev->looked_ns = dev->events_ns = hf_env_now_ns(dev->base.env);
	return env_io_group_open(dev->base.env, members, n, &dev->io);
}

void verbs_events_close(struct verbs_dev *dev)
{
	while (!list_empty(&dev->events))
		(void)take_event(dev, container_of(dev->events.next, struct verbs_event, link));
	hf_io_close(dev->io);
	hf_io_close(dev->alarm);
	hf_io_close(dev->channel_io);
	hf_io_close(dev->async_io);
	if (dev->channel != NULL)
		dev->lib->destroy_comp_channel(dev->channel);
}
