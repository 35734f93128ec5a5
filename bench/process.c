/* Processes of a benchmark: two that share a page and are pinned to a core each, and programs whose output is read.
 *
 * The page lives as long as the call; a wait in it ends when the other has left or a limit is over. */
#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <holdfast/env.h>

#include "base/order.h"

#define SWAP_BYTES  512u
#define SWAP_MAX_NS 20000000000ull
#define FAR_MAX_MS  5000u

/* Each side writes its own half; `turn` counts what it has given. */
struct half {
	_Alignas(64) _Atomic uint32_t turn;
	_Atomic uint32_t left;
	unsigned char given[2][SWAP_BYTES]; /* alternating, so that a slow reader is never overtaken */
	_Alignas(64) _Atomic uint64_t ball;
};
struct bench_meeting {
	struct half near, far;
	pid_t far_pid;
};

void bench_pin(unsigned core)
{
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(core, &cores);
	sched_setaffinity(0, sizeof(cores), &cores); /* refused: measured all the same, less steadily */
}

void bench_pause_ms(unsigned ms)
{
	poll(NULL, 0, (int)ms);
}

int bench_own_pid(void)
{
	return (int)getpid();
}

bool bench_other_left(struct bench_meeting *meeting, bool near)
{
	return observe(near ? &meeting->far.left : &meeting->near.left) != 0;
}

bool bench_asked(const struct bench_meeting *meeting, bool near)
{
	const struct half *ours = near ? &meeting->near : &meeting->far, *other = near ? &meeting->far : &meeting->near;

	return observe(&other->turn) > observe(&ours->turn);
}

static uint64_t cpu_ns(clockid_t clock)
{
	struct timespec used;

	if (clock_gettime(clock, &used) != 0)
		return 0;
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

void bench_stop_far(const struct bench_meeting *meeting, bool for_good)
{
	kill(meeting->far_pid, for_good ? SIGKILL : SIGSTOP);
}

void bench_continue_far(const struct bench_meeting *meeting)
{
	kill(meeting->far_pid, SIGCONT);
}

uint64_t bench_cpu_ns(const struct bench_meeting *meeting)
{
	clockid_t far;

	return cpu_ns(CLOCK_PROCESS_CPUTIME_ID) + (clock_getcpuclockid(meeting->far_pid, &far) == 0 ? cpu_ns(far) : 0);
}

void bench_leave(struct bench_meeting *meeting, bool near)
{
	publish(near ? &meeting->near.left : &meeting->far.left, 1);
}

bool bench_swap(struct bench_meeting *meeting, bool near, const void *mine, void *theirs, size_t bytes)
{
	struct half *ours = near ? &meeting->near : &meeting->far, *other = near ? &meeting->far : &meeting->near;
	uint32_t turn = observe(&ours->turn);
	struct hf_env *env = hf_env_host();
	uint64_t end_ns = hf_env_now_ns(env) + SWAP_MAX_NS;

	if (bytes > SWAP_BYTES)
		return false;
	memcpy(ours->given[turn % 2], mine, bytes);
	publish(&ours->turn, turn + 1);
	while (observe(&other->turn) < turn + 1) {
		if (bench_other_left(meeting, near) || hf_env_now_ns(env) > end_ns)
			return false;
		cpu_relax();
	}
	memcpy(theirs, other->given[turn % 2], bytes);
	return true;
}

static int reap(pid_t pid, unsigned timeout_ms)
{
	int status = 0;

	for (unsigned waited = 0; waitpid(pid, &status, WNOHANG) == 0; waited++) {
		if (waited == timeout_ms) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -ETIMEDOUT;
		}
		bench_pause_ms(1);
	}
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

static int fork_far(struct bench_meeting *meeting, int (*far)(struct bench_meeting *, void *), void *context)
{
	pid_t pid = fork();
	int rc;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		bench_pin(1);
		rc = far(meeting, context);
		bench_leave(meeting, false);
		_exit(rc < 0 ? -rc : 0);
	}
	meeting->far_pid = pid;
	return 0;
}

int bench_replace_far(
	struct bench_meeting *meeting, int (*far)(struct bench_meeting *meeting, void *context), void *context)
{
	(void)reap(meeting->far_pid, FAR_MAX_MS);
	publish(&meeting->near.turn, 0);
	publish(&meeting->far.turn, 0);
	publish(&meeting->far.left, 0);
	return fork_far(meeting, far, context);
}

int bench_together(int (*near)(struct bench_meeting *meeting, void *context),
	int (*far)(struct bench_meeting *meeting, void *context), void *context)
{
	struct bench_meeting *meeting =
		mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc, far_rc;

	if (meeting == MAP_FAILED)
		return -errno;
	rc = fork_far(meeting, far, context);
	if (rc != 0) {
		munmap(meeting, sizeof(*meeting));
		return rc;
	}
	bench_pin(0);
	rc = near(meeting, context);
	bench_leave(meeting, true);
	far_rc = reap(meeting->far_pid, FAR_MAX_MS);
	munmap(meeting, sizeof(*meeting));
	return rc != 0 ? rc : far_rc;
}

int bench_apart(int (*work)(void *context), void *context, size_t bytes)
{
	void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 0, rc;
	pid_t pid;

	if (shared == MAP_FAILED)
		return -errno;
	memcpy(shared, context, bytes);
	pid = fork();
	if (pid == 0) {
		rc = work(shared);
		_exit(rc < 0 ? -rc : 0);
	}
	rc = pid < 0 ? -errno : 0;
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR) {
			rc = -errno;
			break;
		}
	if (rc == 0)
		rc = WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
	memcpy(context, shared, bytes);
	munmap(shared, bytes);
	return rc;
}

