#include "kv/copy.h"

#include <inttypes.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "kv/engine.h"

#define TURN_ENTRIES 4096u /* of the index */

/* ---- the shadow ---- */

/* What is here is not complete, or not wanted. Only before anything of the epoch was acknowledged. */
static void drop_all(struct hf_kv *kv)
{
	(void)kv_doubts_forget(kv);
	kv->doubt_count = 0;
	kv_store_clear(&kv->store);
	kv_durable_wipe(kv);
}

/* Whether what is here is all that this member had when it was one last. */
static bool is_whole(const struct hf_kv *kv)
{
	return kv->complete != 0 && kv->complete >= kv->installed.nodes[kv->view.self].member_join;
}

/* No member that is left knows what was missed: a full copy, said once. What is here stays, because INVs of this epoch
 * were acknowledged; by the log it is whole no more, should this process end before it is so again. */
static void copy_all_if_none_knows(struct hf_kv *kv)
{
	struct copy *copy = &kv->copy;
	uint32_t members = kv_cm_in(&kv->installed, CM_MEMBER);

	if (members == 0 || (members & ~copy->refused) != 0)
		return;
	copy->refused = 0;
	copy->heals = false;
	copy->distrusts = true;
	kv->complete = 0;
	kv->wiped = true;
	kv_durable_epoch(kv);
	log_warn("kv: no member has the updates that %s missed; it copies all records",
		kv->config.members[kv->view.self].name);
}

void kv_copy_begin(struct hf_kv *kv)
{
	kv->copy.wanted = true;
	kv->copy.active = kv->copy.done = kv->copy.taken = false;
	kv->copy.heals = is_whole(kv) && kv->config.recovery != HF_KV_COPY;
	kv->copy.distrusts = kv->copy.revokes = false;
	kv->copy.begun = kv->missed.position;
	kv->copy.refused = 0;
	kv->copy.records = 0;
	if (!kv->copy.heals)
		drop_all(kv);
}

void kv_copy_forget(struct hf_kv *kv)
{
	kv->copy.wanted = kv->copy.active = kv->copy.done = kv->copy.taken = kv->copy.revokes = false;
	memset(kv->copy.donors, 0, sizeof(kv->copy.donors));
}

void kv_copy_installed(struct hf_kv *kv)
{
	uint32_t members = kv_cm_in(&kv->installed, CM_MEMBER);

	if (kv->copy.active && (members & 1u << kv->copy.buddy) == 0)
		kv->copy.active = false; /* another one, from the beginning */
	if (kv->copy.wanted && kv->copy.heals && !kv->copy.taken)
		copy_all_if_none_knows(kv);
	for (unsigned i = 0; i < HF_KV_MEMBERS_MAX; i++)
		if (kv->installed.nodes[i].state != CM_SHADOW)
			kv->copy.donors[i].active = false;
	if (kv->installed.nodes[kv->view.self].state != CM_SHADOW)
		kv->copy.wanted = kv->copy.done = kv->copy.taken = kv->copy.revokes = false;
}

void kv_copy_promoted(struct hf_kv *kv)
{
	const struct copy *copy = &kv->copy;
	struct hf_kv_recovery_status how = {.healed = copy->heals, .records = copy->records};

	memcpy(how.buddy, kv->config.members[copy->buddy].name, sizeof(how.buddy));
	kv_recovery_ended(&kv->recovery, &how, hf_loop_now_ns(kv->loop));
}

void kv_copy_lost(struct hf_kv *kv, unsigned peer)
{
	kv->copy.donors[peer].active = false;
	if (kv->copy.active && kv->copy.buddy == peer)
		kv->copy.active = false;
}

/* The first member that can be reached, and may know what was missed. */
static bool find_buddy(const struct hf_kv *kv, unsigned *buddy_out)
{
	uint32_t members = kv_cm_in(&kv->installed, CM_MEMBER);

	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (i != kv->view.self && (members & ~kv->copy.refused & 1u << i) != 0 &&
			mesh_link_is_up(&kv->links.links[i].mesh)) {
			*buddy_out = i;
			return true;
		}
	return false;
}

/* Some of what is in doubt. An answer has about the size of the record that is here, so the buddy has few bytes that
 * wait. */
