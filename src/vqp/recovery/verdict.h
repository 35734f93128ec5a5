/* verdict.h - what becomes of a wr in flight when its path is lost. Pure.
 *
 * `resend` is blind: what executed while its acknowledgement was lost executes again. Only messages that a receive
 * took are known to have arrived, since the receiver's log counts them (R8); sending those again would put every
 * later message into the wrong receive.
 *
 * `varuna` judges by evidence (R3, R8):
 *   READ                  is issued again;
 *   SEND                  executed when its receive completion was read, else it is sent again;
 *   WRITE                 executed, or resumes behind the packets that did, or is unknown;
 *   WRITE_WITH_IMM        the same, but it is not over before its receive completion was read: when only that
 *                         was lost, the immediate is repeated;
 *   CAS, FAA              executed when the responder's device still knows the original value (D4b, R9), not executed,
 *                         or unknown: the value is lost, and is never guessed.
 * Whatever it is, when the responder says that it refused it: it fails with that status, in its turn.
 * Where the evidence is in doubt, one that is declared idempotent is sent again, and so is an atomic of a region in
 * HF_ATOMIC_PLAIN. Of these a CAS that finds its own value had executed: that is told as its success (Varuna, 3.3: to
 * read the target again and compare it; a CAS that fails is a READ).
 *
 * Under `both` a wr executed when either the psn or the completion log says so. Where only the log can speak, the first
 * logged wr without an entry is in doubt, because its entry may be what was lost; those behind it did not execute. A
 * message that a receive took says of all before it that they executed (D1): what the receiver was told of is behind
 * them, and they must not execute again.
 * A wr with IBV_SEND_FENCE of which anything executed says that READs and atomics before it have completed; where that
 * is not sure, a READ is unknown: to READ again would be to read what was written behind the fence.
 *
 * Invariant:
 *   VER-1  A verdict is entered into the log before anything is replayed, and leaves no trace of the qp: a second
 *          failure finds a wr that is done, or one that is to be posted from `landed` on. That it was in doubt stays:
 *          it is not told not to have executed, whatever becomes of it. */
#ifndef HOLDFAST_VQP_RECOVERY_VERDICT_H
#define HOLDFAST_VQP_RECOVERY_VERDICT_H

#include "vqp/recovery/evidence.h"
#include "vqp/data/request_log.h"

enum verdict_kind {
	VERDICT_EXECUTED,
	VERDICT_REPLAY,
	VERDICT_UNKNOWN,
	VERDICT_REFUSED, /* by the responder: nothing behind `landed` executed, nor will it */
};
struct verdict {
	enum verdict_kind kind;
	uint64_t landed;           /* REPLAY, REFUSED, of a WRITE: bytes that took effect on this path */
	uint64_t original;         /* EXECUTED atomic: the value it found */
	enum ibv_wc_status status; /* REFUSED */
	bool doubtful;             /* REPLAY: it may have executed */
};

/* What the completion log says of the wrs in flight, by their positions in `log`; and one thing about themselves that
 * is seen on the way. */
struct log_reading {
	uint64_t executed_end; /* what was posted before it executed */
	uint64_t taken_end;    /* the same, by a message that a receive took */
	uint64_t doubt_end;    /* and nothing from here on: after the fence; UINT64_MAX: no such place */
	bool fences;           /* one of them has IBV_SEND_FENCE */
};
struct log_reading verdict_read_log(const struct request_log *log, const struct evidence *evidence);

struct verdict verdict_judge(enum hf_policy policy, const struct request_log_wr *entry, uint64_t position,
	const struct evidence *evidence, const struct log_reading *reading);

/* Before the verdicts: whether wrs that had completed are lost, because the responder's device died before they were in
 * memory, or before it had told of a message. `messages`: how many were posted since the vqp was made. */
bool verdict_lost(
	struct request_log *log, uint64_t messages, const struct evidence *evidence, const struct log_reading *reading);

/* Judges what was posted and is not done, [head, next), and puts the values of atomics where the wrs want them. Returns
 * how many are unknown. */
uint32_t verdict_enter(enum hf_policy policy, struct request_log *log, const struct evidence *evidence,
	const struct log_reading *reading);

#endif
