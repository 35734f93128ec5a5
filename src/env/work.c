/* Works of a loop on helper threads, by the threads, loops and notifiers of env: the same in every world.
 *
 *   waiting --a helper takes it--> running --run() returned, the helper's next turn--> finished --notifier--> done()
 *
 * A helper tells of a work in the turn after the one that ran it: in the simulator the time that run() took lies
 * between the two. One lock guards the lists and every helper's state; run() and done() are called without it. */
#include <holdfast/work.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/list.h"

struct work_list {
	struct hf_work *first, *last;
};

struct helper {
	struct hf_workers *workers;
	struct hf_thread *thread;
	struct hf_loop *loop;
	struct hf_poller poller;
	struct hf_work *ran; /* its run() has returned; not told yet */
	bool sleeping;       /* or about to: must be woken for a new work */
};

struct hf_workers {
	struct hf_loop *loop;
	struct hf_io *notifier;
	struct hf_watch watch;
	pthread_mutex_t lock;
	pthread_cond_t ran; /* for hf_work_wait: a helper's `ran` was set */
	struct work_list waiting, finished;
	unsigned works, works_max; /* submitted and not done; the loop's thread's */
	bool closing, telling;
	unsigned helper_count;
	struct helper helpers[];
};

static void list_push(struct work_list *list, struct hf_work *work)
{
	work->next = NULL;
	if (list->first == NULL)
		list->first = work;
	else
		list->last->next = work;
	list->last = work;
}

static struct hf_work *list_pop(struct work_list *list)
{
	struct hf_work *work = list->first;

	if (work != NULL)
		list->first = work->next;
	return work;
}

static bool list_take_out(struct work_list *list, struct hf_work *work)
{
	struct hf_work *before = NULL;

	for (struct hf_work *at = list->first; at != NULL; before = at, at = at->next) {
		if (at != work)
			continue;
		if (before == NULL)
			list->first = work->next;
		else
			before->next = work->next;
		if (list->last == work)
			list->last = before;
		return true;
	}
	return false;
}

/* ---- on a helper thread ---- */

/* Tells of the work that the last turn ran, and takes the next one. */
static struct hf_work *next_work(struct helper *helper, bool *told_out)
{
	struct hf_workers *workers = helper->workers;
	struct hf_work *work;

	pthread_mutex_lock(&workers->lock);
	*told_out = helper->ran != NULL;
	if (*told_out)
		list_push(&workers->finished, helper->ran);
	helper->ran = NULL;
	helper->sleeping = false;
	work = workers->closing ? NULL : list_pop(&workers->waiting);
	if (work != NULL)
		work->waiting = false;
	pthread_mutex_unlock(&workers->lock);
	return work;
}

static enum hf_poll helper_poll(struct hf_poller *poller, uint64_t now_ns)
{
	struct helper *helper = container_of(poller, struct helper, poller);
	bool told;
	struct hf_work *work = next_work(helper, &told);

	(void)now_ns;
	if (told)
		hf_notifier_signal(helper->workers->notifier);
	if (work == NULL)
		return told ? HF_BUSY : HF_IDLE;
	work->result = work->run(work);
	pthread_mutex_lock(&helper->workers->lock);
	helper->ran = work;
	pthread_cond_signal(&helper->workers->ran);
	pthread_mutex_unlock(&helper->workers->lock);
	return HF_BUSY;
}

static bool helper_arm(struct hf_poller *poller)
{
	struct helper *helper = container_of(poller, struct helper, poller);
	struct hf_workers *workers = helper->workers;

	bool sleeps;

	pthread_mutex_lock(&workers->lock);
	sleeps = helper->sleeping = workers->waiting.first == NULL || workers->closing;
	pthread_mutex_unlock(&workers->lock);
	return sleeps;
}

static void helper_start(struct hf_loop *loop, void *context)
{
	struct helper *helper = context;

	helper->loop = loop;
	helper->poller = (struct hf_poller){.poll = helper_poll, .arm = helper_arm};
	hf_loop_set_spin(loop, 0); /* the core is for those that must not wait */
	hf_loop_add_poller(loop, &helper->poller);
}

/* ---- on the loop's thread ---- */

static void tell(struct hf_workers *workers, struct hf_work *work, int result)
{
	workers->works--;
	work->done(work, result);
}

static struct hf_work *next_finished(struct hf_workers *workers)
{
	struct hf_work *work;

	pthread_mutex_lock(&workers->lock);
	work = list_pop(&workers->finished);
	pthread_mutex_unlock(&workers->lock);
	return work;
}

/* One by one: a done() may wait for another one (hf_work_wait). Those that a done() submits again are told later. */
static void tell_finished(struct hf_workers *workers)
{
	struct hf_work *work;

	workers->telling = true;
	for (unsigned most = workers->works; most > 0 && (work = next_finished(workers)) != NULL; most--)
		tell(workers, work, work->result);
	workers->telling = false;
}

