/* Operations of clients: begun in the order of their flow, and answered in it (R-K8). Writes that need not know the
 * record before them follow each other without waiting, because their INVs leave in order; a read, and an operation
 * that reads, waits for the writes before it, and all behind it wait for it. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/states.h"
#include "kv/engine.h"

/* ---- an operation's life ---- */

static void op_move(struct op *op, enum op_state to)
{
	static const struct state states[] = {
		[OP_QUEUED] = {"queued", BIT(OP_WAITING) | BIT(OP_BEGUN) | BIT(OP_DONE)},
		[OP_WAITING] = {"waiting", BIT(OP_WAITING) | BIT(OP_BEGUN) | BIT(OP_DONE)},
		[OP_BEGUN] = {"begun", BIT(OP_REFUSED) | BIT(OP_DONE)},
		[OP_REFUSED] = {"refused", BIT(OP_REFUSED) | BIT(OP_WAITING) | BIT(OP_DONE)},
		[OP_DONE] = {"done", 0},
	};

	states_move_often("operation", states, &op->state, to, "%p", (void *)op->user);
}

static struct op *op_take(struct hf_kv *kv)
{
	struct op *op = kv->op_free;

	if (op != NULL)
		kv->op_free = op->user == NULL ? NULL : (struct op *)(void *)op->user;
	else
		op = malloc(sizeof(*op));
	if (op != NULL)
		*op = (struct op){0};
	return op;
}

static void op_give(struct hf_kv *kv, struct op *op)
{
	free(op->saved);
	op->user = (struct hf_kv_op *)(void *)kv->op_free;
	kv->op_free = op;
}

/* Its end is not told any more. */
static void op_forget(struct hf_kv *kv, struct op *op)
{
	list_remove(&op->in_flow);
	list_remove(&op->in_key);
	list_remove(&op->in_age);
	if (op->state == OP_BEGUN)
		op->key->op = NULL;
	op_give(kv, op);
}

static void set_ready(struct hf_kv_flow *flow)
{
	list_remove(&flow->in_ready);
	list_push_back(&flow->kv->ready, &flow->in_ready);
}

void kv_flows_finish(struct hf_kv *kv, struct op *op, enum hf_kv_result result)
{
	(void)kv;
	op->user->result = result;
	list_remove(&op->in_key);
	list_remove(&op->in_age);
	op_move(op, OP_DONE);
	set_ready(op->flow);
}

void kv_flows_begun(struct busy *busy, struct op *op)
{
	busy->op = op;
	op->key = busy;
	op_move(op, OP_BEGUN);
}

void kv_flows_wait(struct list *waiters, struct op *op)
{
	op_move(op, op->state == OP_REFUSED ? OP_REFUSED : OP_WAITING);
	list_remove(&op->in_key);
	list_push_back(waiters, &op->in_key);
}

void kv_flows_refused(struct list *waiters, struct op *op)
{
	op_move(op, OP_REFUSED);
	list_push_front(waiters, &op->in_key);
}

/* The result of an operation that ends before its write is known to have committed, or to have been superseded. */
static enum hf_kv_result early(const struct op *op, enum hf_kv_result result)
{
	return op->state == OP_BEGUN || op->state == OP_REFUSED ? HF_KV_UNKNOWN : result;
}

/* ---- beginning ---- */

static bool all_have_room(const struct hf_kv *kv)
{
	if (!kv_store_has_room(&kv->store, kv->reserve) || kv->log.low)
		return false;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if ((kv->view.live & 1u << i) != 0 && (kv->council.reports[i].note & WIRE_NOTE_NO_ROOM) != 0)
			return false;
	return true;
}

/* HF_KV_OK: it may begin. Whatever is refused has left no trace (R-K10). */
static enum hf_kv_result refusal(const struct hf_kv *kv, const struct op *op)
{
	if (!kv->member)
		return HF_KV_LOADING;
	if (change_is_read(op->user))
		return HF_KV_OK;
	if ((uint32_t)__builtin_popcount(kv->view.live) < kv->config.min_members)
		return HF_KV_NO_REPLICAS;
	return op->user->kind == HF_KV_DELETE || all_have_room(kv) ? HF_KV_OK : HF_KV_NO_MEMORY;
}

/* One that has waited is answered at the end of the turn, and the record may be another one by then. */
static enum hf_kv_result keep_returned(struct op *op)
{
	struct hf_kv_op *user = op->user;

