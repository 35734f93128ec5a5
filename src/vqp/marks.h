/* marks.h - events of a vqp that cannot be handled at once: below the exchange, in the middle of a call.
 *
 * A completion, a device's event, a partial post or a revoked grant sets a mark. The turn of
 * the loop acts on all marks (failover_drain), one vqp at a time, so no event of a vqp begins inside another one. Until
 * then nothing more is posted on a path that is marked broken. */
#ifndef HOLDFAST_VQP_MARKS_H
#define HOLDFAST_VQP_MARKS_H

#include <stdbool.h>

struct hf_vqp;

void marks_broken(struct hf_vqp *vqp);                    /* the path in use is of no use any more; twice is legal */
void marks_rebuild(struct hf_vqp *vqp);                   /* rebuild_drain has something to do */
void marks_probed(struct hf_vqp *vqp, bool came_through); /* the probe of the rebuilt qp is over */
/* There is something to fence or to wait for: it takes its turn in the fence queue (fence_queue.c). */
void marks_fence(struct hf_vqp *vqp);

#endif
