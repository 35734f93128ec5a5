/* answers.h - detects READs and atomics that the NIC completes with success but without their data.
 *
 * A requester that missed an acknowledgement retransmits from its oldest unacknowledged wr. The responder acknowledges
 * a duplicate WRITE or SEND with its newest psn, which may be that of a READ or an atomic behind it. Some requesters
 * take that for the response (verbs_model.believes_acks): the wr completes with success and without data. So the end of
 * the destination of each response is marked before the wr is posted. If the mark is still there when the wr has
 * completed, the wr fails like one whose retries are exceeded, its qp goes to ERR, and later completions are reported
 * as flushed; the fence's evidence shows which of those wrs executed.
 *
 * A response of fewer than eight bytes may equal the mark. And memory that a wr in flight on that qp reads or writes is
 * not marked, because unsent data must not change. In both cases the response is rejected if the NIC has retransmitted
 * anything since.
 *
 * ANSWERS-1  the list of memory in use by wrs in flight is in the order of the wrs; each entry stays from its post
 * until
 *            its wr, or a later signaled one, has completed. */
#ifndef HOLDFAST_DEV_VERBS_ANSWERS_H
#define HOLDFAST_DEV_VERBS_ANSWERS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct verbs_dev;
struct verbs_qp;
struct verbs_answers; /* NULL: a success of the NIC proves the arrival */

void verbs_answers_look(struct verbs_dev *dev); /* from time to time */
int verbs_answers_init(struct verbs_qp *qp);
void verbs_answers_free(struct verbs_qp *qp);
void verbs_answers_forget(struct verbs_qp *qp); /* its wrs complete no more */

/* Marks the places of a list that is about to be posted. -ENOMEM also where a million were posted and none signaled. */
int verbs_answers_expect(struct verbs_qp *qp, const struct ibv_send_wr *wr);
/* Of that list those from `end` on (NULL: none) were not posted: what was in their places is there again. */
void verbs_answers_unexpect(struct verbs_qp *qp, const struct ibv_send_wr *end);

/* The NIC reports success of the next signaled wr; returns the status for its completion. */
enum ibv_wc_status verbs_answers_judge(struct verbs_qp *qp);

/* A wr has failed, and its qp with it: what was in the places that get no answer any more is there again. */
void verbs_answers_restore(struct verbs_qp *qp);

/* Whether a wr in flight of that wr_id uses local memory that it may not use. */
bool verbs_answers_refused(const struct verbs_qp *qp, uint64_t wr_id);

#endif
