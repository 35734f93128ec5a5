/* Doorbells are FIFOs. Both ends open them for reading and writing: no process gets a SIGPIPE when the other side has
 * died, and a bell that is not cleared fills up and stays rung. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/linux/linux.h"
#include "env/linux/share_dir.h"

#define BELL_DRAIN_BYTES 4096
#define BELL_DRAINS_MAX  64 /* the kernel's FIFO holds 64 KiB, 1 MiB at most */

static const struct world_io_ops bell_ops = {
	.close = linux_io_close,
	.clear = share_bell_clear,
};

int share_bell_open(struct share_dir *dir, const char *file, int *fd_out)
{
	struct stat stat;
	int fd;

	*fd_out = -1;
	if (!share_name_valid(file))
		return -EINVAL;
	fd = openat(dir->fd, file, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &stat) != 0 || !S_ISFIFO(stat.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	*fd_out = fd;
	return 0;
}

int share_bell_create(struct hf_env *env, struct share_dir *dir, const char *file, struct hf_io **io_out)
{
	int fd, error;

	(void)env;
	*io_out = NULL;
	if (!share_name_valid(file))
		return -EINVAL;
	if (mkfifoat(dir->fd, file, 0600) != 0)
		return -errno;
	error = share_bell_open(dir, file, &fd);
	if (error == 0)
		error = linux_io_new(fd, &bell_ops, io_out);
	if (error != 0)
		unlinkat(dir->fd, file, 0);
	return error;
}

void share_bell_ring(int fd)
{
	/* EAGAIN: it is full, so it is readable anyway. */
	(void)!write(fd, "", 1);
}

void share_bell_clear(struct hf_io *io)
{
	char drained[BELL_DRAIN_BYTES];

	for (unsigned i = 0; i < BELL_DRAINS_MAX; i++)
		if (read(io_fd(io), drained, sizeof(drained)) < (ssize_t)sizeof(drained))
			return;
}