static void finished_ready(struct hf_watch *watch, unsigned ready)
{
	struct hf_workers *workers = container_of(watch, struct hf_workers, watch);

	(void)ready;
	hf_notifier_clear(workers->notifier);
	tell_finished(workers);
}

static int start_helpers(struct hf_workers *workers, const char *name, unsigned threads)
{
	for (; workers->helper_count < threads; workers->helper_count++) {
		struct helper *helper = &workers->helpers[workers->helper_count];
		int error;

		helper->workers = workers;
		error = hf_thread_start(
			hf_loop_env(workers->loop), name, HF_THREAD_WORKER, helper_start, helper, &helper->thread);
		if (error != 0)
			return error;
	}
	return 0;
}

int hf_workers_open(struct hf_loop *loop, const char *name, unsigned threads, unsigned works_max,
	struct hf_workers **workers_out, struct hf_error *error)
{
	struct hf_workers *workers;
	int code;

	*workers_out = NULL;
	if (threads == 0 || threads > HF_WORKERS_THREADS_MAX || works_max == 0)
		return hf_error_set(error, -EINVAL,
			"%s: %u helper threads for %u works; give 1 to %u threads and at least 1 work", name, threads,
			works_max, HF_WORKERS_THREADS_MAX);
	workers = calloc(1, sizeof(*workers) + threads * sizeof(workers->helpers[0]));
	if (workers == NULL)
		return hf_error_set(error, -ENOMEM, "%s: no memory for %u helper threads", name, threads);
	workers->loop = loop;
	workers->works_max = works_max;
	workers->watch.ready = finished_ready;
	pthread_mutex_init(&workers->lock, NULL);
	pthread_cond_init(&workers->ran, NULL);
	code = hf_notifier_open(hf_loop_env(loop), &workers->notifier);
	if (code == 0)
		code = hf_loop_watch(loop, &workers->watch, workers->notifier, HF_READABLE);
	if (code == 0)
		code = start_helpers(workers, name, threads);
	if (code != 0) {
		hf_error_set(error, code, "%s: cannot start %u helper threads: %s; raise `ulimit -u` or `ulimit -n`",
			name, threads, strerror(-code));
		hf_workers_close(workers);
		return code;
	}
	*workers_out = workers;
	return 0;
}

void hf_workers_close(struct hf_workers *workers)
{
	struct hf_work *work;

	if (workers == NULL)
		return;
	ensure(!workers->telling);
	pthread_mutex_lock(&workers->lock);
	workers->closing = true;
	pthread_mutex_unlock(&workers->lock);
	for (unsigned i = 0; i < workers->helper_count; i++) {
		hf_thread_stop(workers->helpers[i].thread);
		if (workers->helpers[i].ran != NULL)
			list_push(&workers->finished, workers->helpers[i].ran);
	}
	tell_finished(workers);
	workers->telling = true;
	while ((work = list_pop(&workers->waiting)) != NULL) {
		work->waiting = false;
		tell(workers, work, -ECANCELED);
	}
	hf_io_close(workers->notifier);
	pthread_cond_destroy(&workers->ran);
	pthread_mutex_destroy(&workers->lock);
	free(workers);
}

static struct helper *sleeping_helper(struct hf_workers *workers)
{
	for (unsigned i = 0; i < workers->helper_count; i++)
		if (workers->helpers[i].sleeping)
			return &workers->helpers[i];
	return NULL;
}

int hf_work_submit(struct hf_workers *workers, struct hf_work *work)
{
	struct helper *helper;

	if (workers->works == workers->works_max || workers->closing)
		return -EAGAIN;
	workers->works++;
	pthread_mutex_lock(&workers->lock);
	work->waiting = true;
	list_push(&workers->waiting, work);
	helper = sleeping_helper(workers);
	if (helper != NULL)
		helper->sleeping = false; /* another one for the next work */
	pthread_mutex_unlock(&workers->lock);
	if (helper != NULL)
		hf_loop_wake(helper->loop);
	return 0;
}

bool hf_work_cancel(struct hf_workers *workers, struct hf_work *work)
{
	bool cancelled;

	pthread_mutex_lock(&workers->lock);
	cancelled = work->waiting && list_take_out(&workers->waiting, work);
	if (cancelled)
		work->waiting = false;
	pthread_mutex_unlock(&workers->lock);
	if (cancelled)
		workers->works--;
	return cancelled;
}

/* Whether it has run; then it is nowhere listed any more. */
static bool take_ran(struct hf_workers *workers, struct hf_work *work)
{
	for (unsigned i = 0; i < workers->helper_count; i++)
		if (workers->helpers[i].ran == work) {
			workers->helpers[i].ran = NULL;
			return true;
		}
	return list_take_out(&workers->finished, work);
}

int hf_work_wait(struct hf_workers *workers, struct hf_work *work)
{
	if (hf_work_cancel(workers, work))
		return work->run(work);
	pthread_mutex_lock(&workers->lock);
	while (!take_ran(workers, work))
		pthread_cond_wait(&workers->ran, &workers->lock);
	pthread_mutex_unlock(&workers->lock);
	workers->works--;
	return work->result;
}