static void ask_doubts(struct hf_kv *kv)
{
	struct copy *copy = &kv->copy;
	uint64_t bytes = 0;

	for (unsigned n = 0; n < COPY_ASKED_MAX && bytes < COPY_TURN_BYTES && copy->asked < kv->doubt_count; n++) {
		const struct record *record = kv_store_at(&kv->store, kv->doubts[copy->asked++]);
		struct wire_message message = {.kind = WIRE_COPY_ASKED,
			.epoch = kv->epoch,
			.write = copy->number,
			.key = record->key,
			.key_bytes = record->key_bytes};

		kv_writes_say(kv, copy->buddy, &message);
		bytes += (uint64_t)record->key_bytes + record->value_bytes;
	}
}

/* Of the last processes; returns their number. The process that begins the first segment may be there twice. */
static unsigned parts_of(const struct log *log, struct told parts[COPY_PARTS_MAX])
{
	size_t first = log->life_count > COPY_PARTS_MAX ? log->life_count - COPY_PARTS_MAX : 0;
	unsigned n = 0;

	for (size_t i = first; i < log->life_count; i++, n++)
		parts[n] = (struct told){.incarnation = log->lives[i].incarnation,
			.durable = kv_log_end_of(log, log->lives[i].incarnation)};
	return n;
}

static void ask_rest(struct hf_kv *kv)
{
	struct copy *copy = &kv->copy;
	struct wire_message message = {.kind = WIRE_COPY_REQUEST, .epoch = kv->epoch, .write = copy->number};
	struct told parts[COPY_PARTS_MAX];
	uint8_t value[COPY_PARTS_MAX * TOLD_BYTES];

	if (copy->heals) {
		unsigned n = parts_of(&kv->log, parts);

		kv_told_write(parts, n, value);
		message.kind = WIRE_COPY_MISSED;
		message.value = value;
		message.value_bytes = n * TOLD_BYTES;
	}
	kv_writes_say(kv, copy->buddy, &message);
	copy->requested = true;
}

/* What is asked for next, when all before it has been answered. */
static void ask(struct hf_kv *kv)
{
	struct copy *copy = &kv->copy;

	if (!copy->active || copy->requested || copy->answered < copy->asked)
		return;
	ask_doubts(kv);
	if (copy->asked == kv->doubt_count)
		ask_rest(kv);
}

/* The buddy sends neither records nor heartbeats. Without records to send, or when copy_mbps delays the next one, it
 * still sends heartbeats. */
static bool is_silent(const struct hf_kv *kv, uint64_t now_ns)
{
	const struct copy *copy = &kv->copy;
	uint64_t attended_ns = now_ns - hf_loop_gaps_ns(kv->loop);

	return attended_ns >= copy->heard_ns + COPY_SILENT_NS &&
	       attended_ns >= kv->council.reports[copy->buddy].heard_ns + COPY_SILENT_NS;
}

static bool request(struct hf_kv *kv, uint64_t now_ns)
{
	struct copy *copy = &kv->copy;

	if (!copy->wanted || copy->taken || copy->revokes || (copy->active && !is_silent(kv, now_ns)))
		return false;
	copy->active = find_buddy(kv, &copy->buddy);
	if (!copy->active)
		return false;
	copy->number = ++kv->serial;
	copy->heard_ns = hf_loop_attended_ns(kv->loop);
	copy->requested = false;
	copy->asked = copy->answered = 0;
	kv_recovery_asked(&kv->recovery, now_ns);
	ask(kv);
	return true;
}

static void hear_refusal(struct hf_kv *kv)
{
	kv->copy.active = false;
	kv->copy.refused |= 1u << kv->copy.buddy;
	copy_all_if_none_knows(kv);
}

static void finish(struct hf_kv *kv)
{
	struct copy *copy = &kv->copy;

	copy->active = false;
	copy->taken = true;
	kv->doubt_count = 0;
	kv->complete = kv->view.join;
	kv_durable_epoch(kv);
	copy->taken_until = kv->log.end;
	kv->counters.copied += !copy->heals;
	kv->counters.healed += copy->heals;
	log_info("kv: %s has %s %" PRIu64 " records from %s", kv->config.members[kv->view.self].name,
		copy->heals ? "caught up with" : "copied", copy->records, kv->config.members[copy->buddy].name);
}

/* All members have the rest no more: it was deleted and removed, or never was (R-K19, R-K25). */
static bool revoke_rest(struct hf_kv *kv)
{
	struct copy *copy = &kv->copy;

	for (unsigned n = 0; copy->revokes && n < TURN_ENTRIES; n++) {
		if (copy->next > kv->store.mask) {
			copy->revokes = false;
			finish(kv);
		} else if (!kv_doubts_revoke_older(kv, (uint32_t)copy->next++, copy->begun)) {
			copy->revokes = false; /* the copy begins again */
		}
	}
	return copy->revokes;
}

