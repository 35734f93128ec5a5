#include "cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ORPHAN_GRACE_S   2u /* for an orphan to leave by itself */
#define WRITE_WAIT_MS    1000
#define WAIT_FDS_MAX     8u
#define REAP_INTERVAL_MS 2

static const char *own_program = "/proc/self/exe";
static volatile sig_atomic_t interrupted, orphaned;

const char *process_program(void)
{
	return own_program;
}

void process_set_program(const char *path)
{
	own_program = path;
}

void process_raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- the parent's side ---- */

static void exec_child(char *const argv[], const char *stderr_path, int channel_fd, int lifeline_fd)
{
	int log_fd = open(stderr_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* Above the numbers they are going to, so that no dup2 closes what is needed next. */
	channel_fd = fcntl(channel_fd, F_DUPFD_CLOEXEC, PROCESS_LIFELINE_FD + 1);
	lifeline_fd = fcntl(lifeline_fd, F_DUPFD_CLOEXEC, PROCESS_LIFELINE_FD + 1);
	if (log_fd >= 0 && null_fd >= 0 && channel_fd >= 0 && lifeline_fd >= 0 && dup2(null_fd, 0) >= 0 &&
		dup2(null_fd, 1) >= 0 && dup2(log_fd, 2) >= 0 && dup2(channel_fd, PROCESS_CHANNEL_FD) >= 0 &&
		dup2(lifeline_fd, PROCESS_LIFELINE_FD) >= 0)
		execv(own_program, argv);
	_exit(127);
}

static void exec_other(char *const argv[], const char *output_path, pid_t parent)
{
	int log_fd = open(output_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* The parent may have gone before the signal was asked for. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && log_fd >= 0 && null_fd >= 0 &&
		dup2(null_fd, 0) >= 0 && dup2(log_fd, 1) >= 0 && dup2(log_fd, 2) >= 0)
		execvp(argv[0], argv);
	_exit(127);
}

int process_start_other(char *const argv[], const char *output_path, struct process *out)
{
	pid_t parent = getpid();

	*out = (struct process){.channel_fd = -1, .lifeline_fd = -1};
	out->pid = fork();
	if (out->pid < 0) {
		out->pid = 0;
		return -errno;
	}
	if (out->pid == 0)
		exec_other(argv, output_path, parent);
	return 0;
}

int process_become(char *const argv[])
{
	execvp(argv[0], argv);
	return -errno;
}

int process_start(char *const argv[], const char *stderr_path, struct process *out)
{
	int pair[2] = {-1, -1}, pipe_fds[2] = {-1, -1}, failed;

	memset(out, 0, sizeof(*out));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 || pipe2(pipe_fds, O_CLOEXEC) != 0)
		goto fail;
	if (fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0)
		goto fail;
	out->pid = fork();
	if (out->pid < 0)
		goto fail;
	if (out->pid == 0)
		exec_child(argv, stderr_path, pair[1], pipe_fds[0]);
	close(pair[1]);
	close(pipe_fds[0]);
	out->channel_fd = pair[0];
	out->lifeline_fd = pipe_fds[1];
	return 0;
fail:
	failed = -errno;
	out->pid = 0;
	for (unsigned i = 0; i < 2; i++) {
		if (pair[i] >= 0)
			close(pair[i]);
		if (pipe_fds[i] >= 0)
			close(pipe_fds[i]);
	}
	return failed;
}

static bool reap(struct process *process)
{
	if (!process->reaped && waitpid(process->pid, &process->status, WNOHANG) == process->pid)
		process->reaped = true;
	return process->reaped;
}

void process_stop(struct process *process, unsigned grace_ms)
{
	if (process->pid == 0)
		return;
	if (process->channel_fd >= 0)
		close(process->channel_fd);
	for (unsigned waited = 0; waited < grace_ms && !reap(process); waited += REAP_INTERVAL_MS)
		poll(NULL, 0, REAP_INTERVAL_MS);
	if (!reap(process)) {
		kill(process->pid, SIGKILL);
		while (waitpid(process->pid, &process->status, 0) < 0 && errno == EINTR)
			continue;
	}
	if (process->lifeline_fd >= 0)
		close(process->lifeline_fd);
	memset(process, 0, sizeof(*process));
}

bool process_ended(struct process *process, char *words, size_t words_bytes)
{
	if (process->pid == 0 || !reap(process))
		return false;
	if (WIFSIGNALED(process->status))
		snprintf(words, words_bytes, "was killed by signal %d (%s)", WTERMSIG(process->status),
			strsignal(WTERMSIG(process->status)));
	else
		snprintf(words, words_bytes, "ended with status %d", WEXITSTATUS(process->status));
	return true;
}

bool process_killed(const struct process *process)
{
	return process->reaped && WIFSIGNALED(process->status);
}

/* ---- the child's side ---- */

static void on_orphaned(int signal_number)
{
	(void)signal_number;
	orphaned = 1;
	alarm(ORPHAN_GRACE_S);
}

int process_hold_lifeline(void)
{
	struct sigaction action = {.sa_handler = on_orphaned};
	struct pollfd lifeline = {.fd = PROCESS_LIFELINE_FD, .events = POLLIN};
	int flags = fcntl(PROCESS_LIFELINE_FD, F_GETFL);

	if (flags < 0 || fcntl(PROCESS_CHANNEL_FD, F_SETFL, O_NONBLOCK) != 0)
		return -errno;
	fcntl(PROCESS_CHANNEL_FD, F_SETFD, FD_CLOEXEC);
	fcntl(PROCESS_LIFELINE_FD, F_SETFD, FD_CLOEXEC);
	sigaction(SIGIO, &action, NULL);
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (fcntl(PROCESS_LIFELINE_FD, F_SETOWN, getpid()) != 0 ||
		fcntl(PROCESS_LIFELINE_FD, F_SETFL, flags | O_ASYNC) != 0)
		return -errno;
	if (poll(&lifeline, 1, 0) > 0) /* the parent may have gone before the signal was asked for */
		on_orphaned(0);
	return 0;
}

bool process_parent_gone(void)
{
	return orphaned != 0;
}

/* ---- both ---- */

ssize_t process_read(int fd, void *data, size_t bytes)
{
	ssize_t n;

	do {
		n = read(fd, data, bytes);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int process_write(int fd, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes > 0) {
		struct pollfd room = {.fd = fd, .events = POLLOUT};
		ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);

		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		} else if (errno == EAGAIN) {
			if (poll(&room, 1, WRITE_WAIT_MS) == 0)
				return -ETIMEDOUT;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

void process_wait_readable(const int *fds, unsigned n, unsigned timeout_ms)
{
	struct pollfd wait[WAIT_FDS_MAX];

	if (n > WAIT_FDS_MAX)
		n = WAIT_FDS_MAX;
	for (unsigned i = 0; i < n; i++)
		wait[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	poll(wait, n, (int)timeout_ms); /* a signal ends the wait early, and its flag is looked at next */
}

static void on_interrupt(int signal_number)
{
	(void)signal_number;
	interrupted = 1;
}

void process_catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_interrupt};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

bool process_interrupted(void)
{
	return interrupted != 0;
}

bool process_stdout_is_terminal(void)
{
	return isatty(STDOUT_FILENO) == 1;
}

unsigned process_terminal_columns(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
		return 80;
	return size.ws_col;
}

bool process_alive(pid_t pid)
{
	return kill(pid, 0) == 0 || errno == EPERM;
}

pid_t process_own_pid(void)
{
	return getpid();
}
