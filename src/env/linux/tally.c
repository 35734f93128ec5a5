/* Tallies are eventfds that count. */
#include "env/tally.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/eventfd.h>
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
	uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one)); /* room for 2^64 - 2 */
}

int tally_take(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == (ssize_t)sizeof(count) ? 0 : -errno;
}

bool tally_drop(int fd)
{
	struct pollfd there = {.fd = fd, .events = POLLIN};

	return poll(&there, 1, 0) == 1 && tally_take(fd) == 0;
}