static bool take(struct hf_kv *kv, const struct wire_message *message)
{
	enum record_state state = message->note == RECORD_VALID ? RECORD_VALID : RECORD_INVALID;

	kv->copy.records++;
	return kv_doubts_take(kv, message, state);
}

static bool hear_buddy(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	struct copy *copy = &kv->copy;

	if (!copy->active || from != copy->buddy || message->write != copy->number)
		return true; /* of a copy that was given up */
	copy->heard_ns = hf_loop_attended_ns(kv->loop);
	kv_recovery_answered(&kv->recovery, hf_loop_now_ns(kv->loop));
	if (!copy->requested) {
		copy->answered++; /* in their order */
		ask(kv);
	}
	if (message->kind == WIRE_COPY_RECORD)
		return take(kv, message);
	if (message->kind == WIRE_COPY_END && !kv_purge_read(kv, message->value, message->value_bytes))
		return false;
	if (message->kind == WIRE_COPY_END && copy->distrusts) {
		copy->active = false;
		copy->revokes = true;
		copy->next = 0;
	} else if (message->kind == WIRE_COPY_END)
		finish(kv);
	else if (message->key_bytes > 0)
		return kv_doubts_revoke(kv, message);
	else
		hear_refusal(kv);
	return true;
}

/* ---- the buddy ---- */

static void say_record(struct hf_kv *kv, unsigned shadow, uint64_t number, struct record *record)
{
	struct wire_message message = {.kind = WIRE_COPY_RECORD,
		.epoch = kv->epoch,
		.write = number,
		.flags = record->flags,
		.note = record_state(record),
		.ts = record_ts(record),
		.key = record->key,
		.key_bytes = record->key_bytes,
		.value = record_value(record),
		.value_bytes = record->value_bytes};

	kv_writes_say(kv, shadow, &message);
}

/* The entry that the donor comes to next; STORE_NO_ENTRY: there is no record there. */
static uint32_t next_entry(const struct hf_kv *kv, struct copy_donor *donor)
{
	uint64_t at = donor->cursor++;

	if (donor->missed) {
		kv_missed_expect(&kv->missed, &kv->store, at);
		return kv_missed_at(&kv->missed, &kv->store, at);
	}
	return kv_store_look(&kv->store, at) == NULL ? STORE_NO_ENTRY : (uint32_t)at;
}

static void say_end(struct hf_kv *kv, unsigned shadow, uint64_t number)
{
	uint8_t versions[PURGE_BYTES];
	struct wire_message message = {.kind = WIRE_COPY_END,
		.epoch = kv->epoch,
		.write = number,
		.value = versions,
		.value_bytes = sizeof(versions)};

	kv_purge_write(kv, versions);
	kv_writes_say(kv, shadow, &message);
}

/* A full copy has a share of the members' time, and leaves the rest to clients. */
static bool is_paced(const struct hf_kv *kv, const struct copy_donor *donor)
{
	return donor->active && !donor->missed && kv->config.copy_mbps > 0;
}

static void pace(const struct hf_kv *kv, struct copy_donor *donor, const struct record *record, uint64_t now_ns)
{
	uint64_t bytes = WIRE_HEAD_BYTES + record->key_bytes + record->value_bytes;

	if (is_paced(kv, donor))
		donor->next_ns =
			(donor->next_ns > now_ns ? donor->next_ns : now_ns) + bytes * 1000 / kv->config.copy_mbps;
}

uint64_t kv_copy_wake_ns(const struct hf_kv *kv, uint64_t now_ns)
{
	uint64_t wake_ns = UINT64_MAX;

	for (unsigned i = 0; i < kv->config.member_count; i++) {
		const struct copy_donor *donor = &kv->copy.donors[i];

		if (is_paced(kv, donor) && donor->next_ns > now_ns && donor->next_ns < wake_ns)
			wake_ns = donor->next_ns;
	}
	return wake_ns;
}

