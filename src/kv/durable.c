#include "kv/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "kv/engine.h"

#define PROMISES_MIN 256u
#define UNMARKED_MIN 1024u
#define LOGGED_FLAGS (RECORD_TOMBSTONE | RECORD_RMW)

/* ---- what is kept ---- */

void kv_durable_record(struct hf_kv *kv, struct record *record, bool replaces)
{
	bool deleted = (record->flags & RECORD_TOMBSTONE) != 0;
	struct log_entry entry = {.kind = replaces  ? LOG_REPLACE
					  : deleted ? LOG_DELETE
						    : LOG_WRITE,
		.flags = record->flags & LOGGED_FLAGS,
		.ts = record_ts(record),
		.key = record->key,
		.key_bytes = record->key_bytes,
		.value = record_value(record),
		.value_bytes = record->value_bytes};

	record->log_position = kv_log_append(&kv->log, &entry);
}

void kv_durable_epoch(struct hf_kv *kv)
{
	struct log_entry entry = {.kind = LOG_EPOCH, .ts = {.version = kv->epoch, .join = kv->complete}};

	(void)kv_log_append(&kv->log, &entry);
	kv_durable_floor(kv);
}

void kv_durable_floor(struct hf_kv *kv)
{
	uint8_t value[PURGE_BYTES];
	struct log_entry entry = {.kind = LOG_FLOOR, .value = value, .value_bytes = sizeof(value)};

	kv_purge_write(kv, value);
	(void)kv_log_append(&kv->log, &entry);
}

void kv_durable_wipe(struct hf_kv *kv)
{
	struct log_entry entry = {.kind = LOG_WIPE};

	kv->wiped = true;
	kv->complete = 0;
	kv->log.mark = kv_log_append(&kv->log, &entry);
}

/* ---- what is there at the start ---- */

/* What a MARK has passed is in no doubt, and makes room. */
static void forget_marked(struct durable *durable, uint64_t mark)
{
	while (durable->unmarked_first < durable->unmarked_count &&
		durable->unmarked[durable->unmarked_first].position < mark)
		durable->unmarked_first++;
	if (durable->unmarked_first == 0 || 2 * durable->unmarked_first < durable->unmarked_count)
		return;
	durable->unmarked_count -= durable->unmarked_first;
	memmove(durable->unmarked, durable->unmarked + durable->unmarked_first,
		durable->unmarked_count * sizeof(*durable->unmarked));
	durable->unmarked_first = 0;
}

static int keep_unmarked(struct durable *durable, uint32_t entry, uint64_t position)
{
	if (durable->unmarked_count == durable->unmarked_room) {
		size_t room = durable->unmarked_room == 0 ? UNMARKED_MIN : 2 * durable->unmarked_room;
		struct unmarked *unmarked = realloc(durable->unmarked, room * sizeof(*unmarked));

		if (unmarked == NULL)
			return -ENOMEM;
		durable->unmarked = unmarked;
		durable->unmarked_room = room;
	}
	durable->unmarked[durable->unmarked_count++] = (struct unmarked){.position = position, .entry = entry};
	return 0;
}

static int read_record(struct hf_kv *kv, const struct log_entry *entry, uint64_t position, struct hf_error *error)
{
	uint32_t at = kv_store_find(&kv->store, entry->key, entry->key_bytes);
	struct store_content content = {.key = entry->key,
		.key_bytes = entry->key_bytes,
		.value = entry->value,
		.value_bytes = entry->value_bytes,
		.ts = entry->ts,
		.flags = entry->flags};

	if (entry->kind != LOG_REPLACE && at != STORE_NO_ENTRY &&
		record_compare(record_ts(kv_store_at(&kv->store, at)), entry->ts) > 0)
		return 0;
	at = kv_store_put(&kv->store, &content, RECORD_VALID);
	if (at == STORE_NO_ENTRY)
		return hf_error_set(error, -ENOMEM,
			"kv: the log in %s has more records than fit into store_mb (%u); raise store_mb",
			kv->config.log, kv->config.store_mb);
	kv_store_at(&kv->store, at)->log_position = position;
	return keep_unmarked(&kv->durable, at, position) == 0
		       ? 0
		       : hf_error_set(error, -ENOMEM, "no memory for the doubtful records of the log");
}

