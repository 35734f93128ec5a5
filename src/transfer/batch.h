/* batch.h - a batch of requests, unordered, with a status for each.
 *
 * A batch has room for a fixed number of tasks; each submit adds some. Requests of one submit may be merged (merge.h);
 * each keeps a status of its own, which mirrors its owner's. Owned by the engine's loop. */
#ifndef HOLDFAST_TRANSFER_BATCH_H
#define HOLDFAST_TRANSFER_BATCH_H

#include "transfer/owner.h"

struct hf_transfer_batch;

/* Calls on_idle (NULL: nothing) whenever the last pending task of the batch has ended; the callback may submit and
 * free. -ENOMEM. */
int batch_alloc(struct owner_context *context, unsigned tasks, bool merge_requests,
	void (*on_idle)(struct hf_transfer_batch *batch, void *arg), void *arg, struct hf_transfer_batch **batch_out);
struct owner_context *batch_context(const struct hf_transfer_batch *batch);
/* A notification for the end of its last pending task (notify.h). -EINVAL: none is pending. */
int batch_notify(struct hf_transfer_batch *batch, struct hf_segment *segment, const void *data, size_t bytes);
int batch_free(struct hf_transfer_batch *batch); /* -EBUSY while a task is pending; NULL is legal */

/* Adds n tasks; *first_out is the number of the first of them. -ENOSPC: the batch has no room for all of them;
 * -ENOMEM. On an error nothing was submitted. */
int batch_submit(struct hf_transfer_batch *batch, const struct task_request *requests, unsigned n, unsigned *first_out);
int batch_cancel(
	struct hf_transfer_batch *batch, unsigned task); /* -EINVAL: no such task; ended already: nothing happens */

struct batch_task_status {
	enum hf_transfer_status status;
	uint64_t bytes; /* of the request that are in place */
};
int batch_task_status(
	const struct hf_transfer_batch *batch, unsigned task, struct batch_task_status *status_out); /* -EINVAL */
/* PENDING while a task is; COMPLETED when all are; else the status of the first task that ended otherwise. */
/* Whether a request of the last submission was refused: the batch is INVALID then. */
void batch_note_refusal(struct hf_transfer_batch *batch, bool refused);
enum hf_transfer_status batch_status(const struct hf_transfer_batch *batch);

#endif