/* ---- processes that are no pair ---- */

void *bench_share(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void bench_unshare(void *memory, size_t bytes)
{
	if (memory != NULL)
		munmap(memory, bytes);
}

int bench_fork(int (*run)(void *context, unsigned id), void *context, unsigned id, int *pid_out)
{
	pid_t parent = getpid(), pid = fork();
	int rc;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		rc = getppid() == parent ? run(context, id) : -ECHILD;
		_exit(rc < 0 ? -rc : 0);
	}
	*pid_out = (int)pid;
	return 0;
}

bool bench_ended(int *pid, int *rc_out)
{
	int status = 0;

	if (*pid == 0 || waitpid(*pid, &status, WNOHANG) != *pid)
		return false;
	*rc_out = WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
	*pid = 0;
	return true;
}

void bench_kill(int *pid)
{
	if (*pid == 0)
		return;
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

/* ---- the bare cache line ---- */

#define LINE_BATCHES 200u
#define LINE_ROUNDS  200u
#define BURST_ROUNDS 8u

static bool line_wait(const _Atomic uint64_t *ball, uint64_t value)
{
	for (uint64_t tries = 0; observe(ball) != value; tries++)
		if (tries > 2000000000ull)
			return false;
	return true;
}

static int line_far(struct bench_meeting *meeting, void *context)
{
	(void)context;
	for (uint64_t i = 1; i <= (uint64_t)LINE_BATCHES * LINE_ROUNDS; i++) {
		if (!line_wait(&meeting->near.ball, i))
			return -ETIMEDOUT;
		publish(&meeting->far.ball, i);
	}
	return 0;
}

/* So many round trips; `ball` counts them all. */
static int line_time(struct bench_meeting *meeting, uint64_t *ball, unsigned rounds, uint64_t *ns_out)
{
	struct hf_env *env = hf_env_host();
	uint64_t start_ns = hf_env_now_ns(env);

	for (unsigned k = 0; k < rounds; k++) {
		publish(&meeting->near.ball, ++*ball);
		if (!line_wait(&meeting->far.ball, *ball))
			return -ETIMEDOUT;
	}
	*ns_out = hf_env_now_ns(env) - start_ns;
	return 0;
}

static int line_near(struct bench_meeting *meeting, void *context)
{
	static double batches[LINE_BATCHES];
	uint64_t ball = 0, took_ns;

	for (unsigned batch = 0; batch < LINE_BATCHES; batch++) {
		if (line_time(meeting, &ball, LINE_ROUNDS, &took_ns) != 0)
			return -ETIMEDOUT;
		batches[batch] = (double)took_ns / (2 * LINE_ROUNDS);
	}
	*(double *)context = bench_median(batches, LINE_BATCHES);
	return 0;
}

int bench_cache_line_ns(double *ns_out)
{
	return bench_together(line_near, line_far, ns_out);
}

static int jitter_near(struct bench_meeting *meeting, void *context)
{
	static uint32_t bursts[LINE_BATCHES * LINE_ROUNDS / BURST_ROUNDS];
	const unsigned n = sizeof(bursts) / sizeof(*bursts);
	uint64_t ball = 0, took_ns;

	for (unsigned burst = 0; burst < n; burst++) {
		if (line_time(meeting, &ball, BURST_ROUNDS, &took_ns) != 0)
			return -ETIMEDOUT;
		bursts[burst] = (uint32_t)took_ns;
	}
	bench_sort_times(bursts, n);
	*(double *)context = (double)bursts[n / 100 * 99] / bursts[n / 2];
	return 0;
}

int bench_jitter(double *ratio_out)
{
	return bench_together(jitter_near, line_far, ratio_out);
}

/* ---- other programs ---- */

int bench_program_start(char *const argv[], unsigned core, const char *const *words, struct bench_program *out)
{
	int fds[2], failed;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -errno;
	out->pid = fork();
	if (out->pid < 0) {
		failed = -errno;
		close(fds[0]);
		close(fds[1]);
		return failed;
	}
	if (out->pid == 0) {
		bench_pin(core);
		dup2(fds[1], STDOUT_FILENO);
		dup2(fds[1], STDERR_FILENO);
		for (; *words != NULL; words++)
			putenv((char *)(uintptr_t)*words);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(fds[1]);
	out->out_fd = fds[0];
	return 0;
}

int bench_program_read_until(
	const struct bench_program *program, const char *words, unsigned timeout_ms, char *text, size_t bytes)
{
	struct pollfd wait = {.fd = program->out_fd, .events = POLLIN};
	size_t used = 0;

	text[0] = 0;
	while (strstr(text, words) == NULL) {
		ssize_t n;

		if (poll(&wait, 1, (int)timeout_ms) <= 0)
			return -ETIMEDOUT;
		n = used + 1 < bytes ? read(program->out_fd, text + used, bytes - used - 1) : 0;
		if (n <= 0)
			return -EPIPE;
		used += (size_t)n;
		text[used] = 0;
	}
	return 0;
}

int bench_program_end(struct bench_program *program, unsigned timeout_ms, char *text, size_t bytes)
{
	struct pollfd wait = {.fd = program->out_fd, .events = POLLIN};
	char rest[512];
	size_t used = 0;
	ssize_t n;

	/* Its end closes the pipe. */
	while (poll(&wait, 1, (int)timeout_ms) > 0) {
		n = used + 1 < bytes ? read(program->out_fd, text + used, bytes - used - 1)
				     : read(program->out_fd, rest, sizeof(rest));
		if (n <= 0)
			break;
		used += used + 1 < bytes ? (size_t)n : 0;
	}
	text[used] = 0;
	close(program->out_fd);
	return reap(program->pid, 1000);
}
