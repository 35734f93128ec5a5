/* purge.h - deleted records are removed when nothing can restore them (R-K19).
 *
 * While all configured members are MEMBERs of one epoch they count rounds together. A member announces a round, in each
 * of its ASKs, when all have announced the one before and every write and replay that it had in progress at its last
 * announcement has ended. Links are FIFO, so a member that received a round has received these INVs too.
 *
 *   round n      records VALID here (before `horizon`) are at every member, and none begins a write below them any more
 *   round n + 1  each member announces it when it has received n
 *   round n + 2  writes in progress by then have ended: no INV older than these tombstones is left; remove them
 *
 * A member that removes a tombstone loses the version of its key, and others may still have the tombstone. So keys
 * without a record begin above every removed version (kv_step.h). There are two bounds, because a plain write must win
 * over an RMW on the same base wherever both begin: plain writes begin above `highest`, of all tombstones that were
 * ever here; RMWs begin above `floor`, the least `highest` that any member announced two rounds ago. Only tombstones
 * up to `floor` are removed. A member announces a `highest` when it is durable. A full copy includes both.
 *
 * Owned by the kv's loop. */
#ifndef HOLDFAST_KV_PURGE_H
#define HOLDFAST_KV_PURGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Over the index. */
enum purge_walk {
	PURGE_RESTS,
	PURGE_REMOVES, /* tombstones */
	PURGE_SWEEPS,  /* graves that no look-up needs: they count as records for the room that there is */
};

struct purge {
	uint64_t round;         /* that this member announces; 0: none in this epoch */
	uint64_t serial;        /* writes up to this one had begun at its announcement */
	uint64_t highest;       /* announced with it */
	uint64_t logged;        /* the highest that is in the log, */
	uint64_t logged_until;  /* which ended here then */
	uint64_t since;         /* the round in which these were found; 0: none: */
	uint64_t horizon;       /* the position before which all records were VALID, */
	uint64_t least_highest; /* and the least that a member announced */
	enum purge_walk walk;
	uint64_t cursor, until; /* the next entry; tombstones before that position go */
};

struct hf_kv;

void kv_purge_installed(struct hf_kv *kv); /* another epoch */
/* Floor and highest as they are logged, and as they go with a copy: u64 floor, u64 highest. */
#define PURGE_BYTES 16u
void kv_purge_write(const struct hf_kv *kv, uint8_t at[PURGE_BYTES]);
bool kv_purge_read(struct hf_kv *kv, const uint8_t *at, size_t bytes); /* they count here too; false: there are none */
bool kv_purge_turn(struct hf_kv *kv);

#endif
