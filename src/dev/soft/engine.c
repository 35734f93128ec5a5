#include "dev/soft/engine.h"

#include <errno.h>
#include <string.h>

#include "base/ensure.h"
#include "dev/soft/datagram.h"
#include "dev/soft/dc.h"

#define QP_SALT_BITS (24u - QP_INDEX_BITS)

void engine_init(struct engine *engine, struct hf_dev *dev, struct soft_bus *bus, const struct hf_addr *local)
{
	engine->dev = dev;
	engine->bus = bus;
	engine->local = *local;
	list_init(&engine->all_qps);
	list_init(&engine->cqs);
	list_init(&engine->timed);
	list_init(&engine->busy_requesters);
	list_init(&engine->busy_responders);
	engine->deadline_ns = ENGINE_NO_TIMER;
}

/* ---- memory regions ---- */

struct soft_mr *engine_find_mr(struct engine *engine, uint32_t key)
{
	struct soft_mr *mr = engine->mrs[key % MR_BUCKETS];

	while (mr != NULL && mr->base.rkey != key)
		mr = mr->next;
	return mr;
}

static bool covers(uint64_t start, uint64_t size, uint64_t at, uint64_t bytes)
{
	return at >= start && bytes <= size && at - start <= size - bytes;
}

void *engine_local(struct engine *engine, const struct hf_pd *pd, const struct ibv_sge *sge, int access)
{
	struct soft_mr *mr = engine_find_mr(engine, sge->lkey);

	if (mr == NULL || mr->base.pd != pd || (mr->base.access & access) != access ||
		!covers((uintptr_t)mr->base.addr, mr->base.bytes, sge->addr, sge->length))
		return NULL;
	return (uint8_t *)mr->base.addr + (sge->addr - (uintptr_t)mr->base.addr);
}

void *engine_remote(
	struct engine *engine, const struct hf_pd *pd, uint32_t rkey, uint64_t va, uint64_t bytes, int access)
{
	struct soft_mr *mr = engine_find_mr(engine, rkey);

	if (mr == NULL || mr->base.pd != pd || (mr->base.access & access) != access ||
		!covers(mr->base.iova, mr->base.bytes, va, bytes))
		return NULL;
	return (uint8_t *)mr->base.addr + (va - mr->base.iova);
}

/* ---- queue pairs ---- */

/* A number is an index and a salt that changes with every use, so that late packets find no qp. */
int engine_add_qp(struct engine *engine, struct soft_qp *qp)
{
	for (uint32_t tries = 0; tries < QP_MAX; tries++) {
		uint32_t index = engine->qp_cursor++ % QP_MAX;

		if (engine->qps[index] != NULL || index < 2)
			continue;
		engine->qps[index] = qp;
		engine->qp_salt++;
		qp->base.qp_num = (engine->qp_salt % (1u << QP_SALT_BITS)) << QP_INDEX_BITS | index;
		qp->engine = engine;
		list_push_back(&engine->all_qps, &qp->node);
		return 0;
	}
	return -ENOMEM;
}

void engine_remove_qp(struct engine *engine, struct soft_qp *qp)
{
	engine->qps[qp->base.qp_num % QP_MAX] = NULL;
	list_remove(&qp->node);
	list_remove(&qp->requester.busy);
	list_remove(&qp->requester.timed);
	list_remove(&qp->responder.busy);
}

struct soft_qp *engine_find_qp(struct engine *engine, uint32_t qpn)
{
	struct soft_qp *qp = engine->qps[qpn % QP_MAX];

	return qp != NULL && qp->base.qp_num == qpn ? qp : NULL;
}

/* ---- events ---- */

typedef bool (*event_chooser)(const struct hf_dev_event *event, void *context);

static void drop_events(struct engine *engine, event_chooser drops, void *context)
{
	unsigned count = atomic_load_explicit(&engine->event_count, memory_order_relaxed), kept = 0;

	for (unsigned i = 0; i < count; i++) {
		struct hf_dev_event event = engine->events[(engine->first_event + i) % EVENTS_MAX];

		if (!drops(&event, context))
			engine->events[(engine->first_event + kept++) % EVENTS_MAX] = event;
	}
	publish(&engine->event_count, kept);
}

static bool is_of_port(enum ibv_event_type type)
{
	return type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE;
}

static bool is_old_of_port(const struct hf_dev_event *event, void *context)
{
	unsigned *left = context;

	if (*left == 0 || !is_of_port(event->type))
		return false;
	(*left)--;
	return true;
}

/* When they are not read the newest are lost, as from a full NIC; but not those of the port, which say it once that the
 * link is back. They come in turn, ERR and ACTIVE, so that the oldest two can leave. */
void engine_event(struct engine *engine, enum ibv_event_type type, struct hf_qp *qp, struct hf_cq *cq)
{
	unsigned count = atomic_load_explicit(&engine->event_count, memory_order_relaxed), old = 2;

	if (!is_of_port(type) && count >= EVENTS_MAX - PORT_EVENTS_MAX)
		return;
	if (count == EVENTS_MAX) {
		drop_events(engine, is_old_of_port, &old);
		count -= 2;
	}
	engine->events[(engine->first_event + count) % EVENTS_MAX] =
		(struct hf_dev_event){.type = type, .qp = qp, .cq = cq, .srq = NULL};
	publish(&engine->event_count, count + 1);
	engine->wake(engine);
}

int engine_take_event(struct engine *engine, struct hf_dev_event *event_out)
{
	unsigned count = atomic_load_explicit(&engine->event_count, memory_order_relaxed);

	if (count == 0)
		return 0;
	*event_out = engine->events[engine->first_event];
	engine->first_event = (engine->first_event + 1) % EVENTS_MAX;
	publish(&engine->event_count, count - 1);
	return 1;
}

