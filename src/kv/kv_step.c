#include "kv/kv_step.h"

#include "base/ensure.h"
#include "base/states.h"

/* Which states of a record follow which; a slot is freed by the store alone. */
static const struct state record_states[RECORD_STATES] = {
	[RECORD_FREE] = {"free", 0},
	[RECORD_VALID] = {"valid", BIT(RECORD_INVALID) | BIT(RECORD_WRITE)},
	[RECORD_INVALID] = {"invalid",
		BIT(RECORD_INVALID) | BIT(RECORD_VALID) | BIT(RECORD_WRITE) | BIT(RECORD_REPLAY)},
	[RECORD_WRITE] = {"write", BIT(RECORD_INVALID) | BIT(RECORD_VALID)},
	[RECORD_REPLAY] = {"replay", BIT(RECORD_INVALID) | BIT(RECORD_VALID)},
};

static void record_move(struct kv_known *known, enum record_state to)
{
	states_move_often("record", record_states, &known->state, to, "%llu.%u.%u",
		(unsigned long long)known->ts.version, known->ts.join, known->ts.node);
}

static const struct state write_states[KV_WRITE_STATES] = {
	[KV_WRITE_NONE] = {"none", BIT(KV_WRITE_PLAIN) | BIT(KV_WRITE_RMW) | BIT(KV_WRITE_REPLAY)},
	[KV_WRITE_PLAIN] = {"plain", BIT(KV_WRITE_NONE)},
	[KV_WRITE_RMW] = {"rmw", BIT(KV_WRITE_NONE)},
	[KV_WRITE_REPLAY] = {"replay", BIT(KV_WRITE_NONE)},
};

static void write_move(struct kv_write *write, enum kv_write_state to)
{
	states_move_often("write", write_states, &write->state, to, "%llu.%u.%u", (unsigned long long)write->ts.version,
		write->ts.join, write->ts.node);
}

/* ---- the coordinator ---- */

/* The version that the event's write follows. */
static uint64_t base_version(const struct kv_view *view, const struct kv_known *known, bool rmw)
{
	bool there = known->ts.version != 0 && (known->flags & RECORD_TOMBSTONE) == 0;
	uint64_t least = rmw ? view->floor : view->highest;

	return there || known->ts.version > least ? known->ts.version : least;
}

static void begin(const struct kv_view *view, struct kv_known *known, struct kv_write *write,
	const struct kv_event *event, struct kv_actions *actions)
{
	bool rmw = (event->flags & RECORD_RMW) != 0;

	ensure(write->state == KV_WRITE_NONE);
	if (rmw && known->state != RECORD_VALID) {
		actions->wait = true; /* the base of an RMW is VALID (R-K6) */
		return;
	}
	known->ts = (struct record_ts){
		.version = base_version(view, known, rmw) + (rmw ? 1 : 2), .join = view->join, .node = view->self};
	known->flags = event->flags;
	record_move(known, RECORD_WRITE);
	write_move(write, rmw ? KV_WRITE_RMW : KV_WRITE_PLAIN);
	write->ts = known->ts;
	write->flags = event->flags;
	write->acked = 0;
	actions->apply = actions->send_inv = true;
}

static void replay(struct kv_known *known, struct kv_write *write, struct kv_actions *actions)
{
	ensure(write->state == KV_WRITE_NONE);
	if (known->state != RECORD_INVALID)
		return;
	record_move(known, RECORD_REPLAY);
	write_move(write, KV_WRITE_REPLAY);
	write->ts = known->ts;
	write->flags = known->flags;
	write->acked = 0;
	actions->send_inv = true;
}

static void commit(
	const struct kv_view *view, struct kv_known *known, struct kv_write *write, struct kv_actions *actions)
{
	if ((view->live & ~write->acked) != 0)
		return;
	if (write->state == KV_WRITE_RMW && record_compare(known->ts, write->ts) > 0) {
		/* The member that would refuse it may be excluded; this node has the newer record too. */
		write_move(write, KV_WRITE_NONE);
		actions->refused = true;
		actions->readable = known->state == RECORD_VALID;
		return;
	}
	if (record_compare(known->ts, write->ts) == 0) {
		record_move(known, RECORD_VALID);
		actions->readable = actions->send_val = true; /* not of an obsolete write (R-K30) */
	}
	write_move(write, KV_WRITE_NONE);
	actions->committed = true;
}

