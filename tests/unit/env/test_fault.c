/* Accesses that meet memory which is gone (env/fault.h). */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "env/fault.h"

#define PAGE 4096u

static char *page_with(int protection)
{
	char *at = mmap(NULL, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

static void store(void *at)
{
	*(volatile char *)at = 1;
}

static void store_twice(void *at)
{
	assert_false(fault_try(store, at));
	store(at);
}

static void an_access_to_missing_memory_fails(void **state)
{
	char *gone = page_with(PROT_NONE), *fixed = page_with(PROT_READ), *right = page_with(PROT_READ | PROT_WRITE);

	(void)state;
	fault_catch();
	for (int i = 0; i < 3; i++) {
		assert_false(fault_try(store, gone));
		assert_false(fault_try(store, fixed));
		assert_true(fault_try(store, right));
	}
	assert_false(fault_try(store_twice, gone)); /* nested */
	assert_int_equal(right[0], 1);
	munmap(right, PAGE);
	assert_false(fault_try(store, right));
}

static void memory_behind_the_end_of_a_truncated_file_fails(void **state)
{
	char name[] = "/tmp/test-fault-XXXXXX";
	int fd = mkstemp(name);
	char *at;

	(void)state;
	unlink(name);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fault_catch();
	assert_true(fault_try(store, at));
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_false(fault_try(store, at));
	close(fd);
}

static sigjmp_buf programs;
static volatile sig_atomic_t handled;

static void handler_of_the_program(int number)
{
	(void)number;
	handled++;
	siglongjmp(programs, 1);
}

static void a_fault_of_the_program_goes_to_its_own_handler(void **state)
{
	struct sigaction own = {.sa_handler = handler_of_the_program, .sa_flags = SA_NODEFER};
	char *gone = page_with(PROT_NONE);

	(void)state;
	assert_int_equal(sigaction(SIGSEGV, &own, NULL), 0);
	fault_catch();
	assert_false(fault_try(store, gone));
	assert_int_equal(handled, 0);
	if (sigsetjmp(programs, 1) == 0)
		store(gone);
	assert_int_equal(handled, 1);
}

static void only_memory_that_is_there_passes_the_check(void **state)
{
	char *three = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_int_equal(fault_check(three, 3 * PAGE, true), 0);
	assert_int_equal(mprotect(three + PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(fault_check(three, 3 * PAGE, false), 0);
	assert_int_equal(fault_check(three, 3 * PAGE, true), -EACCES);
	assert_int_equal(munmap(three + PAGE, PAGE), 0);
	assert_int_equal(fault_check(three, 3 * PAGE, false), -EFAULT);
	assert_int_equal(fault_check(three, PAGE, true), 0);
	assert_int_equal(fault_check((void *)UINTPTR_MAX, 2, false), -EFAULT);
	assert_int_equal(fault_check(NULL, 0, true), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_access_to_missing_memory_fails),
		cmocka_unit_test(memory_behind_the_end_of_a_truncated_file_fails),
		cmocka_unit_test(a_fault_of_the_program_goes_to_its_own_handler),
		cmocka_unit_test(only_memory_that_is_there_passes_the_check),
	};

	return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
