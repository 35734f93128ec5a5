/* Records that this member does not know to be everywhere: after an exclusion, or behind the last MARK of its log
 * (HEAL's Partially_persisted). They are DOUBTFUL until the buddy, or an INV of the epoch, says what became of them;
 * after a cold start they are replayed. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "kv/engine.h"

/* ---- what is in doubt ---- */

bool kv_doubts_add(struct hf_kv *kv, uint32_t entry)
{
	struct record *record = kv_store_at(&kv->store, entry);

	if ((record->flags & RECORD_DOUBTFUL) != 0)
		return true;
	kv_store_set_flags(record, record->flags | RECORD_DOUBTFUL);
	if (kv->doubt_count == kv->doubt_room) {
		uint32_t room = kv->doubt_room == 0 ? 64 : 2 * kv->doubt_room;
		uint32_t *doubts = realloc(kv->doubts, room * sizeof(*doubts));

		if (doubts == NULL)
			return false;
		kv->doubts = doubts;
		kv->doubt_room = room;
	}
	kv->doubts[kv->doubt_count++] = entry;
	return true;
}

/* Its own write and its replay are over. */
static bool forget_record(struct hf_kv *kv, const struct busy *busy)
{
	struct record *record = kv_store_at(&kv->store, busy->entry);

	if (record_state(record) == RECORD_VALID)
		return true;
	kv_store_set_state(record, RECORD_INVALID);
	return kv_doubts_add(kv, busy->entry);
}

bool kv_doubts_forget(struct hf_kv *kv)
{
	bool all = true;

	for (uint32_t i = 0; i < kv->busy_count; i++) {
		struct busy *busy = kv->busy[i];

		if (!busy->used)
			continue;
		ensure(list_empty(&busy->waiters));
		all &= forget_record(kv, busy);
		kv_busy_reset(kv, busy);
	}
	return all;
}

static int by_log_position(const void *a, const void *b, void *store)
{
	uint64_t left = kv_store_at(store, *(const uint32_t *)a)->log_position;
	uint64_t right = kv_store_at(store, *(const uint32_t *)b)->log_position;

	return left < right ? -1 : left > right;
}

bool kv_doubts_replay(struct hf_kv *kv)
{
	if (kv->doubt_count > 0)
		qsort_r(kv->doubts, kv->doubt_count, sizeof(*kv->doubts), by_log_position, &kv->store);
	for (uint32_t i = 0; i < kv->doubt_count; i++) {
		struct record *record = kv_store_at(&kv->store, kv->doubts[i]);
		struct busy *busy = kv_busy_get(kv, kv->doubts[i]);

		if (busy == NULL)
			return false;
		kv_store_set_flags(record, record->flags & (uint8_t)~RECORD_DOUBTFUL);
		kv_missed_note(&kv->missed, record, kv->doubts[i]); /* an absent member may not have it (R-K11) */
		kv_writes_settle(kv, busy, RECORD_INVALID, true);
		list_remove(&busy->invalid);
		busy->since_ns = 0;
		list_push_back(&kv->invalid, &busy->invalid);
	}
	kv->doubt_count = 0;
	return true;
}

/* ---- what the buddy says ---- */

/* What the buddy has is taken when it is newer, or when this node does not know whether its own is everywhere. */
static bool is_wanted(const struct record *record, struct record_ts ts)
{
	return (record->flags & RECORD_DOUBTFUL) != 0 || record_compare(record_ts(record), ts) < 0;
}

static bool has_no_memory(void)
{
	log_error("kv: no memory for the records of the others; raise store_mb, and start again");
	return false;
}

static bool revoke(struct hf_kv *kv, const void *key, uint32_t key_bytes)
{
	struct store_content none = {.key = key, .key_bytes = key_bytes, .flags = RECORD_TOMBSTONE};

	return kv_writes_put(kv, &none, RECORD_VALID, true) != STORE_NO_ENTRY || has_no_memory();
}

bool kv_doubts_revoke(struct hf_kv *kv, const struct wire_message *message)
{
	uint32_t entry = kv_store_find(&kv->store, message->key, message->key_bytes);

	if (entry == STORE_NO_ENTRY || (kv_store_at(&kv->store, entry)->flags & RECORD_DOUBTFUL) == 0)
		return true;
	return revoke(kv, message->key, message->key_bytes);
}

bool kv_doubts_revoke_older(struct hf_kv *kv, uint32_t entry, uint64_t position)
{
	const struct record *record = kv_store_look(&kv->store, entry);
	uint8_t key[HF_KV_KEY_BYTES_MAX];

	if (record == NULL || record->version == 0 || record->missed_position > position)
		return true;
	memcpy(key, record->key, record->key_bytes);
	return revoke(kv, key, record->key_bytes);
}

bool kv_doubts_take(struct hf_kv *kv, const struct wire_message *message, enum record_state state)
{
	uint32_t entry = kv_store_find(&kv->store, message->key, message->key_bytes);
	struct store_content content = kv_content_of(message);
	struct busy *busy;
	bool replaces;

	if (entry != STORE_NO_ENTRY && !is_wanted(kv_store_at(&kv->store, entry), message->ts)) {
		if (kv->copy.distrusts)
			kv_missed_note(&kv->missed, kv_store_at(&kv->store, entry), entry);
		return true;
	}
	replaces = entry != STORE_NO_ENTRY && (kv_store_at(&kv->store, entry)->flags & RECORD_DOUBTFUL) != 0;
	entry = kv_writes_put(kv, &content, state, replaces);
	if (entry != STORE_NO_ENTRY && state == RECORD_VALID && kv_busy_find(kv, entry) == NULL)
		return true; /* nothing waits for it */
	busy = entry == STORE_NO_ENTRY ? NULL : kv_busy_get(kv, entry);
	if (busy == NULL)
		return has_no_memory();
	if (busy->write.state != KV_WRITE_NONE) { /* a replay of an older one: a shadow begins no write */
		list_remove(&busy->flight);
		free(busy->inv);
		busy->inv = NULL;
		busy->write = (struct kv_write){0};
	}
	kv_writes_settle(kv, busy, state, true);
	if (state == RECORD_INVALID)
		kv_writes_invalid(kv, busy);
	else
		list_remove(&busy->invalid);
	kv_busy_leave(kv, busy);
	return true;
}
