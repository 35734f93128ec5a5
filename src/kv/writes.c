/* This node's writes and replays, and what it does as a follower: messages and timers in, kv_step decides, actions out.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/log.h"
#include "kv/engine.h"

/* ---- a record as the step sees it ---- */

static struct kv_known known_of(const struct record *record)
{
	if (record == NULL)
		return (struct kv_known){.state = RECORD_VALID};
	return (struct kv_known){.state = record_state(record), .ts = record_ts(record), .flags = record->flags};
}

void kv_writes_invalid(struct hf_kv *kv, struct busy *busy)
{
	list_remove(&busy->invalid);
	busy->since_ns = hf_loop_now_ns(kv->loop);
	list_push_back(&kv->invalid, &busy->invalid);
}

uint32_t kv_writes_put(struct hf_kv *kv, const struct store_content *content, enum record_state state, bool replaces)
{
	uint32_t entry = kv_store_put(&kv->store, content, state);
	struct record *record = entry == STORE_NO_ENTRY ? NULL : kv_store_at(&kv->store, entry);

	if (record == NULL)
		return entry;
	kv_durable_record(kv, record, replaces);
	kv_copy_moves(kv, record);
	kv_missed_note(&kv->missed, record, entry);
	return entry;
}

void kv_writes_settle(struct hf_kv *kv, struct busy *busy, enum record_state state, bool logged)
{
	if (state != RECORD_VALID && !logged)
		return;
	list_remove(&busy->unsettled);
	if (state != RECORD_VALID)
		list_push_back(&kv->unsettled, &busy->unsettled);
}

/* ---- saying ---- */

void kv_writes_say(struct hf_kv *kv, unsigned peer, const struct wire_message *message)
{
	uint8_t *at = kv_link_reserve(&kv->links.links[peer], kv_wire_bytes(message));

	if (at != NULL)
		kv_wire_write(message, at);
}

static void say_all(struct hf_kv *kv, const struct wire_message *message)
{
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != kv->view.self && (kv->view.live & 1u << i) != 0)
			kv_writes_say(kv, i, message);
}

static void say_inv(struct hf_kv *kv, struct busy *busy, unsigned peer)
{
	uint8_t *at = kv_link_reserve(&kv->links.links[peer], busy->inv_bytes);

	put_le64(busy->inv + WIRE_EPOCH_AT, kv->epoch);
	if (at != NULL)
		memcpy(at, busy->inv, busy->inv_bytes);
}

/* The INV is kept as it is sent, because the record may be superseded before all have it. */
static int keep_inv(struct hf_kv *kv, struct busy *busy, const struct store_content *content)
{
	struct wire_message message = {.kind = WIRE_INV,
		.flags = content->flags,
		.epoch = kv->epoch,
		.write = busy_write_number(busy),
		.ts = content->ts,
		.key = content->key,
		.key_bytes = content->key_bytes,
		.value = content->value,
		.value_bytes = content->value_bytes};

	busy->inv_bytes = kv_wire_bytes(&message);
	busy->inv = malloc(busy->inv_bytes);
	if (busy->inv == NULL)
		return -1;
	kv_wire_write(&message, busy->inv);
	return 0;
}

static void say_val(struct hf_kv *kv, const struct busy *busy)
{
	const struct record *record = kv_store_at(&kv->store, busy->entry);
	struct wire_message message = {.kind = WIRE_VAL,
		.epoch = kv->epoch,
		.ts = busy->write.ts,
		.key = record->key,
		.key_bytes = record->key_bytes};

	say_all(kv, &message);
}

/* ---- the end of a write ---- */

static void end_write(struct hf_kv *kv, struct busy *busy, const struct kv_actions *actions)
{
	struct op *op = busy->op;

	list_remove(&busy->flight);
	free(busy->inv);
	busy->inv = NULL;
	busy->op = NULL;
	if (record_state(kv_store_at(&kv->store, busy->entry)) == RECORD_INVALID)
		kv_writes_invalid(kv, busy);
	if (op == NULL)
		return;
	if (actions->committed) {
		kv_flows_finish(kv, op, op->user->result);
	} else {
		ensure(actions->refused);
		kv->counters.refusals++;
		kv_flows_refused(&busy->waiters, op);
	}
}

/* What a step leaves to do for a key that is busy; the record has been written already. */
static void carry_out(
	struct hf_kv *kv, struct busy *busy, const struct kv_known *known, const struct kv_actions *actions)
{
	bool ended = actions->committed || actions->refused || actions->overtaken;

	kv_store_set_state(kv_store_at(&kv->store, busy->entry), known->state);
	kv_writes_settle(kv, busy, known->state, actions->apply);
	if (known->state != RECORD_INVALID)
		list_remove(&busy->invalid);
	if (actions->unreadable && busy->write.state == KV_WRITE_NONE)
		kv_writes_invalid(kv, busy);
	for (unsigned i = 0; actions->send_inv && i < kv->config.member_count; i++)
		if (i != kv->view.self && (kv->view.live & 1u << i) != 0)
			say_inv(kv, busy, i);
	if (actions->send_val)
		say_val(kv, busy);
	if (ended)
		end_write(kv, busy, actions);
	if (ended || actions->readable)
		kv_flows_wake(kv, &busy->waiters);
	kv_busy_leave(kv, busy);
}

