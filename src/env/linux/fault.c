/* Faults (fault.h): a window of the thread, which the handler of SIGSEGV and SIGBUS leaves by siglongjmp. */
#include "env/fault.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "env/linux/remap.h"

static const int caught[] = {SIGSEGV, SIGBUS};
#define CAUGHT (sizeof(caught) / sizeof(caught[0]))

static _Thread_local sigjmp_buf *window;
static _Thread_local const void *place;
static _Thread_local bool passing; /* the fault is with the handlers before */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before[CAUGHT];

/* To the handler that was there before; without one the access faults again and ends the process. */
static void pass_on(int number, siginfo_t *info, void *context)
{
	const struct sigaction *next = &before[number == SIGSEGV ? 0 : 1];

	if (passing || (next->sa_flags & SA_SIGINFO) == 0) {
		if (!passing && next->sa_handler != SIG_DFL && next->sa_handler != SIG_IGN)
			next->sa_handler(number);
		else
			signal(number, SIG_DFL);
		return;
	}
	passing = true; /* a handler that leads back to ours ends the process */
	next->sa_sigaction(number, info, context);
	passing = false;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	if (window != NULL && info->si_code > 0) { /* by the kernel: an access of this thread */
		place = info->si_addr;
		siglongjmp(*window, 1);
	}
	pass_on(number, info, context);
}

void fault_catch(void)
{
	struct sigaction now, ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};

	sigemptyset(&ours.sa_mask);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < CAUGHT; i++) {
		if (sigaction(caught[i], NULL, &now) != 0 ||
			((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault))
			continue;
		before[i] = now;
		sigaction(caught[i], &ours, NULL);
	}
	pthread_mutex_unlock(&lock);
}

bool fault_try(void (*access)(void *context), void *context)
{
	sigjmp_buf *const outer = window;
	sigjmp_buf here;

	if (sigsetjmp(here, 0) != 0) {
		window = outer;
		return false;
	}
	window = &here;
	access(context);
	window = outer;
	return true;
}

const void *fault_place(void)
{
	return place;
}

int fault_check(const void *addr, size_t bytes, bool writes)
{
	uint64_t at = (uintptr_t)addr, end = at + bytes;
	struct mapping next;
	char *line = NULL;
	size_t capacity = 0;
	FILE *maps;
	int rc = 0;

	if (bytes == 0)
		return 0;
	if (end < at)
		return -EFAULT;
	maps = fopen("/proc/self/maps", "re");
	if (maps == NULL)
		return -errno;
	while (rc == 0 && at < end && getline(&line, &capacity, maps) > 0 && share_mapping_parse(line, &next)) {
		if (next.end <= at)
			continue;
		if (next.start > at || !next.readable)
			break;
		if (writes && !next.writable)
			rc = -EACCES;
		at = next.end;
	}
	free(line);
	fclose(maps);
	return rc == 0 && at < end ? -EFAULT : rc;
}
