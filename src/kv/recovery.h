/* recovery.h - the times of the steps of this member's recoveries, for the status (HEAL, section IX-C).
 *
 *   ADMIT installed | request to a buddy | its reply begins | PROMOTE installed
 *        Start_to_ACK      CatchUp_to_Resp      Apply_to_end
 *
 * A buddy replies only to requests of an epoch that it has installed; a request to another buddy restarts the second
 * step. Records are applied as they arrive. Owned by the kv's loop. */
#ifndef HOLDFAST_KV_RECOVERY_H
#define HOLDFAST_KV_RECOVERY_H

#include <holdfast/kv.h>

struct recovery {
	bool running;
	uint64_t epoch, admitted_ns, asked_ns, answered_ns; /* 0: not yet */
	unsigned count;                                     /* of those that have ended */
	struct hf_kv_recovery_status ended[HF_KV_RECOVERIES_KEPT];
};

void kv_recovery_admitted(struct recovery *recovery, uint64_t epoch, uint64_t now_ns);
void kv_recovery_asked(struct recovery *recovery, uint64_t now_ns);
void kv_recovery_answered(struct recovery *recovery, uint64_t now_ns); /* any piece of an answer */
void kv_recovery_stopped(struct recovery *recovery);                   /* this member was excluded */
/* It was promoted; `how` has the buddy and the kind of recovery. */
void kv_recovery_ended(struct recovery *recovery, const struct hf_kv_recovery_status *how, uint64_t now_ns);
/* The last one first; returns their number. */
unsigned kv_recovery_list(
	const struct recovery *recovery, struct hf_kv_recovery_status list_out[HF_KV_RECOVERIES_KEPT]);

#endif
