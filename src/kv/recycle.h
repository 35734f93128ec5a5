/* recycle.h - compaction of the log: live records of its oldest segments are copied to its end, and the segments are
 * dropped (R-K28).
 *
 * A pass begins when the log has more than twice the size of the store. It copies each record that was logged before
 * the cut, with its timestamp, and drops the segments before the cut when the copies are durable. Every record before
 * the cut is VALID: the cut is at the last MARK at most. Owned by the kv's loop. */
#ifndef HOLDFAST_KV_RECYCLE_H
#define HOLDFAST_KV_RECYCLE_H

#include <stdbool.h>
#include <stdint.h>

enum recycle_state {
	RECYCLE_IDLE,   /* waits until the log is large */
	RECYCLE_COPIES, /* walks the index */
	RECYCLE_WAITS,  /* until the copies are durable */
	RECYCLE_STATES,
};

struct recycle {
	enum recycle_state state;
	uint64_t cut, cursor, until; /* cursor: of the index; until: the position behind the copies */
};

struct hf_kv;

bool kv_recycle_turn(struct hf_kv *kv); /* true: there was something to do */

#endif
