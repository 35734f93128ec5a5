/* Files, memory that can be shared, clocks and entropy of a Linux host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <holdfast/env.h>

#include "child.h"
#include "env/share.h"

static struct hf_env *env;
static char directory[64], path[96], other[96];

static int set_up(void **state)
{
	(void)state;
	env = hf_env_host();
	snprintf(directory, sizeof(directory), "/tmp/holdfast-test-XXXXXX");
	if (mkdtemp(directory) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/one", directory);
	snprintf(other, sizeof(other), "%s/two", directory);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	unlink(other);
	return rmdir(directory);
}

static struct hf_file *open_file(const char *name, unsigned flags)
{
	struct hf_file *file;

	assert_int_equal(hf_file_open(env, name, flags, &file), 0);
	return file;
}

/* A page of this process behind which there is none: what can be read ends there, and not by an end of the file. */
static void a_read_that_fails_in_its_middle_is_no_end_of_the_file(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct hf_file *file = open_file("/proc/self/mem", 0);
	uint8_t bytes[200];

	(void)state;
	assert_true(at != MAP_FAILED);
	assert_int_equal(munmap(at + page, page), 0);
	assert_int_equal(hf_file_read_at(file, bytes, 100, (uintptr_t)at + page - 100), 100);
	assert_int_equal(hf_file_read_at(file, bytes, 200, (uintptr_t)at + page - 100), -EIO);
	hf_file_close(file);
	munmap(at, page);
}

static void what_is_written_is_read_after_opening_again(void **state)
{
	struct hf_file *file = open_file(path, HF_FILE_WRITE | HF_FILE_CREATE);
	char text[16] = "";
	struct stat stat_out;

	(void)state;
	assert_int_equal(hf_file_write_at(file, "hello", 5, 3), 5);
	assert_int_equal(hf_file_bytes(file), 8);
	assert_int_equal(hf_file_sync(file), 0);
	hf_file_close(file);
	assert_int_equal(stat(path, &stat_out), 0);
	assert_int_equal(stat_out.st_mode & 0777, 0600);
	file = open_file(path, 0);
	assert_int_equal(hf_file_read_at(file, text, sizeof(text), 3), 5); /* less: the end */
	assert_string_equal(text, "hello");
	assert_int_equal(hf_file_read_at(file, text, sizeof(text), 8), 0);
	assert_true(hf_file_write_at(file, "x", 1, 0) < 0); /* not opened for writing */
	hf_file_close(file);
	hf_file_close(NULL);
}

static void flags_of_opening_are_kept(void **state)
{
	struct hf_file *file;
	struct stat stat_out;
	mode_t mask = umask(022);

	(void)state;
	assert_int_equal(hf_file_open(env, path, 0, &file), -ENOENT);
	assert_null(file);
	file = open_file(path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_EXCLUSIVE);
	assert_int_equal(hf_file_resize(file, 100), 0);
	hf_file_close(file);
	assert_int_equal(hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_EXCLUSIVE, &file), -EEXIST);
	file = open_file(path, HF_FILE_WRITE);
	assert_int_equal(hf_file_bytes(file), 100);
	assert_int_equal(hf_file_mode(file), 0600);
	hf_file_close(file);
	file = open_file(path, HF_FILE_WRITE | HF_FILE_TRUNCATE);
	assert_int_equal(hf_file_bytes(file), 0);
	hf_file_close(file);
	assert_int_equal(stat(path, &stat_out), 0);
	assert_int_equal(stat_out.st_mode & 0777, 0600);
	assert_int_equal(hf_file_remove(env, path), 0);
	hf_file_close(open_file(path, HF_FILE_WRITE | HF_FILE_CREATE | HF_FILE_PUBLIC));
	assert_int_equal(stat(path, &stat_out), 0);
	assert_int_equal(stat_out.st_mode & 0777, 0644);
	file = open_file(path, 0);
	assert_int_equal(hf_file_mode(file), 0644);
	hf_file_close(file);
	umask(mask);
}

