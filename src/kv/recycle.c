#include "kv/recycle.h"

#include "base/ensure.h"
#include "base/states.h"
#include "kv/engine.h"

#define GROWTH       2u
#define SEGMENTS_MIN 2u
#define TURN_ENTRIES 4096u        /* of the index */
#define TURN_BYTES   (256u << 10) /* that wait for a flush */

static void recycle_move(struct hf_kv *kv, enum recycle_state to)
{
	static const struct state recycle_states[RECYCLE_STATES] = {
		[RECYCLE_IDLE] = {"idle", BIT(RECYCLE_COPIES)},
		[RECYCLE_COPIES] = {"copies", BIT(RECYCLE_WAITS)},
		[RECYCLE_WAITS] = {"waits", BIT(RECYCLE_IDLE)},
	};

	states_move("recycle", recycle_states, &kv->recycle.state, to, "of %s", kv->config.cluster);
}

/* The end of the last segment that may go; 0: none. */
static uint64_t find_cut(const struct log *log)
{
	uint64_t cut = 0;

	for (size_t i = 0; i + 1 < log->segment_count; i++) {
		uint64_t end = log->segments[i].position + log->segments[i].bytes;

		if (end > log->mark)
			break;
		cut = end;
	}
	return cut > log->drop_before ? cut : 0;
}

static bool begin(struct hf_kv *kv)
{
	const struct log *log = &kv->log;

	if (log->segment_count <= SEGMENTS_MIN || log->segments[0].position < log->drop_before ||
		log->end - log->segments[0].position < GROWTH * (kv->store.made - store_undivided(&kv->store)) +
							       SEGMENTS_MIN * kv->config.segment_bytes)
		return false;
	kv->recycle.cut = find_cut(log);
	if (kv->recycle.cut == 0)
		return false;
	kv->recycle.cursor = 0;
	recycle_move(kv, RECYCLE_COPIES);
	return true;
}

/* A key of version 0 has no record; what it replaced lies before the cut too. */
static bool copy(struct hf_kv *kv)
{
	bool some = kv->log.filling.bytes < TURN_BYTES;

	for (uint32_t n = 0; n < TURN_ENTRIES && kv->log.filling.bytes < TURN_BYTES; n++) {
		struct record *record;

		if (kv->recycle.cursor > kv->store.mask) {
			kv_durable_epoch(kv);
			kv->recycle.until = kv->log.end;
			recycle_move(kv, RECYCLE_WAITS);
			return true;
		}
		record = kv_store_look(&kv->store, kv->recycle.cursor++);
		if (record != NULL && record->version != 0 && record->log_position < kv->recycle.cut)
			kv_durable_record(kv, record, false);
	}
	return some;
}

bool kv_recycle_turn(struct hf_kv *kv)
{
	struct recycle *recycle = &kv->recycle;

	switch (recycle->state) {
	case RECYCLE_IDLE:
		return begin(kv);
	case RECYCLE_COPIES:
		return copy(kv);
	case RECYCLE_WAITS:
		if (!durable_up_to(&kv->log, recycle->until))
			return false;
		kv_log_drop(&kv->log, recycle->cut);
		recycle_move(kv, RECYCLE_IDLE);
		return true;
	case RECYCLE_STATES:
		break;
	}
	ensure(false);
	return false;
}
