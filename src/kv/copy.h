/* copy.h - recovery of a shadow from its buddy, a member that has installed its epoch: the missed updates (HEAL,
 * section V-C), or all records.
 *
 *   shadow                                   buddy
 *     | COPY_ASKED{key} ... ------------------>  its Partially_persisted: its DOUBTFUL records, some at once
 *     | <--- COPY_RECORD{ts, state, key, value}, or COPY_NONE{key}: revoked (R-K15); each request is answered (R-K14)
 *     | COPY_MISSED{epoch, parts of the log} ->  a member that was one during all of the absence (R-K18)
 *     | <----- COPY_RECORD ... COPY_END          Missed_updates: each record once, as it is now, or as it becomes
 *     | <--------------------------- COPY_NONE   it was not: another one is asked, and at last:
 *     | COPY_REQUEST{epoch} ------------------>
 *     | <----- COPY_RECORD ... COPY_END          all records; what did not come is revoked: it was deleted and removed
 *
 * Writes of the epoch reach the shadow as INVs meanwhile, and take precedence over the copy (R-K20): the newer
 * timestamp wins, unless the shadow's own record is DOUBTFUL. A record that is INVALID at the buddy becomes INVALID
 * here too, and is replayed (R-K12). When the buddy or the link to it is lost, or neither records nor heartbeats come
 * from it for COPY_SILENT_NS, the recovery restarts. Owned by the kv's loop. */
#ifndef HOLDFAST_KV_COPY_H
#define HOLDFAST_KV_COPY_H

#include <holdfast/kv.h>

#include "kv/wire.h"

#define COPY_TURN_BYTES (64u << 10) /* that wait for the shadow's link */
#define COPY_ASKED_MAX  256u        /* records in doubt that are asked for at once */
#define COPY_PARTS_MAX  64u         /* parts of its log that a shadow names; of an older process nothing is believed */
#define COPY_SILENT_NS  1000000000ull

struct hf_kv;

struct copy_donor {
	bool active, missed; /* missed: not all records */
	uint64_t number;     /* of the request */
	uint64_t cursor;     /* the next entry of the index, or the next position of what was missed, */
	uint64_t end;        /* and the last one */
	uint64_t next_ns;    /* of all records: by copy_mbps the next one goes then */
};

struct copy {
	bool wanted, active, done; /* done: all that the buddy had is here, and durable */
	bool taken;                /* it is here */
	uint64_t taken_until;      /* and durable at this position of the log */
	bool heals;                /* requests missed updates, not all records */
	bool distrusts;            /* no longer: what the copy does not bring is revoked, */
	bool revokes;              /* which goes on since its end, */
	uint64_t begun, next;      /* of all that had not changed since that position; the next entry of the index */
	bool requested;            /* all that is in doubt was asked for, and then for the rest; until then */
	uint32_t asked, answered;  /* so many of the records in doubt were */
	uint32_t refused;          /* members that do not know what was missed, as bits */
	unsigned buddy;
	uint64_t number, heard_ns;
	uint64_t records;
	struct copy_donor donors[HF_KV_MEMBERS_MAX]; /* for each shadow */
};

void kv_copy_begin(struct hf_kv *kv);               /* this node was admitted */
void kv_copy_forget(struct hf_kv *kv);              /* it was excluded */
void kv_copy_installed(struct hf_kv *kv);           /* another epoch */
void kv_copy_promoted(struct hf_kv *kv);            /* this node */
void kv_copy_lost(struct hf_kv *kv, unsigned peer); /* the link to it */
/* The record is about to take another place among those that were missed, and has its new value already. */
void kv_copy_moves(struct hf_kv *kv, struct record *record);
bool kv_copy_turn(struct hf_kv *kv, uint64_t now_ns);
uint64_t kv_copy_wake_ns(const struct hf_kv *kv, uint64_t now_ns);
bool kv_copy_hear(struct hf_kv *kv, unsigned from, const struct wire_message *message); /* false: no memory */

#endif
