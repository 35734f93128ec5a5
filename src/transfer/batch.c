#include "transfer/batch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/list.h"
#include "transfer/buffers.h"
#include "transfer/merge.h"
#include "transfer/notify.h"

/* The owners of one submit. */
struct submission {
	struct list link;
	struct hf_transfer_batch *batch;
	unsigned begun; /* owners [0, begun) are in use */
	struct submitted {
		struct submission *submission;
		struct owner owner;
	} owners[];
};

struct batch_task {
	struct owner *owner;
	uint64_t begin, end; /* in the owner's range */
	bool cancelled;
};

struct hf_transfer_batch {
	struct owner_context *context;
	bool merge_requests;
	void (*on_idle)(struct hf_transfer_batch *batch, void *arg);
	void *arg;
	struct list submissions;
	unsigned room, count, pending; /* tasks; pending: owners */
	bool submitting;
	bool refused; /* the last requests that were submitted, or one of them */
	struct notice *notice;
	struct batch_task tasks[];
};

/* Scratch of one submit. */
struct merged {
	struct task_request *owners;
	unsigned *owner_of;
	const struct task_request **order;
	unsigned count;
};

int batch_alloc(struct owner_context *context, unsigned tasks, bool merge_requests,
	void (*on_idle)(struct hf_transfer_batch *batch, void *arg), void *arg, struct hf_transfer_batch **batch_out)
{
	struct hf_transfer_batch *batch = calloc(1, sizeof(*batch) + tasks * sizeof(batch->tasks[0]));

	*batch_out = batch;
	if (batch == NULL)
		return -ENOMEM;
	batch->context = context;
	batch->merge_requests = merge_requests;
	batch->on_idle = on_idle;
	batch->arg = arg;
	batch->room = tasks;
	list_init(&batch->submissions);
	return 0;
}

struct owner_context *batch_context(const struct hf_transfer_batch *batch)
{
	return batch->context;
}

int batch_free(struct hf_transfer_batch *batch)
{
	struct list *at;

	if (batch == NULL)
		return 0;
	if (batch->pending > 0)
		return -EBUSY;
	while ((at = list_pop_front(&batch->submissions)) != NULL) {
		struct submission *submission = container_of(at, struct submission, link);

		for (unsigned i = 0; i < submission->begun; i++)
			owner_free(&submission->owners[i].owner);
		free(submission);
	}
	free(batch);
	return 0;
}

static void tell_idle(struct hf_transfer_batch *batch)
{
	if (batch->pending > 0 || batch->submitting)
		return;
	notify_end(batch->context, &batch->notice, batch_status(batch));
	if (batch->on_idle != NULL)
		batch->on_idle(batch, batch->arg);
}

int batch_notify(struct hf_transfer_batch *batch, struct hf_segment *segment, const void *data, size_t bytes)
{
	return batch->pending == 0 ? -EINVAL : notify_wait(&batch->notice, segment, data, bytes);
}

/* The buffers that a pending request names. */
static void use(const struct task_request *request, int n)
{
	if (request->local != NULL)
		request->local->users += (unsigned)n;
	if (request->target != NULL)
		request->target->users += (unsigned)n;
}

static void owner_ended(struct owner *owner)
{
	struct hf_transfer_batch *batch = container_of(owner, struct submitted, owner)->submission->batch;

	batch->pending--;
	use(&owner->request, -1);
	tell_idle(batch);
}

static int merged_alloc(struct merged *merged, unsigned n)
{
	*merged = (struct merged){.owners = calloc(n, sizeof(*merged->owners)),
		.owner_of = calloc(n, sizeof(*merged->owner_of)),
		.order = calloc(n, sizeof(*merged->order))};
	return merged->owners == NULL || merged->owner_of == NULL || merged->order == NULL ? -ENOMEM : 0;
}

static void merged_free(struct merged *merged)
{
	free(merged->owners);
	free(merged->owner_of);
	free(merged->order);
}

static void merge(
	const struct hf_transfer_batch *batch, const struct task_request *requests, unsigned n, struct merged *merged)
{
	if (batch->merge_requests) {
		merged->count = merge_requests(requests, n, merged->owners, merged->owner_of, merged->order);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		merged->owners[i] = requests[i];
		merged->owner_of[i] = i;
	}
	merged->count = n;
}

static void add_task(struct hf_transfer_batch *batch, const struct task_request *request, struct owner *owner)
{
	uint64_t begin = request->offset - owner->request.offset;

	owner->aliases++;
	batch->tasks[batch->count++] =
		(struct batch_task){.owner = owner, .begin = begin, .end = begin + request->length};
}

static void begin_all(struct hf_transfer_batch *batch, struct submission *submission, unsigned n)
{
	batch->submitting = true;
	for (; submission->begun < n; submission->begun++) {
		struct owner *owner = &submission->owners[submission->begun].owner;

		batch->pending++;
		use(&owner->request, 1);
		owner_begin(owner);
	}
	batch->submitting = false;
}

int batch_submit(struct hf_transfer_batch *batch, const struct task_request *requests, unsigned n, unsigned *first_out)
{
	struct submission *submission = NULL;
	struct merged merged;
	int rc;

	*first_out = batch->count;
	if (n > batch->room - batch->count)
		return -ENOSPC;
	rc = merged_alloc(&merged, n);
	if (rc == 0) {
		merge(batch, requests, n, &merged);
		submission = calloc(1, sizeof(*submission) + merged.count * sizeof(submission->owners[0]));
		rc = submission == NULL ? -ENOMEM : 0;
	}
	if (rc != 0) {
		merged_free(&merged);
		return rc;
	}
	submission->batch = batch;
	list_push_back(&batch->submissions, &submission->link);
	for (unsigned i = 0; i < merged.count; i++) {
		submission->owners[i].submission = submission;
		owner_init(&submission->owners[i].owner, batch->context, &merged.owners[i]);
		submission->owners[i].owner.ended = owner_ended;
	}
	for (unsigned i = 0; i < n; i++)
		add_task(batch, &requests[i], &submission->owners[merged.owner_of[i]].owner);
	begin_all(batch, submission, merged.count);
	merged_free(&merged);
	tell_idle(batch);
	return 0;
}

int batch_cancel(struct hf_transfer_batch *batch, unsigned task)
{
	struct batch_task *cancelled;

	if (task >= batch->count)
		return -EINVAL;
	cancelled = &batch->tasks[task];
	if (!cancelled->cancelled) {
		cancelled->cancelled = true;
		owner_cancel(cancelled->owner);
	}
	return 0;
}

int batch_task_status(const struct hf_transfer_batch *batch, unsigned task, struct batch_task_status *status_out)
{
	const struct batch_task *asked;

	if (task >= batch->count)
		return -EINVAL;
	asked = &batch->tasks[task];
	*status_out = (struct batch_task_status){.status = asked->owner->task.status,
		.bytes = ranges_bytes(&asked->owner->task.done, asked->begin, asked->end)};
	return 0;
}

void batch_note_refusal(struct hf_transfer_batch *batch, bool refused)
{
	batch->refused = refused;
}

enum hf_transfer_status batch_status(const struct hf_transfer_batch *batch)
{
	enum hf_transfer_status status = HF_TRANSFER_COMPLETED;

	if (batch->pending > 0)
		return HF_TRANSFER_PENDING;
	if (batch->refused)
		return HF_TRANSFER_INVALID;
	if (batch->count == 0)
		return HF_TRANSFER_INITIAL;
	for (unsigned i = 0; i < batch->count && status == HF_TRANSFER_COMPLETED; i++)
		status = batch->tasks[i].owner->task.status;
	return status;
}
