/* uid_post.h - the requester's end of atomics by uid: executes the steps of uid.h on the path in use.
 *
 * A wr that names a region in HF_ATOMIC_UID waits for its turn in the log, at log->next, and is a barrier there: it may
 * take several round trips, and nothing behind it is posted until it has ended (R11; READs could be, and are not).
 * The qp orders it behind earlier wrs on the same qp (D1). A READ is executed and its words are checked for UIDs;
 * a WRITE is refused, since it would erase a UID.
 *
 * Invariants:
 *   UIP-1  A slot of ours is used again only when the CAS that replaces its UID has completed, or when it is known
 *          that the UID was never installed. So an operation whose outcome is of no interest any more, because its
 *          grant is over, owes that CAS as well: it does nothing where there is no UID.
 *   UIP-2  Before an operation of a failed qp is posted again, its trace in target and slot is searched. */
#ifndef HOLDFAST_VQP_ATOMIC_UID_POST_H
#define HOLDFAST_VQP_ATOMIC_UID_POST_H

#include "vqp/objects.h"

/* The wr is for the functions below. */
bool uid_post_takes(const struct hf_vqp *vqp, const struct request_log_wr *entry);
/* Does what can be done for the wr at log->next, which is one of those. */
void uid_post_pump(struct hf_vqp *vqp);
/* Replaces the UIDs of operations that are over: before anything else is posted. They wait while the peer grants no
 * atomics. */
void uid_post_confirm(struct hf_vqp *vqp);
/* A wr_id of uid_post_confirm. Its region may be gone before the vqp knows: only the qp fails then. */
bool uid_post_confirms(uint64_t wr_id);
/* A wr with WR_UID succeeded. */
void uid_post_completed(struct hf_vqp *vqp, const struct ibv_wc *wc);
/* The path was fenced. */
void uid_post_lost(struct hf_vqp *vqp);
/* The path was fenced, and the wr that has begun, if there is one, is ended without its outcome. */
void uid_post_abandon(struct hf_vqp *vqp);
/* Nothing of ours is on its way. */
bool uid_post_quiet(const struct hf_vqp *vqp);
void uid_post_slots(struct hf_vqp *vqp, const struct message_head *message); /* SLOTS came */
void uid_post_free(struct hf_vqp *vqp);

#endif
