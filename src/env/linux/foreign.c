#include "env/foreign.h"

#include <errno.h>
#include <fcntl.h>

#include "env/linux/linux.h"

static const struct world_io_ops foreign_ops = {
	.close = linux_io_close,
};

int foreign_io_open(int fd, struct hf_io **io_out)
{
	int flags = fcntl(fd, F_GETFL), own;

	*io_out = NULL;
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return -errno;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return own < 0 ? -errno : linux_io_new(own, &foreign_ops, io_out);
}