static void step(struct hf_kv *kv, struct busy *busy, const struct kv_event *event)
{
	struct kv_known known = known_of(kv_store_at(&kv->store, busy->entry));
	struct kv_actions actions;

	kv_step(&kv->view, &known, &busy->write, event, &actions);
	ensure(!actions.apply);
	carry_out(kv, busy, &known, &actions);
}

void kv_writes_durable(struct hf_kv *kv, uint64_t write)
{
	struct busy *busy = kv_busy_of_write(kv, write);

	if (busy != NULL)
		step(kv, busy, &(struct kv_event){.kind = KV_EVENT_DURABLE});
}

/* ---- writes of this node ---- */

static void set_off(struct hf_kv *kv, struct busy *busy)
{
	list_remove(&busy->invalid);
	list_push_back(&kv->flights, &busy->flight);
}

/* The entry of the operation's key, where a record of version 0 is made when there is none. */
static struct busy *busy_for(struct hf_kv *kv, const struct hf_kv_op *user)
{
	uint32_t entry = kv_store_find(&kv->store, user->key, user->key_bytes);
	struct store_content none = {.key = user->key, .key_bytes = user->key_bytes, .flags = RECORD_TOMBSTONE};

	if (entry == STORE_NO_ENTRY)
		entry = kv_store_put(&kv->store, &none, RECORD_VALID);
	return entry == STORE_NO_ENTRY ? NULL : kv_busy_get(kv, entry);
}

enum write_outcome kv_writes_begin(struct hf_kv *kv, struct op *op, const struct write_content *content)
{
	const struct hf_kv_op *user = op->user;
	struct busy *busy = busy_for(kv, user);
	struct kv_event event = {.kind = KV_EVENT_WRITE, .flags = content->flags};
	struct store_content made = {.key = user->key,
		.key_bytes = user->key_bytes,
		.value = content->value,
		.value_bytes = content->value_bytes,
		.flags = content->flags};
	struct kv_actions actions;
	struct kv_known known;

	if (busy == NULL)
		return WRITE_NO_MEMORY;
	if (busy->write.state != KV_WRITE_NONE) {
		kv_flows_wait(&busy->waiters, op);
		return WRITE_WAITS;
	}
	known = known_of(kv_store_at(&kv->store, busy->entry));
	kv->view.highest = kv->store.highest;
	kv_step(&kv->view, &known, &busy->write, &event, &actions);
	if (actions.wait) {
		kv_flows_wait(&busy->waiters, op);
		return WRITE_WAITS;
	}
	made.ts = known.ts;
	busy->serial = ++kv->serial;
	if (keep_inv(kv, busy, &made) != 0 || kv_writes_put(kv, &made, known.state, false) == STORE_NO_ENTRY) {
		free(busy->inv);
		busy->inv = NULL;
		busy->write = (struct kv_write){0};
		kv_busy_leave(kv, busy);
		return WRITE_NO_MEMORY;
	}
	kv_flows_begun(busy, op);
	kv->counters.writes++;
	set_off(kv, busy);
	carry_out(kv, busy, &known, &actions);
	kv_durable_own(kv, busy);
	return WRITE_BEGUN;
}

static void replay(struct hf_kv *kv, struct busy *busy)
{
	struct record *record = kv_store_at(&kv->store, busy->entry);
	struct store_content content = {.key = record->key,
		.key_bytes = record->key_bytes,
		.value = record_value(record),
		.value_bytes = record->value_bytes,
		.ts = record_ts(record),
		.flags = record->flags};

	busy->serial = ++kv->serial;
	if (keep_inv(kv, busy, &content) != 0) {
		kv_writes_invalid(kv, busy); /* no memory: later */
		return;
	}
	kv->counters.replays++;
	set_off(kv, busy);
	step(kv, busy, &(struct kv_event){.kind = KV_EVENT_REPLAY});
	kv_durable_own(kv, busy);
}

bool kv_writes_turn(struct hf_kv *kv, uint64_t now_ns)
{
	bool some = false;

	while (!list_empty(&kv->invalid)) {
		struct busy *busy = container_of(kv->invalid.next, struct busy, invalid);

		if (now_ns < busy->since_ns + kv->config.replay_ns)
			break;
		replay(kv, busy);
		some = true;
	}
	return some;
}

uint64_t kv_writes_wake_ns(const struct hf_kv *kv)
{
	if (list_empty(&kv->invalid))
		return UINT64_MAX;
	return container_of(kv->invalid.next, struct busy, invalid)->since_ns + kv->config.replay_ns;
}

void kv_writes_resend(struct hf_kv *kv, unsigned peer)
{
	list_for_each (at, &kv->flights) {
		struct busy *busy = container_of(at, struct busy, flight);

		if ((busy->write.acked & 1u << peer) == 0 && (kv->view.live & 1u << peer) != 0)
			say_inv(kv, busy, peer);
	}
}

