/* The world of this host, and what is the same for all its ios. */
#include "env/linux/linux.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A sleeping core takes about 20 us to wake: less idleness than that is polled through. */
#define SPIN_NS 20000u

static void relax(struct hf_env *env)
{
	(void)env;
	sched_yield();
}

static struct world_ops host_ops = {
	.spin_ns = SPIN_NS,
	.relax = relax,
	.now_ns = linux_now_ns,
	.pause = linux_pause,
	.boot_ns = linux_boot_ns,
	.boot_id = linux_boot_id,
	.wall_ns = linux_wall_ns,
	.entropy = linux_entropy,
	.addr_is_local = linux_addr_is_local,
	.waiter_open = linux_waiter_open,
	.waiter_close = linux_waiter_close,
	.waiter_watch = linux_waiter_watch,
	.waiter_unwatch = linux_waiter_unwatch,
	.waiter_wait = linux_waiter_wait,
	.waiter_wake = linux_waiter_wake,
	.waiter_slack = linux_waiter_slack,
	.waiter_sleep = linux_waiter_sleep,
	.dgram_open = linux_dgram_open,
	.stream_listen = linux_stream_listen,
	.stream_connect = linux_stream_connect,
	.stream_connect_path = linux_stream_connect_path,
	.notifier_open = linux_notifier_open,
	.group_open = linux_group_open,
	.thread_start = linux_thread_start,
	.thread_stop = linux_thread_stop,
	.file_open = linux_file_open,
	.file_rename = linux_file_rename,
	.file_remove = linux_file_remove,
	.dir_make = linux_dir_make,
	.dir_list = linux_dir_list,
	.dir_remove = linux_dir_remove,
	.dir_sync = linux_dir_sync,
	.dir_space = linux_dir_space,
	.mem_alloc = linux_mem_alloc,
	.mem_free = linux_mem_free,
	.mem_flush = linux_mem_flush,
	.mem_populate = linux_mem_populate,
};

/* On one core, a process that a loop waits for can only run while the loop sleeps. A thread that is bound to one core
 * of several is another matter: it is bound so that it answers at once, and others on its core run when it yields. */
static void settle_spin(void)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) == 1)
		host_ops.spin_ns = 0;
}

static uint64_t wall_clock_ns(void)
{
	return linux_wall_ns(NULL);
}

static void set_up(void)
{
	settle_spin();
	log_set_clock(wall_clock_ns);
}

struct hf_env *hf_env_host(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static struct hf_env host = {.ops = &host_ops};

	pthread_once(&once, set_up);
	return &host;
}

int linux_io_new(int fd, const struct world_io_ops *ops, struct hf_io **io_out)
{
	struct linux_io *io = calloc(1, sizeof(*io));

	if (io == NULL) {
		close(fd);
		return -ENOMEM;
	}
	linux_io_init(io, fd, ops);
	*io_out = &io->io;
	return 0;
}

void linux_io_close(struct hf_io *io)
{
	struct linux_io *linux_io = container_of(io, struct linux_io, io);

	close(linux_io->fd);
	free(linux_io);
}

int linux_io_local(struct hf_io *io, struct hf_addr *addr_out)
{
	socklen_t bytes = sizeof(*addr_out);

	memset(addr_out, 0, sizeof(*addr_out));
	return getsockname(io_fd(io), &addr_out->sa, &bytes) == 0 ? 0 : -errno;
}

int linux_bind_error(const struct hf_addr *local, const char *what, int code, struct hf_error *error)
{
	char text[HF_ADDR_TEXT];

	hf_addr_format(local, text);
	switch (code) {
	case -EADDRINUSE:
		return hf_error_set(error, code,
			"%s %s is in use by another process or device; stop it or choose another port", what, text);
	case -EADDRNOTAVAIL:
		return hf_error_set(error, code,
			"%s %s: this machine has no such address; `ip address` lists those it has", what, text);
	case -EACCES:
		return hf_error_set(error, code,
			"%s %s: not permitted; ports below 1024 need root or CAP_NET_BIND_SERVICE", what, text);
	case -EMFILE:
	case -ENFILE:
		return hf_error_set(error, code, "%s %s: too many open files; raise `ulimit -n`", what, text);
	default:
		return hf_error_set(error, code, "%s %s: %s", what, text, strerror(-code));
	}
}
