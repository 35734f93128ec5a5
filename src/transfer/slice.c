#include "transfer/slice.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "transfer/peer.h"

static unsigned holes_of(const struct transport_job *job)
{
	struct range hole;
	unsigned n = 0;

	for (uint64_t at = 0; ranges_next_hole(job->done, at, job->request->length, &hole); at = hole.end)
		n++;
	return n;
}

static unsigned cut(struct slice_job *job, uint64_t block)
{
	struct range hole;
	unsigned n = 0;

	for (uint64_t at = 0; ranges_next_hole(job->above->done, at, job->above->request->length, &hole);
		at = hole.end) {
		for (uint64_t begin = hole.begin; begin < hole.end; n++) {
			struct slice *slice = &job->slices[n];

			slice->job = job;
			slice->range = (struct range){
				.begin = begin, .end = hole.end - begin > block ? begin + block : hole.end};
			begin = slice->range.end;
			list_push_back(&job->unsent, &slice->link);
		}
	}
	return n;
}

static uint64_t block_of(uint64_t length, uint64_t block)
{
	uint64_t grown = (length + SLICES_MAX - 1) / SLICES_MAX;

	if (grown > SLICE_BYTES_GROWN)
		grown = SLICE_BYTES_GROWN;
	if (block < grown)
		block = grown;
	return block < SLICE_BYTES_MAX ? block : SLICE_BYTES_MAX;
}

unsigned slice_count_most(uint64_t length, unsigned holes, uint64_t block)
{
	return (unsigned)(length / block_of(length, block)) + holes;
}

struct slice_job *slice_job_new(struct transport_job *above, struct list *queue, uint64_t block, uint64_t now_ns)
{
	uint64_t length = above->request->length;
	unsigned room = slice_count_most(length, holes_of(above), block);
	struct slice_job *job = calloc(1, sizeof(*job) + room * sizeof(job->slices[0]));

	if (job == NULL)
		return NULL;
	job->above = above;
	job->begun_ns = now_ns;
	job->queue = queue;
	list_init(&job->unsent);
	list_push_back(queue, &job->link);
	ensure(cut(job, block_of(length, block)) <= room);
	above->carried = job;
	return job;
}

struct slice *slice_job_take(struct slice_job *job)
{
	struct list *at = list_pop_front(&job->unsent);

	ensure(at != NULL);
	job->out++;
	list_remove(&job->link);
	if (!list_empty(&job->unsent))
		list_push_back(job->queue, &job->link);
	return container_of(at, struct slice, link);
}

static void end_if_over(struct slice_job *job)
{
	struct transport_job *above = job->above;

	if (job->out > 0 || !list_empty(&job->unsent))
		return;
	list_remove(&job->link);
	free(job);
	above->carried = NULL;
	above->events->drained(above);
}

void slice_done(struct slice *slice)
{
	struct slice_job *job = slice->job;

	job->above->events->done(job->above, &slice->range);
	slice_job_release(job);
}

void slice_back(struct slice *slice)
{
	struct slice_job *job = slice->job;

	if (!job->ending) {
		if (list_empty(&job->unsent))
			list_push_front(job->queue, &job->link);
		list_push_front(&job->unsent, &slice->link);
	}
	slice_job_release(job);
}

bool slice_refreshes(struct slice *slice)
{
	if (slice->refreshed || slice->generation == slice->job->above->request->segment->view->generation)
		return false;
	slice->refreshed = true;
	return true;
}

void slice_job_hold(struct slice_job *job)
{
	job->out++;
}

void slice_job_release(struct slice_job *job)
{
	job->out--;
	end_if_over(job);
}

void slice_job_withdraw(struct slice_job *job)
{
	if (job->ending)
		return;
	job->ending = true;
	list_init(&job->unsent);
	list_remove(&job->link);
	end_if_over(job);
}

/* The event may make the task withdraw the job: it stays until the event is over. */
static void tell_end(struct slice_job *job, void (*tell)(struct transport_job *job))
{
	if (job->ending)
		return;
	slice_job_hold(job);
	tell(job->above);
	slice_job_withdraw(job);
	slice_job_release(job);
}

void slice_job_give_up(struct slice_job *job)
{
	tell_end(job, job->above->events->given_up);
}

void slice_job_fail(struct slice_job *job)
{
	tell_end(job, job->above->events->program_error);
}

void slice_jobs_give_up_stranded(struct list *jobs, uint64_t stranded_ns, uint64_t patience_ns, uint64_t now_ns)
{
	list_for_each_safe (at, jobs) {
		struct slice_job *job = container_of(at, struct slice_job, link);
		uint64_t since_ns = job->begun_ns > stranded_ns ? job->begun_ns : stranded_ns;

		if (job->above->movable || now_ns - since_ns >= patience_ns)
			slice_job_give_up(job);
	}
}
