/* verdict.h - the outcome of a wr in flight when its path is lost. Pure.
 *
 * `resend` uses no evidence: a wr that executed while its acknowledgement was lost executes again. Only messages that a
 * receive took count as arrived, since the receiver's log counts them (R8); sending those again would put every
 * later message into the wrong receive.
 *
 * `varuna` judges by evidence (R3, R8):
 *   READ                  is issued again;
 *   SEND                  executed when its receive completion was read, else it is sent again;
 *   WRITE                 executed, or resumes behind the packets that did, or is unknown;
 *   WRITE_WITH_IMM        the same, but it is not over before its receive completion was read: when only that
 *                         was lost, the immediate is repeated;
 *   CAS, FAA              executed when the responder's device still has the original value (D4b, R9), not executed,
 *                         or unknown: the value is lost, and is never guessed.
 * A wr of any kind that the responder refused fails with the reported status, in its turn.
 * Where the evidence is in doubt, a wr that is declared idempotent is sent again, and so is an atomic of a region in
 * HF_ATOMIC_PLAIN. A CAS of these that finds its own value had executed, and is reported as a success (Varuna, 3.3: to
 * read the target again and compare it; a CAS that fails is a READ).
 *
 * Under `both` a wr executed when either the psn or the completion log proves it. With the log as the only evidence,
 * the first logged wr without an entry is in doubt, because only its entry may be lost; those behind it did not
 * execute. A message that a receive took proves that all wrs before it executed (D1): the receiver has its data behind
 * theirs, and they must not execute again. So does an atomic of which the device has the original value.
 * If any part of a wr with IBV_SEND_FENCE executed, the READs and atomics before it have completed; where that
 * is not certain, a READ is unknown: to READ again would be to read data written behind the fence.
 *
 * Invariant:
 *   VER-1  A verdict is entered into the log before anything is replayed, and drops the reference to the qp: a second
 *          failure finds a wr that is done, or one that is to be posted from `landed` on. The doubt about a wr stays:
 *          it never completes as not executed, whatever the later outcome. */
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

/* The evidence of the completion log about the wrs in flight, by their positions in `log`; and one property of these
 * wrs. */
struct log_reading {
	uint64_t executed_end; /* what was posted before it executed */
	uint64_t taken_end;    /* the same, by a message that a receive took */
	uint64_t found_end;    /* the same, by an atomic of which the device has the original value */
	uint64_t doubt_end;    /* and nothing from here on: after the fence; UINT64_MAX: no such place */
	bool fences;           /* one of them has IBV_SEND_FENCE */
};
struct log_reading verdict_read_log(const struct request_log *log, const struct evidence *evidence);

struct verdict verdict_judge(enum hf_policy policy, const struct request_log_wr *entry, uint64_t position,
	const struct evidence *evidence, const struct log_reading *reading);

/* Before the verdicts: whether completed wrs are lost, because the responder's device died before they were in memory,
 * or before it had reported a message. `messages`: the number posted since the vqp was made. */
bool verdict_lost(
	struct request_log *log, uint64_t messages, const struct evidence *evidence, const struct log_reading *reading);

/* Judges what was posted and is not done, [head, next), and puts the values of atomics where the wrs want them. Returns
 * how many are unknown. */
uint32_t verdict_enter(enum hf_policy policy, struct request_log *log, const struct evidence *evidence,
	const struct log_reading *reading);

#endif