void kv_writes_install(struct hf_kv *kv)
{
	list_for_each_safe (at, &kv->flights)
		step(kv, container_of(at, struct busy, flight), &(struct kv_event){.kind = KV_EVENT_INSTALL});
}

uint64_t kv_writes_oldest(const struct hf_kv *kv)
{
	uint64_t oldest = kv->missed.position + 1;

	for (uint32_t i = 0; i < kv->busy_count; i++) {
		const struct busy *busy = kv->busy[i];
		const struct record *record = busy->used ? kv_store_at(&kv->store, busy->entry) : NULL;

		if (record != NULL && record_state(record) != RECORD_VALID && record->missed_position < oldest)
			oldest = record->missed_position;
	}
	return oldest;
}

/* ---- writes of others ---- */

static void answer(struct hf_kv *kv, unsigned from, const struct wire_message *message,
	const struct kv_actions *actions, uint32_t entry)
{
	struct wire_message reply = {
		.kind = WIRE_ACK, .epoch = message->epoch, .write = message->write, .ts = message->ts};
	struct record *record = kv_store_at(&kv->store, entry);

	if (actions->nack) {
		reply.kind = WIRE_NACK;
		reply.ts = record_ts(record);
		reply.flags = record->flags;
		reply.value = record_value(record);
		reply.value_bytes = record->value_bytes;
	}
	if (actions->nack)
		kv_writes_say(kv, from, &reply);
	else if (actions->ack)
		kv_durable_ack(kv, from, &reply);
}

static bool hear_inv(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	uint32_t entry = kv_store_find(&kv->store, message->key, message->key_bytes);
	struct kv_event event = {.kind = KV_EVENT_INV, .from = from, .ts = message->ts, .flags = message->flags};
	struct kv_known known = known_of(entry == STORE_NO_ENTRY ? NULL : kv_store_at(&kv->store, entry));
	struct store_content content = kv_content_of(message);
	struct busy *busy = entry == STORE_NO_ENTRY ? NULL : kv_busy_find(kv, entry);
	struct kv_write write = busy == NULL ? (struct kv_write){0} : busy->write;
	bool doubtful = (known.flags & RECORD_DOUBTFUL) != 0;
	struct kv_actions actions;

	kv_step(&kv->view, &known, &write, &event, &actions);
	if (actions.apply)
		entry = kv_writes_put(kv, &content, known.state, doubtful);
	if (actions.apply && entry != STORE_NO_ENTRY)
		busy = kv_busy_get(kv, entry);
	if (actions.apply && (entry == STORE_NO_ENTRY || busy == NULL)) {
		log_error(
			"kv: no memory for a record of %s; raise store_mb and restart", kv->config.members[from].name);
		return false;
	}
	answer(kv, from, message, &actions, entry);
	if (busy != NULL) {
		busy->write = write;
		carry_out(kv, busy, &known, &actions);
	}
	return true;
}

static void hear_val(struct hf_kv *kv, const struct wire_message *message)
{
	uint32_t entry = kv_store_find(&kv->store, message->key, message->key_bytes);
	struct busy *busy = entry == STORE_NO_ENTRY ? NULL : kv_busy_find(kv, entry);

	if (busy != NULL)
		step(kv, busy, &(struct kv_event){.kind = KV_EVENT_VAL, .ts = message->ts});
}

static bool hear_nack(struct hf_kv *kv, unsigned from, const struct wire_message *message, struct busy *busy)
{
	struct record *record = kv_store_at(&kv->store, busy->entry);
	struct kv_event event = {.kind = KV_EVENT_NACK, .from = from, .ts = message->ts, .flags = message->flags};
	struct kv_known known = known_of(record);
	uint8_t key[HF_KV_KEY_BYTES_MAX];
	struct store_content content = {.key = key,
		.key_bytes = record->key_bytes,
		.value = message->value,
		.value_bytes = message->value_bytes,
		.ts = message->ts,
		.flags = message->flags};
	struct kv_actions actions;

	memcpy(key, record->key, record->key_bytes);
	kv_step(&kv->view, &known, &busy->write, &event, &actions);
	if (actions.apply && kv_writes_put(kv, &content, known.state, false) == STORE_NO_ENTRY) {
		log_error("kv: no memory for a newer record; raise store_mb and restart");
		return false;
	}
	carry_out(kv, busy, &known, &actions);
	return true;
}

bool kv_writes_hear(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	struct busy *busy;

	if (message->kind == WIRE_VAL) {
		hear_val(kv, message);
		return true;
	}
	if (message->epoch != kv->epoch || !kv->live || (kv->view.live & 1u << from) == 0)
		return true; /* of another epoch (R-K1) */
	if (message->kind == WIRE_INV)
		return hear_inv(kv, from, message);
	busy = kv_busy_of_write(kv, message->write);
	if (busy == NULL)
		return true;
	if (message->kind == WIRE_NACK)
		return hear_nack(kv, from, message, busy);
	if (record_compare(busy->write.ts, message->ts) == 0)
		step(kv, busy, &(struct kv_event){.kind = KV_EVENT_ACK, .from = from});
	return true;
}