static void a_file_keeps_its_time_where_nothing_changes(void **state)
{
	const struct timespec old[2] = {{1700000000, 5000000}, {1700000000, 5000000}};
	static const char data[8192];
	struct hf_error error;
	struct hf_file *file;
	void *map;

	(void)state;
	file = open_file(path, HF_FILE_WRITE | HF_FILE_CREATE);
	assert_int_equal(hf_file_write_at(file, data, sizeof(data), 0), sizeof(data));
	assert_int_equal(hf_file_sync(file), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(hf_mem_map_file(env, file, 0, sizeof(data), HF_MAP_SPARSE, &map, &error), 0);
	assert_int_equal(hf_file_changed_ns(file), 1700000000005000000);
	hf_mem_free(env, map);
	assert_int_equal(hf_file_write_at(file, data, 1, 0), 1);
	assert_true(hf_file_changed_ns(file) > 1700000000005000000);
	hf_file_close(file);
}

static void a_rename_replaces_and_a_remove_removes(void **state)
{
	struct hf_file *file = open_file(path, HF_FILE_WRITE | HF_FILE_CREATE);

	(void)state;
	hf_file_write_at(file, "new", 3, 0);
	hf_file_close(file);
	hf_file_close(open_file(other, HF_FILE_WRITE | HF_FILE_CREATE));
	assert_int_equal(hf_file_rename(env, path, other), 0);
	assert_int_equal(hf_file_open(env, path, 0, &file), -ENOENT);
	file = open_file(other, 0);
	assert_int_equal(hf_file_bytes(file), 3);
	hf_file_close(file);
	assert_int_equal(hf_file_rename(env, path, other), -ENOENT);
	assert_int_equal(hf_file_remove(env, other), 0);
	assert_int_equal(hf_file_remove(env, other), -ENOENT);
}

static void a_write_that_does_not_fit_moves_what_fits(void **state)
{
	struct hf_file *file = open_file(path, HF_FILE_WRITE | HF_FILE_CREATE);
	struct rlimit before, small;
	static char block[8192];

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 4096;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(hf_file_write_at(file, block, sizeof(block), 0), 4096);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	hf_file_close(file);
}

static int lock_and_wait(struct child *child, void *context)
{
	int locked = hf_file_lock(open_file(context, HF_FILE_WRITE | HF_FILE_CREATE));

	child_step(child);
	return locked;
}

static void a_process_that_is_killed_has_nothing_locked(void **state)
{
	struct child child = child_start(lock_and_wait, path);
	struct hf_file *file;

	(void)state;
	assert_true(child_wait_step(&child));
	file = open_file(path, HF_FILE_WRITE);
	assert_int_equal(hf_file_lock(file), -EAGAIN);
	child_kill(&child);
	assert_int_equal(hf_file_lock(file), 0);
	hf_file_close(file);
}

/* ---- memory ---- */

static void shared_memory_is_zeroed_and_found_by_any_of_its_addresses(void **state)
{
	struct share_backing backing;
	void *none = NULL;
	char *addr;

	(void)state;
	assert_int_equal(hf_mem_alloc(env, 10000, (void **)&addr, NULL), 0);
	assert_int_equal((uintptr_t)addr % 4096, 0);
	for (unsigned i = 0; i < 10000; i++)
		assert_int_equal(addr[i], 0);
	addr[9999] = 1;
	assert_int_equal(hf_mem_flush(env, addr + 9990, 10), 0);
	assert_int_equal(share_backing_find(addr + 5000, 5000, &backing), 0);
	assert_int_equal(backing.offset, 5000);
	hf_mem_free(env, addr);
	assert_int_not_equal(share_backing_find(addr + 5000, 5000, &backing), 0);
	assert_int_equal(hf_mem_alloc(env, 0, &none, NULL), -EINVAL);
	hf_mem_free(env, NULL);
}

/* Far more than there is: refused in words, and nobody is killed for it. */
static void memory_that_is_not_there_is_refused_in_words(void **state)
{
	const size_t wanted[] = {(size_t)1 << 45, SIZE_MAX, SIZE_MAX - 4096, (size_t)1 << 62};

	(void)state;
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		struct hf_error error = {""};
		void *addr = &addr;

		assert_int_equal(hf_mem_alloc(env, wanted[i], &addr, &error), -ENOMEM);
		assert_null(addr);
		assert_non_null(strstr(error.text, "shared memory"));
	}
}

