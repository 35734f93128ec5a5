/* durable.h - the log of a store, and ACKs and writes that wait for its durability.
 *
 * Each record is logged when it is applied, in that order. An ACK, and the coordinator's own part of a write, waits
 * until everything logged by then is durable (R-K4, R-K9). A flush carries a MARK: the position before which everything
 * is durable at all live members, because every record logged before it is VALID; it does not advance in a
 * shadow (R-K16). After a restart the records behind the last MARK are DOUBTFUL (HEAL's Partially_persisted).
 *
 * Without a log everything counts as durable at once. Owned by the kv's loop. */
#ifndef HOLDFAST_KV_DURABLE_H
#define HOLDFAST_KV_DURABLE_H

#include "kv/log.h"
#include "kv/wire.h"

/* Sent when the log is durable up to `position`. */
struct promise {
	uint64_t position;
	unsigned to; /* an ACK to this member; the own place: the own part of the write */
	uint64_t epoch, write;
	struct record_ts ts;
};

/* What was read behind the last MARK, at the start. */
struct unmarked {
	uint64_t position;
	uint32_t entry;
};

struct durable {
	struct unmarked *unmarked; /* [unmarked_first, unmarked_count), by position */
	size_t unmarked_first, unmarked_count, unmarked_room;
	struct promise *ring; /* [first, next), by position */
	uint64_t first, next, room;
};

struct hf_kv;
struct busy;

int kv_durable_open(struct hf_kv *kv, struct hf_error *error); /* reads the log, if there is to be one */
void kv_durable_begin_anew(struct hf_kv *kv); /* the others serve without this member: a damaged log makes room */
void kv_durable_close(struct hf_kv *kv);

/* The record was written just now; replaces: its timestamp may be older than the one before. */
void kv_durable_record(struct hf_kv *kv, struct record *record, bool replaces);
void kv_durable_epoch(struct hf_kv *kv); /* it, `complete` and what kv_durable_floor logs are as they are now */
void kv_durable_floor(struct hf_kv *kv); /* versions of deleted records */
void kv_durable_wipe(struct hf_kv *kv);  /* nothing that was logged counts */

/* A log that has failed keeps nothing of this turn, and its end stands still. */
static inline bool durable_up_to(const struct log *log, uint64_t position)
{
	return log->env == NULL || (log->failed == 0 && log->durable >= position);
}
/* Sends the ACK when everything logged is durable. */
void kv_durable_ack(struct hf_kv *kv, unsigned to, const struct wire_message *ack);
void kv_durable_own(struct hf_kv *kv, struct busy *busy);

/* Flushes, and sends the ACKs of durable records. True: there was work. */
bool kv_durable_turn(struct hf_kv *kv);

#endif
