/* child.h - a second process for a test: forked, told to go on or killed through a pipe, its outcome checked. */
#ifndef HOLDFAST_TESTS_UNIT_ENV_CHILD_H
#define HOLDFAST_TESTS_UNIT_ENV_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
	pid_t pid;
	int from, to; /* pipes of the parent's side */
};

/* In the child: tells the parent that a step is done, waits until it says go on. */
static inline void child_step(struct child *child)
{
	char byte = 0;

	if (write(child->to, &byte, 1) != 1 || read(child->from, &byte, 1) != 1)
		_exit(2);
}

/* The parent's half: waits for the child's step; child_go_on lets it continue. False: it died. */
static inline bool child_wait_step(struct child *child)
{
	char byte;

	return read(child->from, &byte, 1) == 1;
}

static inline void child_go_on(struct child *child)
{
	if (write(child->to, "", 1) != 1)
		abort();
}

/* Runs body(child, context) in a new process, which exits with its result. */
static inline struct child child_start(int (*body)(struct child *child, void *context), void *context)
{
	int up[2], down[2];
	struct child child;

	if (pipe(up) != 0 || pipe(down) != 0)
		abort();
	child.pid = fork();
	if (child.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(up[0]);
		close(down[1]);
		child.from = down[0];
		child.to = up[1];
		_exit(body(&child, context));
	}
	close(up[1]);
	close(down[0]);
	child.from = up[0];
	child.to = down[1];
	return child;
}

/* The exit status, or minus the signal that ended it. */
static inline int child_end(struct child *child)
{
	int status;

	if (waitpid(child->pid, &status, 0) != child->pid)
		abort();
	close(child->from);
	close(child->to);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static inline int child_kill(struct child *child)
{
	kill(child->pid, SIGKILL);
	return child_end(child);
}

#endif
