/* Notifiers are eventfds; a group is an epoll set nested in that of the loop that watches it. */
#include "env/linux/linux.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void signal_notifier(struct hf_io *io)
{
	uint64_t one = 1;

	/* EAGAIN: the counter is full, so it is readable anyway. */
	(void)!write(io_fd(io), &one, sizeof(one));
}

static void clear_notifier(struct hf_io *io)
{
	uint64_t count;

	(void)!read(io_fd(io), &count, sizeof(count));
}

static const struct world_io_ops notifier_ops = {
	.close = linux_io_close,
	.signal = signal_notifier,
	.clear = clear_notifier,
};

int linux_notifier_open(struct hf_env *env, struct hf_io **io_out)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	(void)env;
	return fd < 0 ? -errno : linux_io_new(fd, &notifier_ops, io_out);
}

static const struct world_io_ops group_ops = {
	.close = linux_io_close,
};

int linux_group_open(struct hf_env *env, struct hf_io *const *members, unsigned n, struct hf_io **io_out)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	(void)env;
	if (fd < 0)
		return -errno;
	for (unsigned i = 0; i < n; i++) {
		struct epoll_event event = {.events = EPOLLIN};

		if (epoll_ctl(fd, EPOLL_CTL_ADD, io_fd(members[i]), &event) != 0) {
			int error = -errno;

			close(fd);
			return error;
		}
	}
	return linux_io_new(fd, &group_ops, io_out);
}