static bool donate(struct hf_kv *kv, unsigned shadow, uint64_t now_ns)
{
	struct copy_donor *donor = &kv->copy.donors[shadow];
	struct wire_message none = {.kind = WIRE_COPY_NONE, .epoch = kv->epoch, .write = donor->number};
	bool lost = donor->missed && !kv_missed_covers(&kv->missed, shadow); /* it was overwritten meanwhile */
	uint64_t from = donor->cursor;

	for (unsigned n = 0; n < TURN_ENTRIES && donor->active && donor->next_ns <= now_ns &&
			     mesh_link_is_up(&kv->links.links[shadow].mesh) &&
			     kv_link_waiting(&kv->links.links[shadow]) < COPY_TURN_BYTES;
		n++) {
		uint32_t entry;

		if (donor->cursor > donor->end || lost) {
			if (lost)
				kv_writes_say(kv, shadow, &none);
			else
				say_end(kv, shadow, donor->number);
			donor->active = false;
			return true;
		}
		entry = next_entry(kv, donor);
		if (entry != STORE_NO_ENTRY && kv_store_at(&kv->store, entry)->version != 0) {
			pace(kv, donor, kv_store_at(&kv->store, entry), now_ns);
			say_record(kv, shadow, donor->number, kv_store_at(&kv->store, entry));
		}
	}
	return donor->cursor != from;
}

/* The INV of that write may reach the shadow late, and it would be promoted with what it had before. */
void kv_copy_moves(struct hf_kv *kv, struct record *record)
{
	for (unsigned i = 0; i < kv->config.member_count; i++) {
		const struct copy_donor *donor = &kv->copy.donors[i];

		if (donor->active && donor->missed && record->missed_position >= donor->cursor &&
			record->missed_position <= donor->end)
			say_record(kv, i, donor->number, record);
	}
}

static void answer_asked(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	uint32_t entry = kv_store_find(&kv->store, message->key, message->key_bytes);
	struct record *record = entry == STORE_NO_ENTRY ? NULL : kv_store_at(&kv->store, entry);
	struct wire_message none = {.kind = WIRE_COPY_NONE,
		.epoch = kv->epoch,
		.write = message->write,
		.key = message->key,
		.key_bytes = message->key_bytes};

	if (record == NULL || record->version == 0)
		kv_writes_say(kv, from, &none);
	else
		say_record(kv, from, message->write, record);
}

/* The shadow's log lacks a part of what its last process that was a member had reported (R-K25). The parts of later
 * processes do not count, so a restart does not make an older log believable. */
static bool is_older(const struct told *told, const struct wire_message *message)
{
	struct told parts[COPY_PARTS_MAX] = {0};

	if (told->incarnation == 0)
		return false;
	kv_told_read(parts, COPY_PARTS_MAX, message->value, message->value_bytes);
	for (unsigned i = 0; i < COPY_PARTS_MAX; i++)
		if (parts[i].incarnation == told->incarnation)
			return kv_told_is_behind(&parts[i], told);
	return true;
}

/* A member begins to give what a shadow asks for. */
static void serve(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	struct copy_donor donor = {.active = true, .number = message->write, .end = kv->store.mask};
	struct wire_message none = {.kind = WIRE_COPY_NONE, .epoch = kv->epoch, .write = message->write};

	if (message->kind == WIRE_COPY_ASKED) {
		answer_asked(kv, from, message);
		return;
	}
	if (message->kind == WIRE_COPY_MISSED) {
		if (!kv_missed_covers(&kv->missed, from) || is_older(&kv->council.reports[from].told, message)) {
			kv_writes_say(kv, from, &none);
			return;
		}
		donor.missed = true;
		donor.cursor = kv->missed.from[from];
		donor.end = kv->missed.position;
	}
	kv->copy.donors[from] = donor;
}

bool kv_copy_turn(struct hf_kv *kv, uint64_t now_ns)
{
	bool some = request(kv, now_ns), done;

	some |= revoke_rest(kv);
	done = kv->copy.taken && durable_up_to(&kv->log, kv->copy.taken_until);
	if (done && !kv->copy.done) {
		kv_council_hurry(kv);
		some = true;
	}
	kv->copy.done = done;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv->copy.donors[i].active)
			some |= donate(kv, i, now_ns);
	return some;
}

bool kv_copy_hear(struct hf_kv *kv, unsigned from, const struct wire_message *message)
{
	if (message->kind != WIRE_COPY_REQUEST && message->kind != WIRE_COPY_MISSED && message->kind != WIRE_COPY_ASKED)
		return hear_buddy(kv, from, message);
	if (kv->installed.nodes[from].state == CM_SHADOW && kv->member)
		serve(kv, from, message);
	return true;
}