static void memory_survives_a_lack_of_descriptors(void **state)
{
	struct rlimit before, tight;
	int lowest = dup(0);
	void *addr;
	struct hf_error error = {""};

	(void)state;
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	tight = before;
	tight.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	assert_int_equal(hf_mem_alloc(env, 4096, &addr, &error), -EMFILE);
	assert_non_null(strstr(error.text, "ulimit -n"));
	assert_null(addr);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void a_mapped_file_keeps_what_was_stored_in_it(void **state)
{
	struct hf_file *file = open_file(path, HF_FILE_WRITE | HF_FILE_CREATE);
	struct share_backing backing;
	char text[6] = "";
	char *addr;

	(void)state;
	assert_int_equal(hf_file_resize(file, 3 * 4096), 0);
	assert_int_equal(hf_mem_map_file(env, file, 4096, 2 * 4096, HF_MAP_WRITE, (void **)&addr, NULL), 0);
	memcpy(addr + 10, "hello", 5);
	assert_int_equal(hf_mem_flush(env, addr + 10, 5), 0);
	assert_int_equal(hf_file_read_at(file, text, 5, 4096 + 10), 5);
	assert_string_equal(text, "hello");
	hf_file_close(file); /* the mapping outlives it */
	assert_int_equal(share_backing_find(addr + 10, 5, &backing), 0);
	assert_int_equal(backing.offset, 4096 + 10);
	assert_int_equal(addr[10], 'h');
	hf_mem_free(env, addr);
}

static void a_mapping_that_the_file_does_not_have_is_refused_in_words(void **state)
{
	struct hf_file *file = open_file(path, HF_FILE_WRITE | HF_FILE_CREATE);
	struct hf_error error = {""};
	struct share_backing backing;
	char *addr;

	(void)state;
	assert_int_equal(hf_file_resize(file, 4096), 0);
	assert_int_equal(hf_mem_map_file(env, file, 0, 4097, HF_MAP_WRITE, (void **)&addr, &error), -EINVAL);
	assert_non_null(strstr(error.text, "resize"));
	assert_int_equal(hf_mem_map_file(env, file, 4096, 1, HF_MAP_WRITE, (void **)&addr, NULL), -EINVAL);
	assert_int_equal(hf_mem_map_file(env, file, 1, 1, HF_MAP_WRITE, (void **)&addr, &error), -EINVAL);
	assert_non_null(strstr(error.text, "multiple"));
	assert_int_equal(hf_mem_map_file(env, file, 0, 0, HF_MAP_WRITE, (void **)&addr, NULL), -EINVAL);
	assert_null(addr);
	hf_file_close(file);
	file = open_file(path, 0);
	assert_int_equal(hf_mem_map_file(env, file, 0, 4096, HF_MAP_WRITE, (void **)&addr, NULL), -EBADF);
	assert_int_equal(hf_mem_map_file(env, file, 0, 4096, HF_MAP_READ, (void **)&addr, NULL), 0);
	assert_int_equal(share_backing_find(addr, 4096, &backing), 0);
	assert_false(backing.writable);
	hf_mem_free(env, addr);
	hf_file_close(file);
}

/* ---- clocks and entropy ---- */

static void time_does_not_run_backwards(void **state)
{
	uint64_t before = hf_env_now_ns(env);

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t now = hf_env_now_ns(env);

		assert_true(now >= before);
		before = now;
	}
	assert_true(hf_env_wall_ns(env) > 1600000000ull * 1000000000ull);
}

static void entropy_fills_all_of_it_and_differs(void **state)
{
	uint8_t a[1000], b[1000];
	unsigned zeros = 0;

	(void)state;
	memset(a, 0, sizeof(a));
	memset(b, 0, sizeof(b));
	hf_env_entropy(env, a, sizeof(a));
	hf_env_entropy(env, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	for (unsigned i = 0; i < sizeof(a); i++)
		zeros += a[i] == 0;
	assert_true(zeros < 100);
}

int main(void)
{
#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_FILES(what_is_written_is_read_after_opening_again),
		WITH_FILES(a_read_that_fails_in_its_middle_is_no_end_of_the_file),
		WITH_FILES(flags_of_opening_are_kept),
		WITH_FILES(a_file_keeps_its_time_where_nothing_changes),
		WITH_FILES(a_rename_replaces_and_a_remove_removes),
		WITH_FILES(a_write_that_does_not_fit_moves_what_fits),
		WITH_FILES(a_process_that_is_killed_has_nothing_locked),
		WITH_FILES(shared_memory_is_zeroed_and_found_by_any_of_its_addresses),
		WITH_FILES(memory_that_is_not_there_is_refused_in_words),
		WITH_FILES(memory_survives_a_lack_of_descriptors),
		WITH_FILES(a_mapped_file_keeps_what_was_stored_in_it),
		WITH_FILES(a_mapping_that_the_file_does_not_have_is_refused_in_words),
		WITH_FILES(time_does_not_run_backwards),
		WITH_FILES(entropy_fills_all_of_it_and_differs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
