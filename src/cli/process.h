/* process.h - processes, their pipes, signals and the terminal: functions of a program, not of a library.
 *
 * A started process has three descriptors of its parent: a channel (socketpair) for lines of JSON both ways, a lifeline
 * (the reading end of a pipe whose other end only the parent has) and a file for its standard error. When the parent
 * ends for any reason, the lifeline's end of file ends the child: SIGIO first, which wakes it, and SIGALRM a moment
 * later for a child that does not react. */
#ifndef HOLDFAST_CLI_PROCESS_H
#define HOLDFAST_CLI_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t pid;       /* 0: none */
	int channel_fd;  /* ours; nonblocking */
	int lifeline_fd; /* ours */
	int status;      /* as of waitpid(2), once reaped */
	bool reaped;
};

/* The numbers under which a child finds its ends. */
#define PROCESS_CHANNEL_FD  3
#define PROCESS_LIFELINE_FD 4

/* The program that process_start() runs; this one unless another was set. The path is kept, not copied. */
const char *process_program(void);
void process_set_program(const char *path);
/* Runs that program with argv (argv[0] is a name only). 0, or -errno. */
int process_start(char *const argv[], const char *stderr_path, struct process *out);
/* Runs another program, found as a shell finds it: no channel, and the kernel kills it when this thread ends. Its
 * output goes to the file. 0, or -errno; a program that cannot be run ends with status 127. */
int process_start_other(char *const argv[], const char *output_path, struct process *out);
/* Gives this process, and those that it starts, as many descriptors as the system allows: a store has one for each
 * piece of its memory, a server one for each client; the usual limit of 1,024 is for programs with select(2). */
void process_raise_descriptors(void);
/* Becomes the program argv[0], found as a shell finds it. Returns -errno only. */
int process_become(char *const argv[]);
/* Closes our ends, waits for at most grace_ms, kills. Nothing of it is left afterwards. Zeroed or stopped: harmless. */
void process_stop(struct process *process, unsigned grace_ms);
/* True once it ended, with the reason in words ("was killed by signal 9"). */
bool process_ended(struct process *process, char *words, size_t words_bytes);

/* True when it ended by a signal. */
bool process_killed(const struct process *process);

/* In the child, first thing: takes the lifeline up; SIGINT is left to the parent. */
int process_hold_lifeline(void);
bool process_parent_gone(void);

/* Bytes moved; 0: end of file; -EAGAIN; -errno. */
ssize_t process_read(int fd, void *data, size_t bytes);
/* All of it, waiting for at most a second for room; 0 or -errno. */
int process_write(int fd, const void *data, size_t bytes);
/* Waits until one of n is readable or the time is over. */
void process_wait_readable(const int *fds, unsigned n, unsigned timeout_ms);

/* SIGINT and SIGTERM only set a flag from here on; a broken pipe is an error of the write. */
void process_catch_signals(void);
bool process_interrupted(void);

bool process_stdout_is_terminal(void);
unsigned process_terminal_columns(void); /* 80 when unknown */

bool process_alive(pid_t pid);
pid_t process_own_pid(void);

#endif