	if (op->state != OP_WAITING || user->returned == NULL)
		return user->result;
	free(op->saved);
	op->saved = malloc((size_t)user->returned_bytes + 1);
	if (op->saved == NULL)
		return HF_KV_NO_MEMORY;
	memcpy(op->saved, user->returned, user->returned_bytes);
	user->returned = op->saved;
	return user->result;
}

static void finish_changed(struct hf_kv *kv, struct op *op, struct record *record)
{
	char number[CHANGE_NUMBER_BYTES];
	struct write_content content;
	uint8_t *made;

	switch (kv_change_of(op, record, &content, number, &made)) {
	case CHANGE_READ:
		kv->counters.reads++;
		kv_flows_finish(kv, op, keep_returned(op));
		break;
	case CHANGE_NO_MEMORY:
		kv_flows_finish(kv, op, HF_KV_NO_MEMORY);
		break;
	case CHANGE_WRITE:
		op->user->result =
			op->user->returned == NULL && (op->user->flags & HF_KV_RETURN) != 0 ? HF_KV_ABSENT : HF_KV_OK;
		if (kv_writes_begin(kv, op, &content) == WRITE_NO_MEMORY)
			kv_flows_finish(kv, op, HF_KV_NO_MEMORY);
		break;
	}
	free(made);
}

/* The operation is the first of its flow that has not begun, or waits for its key. */
static void try(struct hf_kv *kv, struct op *op)
{
	struct hf_kv_op *user = op->user;
	enum hf_kv_result result = refusal(kv, op);
	uint32_t entry;
	struct record *record;
	struct busy *busy;

	if (result != HF_KV_OK) {
		kv_flows_finish(kv, op, early(op, result));
		return;
	}
	if (!kv_council_has_lease(kv)) {
		kv_flows_wait(&kv->unleased, op);
		return;
	}
	if (kv->config.recovery == HF_KV_STOP && !change_is_read(user) && kv_cm_in(&kv->installed, CM_SHADOW) != 0) {
		kv_flows_wait(&kv->stopped, op);
		return;
	}
	entry = kv_store_find(&kv->store, user->key, user->key_bytes);
	record = entry == STORE_NO_ENTRY ? NULL : kv_store_at(&kv->store, entry);
	if (record == NULL || record_state(record) == RECORD_VALID ||
		(!change_is_read(user) && !kv_change_is_rmw(user))) {
		if (op->state == OP_REFUSED)
			op_move(op, OP_WAITING); /* all live members have the newer record */
		finish_changed(kv, op, record);
		return;
	}
	busy = kv_busy_get(kv, entry);
	if (busy == NULL)
		kv_flows_finish(kv, op, early(op, HF_KV_NO_MEMORY));
	else
		kv_flows_wait(&busy->waiters, op);
}

void kv_flows_wake(struct hf_kv *kv, struct list *waiters)
{
	struct list woken;

	list_init(&woken);
	for (struct list *at; (at = list_pop_front(waiters)) != NULL;)
		list_push_back(&woken, at);
	for (struct list *at; (at = list_pop_front(&woken)) != NULL;) {
		struct op *op = container_of(at, struct op, in_key);

		try(kv, op);
		set_ready(op->flow);
	}
}

/* ---- a flow ---- */

/* The first that has not begun, when it may begin. */
static struct op *next_to_begin(struct hf_kv_flow *flow)
{
	bool alone = true;

	list_for_each (at, &flow->ops) {
		struct op *op = container_of(at, struct op, in_flow);
		bool plain = !change_is_read(op->user) && !kv_change_is_rmw(op->user);

		if (op->state == OP_QUEUED)
			return alone || plain ? op : NULL;
		if (op->state == OP_DONE)
			continue;
		if (op->state == OP_WAITING || !plain)
			return NULL;
		alone = false;
	}
	return NULL;
}

static bool deliver(struct hf_kv_flow *flow)
{
	struct hf_kv *kv = flow->kv;
	struct hf_kv_op *user;
	struct op *op;

	if (flow->closed || list_empty(&flow->ops))
		return false;
	op = container_of(flow->ops.next, struct op, in_flow);
	if (op->state != OP_DONE)
		return false;
	list_remove(&op->in_flow);
	user = op->user;
	service_metrics_took(&kv->metrics, !change_is_read(user), hf_loop_now_ns(kv->loop) - op->posted_ns);
	user->done(user);
	op_give(kv, op);
	return true;
}

