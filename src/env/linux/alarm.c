/* An alarm is a timerfd; setting it anew takes back that it was readable. */
#include "env/alarm.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "env/linux/linux.h"

static const struct world_io_ops alarm_ops = {
	.close = linux_io_close,
};

int alarm_io_open(struct hf_io **io_out)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	return fd < 0 ? -errno : linux_io_new(fd, &alarm_ops, io_out);
}

void alarm_io_set(struct hf_io *io, uint64_t at_ns)
{
	struct itimerspec spec = {
		.it_value = {.tv_sec = (time_t)(at_ns / 1000000000u), .tv_nsec = (long)(at_ns % 1000000000u)}};

	timerfd_settime(io_fd(io), TFD_TIMER_ABSTIME, &spec, NULL);
}
