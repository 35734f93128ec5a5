/* Guarded copies: a process that is stopped in the middle of one stores nothing once the gate was closed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <holdfast/env.h>

#include "base/order.h"
#include "env/guard.h"

#define BYTES 65536u
#define STOPS 100
#define OPEN  7u

/* Shared with the child. */
struct arena {
	_Atomic uint64_t gate;
	_Atomic uint32_t thread;
	_Atomic uint32_t copies;
	uint8_t there[BYTES];
};

static struct arena *arena;
static uint8_t private_bytes[BYTES]; /* the parent's, which the child reaches through the kernel */

static int setup(void **state)
{
	(void)state;
	arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(arena, MAP_FAILED);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return munmap(arena, sizeof(*arena));
}

/* The child: copies without an end, to mapped or to private memory, each time other bytes. */
static void copy_for_ever(pid_t to, bool mapped)
{
	static uint8_t from[BYTES];
	struct guard guard = {.word = &arena->gate, .open = OPEN};
	struct iovec local = {.iov_base = from, .iov_len = BYTES};

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves it behind */
	publish(&arena->thread, guard_thread());
	for (uint8_t round = 1;; round++) {
		memset(from, round, BYTES);
		if (mapped)
			guard_store(guard, arena->there, from, BYTES);
		else
			guard_write(guard, to, &local, 1, (uintptr_t)private_bytes, BYTES);
		atomic_fetch_add(&arena->copies, 1);
	}
}

static void wait_for_copies(uint32_t n)
{
	uint32_t seen = atomic_load(&arena->copies);

	while (atomic_load(&arena->copies) - seen < n)
		cpu_relax();
}

/* Stopped anywhere, then the gate is closed: what is there stays as it is, also when the child goes on. */
static void stop_and_look(pid_t child, const uint8_t *there)
{
	static uint8_t before[BYTES];
	int status;

	assert_int_equal(kill(child, SIGSTOP), 0);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	atomic_store(&arena->gate, OPEN + 1);
	assert_true(guard_is_out(child, atomic_load(&arena->thread)));
	memcpy(before, there, BYTES);
	assert_int_equal(kill(child, SIGCONT), 0);
	wait_for_copies(2);
	assert_memory_equal(before, there, BYTES);
	atomic_store(&arena->gate, OPEN);
	wait_for_copies(1);
}

static void stop_many_times(bool mapped)
{
	pid_t parent = getpid(), child;

	if (!guard_works()) {
		print_message("skipped because this machine has no rseq\n");
		skip();
	}
	assert_int_equal(guard_admit_peers(), 0);
	atomic_store(&arena->gate, OPEN);
	if ((child = fork()) == 0)
		copy_for_ever(parent, mapped);
	wait_for_copies(1);
	for (unsigned i = 0; i < STOPS; i++) {
		wait_for_copies(i % 7);
		stop_and_look(child, mapped ? arena->there : private_bytes);
	}
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(guard_is_out(child, atomic_load(&arena->thread)));
}

static void a_process_stopped_in_a_store_does_not_finish_it_behind_a_closed_gate(void **state)
{
	(void)state;
	stop_many_times(true);
}

static void a_process_stopped_around_a_copy_by_the_kernel_does_not_make_it_behind_a_closed_gate(void **state)
{
	(void)state;
	stop_many_times(false);
}

static void a_closed_gate_lets_nothing_through(void **state)
{
	struct guard guard = {.word = &arena->gate, .open = OPEN};
	uint64_t word = 1, value = 2;
	struct iovec local = {.iov_base = &value, .iov_len = 8};

	(void)state;
	atomic_store(&arena->gate, OPEN + 1);
	assert_int_equal(guard_store(guard, &word, &value, 8), -ECANCELED);
	assert_int_equal(guard_store(guard, (char *)&word + 1, &value, 3), -ECANCELED);
	assert_int_equal(guard_write(guard, getpid(), &local, 1, (uintptr_t)&word, 8), -ECANCELED);
	assert_int_equal(word, 1);
	atomic_store(&arena->gate, OPEN);
	assert_int_equal(guard_store(guard, &word, &value, 8), 0);
	assert_int_equal(word, 2);
	value = 3;
	assert_int_equal(guard_write(guard, getpid(), &local, 1, (uintptr_t)&word, 8), 0);
	assert_int_equal(word, 3);
}

static void copies_gather_and_scatter_local_pieces(void **state)
{
	struct guard guard = {.word = &arena->gate, .open = OPEN};
	char there[8] = "abcdefg", first[4] = "ABC", second[5] = "DEFG";
	struct iovec local[] = {{.iov_base = first, .iov_len = 3}, {.iov_base = second, .iov_len = 5}};

	(void)state;
	atomic_store(&arena->gate, OPEN);
	assert_int_equal(guard_write(guard, getpid(), local, 2, (uintptr_t)there, 8), 0);
	assert_string_equal(there, "ABCDEFG");
	memcpy(there, "1234567", 8);
	assert_int_equal(guard_read(getpid(), local, 2, (uintptr_t)there, 8), 0);
	assert_memory_equal(first, "123", 3);
	assert_string_equal(second, "4567");
}

static void memory_that_is_not_there_and_processes_that_are_gone_are_told_apart(void **state)
{
	struct guard guard = {.word = &arena->gate, .open = OPEN};
	char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t value = 2;
	struct iovec local = {.iov_base = &value, .iov_len = 8};
	pid_t child;

	(void)state;
	atomic_store(&arena->gate, OPEN);
	assert_ptr_not_equal(pages, MAP_FAILED);
	assert_int_equal(munmap(pages + 4096, 4096), 0);
	assert_int_equal(guard_write(guard, getpid(), &local, 1, (uintptr_t)pages + 4096, 8), -EFAULT);
	assert_int_equal(guard_write(guard, getpid(), &local, 1, (uintptr_t)pages + 4092, 8), -EFAULT);
	assert_int_equal(guard_read(getpid(), &local, 1, (uintptr_t)pages + 4096, 8), -EFAULT);
	munmap(pages, 4096);
	if ((child = fork()) == 0)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(guard_write(guard, child, &local, 1, (uintptr_t)pages, 8), -ESRCH);
}

static void a_thread_that_runs_is_not_out(void **state)
{
	pid_t parent = getpid(), child;

	(void)state;
	atomic_store(&arena->gate, OPEN);
	atomic_store(&arena->thread, 0);
	if ((child = fork()) == 0)
		copy_for_ever(parent, true);
	while (atomic_load(&arena->thread) == 0)
		cpu_relax();
	assert_int_equal(atomic_load(&arena->thread), child); /* not the number of its parent's thread */
	assert_false(guard_is_out(child, (uint32_t)child));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(a_process_stopped_in_a_store_does_not_finish_it_behind_a_closed_gate),
		TEST(a_process_stopped_around_a_copy_by_the_kernel_does_not_make_it_behind_a_closed_gate),
		TEST(a_closed_gate_lets_nothing_through),
		TEST(copies_gather_and_scatter_local_pieces),
		TEST(memory_that_is_not_there_and_processes_that_are_gone_are_told_apart),
		TEST(a_thread_that_runs_is_not_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
