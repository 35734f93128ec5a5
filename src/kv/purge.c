#include "kv/purge.h"

#include "base/bytes.h"
#include "kv/engine.h"

#define WAIT_ROUNDS  3u    /* after that in which all were VALID */
#define TURN_ENTRIES 4096u /* of the index */

/* ---- rounds ---- */

static bool all_are_members(const struct hf_kv *kv)
{
	return kv->member && kv_cm_in(&kv->installed, CM_MEMBER) == (1u << kv->config.member_count) - 1;
}

static bool all_have_said(const struct hf_kv *kv, uint64_t round)
{
	for (unsigned i = 0; i < kv->config.member_count; i++) {
		const struct council_report *report = &kv->council.reports[i];

		if (report->epoch != kv->epoch || report->round < round)
			return false;
	}
	return true;
}

static bool has_ended(const struct hf_kv *kv, uint64_t serial)
{
	return list_empty(&kv->flights) || container_of(kv->flights.next, struct busy, flight)->serial > serial;
}

/* What is said must not be forgotten. */
static bool is_logged(struct hf_kv *kv)
{
	struct purge *purge = &kv->purge;

	if (kv->store.highest > purge->logged) {
		purge->logged = kv->store.highest;
		kv_durable_floor(kv);
		purge->logged_until = kv->log.end;
	}
	return durable_up_to(&kv->log, purge->logged_until);
}

static void begin(struct purge *purge, enum purge_walk walk)
{
	purge->walk = walk;
	purge->cursor = 0;
}

static void begin_walk(struct hf_kv *kv)
{
	struct purge *purge = &kv->purge;

	if (purge->least_highest > kv->view.floor) {
		kv->view.floor = purge->least_highest;
		kv_durable_floor(kv);
	}
	if (kv->store.tombstones == 0 || purge->walk != PURGE_RESTS)
		return;
	begin(purge, PURGE_REMOVES);
	purge->until = purge->horizon;
}

/* What is at every member by now may go when WAIT_ROUNDS more have been said. */
static void look_ahead(struct hf_kv *kv)
{
	struct purge *purge = &kv->purge;

	purge->since = purge->round;
	purge->horizon = kv_writes_oldest(kv);
	purge->least_highest = UINT64_MAX;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		if (kv->council.reports[i].highest < purge->least_highest)
			purge->least_highest = kv->council.reports[i].highest;
}

static bool say_next(struct hf_kv *kv)
{
	struct purge *purge = &kv->purge;

	if (!all_have_said(kv, purge->round) || !has_ended(kv, purge->serial) || !is_logged(kv))
		return false;
	purge->round++;
	purge->highest = purge->logged;
	purge->serial = kv->serial;
	if (purge->since != 0 && purge->round < purge->since + WAIT_ROUNDS)
		return true;
	if (purge->since != 0)
		begin_walk(kv);
	look_ahead(kv);
	return true;
}

/* ---- removing ---- */

static bool may_go(const struct hf_kv *kv, uint32_t entry, const struct record *record)
{
	return (record->flags & RECORD_TOMBSTONE) != 0 && record_state(record) == RECORD_VALID &&
	       record->version <= kv->view.floor && record->missed_position < kv->purge.until &&
	       kv_busy_find(kv, entry) == NULL;
}

static void remove_some(struct hf_kv *kv)
{
	struct purge *purge = &kv->purge;

	for (unsigned n = 0; n < TURN_ENTRIES && purge->cursor <= kv->store.mask; n++, purge->cursor++) {
		const struct record *record = kv_store_look(&kv->store, purge->cursor);

		if (record != NULL && may_go(kv, (uint32_t)purge->cursor, record)) {
			kv_store_remove(&kv->store, (uint32_t)purge->cursor);
			kv->counters.purged++;
		}
	}
	if (purge->cursor > kv->store.mask)
		begin(purge, PURGE_SWEEPS);
}

static bool walk(struct hf_kv *kv)
{
	struct purge *purge = &kv->purge;

	switch (purge->walk) {
	case PURGE_RESTS:
		return false;
	case PURGE_REMOVES:
		remove_some(kv);
		break;
	case PURGE_SWEEPS:
		if (kv_store_sweep(&kv->store, &purge->cursor, TURN_ENTRIES))
			begin(purge, PURGE_RESTS);
		break;
	}
	return true;
}

/* ---- what others see ---- */

void kv_purge_installed(struct hf_kv *kv)
{
	kv->purge.round = kv->purge.since = 0;
	kv->purge.serial = kv->serial;
	if (kv->purge.walk != PURGE_RESTS)
		begin(&kv->purge, PURGE_SWEEPS); /* no later walk may come */
}

void kv_purge_write(const struct hf_kv *kv, uint8_t at[PURGE_BYTES])
{
	put_le64(at, kv->view.floor);
	put_le64(at + 8, kv->store.highest);
}

bool kv_purge_read(struct hf_kv *kv, const uint8_t *at, size_t bytes)
{
	if (bytes != PURGE_BYTES)
		return false;
	if (get_le64(at) > kv->view.floor)
		kv->view.floor = get_le64(at);
	if (get_le64(at + 8) > kv->store.highest)
		kv->store.highest = get_le64(at + 8);
	return true;
}

bool kv_purge_turn(struct hf_kv *kv)
{
	bool said;

	if (!all_are_members(kv))
		return false;
	said = say_next(kv);
	return walk(kv) || said;
}