static int read_entry(struct hf_kv *kv, const struct log_entry *entry, uint64_t position, struct hf_error *error)
{
	switch (entry->kind) {
	case LOG_LIFE:
		return 0;
	case LOG_MARK:
		forget_marked(&kv->durable, entry->ts.version);
		kv_told_read(kv->told, kv->config.member_count, entry->value, entry->value_bytes);
		return 0;
	case LOG_WRITE:
	case LOG_DELETE:
	case LOG_REPLACE:
		return read_record(kv, entry, position, error);
	case LOG_EPOCH:
		kv->complete = entry->ts.join;
		return 0;
	case LOG_WIPE:
		kv->wiped = true;
		kv->complete = 0;
		kv_store_clear(&kv->store);
		forget_marked(&kv->durable, UINT64_MAX);
		return 0;
	case LOG_FLOOR:
		if (kv_purge_read(kv, entry->value, entry->value_bytes))
			return 0;
		return hf_error_set(error, -EPROTO,
			"kv: the log in %s has an entry of another version; remove it, and this member copies all "
			"records",
			kv->config.log);
	case LOG_KINDS:
		break;
	}
	ensure(false);
	return 0;
}

static int read_entries(void *context, const struct log_entry *entries, const uint64_t *positions, unsigned count,
	struct hf_error *error)
{
	struct hf_kv *kv = context;
	uint32_t expected[LOG_BATCH];
	int rc = 0;

	for (unsigned i = 0; i < count; i++)
		expected[i] = kv_store_expect(&kv->store, entries[i].key, entries[i].key_bytes);
	for (unsigned i = 0; i < count; i++)
		kv_store_fetch(&kv->store, expected[i]);
	for (unsigned i = 0; rc == 0 && i < count; i++)
		rc = read_entry(kv, &entries[i], positions[i], error);
	return rc;
}

/* What was logged behind the last MARK may be here alone, or older than elsewhere. A record of version 0 is in no
 * doubt: a buddy did not have it (R-K15). */
static bool doubt_unmarked(struct hf_kv *kv)
{
	const struct durable *durable = &kv->durable;

	for (size_t i = durable->unmarked_first; i < durable->unmarked_count; i++) {
		uint32_t entry = durable->unmarked[i].entry;
		struct record *record = kv_store_at(&kv->store, entry);

		if (record->version == 0)
			continue;
		kv_store_set_state(record, RECORD_INVALID);
		if (!kv_doubts_add(kv, entry))
			return false;
	}
	return true;
}

int kv_durable_open(struct hf_kv *kv, struct hf_error *error)
{
	int rc;

	if (kv->config.log[0] == '\0')
		return 0;
	rc = kv_log_open(&kv->log, kv->loop, &kv->config, kv->config.members[kv->view.self].name, kv->incarnation,
		read_entries, kv, error);
	if (rc != 0)
		return rc;
	if (kv->log.damaged) {
		kv_store_clear(&kv->store);
		kv_durable_wipe(kv);
	}
	if (kv->complete != 0 && !doubt_unmarked(kv))
		return hf_error_set(error, -ENOMEM, "no memory for the doubtful records of the log");
	free(kv->durable.unmarked);
	kv->durable.unmarked = NULL;
	return 0;
}

void kv_durable_begin_anew(struct hf_kv *kv)
{
	struct hf_error error = {0};

	if (!kv->log.held)
		return;
	if (kv_log_begin_anew(&kv->log, &error) != 0)
		log_error("%s", error.text);
	else
		log_info("kv: the others serve; the damaged log in %s is set aside, and all records are copied",
			kv->config.log);
}

/* ---- the watermark ---- */

