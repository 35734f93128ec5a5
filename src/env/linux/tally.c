/* Tallies are eventfds that count. write(2) is not used: programs under `holdfast run` write other things to some. */
#include "env/tally.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

int tally_open(int *fd_out)
{
	*fd_out = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return *fd_out < 0 ? -errno : 0;
}

void tally_close(int fd)
{
	close(fd);
}

void tally_add(int fd)
{
	(void)eventfd_write(fd, 1); /* room for 2^64 - 2 */
}

int tally_take(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == (ssize_t)sizeof(count) ? 0 : -errno;
}

bool tally_drop(int fd)
{
	uint64_t count;
	struct iovec room = {.iov_base = &count, .iov_len = sizeof(count)};

	return preadv2(fd, &room, 1, -1, RWF_NOWAIT) == (ssize_t)sizeof(count);
}
