/* answers.h - whether the answers of READs and atomics have arrived, where a success of the NIC does not say so.
 *
 * A requester that missed an acknowledgement sends again from the oldest wr that it has none of. The responder
 * acknowledges a WRITE or a SEND that arrives again by its newest psn, which may be that of a READ or an atomic behind
 * it; and some requesters take that for the answer (verbs_model.believes_acks): the wr completes with success and
 * without data. So the end of the place of each answer is marked before the wr is posted. Where the mark is still there
 * when the wr has completed, it fails as if its retries were exceeded, its qp goes to ERR, and what completed behind it
 * was flushed, as far as the program is told: the fence's evidence says what of that executed.
 *
 * Of fewer than eight bytes the mark may be what was read. And nothing is marked where a wr in flight on that qp reads
 * or writes: what is still to be sent must not change. In both cases the NIC is asked whether it has sent anything
 * again since, and if it has, that answer is not believed.
 *
 * ANSWERS-1  the memory that wrs in flight use is there in the order of the wrs, each from its post until its wr, or a
 *            later signaled one, has completed. */
#ifndef HOLDFAST_DEV_VERBS_ANSWERS_H
#define HOLDFAST_DEV_VERBS_ANSWERS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct verbs_dev;
struct verbs_qp;
struct verbs_answers; /* NULL: a success of the NIC says it */

void verbs_answers_look(struct verbs_dev *dev); /* from time to time */
int verbs_answers_init(struct verbs_qp *qp);
void verbs_answers_free(struct verbs_qp *qp);
void verbs_answers_forget(struct verbs_qp *qp); /* its wrs complete no more */

/* Marks the places of a list that is about to be posted. -ENOMEM also where a million were posted and none signaled. */
int verbs_answers_expect(struct verbs_qp *qp, const struct ibv_send_wr *wr);
/* Of that list those from `end` on (NULL: none) were not posted: what was in their places is there again. */
void verbs_answers_unexpect(struct verbs_qp *qp, const struct ibv_send_wr *end);

/* The next signaled wr has completed with success, the NIC says: what its completion says now. */
enum ibv_wc_status verbs_answers_judge(struct verbs_qp *qp);

/* A wr has failed, and its qp with it: what was in the places that get no answer any more is there again. */
void verbs_answers_restore(struct verbs_qp *qp);

/* Whether a wr in flight of that wr_id uses local memory that it may not use. */
bool verbs_answers_refused(const struct verbs_qp *qp, uint64_t wr_id);

#endif
