/* A loop waits in epoll; an eventfd of its own in the set is the wake-up.
 *
 * A ready() may unwatch and close any io, also one that the same epoll_wait reported: unwatch strikes it out of what
 * is still to be reported, so a closed io is never touched again.
 *
 * Timer slack belongs to a thread and is set before a sleep, because several threads may drive a loop in turn. */
#include "env/linux/linux.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define WAITER_EVENTS 64

struct world_waiter {
	int epoll_fd, wake_fd;
	int reported, next; /* events[next .. reported) are still to be delivered */
	struct epoll_event events[WAITER_EVENTS];
	struct list ios;                /* watched */
	_Atomic unsigned long slack_ns; /* 0: the thread's own */
};

/* What waiters have set, 0: nothing, or taken back; and what the thread had before. */
static _Thread_local unsigned long thread_slack_ns, own_slack_ns;

int linux_waiter_open(struct hf_env *env, struct hf_loop *loop, struct world_waiter **waiter_out)
{
	struct world_waiter *waiter = calloc(1, sizeof(*waiter));
	struct epoll_event wake = {.events = EPOLLIN, .data.ptr = NULL};
	int error;

	(void)env, (void)loop;
	if (waiter == NULL)
		return -ENOMEM;
	list_init(&waiter->ios);
	waiter->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	waiter->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (waiter->wake_fd >= 0 && waiter->epoll_fd >= 0 &&
		epoll_ctl(waiter->epoll_fd, EPOLL_CTL_ADD, waiter->wake_fd, &wake) == 0) {
		*waiter_out = waiter;
		return 0;
	}
	error = -errno;
	linux_waiter_close(waiter);
	return error;
}

void linux_waiter_close(struct world_waiter *waiter)
{
	struct list *node;

	while ((node = list_pop_front(&waiter->ios)) != NULL) {
		struct linux_io *io = container_of(node, struct linux_io, node);

		io->io.watch->io = NULL;
		io->io.watch = NULL;
		io->polled = false;
	}
	if (waiter->epoll_fd >= 0)
		close(waiter->epoll_fd);
	if (waiter->wake_fd >= 0)
		close(waiter->wake_fd);
	free(waiter);
}

int linux_waiter_watch(struct world_waiter *waiter, struct hf_watch *watch)
{
	struct linux_io *io = container_of(watch->io, struct linux_io, io);
	struct epoll_event event = {.data.ptr = io};
	bool poll = watch->wanted != 0; /* epoll reports errors even when asked for nothing, so silence is absence */
	int op;

	if ((watch->wanted & HF_READABLE) != 0)
		event.events |= EPOLLIN;
	if ((watch->wanted & HF_WRITABLE) != 0)
		event.events |= EPOLLOUT;
	op = !io->polled ? EPOLL_CTL_ADD : poll ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
	if ((poll || io->polled) && epoll_ctl(waiter->epoll_fd, op, io->fd, &event) != 0)
		return -errno;
	io->polled = poll;
	list_remove(&io->node);
	list_push_back(&waiter->ios, &io->node);
	return 0;
}

void linux_waiter_unwatch(struct world_waiter *waiter, struct hf_watch *watch)
{
	struct linux_io *io = container_of(watch->io, struct linux_io, io);

	if (io->polled)
		epoll_ctl(waiter->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
	io->polled = false;
	list_remove(&io->node);
	for (int i = waiter->next; i < waiter->reported; i++)
		if (waiter->events[i].data.ptr == io)
			waiter->events[i].events = 0;
}

void linux_waiter_slack(struct world_waiter *waiter, uint64_t slack_ns)
{
	atomic_store_explicit(
		&waiter->slack_ns, slack_ns > LONG_MAX ? LONG_MAX : (unsigned long)slack_ns, memory_order_relaxed);
}

static void apply_slack(struct world_waiter *waiter)
{
	unsigned long slack_ns = atomic_load_explicit(&waiter->slack_ns, memory_order_relaxed);

	if (slack_ns == thread_slack_ns)
		return;
	if (thread_slack_ns == 0)
		own_slack_ns = (unsigned long)prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, slack_ns != 0 ? slack_ns : own_slack_ns, 0, 0, 0);
	thread_slack_ns = slack_ns;
}

/* epoll_wait with nanoseconds, where the kernel has it; else rounded up to milliseconds. */
static int wait_events(struct world_waiter *waiter, uint64_t max_ns)
{
	struct timespec timeout = {
		.tv_sec = (time_t)(max_ns / 1000000000u),
		.tv_nsec = (long)(max_ns % 1000000000u),
	};
	int n;

	if (max_ns == 0)
		return epoll_wait(waiter->epoll_fd, waiter->events, WAITER_EVENTS, 0);
	apply_slack(waiter);
	n = epoll_pwait2(waiter->epoll_fd, waiter->events, WAITER_EVENTS, max_ns == UINT64_MAX ? NULL : &timeout, NULL);
	if (n >= 0 || errno != ENOSYS)
		return n;
	if (max_ns == UINT64_MAX)
		return epoll_wait(waiter->epoll_fd, waiter->events, WAITER_EVENTS, -1);
	if (max_ns > 1000000000u)
		max_ns = 1000000000u; /* the loop comes back for the rest */
	return epoll_wait(waiter->epoll_fd, waiter->events, WAITER_EVENTS, (int)((max_ns + 999999u) / 1000000u));
}

static void deliver(struct linux_io *io, uint32_t events)
{
	struct hf_watch *watch = io->io.watch;
	unsigned ready = 0;

	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
		ready |= HF_READABLE;
	if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0)
		ready |= HF_WRITABLE;
	ready &= watch->wanted; /* as it is now: an earlier ready() may have changed it */
	if (ready != 0)
		watch->ready(watch, ready);
}

unsigned linux_waiter_wait(struct world_waiter *waiter, uint64_t max_ns)
{
	int n = wait_events(waiter, max_ns);

	if (n <= 0)
		return 0; /* nothing, or a signal handler ran: the next turn looks again */
	waiter->reported = n;
	for (waiter->next = 0; waiter->next < waiter->reported;) {
		struct epoll_event event = waiter->events[waiter->next++];
		uint64_t count;

		if (event.events == 0)
			continue;
		if (event.data.ptr != NULL)
			deliver(event.data.ptr, event.events);
		else
			(void)!read(waiter->wake_fd, &count, sizeof(count));
	}
	waiter->reported = waiter->next = 0;
	return (unsigned)n;
}

void linux_waiter_wake(struct world_waiter *waiter)
{
	uint64_t one = 1;

	/* EAGAIN: the counter is full, so a wake-up is pending anyway. */
	(void)!write(waiter->wake_fd, &one, sizeof(one));
}

/* Others may change the set meanwhile, which the kernel allows; nothing but its descriptor is touched here. */
void linux_waiter_sleep(struct world_waiter *waiter, uint64_t max_ns)
{
	struct pollfd set = {.fd = waiter->epoll_fd, .events = POLLIN};
	struct timespec timeout = {
		.tv_sec = (time_t)(max_ns / 1000000000u),
		.tv_nsec = (long)(max_ns % 1000000000u),
	};

	apply_slack(waiter);
	(void)ppoll(&set, 1, &timeout, NULL); /* interrupted by a signal: the caller looks again */
}
