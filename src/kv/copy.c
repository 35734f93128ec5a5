#include "kv/copy.h"

#include <inttypes.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "kv/engine.h"

/* ---- the shadow ---- */

void kv_copy_begin(struct hf_kv *kv)
{
	kv->copy.wanted = true;
	kv->copy.active = kv->copy.done = false;
	kv->copy.records = 0;
}

void kv_copy_forget(struct hf_kv *kv)
{
	kv->copy.wanted = kv->copy.active = kv->copy.done = false;
	memset(kv->copy.donors, 0, sizeof(kv->copy.donors));
}

void kv_copy_installed(struct hf_kv *kv)
{
	uint32_t members = kv_cm_in(&kv->installed, CM_MEMBER);

	if (kv->copy.active && (members & 1u << kv->copy.buddy) == 0)
		kv->copy.active = false; /* another one, from the beginning */
	for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++)
		if (kv->installed.nodes[i].state != CM_SHADOW)
			kv->copy.donors[i].active = false;
	if (kv->installed.nodes[kv->view.self].state != CM_SHADOW)
		kv->copy.wanted = kv->copy.done = false;
}

void kv_copy_lost(struct hf_kv *kv, unsigned peer)
{
	kv->copy.donors[peer].active = false;
	if (kv->copy.active && kv->copy.buddy == peer)
		kv->copy.active = false;
}

static bool find_buddy(const struct hf_kv *kv, unsigned *buddy_out)
{
	uint32_t members = kv_cm_in(&kv->installed, CM_MEMBER);

	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != kv->view.self && (members & 1u << i) != 0 && kv->links.links[i].state == LINK_UP) {
			*buddy_out = i;
			return true;
		}
	return false;
}

static bool request(struct hf_kv *kv, uint64_t now_ns)
{
	struct copy *copy = &kv->copy;
	struct wire_message message = {.kind = WIRE_COPY_REQUEST, .epoch = kv->epoch};

	if (!copy->wanted || copy->done || (copy->active && now_ns < copy->heard_ns + COPY_SILENT_NS))
		return false;
	copy->active = find_buddy(kv, &copy->buddy);
	if (!copy->active)
		return false;
	message.write = copy->number = ++kv->serial;
	copy->heard_ns = now_ns;
	kv_writes_say(kv, copy->buddy, &message);
	return true;
}

static bool take(struct hf_kv *kv, const struct wire_message *message)
{
	enum record_state state = message->note == RECORD_VALID ? RECORD_VALID : RECORD_INVALID;

	kv->copy.records++;
	return kv_writes_take(kv, message, state);
}

static bool hear_buddy(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	struct copy *copy = &kv->copy;

	if (!copy->active || from != copy->buddy || message->write != copy->number)
		return true; /* of a copy that was given up */
	copy->heard_ns = hf_loop_now_ns(kv->loop);
	if (message->kind == WIRE_COPY_RECORD)
		return take(kv, message);
	copy->active = false;
	copy->done = true;
	kv->counters.copied++;
	log_info("kv: %s has copied %" PRIu64 " records from %s", kv->config.members[kv->view.self].name, copy->records,
		kv->config.members[from].name);
	return true;
}

/* ---- the buddy ---- */

static void say_record(struct hf_kv *kv, unsigned shadow, struct record *record)
{
	struct wire_message message = {.kind = WIRE_COPY_RECORD,
		.epoch = kv->epoch,
		.write = kv->copy.donors[shadow].number,
		.flags = record->flags,
		.note = record_state(record),
		.ts = record_ts(record),
		.key = record->key,
		.key_bytes = record->key_bytes,
		.value = record_value(record),
		.value_bytes = record->value_bytes};

	kv_writes_say(kv, shadow, &message);
}

static bool donate(struct hf_kv *kv, unsigned shadow)
{
	struct copy_donor *donor = &kv->copy.donors[shadow];
	struct wire_message end = {.kind = WIRE_COPY_END, .epoch = kv->epoch, .write = donor->number};
	uint32_t from = donor->cursor;

	while (donor->active && kv->links.links[shadow].state == LINK_UP &&
		kv_link_waiting(&kv->links.links[shadow]) < COPY_TURN_BYTES) {
		if (donor->cursor > kv->store.mask) {
			kv_writes_say(kv, shadow, &end);
			donor->active = false;
		} else {
			uint32_t entry = donor->cursor++;

			if (kv->store.index[entry] != 0 && kv_store_at(&kv->store, entry)->version != 0)
				say_record(kv, shadow, kv_store_at(&kv->store, entry));
		}
	}
	return donor->cursor != from;
}

bool kv_copy_turn(struct hf_kv *kv, uint64_t now_ns)
{
	bool some = request(kv, now_ns);

	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv->copy.donors[i].active)
			some |= donate(kv, i);
	return some;
}

bool kv_copy_hear(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	if (message->kind != WIRE_COPY_REQUEST)
		return hear_buddy(kv, from, message);
	if (kv->installed.nodes[from].state == CM_SHADOW && kv->installed.nodes[kv->view.self].state == CM_MEMBER)
		kv->copy.donors[from] = (struct copy_donor){.active = true, .number = message->write};
	return true;
}