static void mark(struct hf_kv *kv)
{
	struct log *log = &kv->log;
	uint64_t position = log->durable;
	uint8_t told[TOLD_BYTES * HF_KV_MEMBERS_MAX];
	struct log_entry entry = {.kind = LOG_MARK, .value = told, .value_bytes = TOLD_BYTES * kv->config.member_count};

	if (!kv->member)
		return;
	if (!list_empty(&kv->unsettled)) {
		const struct busy *oldest = container_of(kv->unsettled.next, struct busy, unsettled);
		uint64_t logged = kv_store_at(&kv->store, oldest->entry)->log_position;

		if (logged < position)
			position = logged;
	}
	if (position <= log->mark)
		return;
	if (kv->config.unnoted && position < log->mark + kv->config.segment_bytes)
		return; /* no member heals by it; segments are freed up to it */
	entry.ts.version = position;
	kv_told_write(kv->told, kv->config.member_count, told);
	(void)kv_log_append(log, &entry);
	log->mark = position;
}

void kv_durable_close(struct hf_kv *kv)
{
	if (kv->log.env != NULL && kv->log.failed == 0 && kv->attached)
		mark(kv);
	kv_log_close(&kv->log);
	free(kv->durable.unmarked);
	free(kv->durable.ring);
}

/* ---- what waits ---- */

static struct promise *promise_add(struct hf_kv *kv)
{
	struct durable *durable = &kv->durable;

	if (durable->next - durable->first == durable->room) {
		uint64_t room = durable->room == 0 ? PROMISES_MIN : 2 * durable->room;
		struct promise *ring = malloc(room * sizeof(*ring));

		if (ring == NULL) {
			kv->log.failed = -ENOMEM;
			log_error("kv: no memory for acknowledgements that wait for the log; this member leaves");
			return NULL;
		}
		for (uint64_t i = durable->first; i < durable->next; i++)
			ring[i & (room - 1)] = durable->ring[i & (durable->room - 1)];
		free(durable->ring);
		durable->ring = ring;
		durable->room = room;
	}
	return &durable->ring[durable->next++ & (durable->room - 1)];
}

static void promise(struct hf_kv *kv, unsigned to, uint64_t epoch, uint64_t write, struct record_ts ts)
{
	struct promise *promise = promise_add(kv);

	if (promise != NULL)
		*promise =
			(struct promise){.position = kv->log.end, .to = to, .epoch = epoch, .write = write, .ts = ts};
}

void kv_durable_ack(struct hf_kv *kv, unsigned to, const struct wire_message *ack)
{
	if (durable_up_to(&kv->log, kv->log.end))
		kv_writes_say(kv, to, ack);
	else
		promise(kv, to, ack->epoch, ack->write, ack->ts);
}

void kv_durable_own(struct hf_kv *kv, struct busy *busy)
{
	if (durable_up_to(&kv->log, kv->log.end))
		kv_writes_durable(kv, busy_write_number(busy));
	else
		promise(kv, kv->view.self, kv->epoch, busy_write_number(busy), busy->write.ts);
}

static bool keep_promises(struct hf_kv *kv)
{
	struct durable *durable = &kv->durable;
	bool some = false;

	for (; durable->first < durable->next; some = true) {
		struct promise kept = durable->ring[durable->first & (durable->room - 1)];
		struct wire_message ack = {.kind = WIRE_ACK, .epoch = kept.epoch, .write = kept.write, .ts = kept.ts};

		if (!durable_up_to(&kv->log, kept.position))
			break;
		durable->first++;
		if (kept.to == kv->view.self)
			kv_writes_durable(kv, kept.write);
		else
			kv_writes_say(kv, kept.to, &ack);
	}
	return some;
}

bool kv_durable_turn(struct hf_kv *kv)
{
	bool some = false;

	if (kv->log.env == NULL)
		return false;
	if (kv->log.failed != 0) {
		kv_epoch_fail(kv);
		return false;
	}
	some |= kv_recycle_turn(kv);
	if (!log_is_idle(&kv->log) && !kv->log.flushing)
		mark(kv);
	some |= kv_log_turn(&kv->log);
	return keep_promises(kv) || some;
}
