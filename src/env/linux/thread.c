/* Threads: each runs a loop of its own. Signals are for the program's threads, so ours block them; those that a
 * thread raises by its own doing stay open, because a program's handler of them must still see them. */
#include "env/linux/linux.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define THREAD_NAME_BYTES 16 /* the kernel's limit */

struct linux_thread {
	struct hf_thread thread;
	pthread_t pthread;
	struct hf_loop *loop;
	void (*start)(struct hf_loop *loop, void *context);
	void *context;
	char name[THREAD_NAME_BYTES];
};

static void *run(void *argument)
{
	struct linux_thread *thread = argument;

	pthread_setname_np(pthread_self(), thread->name);
	thread->start(thread->loop, thread->context);
	hf_loop_run(thread->loop);
	return NULL;
}

static int create_blocking_signals(struct linux_thread *thread)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread->pthread, NULL, run, thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -error;
}

int linux_thread_start(struct hf_env *env, const char *name, enum hf_thread_kind kind,
	void (*start)(struct hf_loop *loop, void *context), void *context, struct hf_thread **thread_out)
{
	struct linux_thread *thread = calloc(1, sizeof(*thread));
	int error;

	(void)kind; /* the kernel knows: a stopped process stops all its threads, a call that blocks takes time */
	if (thread == NULL)
		return -ENOMEM;
	thread->thread.env = env;
	thread->start = start;
	thread->context = context;
	snprintf(thread->name, sizeof(thread->name), "%s", name);
	error = hf_loop_create(env, &thread->loop);
	if (error == 0)
		error = create_blocking_signals(thread);
	if (error != 0) {
		hf_loop_destroy(thread->loop);
		free(thread);
		return error;
	}
	*thread_out = &thread->thread;
	return 0;
}

void linux_thread_stop(struct hf_thread *hf_thread)
{
	struct linux_thread *thread = container_of(hf_thread, struct linux_thread, thread);

	hf_loop_stop(thread->loop);
	hf_loop_wake(thread->loop);
	pthread_join(thread->pthread, NULL);
	hf_loop_destroy(thread->loop);
	free(thread);
}