static void flow_run(struct hf_kv_flow *flow)
{
	struct hf_kv *kv = flow->kv;
	struct op *op = NULL;

	if (flow->running)
		return;
	flow->running = true;
	list_remove(&flow->in_ready);
	while (!flow->closed && !flow->held && (deliver(flow) || (op = next_to_begin(flow)) != NULL)) {
		if (op != NULL)
			try(kv, op);
		op = NULL;
	}
	flow->running = false;
	list_remove(&flow->in_ready);
	if (flow->closed)
		hf_kv_flow_close(flow);
}

void kv_flows_hold(struct hf_kv_flow *flow, bool held)
{
	if (flow->held && !held)
		set_ready(flow);
	flow->held = held;
}

struct hf_kv_flow *hf_kv_flow_open(struct hf_kv *kv)
{
	struct hf_kv_flow *flow = calloc(1, sizeof(*flow));

	if (flow == NULL)
		return NULL;
	flow->kv = kv;
	list_init(&flow->ops);
	list_init(&flow->in_ready);
	list_push_back(&kv->flows, &flow->in_kv);
	return flow;
}

void hf_kv_flow_close(struct hf_kv_flow *flow)
{
	if (flow == NULL)
		return;
	flow->closed = true;
	if (flow->running)
		return;
	while (!list_empty(&flow->ops))
		op_forget(flow->kv, container_of(flow->ops.next, struct op, in_flow));
	list_remove(&flow->in_ready);
	list_remove(&flow->in_kv);
	free(flow);
}

static void set_deadline(struct hf_kv *kv, struct op *op)
{
	op->deadline_ns = hf_loop_now_ns(kv->loop) + kv->config.budget_ns;
	list_remove(&op->in_age);
	list_push_back(&kv->ages, &op->in_age);
}

void hf_kv_post(struct hf_kv_flow *flow, struct hf_kv_op *user)
{
	struct hf_kv *kv = flow->kv;
	struct op *op = op_take(kv);

	ensure(user->key_bytes > 0 && user->key_bytes <= HF_KV_KEY_BYTES_MAX && !flow->closed);
	user->returned = NULL;
	user->returned_bytes = 0;
	user->applied = user->kind == HF_KV_SET;
	user->number = 0;
	user->result = HF_KV_NO_MEMORY;
	if (op == NULL) {
		user->done(user);
		return;
	}
	op->user = user;
	op->flow = flow;
	list_init(&op->in_key);
	list_init(&op->in_age);
	list_push_back(&flow->ops, &op->in_flow);
	op->posted_ns = hf_loop_now_ns(kv->loop);
	set_deadline(kv, op);
	if (user->value_bytes > HF_KV_VALUE_BYTES_MAX)
		kv_flows_finish(kv, op, HF_KV_TOO_LARGE);
	flow_run(flow);
}

/* ---- turns ---- */

static void end_late(struct hf_kv *kv, struct op *op)
{
	if (op->flow->held && op->state == OP_QUEUED) {
		set_deadline(kv, op);
		return;
	}
	if (op->state == OP_BEGUN)
		op->key->op = NULL;
	kv_flows_finish(kv, op, early(op, kv_council_has_lease(kv) ? HF_KV_TRY_AGAIN : HF_KV_NO_LEASE));
}

void kv_flows_forget(struct hf_kv *kv)
{
	while (!list_empty(&kv->ages)) {
		struct op *op = container_of(kv->ages.next, struct op, in_age);

		if (op->state == OP_BEGUN)
			op->key->op = NULL;
		kv_flows_finish(kv, op, early(op, HF_KV_LOADING));
	}
}

bool kv_flows_turn(struct hf_kv *kv, uint64_t now_ns)
{
	bool some = false;

	while (!list_empty(&kv->ages)) {
		struct op *op = container_of(kv->ages.next, struct op, in_age);

		if (now_ns < op->deadline_ns)
			break;
		end_late(kv, op);
	}
	for (; !list_empty(&kv->ready); some = true)
		flow_run(container_of(kv->ready.next, struct hf_kv_flow, in_ready));
	return some;
}

uint64_t kv_flows_wake_ns(const struct hf_kv *kv)
{
	return list_empty(&kv->ages) ? UINT64_MAX : container_of(kv->ages.next, struct op, in_age)->deadline_ns;
}

void kv_flows_close_all(struct hf_kv *kv)
{
	while (!list_empty(&kv->flows))
		hf_kv_flow_close(container_of(kv->flows.next, struct hf_kv_flow, in_kv));
	while (kv->op_free != NULL)
		free(op_take(kv));
}
