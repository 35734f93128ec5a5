/* What happens to a port from outside: its link is switched, a peer was refused and moved a qp to ERR.
 *
 * Both are seen at the next poll by one load of a quiet cache line each. */
#include "dev/shm/shm.h"

void events_ring_own_bell(struct shm_dev *dev)
{
	atomic_store(&dev->shared->header.rung, 1);
	share_bell_ring(dev->own_bell);
}

/* An owner that does not sleep looks before it does (has_work): a thousand events of a thousand qps ring once. */
static void wake_sleeper(struct shm_dev *dev)
{
	if (atomic_load(&dev->shared->header.armed) != 0 && atomic_exchange(&dev->shared->header.armed, 0) != 0)
		events_ring_own_bell(dev);
}

void event_push(struct shm_dev *dev, struct hf_dev_event event)
{
	shm_lock(&dev->lock);
	if (dev->event_tail - dev->event_head < SHM_EVENTS)
		dev->events[dev->event_tail++ % SHM_EVENTS] = event;
	shm_unlock(&dev->lock);
	wake_sleeper(dev);
}

void events_forget_qp(struct shm_dev *dev, const struct hf_qp *qp)
{
	uint32_t kept;

	shm_lock(&dev->lock);
	kept = dev->event_head;
	for (uint32_t i = dev->event_head; i != dev->event_tail; i++)
		if (dev->events[i % SHM_EVENTS].qp != qp)
			dev->events[kept++ % SHM_EVENTS] = dev->events[i % SHM_EVENTS];
	dev->event_tail = kept;
	shm_unlock(&dev->lock);
}

bool events_pending(struct shm_dev *dev)
{
	return dev->event_head != dev->event_tail;
}

/* ---- links ---- */

/* Down is the port only when both directions are; one direction is a fault without a report. */
static void look_at_link(struct shm_dev *dev, uint32_t switches)
{
	uint32_t missed = switches - dev->seen_switches - atomic_exchange(&dev->silent_switches, 0);
	bool down = (atomic_load(&dev->line->link) & HF_LINK_BOTH) == 0;

	dev->seen_switches = switches;
	fabric_port_bell_clear(dev->port);
	if (down == dev->port_down && (down || missed < 2 || missed > UINT32_MAX / 2))
		return;
	if (!dev->port_down)
		event_push(dev, (struct hf_dev_event){.type = IBV_EVENT_PORT_ERR});
	if (!down)
		event_push(dev, (struct hf_dev_event){.type = IBV_EVENT_PORT_ACTIVE});
	dev->port_down = down;
}

/* ---- refusals ---- */

static void look_at_fault(uint32_t slot, void *context)
{
	struct shm_dev *dev = context;
	struct shm_qp *qp = dev->qps[slot];
	enum ibv_event_type type = IBV_EVENT_QP_FATAL;
	uint32_t fault;

	if (qp == NULL)
		return;
	fault = atomic_exchange(&qp->shared->fault, 0);
	if (QP_WORD_STATE(atomic_load(&qp->shared->state)) != IBV_QPS_ERR || qp->state == IBV_QPS_ERR)
		return;
	if (fault == IBV_EVENT_QP_ACCESS_ERR + 1)
		type = IBV_EVENT_QP_ACCESS_ERR;
	else if (fault == IBV_EVENT_QP_REQ_ERR + 1)
		type = IBV_EVENT_QP_REQ_ERR;
	else if (fault == IBV_EVENT_CQ_ERR + 1)
		event_push(dev, (struct hf_dev_event){.type = IBV_EVENT_CQ_ERR, .cq = qp->qp.recv_cq});
	dev->counters.naks_sent++;
	qp_enter_error(qp, IBV_WC_SUCCESS);
	event_push(dev, (struct hf_dev_event){.type = type, .qp = &qp->qp});
}

bool events_look(struct shm_dev *dev)
{
	struct port_header *header = &dev->shared->header;
	uint32_t switches = atomic_load(&dev->line->switches);
	bool found = false;

	if (switches != dev->seen_switches) {
		look_at_link(dev, switches);
		found = true;
	}
	if (qp_bitmap_any(&header->faults)) {
		qp_bitmap_take(&header->faults, look_at_fault, dev);
		found = true;
	}
	return found;
}

/* The bell is cleared before the look for work, so that what comes later rings it again. `rung` saves the system
 * call but is set before the bell rings, so a ring can come behind a clear: now and then, and before a sleep, the bell
 * is cleared whatever `rung` says. */
void events_clear_bell(struct shm_dev *dev, bool surely)
{
	if (surely || atomic_load(&dev->shared->header.rung) != 0) {
		atomic_store(&dev->shared->header.rung, 0);
		fabric_port_bell_clear(dev->port);
	}
}

int shm_get_event(struct hf_dev *base, struct hf_dev_event *event_out)
{
	struct shm_dev *dev = shm_dev_of(base);
	int got;

	events_look(dev);
	shm_lock(&dev->lock);
	got = dev->event_head != dev->event_tail;
	if (got)
		*event_out = dev->events[dev->event_head++ % SHM_EVENTS];
	shm_unlock(&dev->lock);
	return got;
}

int shm_set_link(struct hf_dev *base, enum hf_link direction, bool up)
{
	struct shm_dev *dev = shm_dev_of(base);
	uint32_t bits = (uint32_t)direction & HF_LINK_BOTH, before, after;

	if (up) {
		before = atomic_fetch_or(&dev->line->link, bits);
		after = before | bits;
	} else {
		before = atomic_fetch_and(&dev->line->link, ~bits);
		after = before & ~bits;
	}
	if (before == after)
		return 0;
	if (before != 0 && after != 0) /* one direction: not the flap of a port that missed switches would mean */
		atomic_fetch_add(&dev->silent_switches, 1);
	atomic_fetch_add(&dev->line->switches, 1);
	wake_sleeper(dev);
	return 0;
}
