/* Processes by pidfd, which stays theirs when the number is given to another. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "env/share.h"

struct share_process {
	int fd;
};

pid_t share_own_pid(void)
{
	return getpid();
}

int share_process_open(pid_t pid, struct share_process **process_out)
{
	struct share_process *process = calloc(1, sizeof(*process));

	*process_out = NULL;
	if (process == NULL)
		return -ENOMEM;
	process->fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (process->fd < 0) {
		int error = -errno;

		free(process);
		return error;
	}
	*process_out = process;
	return 0;
}

bool share_process_exited(struct share_process *process)
{
	struct pollfd exit = {.fd = process->fd, .events = POLLIN};

	return poll(&exit, 1, 0) == 1;
}

void share_process_close(struct share_process *process)
{
	if (process == NULL)
		return;
	close(process->fd);
	free(process);
}