static bool is_about(const struct hf_dev_event *event, void *context)
{
	return event->qp == context || event->cq == context || event->srq == context;
}

void engine_forget_events(struct engine *engine, void *object)
{
	drop_events(engine, is_about, object);
}

/* ---- doorbells ---- */

void engine_ring_doorbell(struct soft_qp *qp)
{
	struct engine *engine = qp->engine;
	struct soft_qp *first;

	if (atomic_exchange(&qp->doorbell_rung, true))
		return;
	first = atomic_load(&engine->doorbells);
	do
		qp->doorbell_next = first;
	while (!atomic_compare_exchange_weak(&engine->doorbells, &first, qp));
}

bool engine_answer_doorbells(struct engine *engine)
{
	struct soft_qp *qp;

	if (atomic_load_explicit(&engine->doorbells, memory_order_relaxed) == NULL)
		return false;
	qp = atomic_exchange(&engine->doorbells, NULL);
	while (qp != NULL) {
		struct soft_qp *next = qp->doorbell_next;

		atomic_store(&qp->doorbell_rung, false); /* before looking: a later post rings again */
		if (qp_state(qp) == IBV_QPS_ERR)
			qp_move(qp, IBV_QPS_ERR);
		else if (list_empty(&qp->requester.busy))
			list_push_back(&engine->busy_requesters, &qp->requester.busy);
		qp = next;
	}
	return true;
}

/* ---- packets ---- */

static bool qp_receives(const struct soft_qp *qp)
{
	enum ibv_qp_state state = qp_state(qp);

	return state == IBV_QPS_RTR || state == IBV_QPS_RTS;
}

void engine_receive(
	struct engine *engine, const struct hf_addr *peer, uint16_t place, uint8_t *data, size_t bytes, uint64_t now_ns)
{
	struct packet packet;
	struct soft_qp *qp;

	engine->counters.packets_received++;
	engine->counters.bytes_received += bytes;
	if (!packet_decode(data, bytes, &packet))
		goto malformed;
	qp = engine_find_qp(engine, packet.dest_qpn);
	if (qp == NULL)
		goto malformed;
	if (!lease_holds(qp->lease, engine->boot_ns) && (packet.traits & PACKET_IS_RESPONSE) == 0) {
		engine->counters.dropped_lease++;
		return;
	}
	if (packet.traits & PACKET_HAS_DCETH) {
		if (qp->dc != HF_DC_TARGET || !dc_receive(qp, peer, place, data, bytes, &packet))
			goto malformed;
		return;
	}
	if ((packet.traits & PACKET_HAS_DETH) != 0 || qp->base.type == IBV_QPT_UD) {
		if ((packet.traits & PACKET_HAS_DETH) == 0 || qp->base.type != IBV_QPT_UD ||
			(qp_receives(qp) && !datagram_receive(qp, peer, place, data, bytes, &packet)))
			goto malformed;
		return;
	}
	if (!qp_receives(qp)) /* late, or early: as if it were lost */
		return;
	if (qp->dc == HF_DC_TARGET || !flow_is_from(&qp->requester.flow, peer) ||
		!packet_icrc_good(&qp->requester.flow.in, hf_addr_port(peer), place, data, bytes))
		goto malformed;
	if (packet.traits & PACKET_IS_RESPONSE)
		requester_receive(&qp->requester, &packet, now_ns);
	else if (qp->dc == HF_DC_NONE)
		responder_receive(&qp->responder, &packet);
	return;
malformed:
	engine->counters.malformed++;
}

void engine_time(struct engine *engine, struct list *timed, uint64_t due_ns)
{
	if (list_empty(timed))
		list_push_back(&engine->timed, timed);
	if (due_ns < engine->deadline_ns)
		engine->deadline_ns = due_ns;
}

void engine_tick(struct engine *engine, uint64_t now_ns)
{
	if (now_ns < engine->deadline_ns)
		return;
	engine->deadline_ns = ENGINE_NO_TIMER;
	list_for_each_safe (at, &engine->timed)
		if (!requester_tick(container_of(at, struct requester, timed), now_ns))
			list_remove(at);
}

/* Each busy side once, in turn; one that has more to send goes to the back of its list. */
static bool transmit_responders(struct engine *engine, bool hold_acks)
{
	struct list end, *at;
	bool full = false;

	list_push_back(&engine->busy_responders, &end);
	while (!full && (at = list_pop_front(&engine->busy_responders)) != &end) {
		struct responder *responder = container_of(at, struct responder, busy);

		full = responder_transmit(responder, hold_acks);
		if (responder->pending_count > 0 || responder->ack_due || responder->nak_due)
			list_push_back(&engine->busy_responders, &responder->busy);
	}
	list_remove(&end);
	return full;
}

bool engine_transmit(struct engine *engine, bool hold_acks, uint64_t now_ns)
{
	struct list end, *at;
	bool full = false;

	if (list_empty(&engine->busy_requesters) && list_empty(&engine->busy_responders))
		return false;
	list_push_back(&engine->busy_requesters, &end);
	while (!full && (at = list_pop_front(&engine->busy_requesters)) != &end) {
		struct requester *requester = container_of(at, struct requester, busy);

		full = requester_transmit(requester, now_ns);
		if (full)
			list_push_back(&engine->busy_requesters, &requester->busy);
	}
	list_remove(&end);
	return transmit_responders(engine, hold_acks) || full;
}
