#include "transfer/merge.h"

#include <stdbool.h>
#include <stdlib.h>

/* Requests that may be merged stand together, in the order of the segment's memory. */
static int compare(const void *left, const void *right)
{
	const struct task_request *a = *(const struct task_request *const *)left;
	const struct task_request *b = *(const struct task_request *const *)right;

	if (a->opcode != b->opcode)
		return a->opcode < b->opcode ? -1 : 1;
	if (a->segment != b->segment)
		return (uintptr_t)a->segment < (uintptr_t)b->segment ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return a < b ? -1 : 1; /* as they were submitted */
}

static bool follows(const struct task_request *a, const struct task_request *b)
{
	return a->opcode == b->opcode && a->segment == b->segment && a->hint == b->hint &&
	       a->deadline_ns == b->deadline_ns && a->local == b->local && a->remote == b->remote &&
	       a->source + a->length == b->source && a->offset + a->length == b->offset;
}

unsigned merge_requests(const struct task_request *requests, unsigned n, struct task_request *owners,
	unsigned *owner_of, const struct task_request **order)
{
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++)
		order[i] = &requests[i];
	qsort(order, n, sizeof(const struct task_request *), compare);
	for (unsigned i = 0; i < n; i++) {
		if (count > 0 && follows(&owners[count - 1], order[i]))
			owners[count - 1].length += order[i]->length;
		else
			owners[count++] = *order[i];
		owner_of[order[i] - requests] = count - 1;
	}
	return count;
}