/* What a newer record does to this one. */
static void supersede(struct kv_known *known, const struct kv_event *event, struct kv_actions *actions)
{
	ensure(record_compare(event->ts, known->ts) > 0 || (known->flags & RECORD_DOUBTFUL) != 0); /* KV-1 */
	known->ts = event->ts;
	known->flags = event->flags;
	record_move(known, RECORD_INVALID);
	actions->apply = actions->unreadable = true;
}

static void nacked(
	struct kv_known *known, struct kv_write *write, const struct kv_event *event, struct kv_actions *actions)
{
	bool replays = write->state == KV_WRITE_REPLAY;

	if (record_compare(event->ts, write->ts) <= 0)
		return; /* it names no newer record, so it refuses nothing */
	write_move(write, KV_WRITE_NONE);
	actions->overtaken = replays;
	actions->refused = !replays;
	if (record_compare(event->ts, known->ts) > 0)
		supersede(known, event, actions);
	else if (known->state == RECORD_VALID)
		actions->readable = true; /* newer than the write, and committed meanwhile */
}

/* ---- the follower ---- */

static void invalidated(
	struct kv_known *known, struct kv_write *write, const struct kv_event *event, struct kv_actions *actions)
{
	/* A record in doubt yields to any INV of the epoch (R-K13). */
	int order = (known->flags & RECORD_DOUBTFUL) != 0 ? 1 : record_compare(event->ts, known->ts);
	bool own = write->state == KV_WRITE_PLAIN || write->state == KV_WRITE_RMW;

	if (own && record_compare(event->ts, write->ts) == 0)
		return; /* a replay of the own write, which this node ends itself */
	/* The newer record, which is here, overtakes a replay of an obsolete write; else that became VALID (R-K30). */
	if (order < 0 && (event->flags & RECORD_RMW) == 0 && event->from != event->ts.node &&
		known->state != RECORD_VALID)
		return;
	if (order > 0)
		supersede(known, event, actions);
	if (order < 0 && (event->flags & RECORD_RMW) != 0)
		actions->nack = true;
	else
		actions->ack = true;
	if (order > 0 && write->state == KV_WRITE_REPLAY) {
		write_move(write, KV_WRITE_NONE);
		actions->overtaken = true;
	}
}

static void validated(
	struct kv_known *known, struct kv_write *write, const struct kv_event *event, struct kv_actions *actions)
{
	if (record_compare(event->ts, known->ts) != 0 ||
		(known->state != RECORD_INVALID && known->state != RECORD_REPLAY))
		return;
	record_move(known, RECORD_VALID);
	actions->readable = true;
	if (write->state == KV_WRITE_REPLAY) {
		write_move(write, KV_WRITE_NONE);
		actions->overtaken = true;
	}
}

/* ---- the step ---- */

void kv_step(const struct kv_view *view, struct kv_known *known, struct kv_write *write, const struct kv_event *event,
	struct kv_actions *actions)
{
	*actions = (struct kv_actions){0};
	switch (event->kind) {
	case KV_EVENT_WRITE:
		begin(view, known, write, event, actions);
		break;
	case KV_EVENT_REPLAY:
		replay(known, write, actions);
		break;
	case KV_EVENT_INV:
		invalidated(known, write, event, actions);
		break;
	case KV_EVENT_ACK:
		ensure(write->state != KV_WRITE_NONE && event->from != view->self);
		write->acked |= BIT(event->from); /* a set of nodes (R-K3) */
		commit(view, known, write, actions);
		break;
	case KV_EVENT_NACK:
		ensure(write->state != KV_WRITE_NONE);
		if ((write->flags & RECORD_RMW) != 0)
			nacked(known, write, event, actions);
		break;
	case KV_EVENT_VAL:
		validated(known, write, event, actions);
		break;
	case KV_EVENT_DURABLE:
		ensure(write->state != KV_WRITE_NONE);
		write->acked |= BIT(view->self);
		commit(view, known, write, actions);
		break;
	case KV_EVENT_INSTALL:
		/* All ACKs are dropped (R-K2), but for what is durable here. */
		if (write->state != KV_WRITE_NONE) {
			write->acked &= BIT(view->self);
			actions->send_inv = true;
			commit(view, known, write, actions);
		}
		break;
	case KV_EVENTS:
		ensure(false);
	}
}
