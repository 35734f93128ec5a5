/* What processes of one host share: directories, segments, locks, memory of a peer, moved pages, processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "child.h"
#include "env/share.h"

#define DESCRIPTORS 1024

static struct hf_env *env;
static struct share_dir *dir;
static char dir_name[64], dir_path[128];

static int set_up(void **state)
{
	(void)state;
	env = hf_env_host();
	snprintf(dir_name, sizeof(dir_name), "test-share-%d", (int)getpid());
	snprintf(dir_path, sizeof(dir_path), "/dev/shm/holdfast-%u-%s", (unsigned)geteuid(), dir_name);
	return share_dir_open(dir_name, &dir, NULL);
}

static void remove_file(const char *name, void *context)
{
	share_dir_remove(context, name);
}

static int tear_down(void **state)
{
	(void)state;
	share_dir_list(dir, remove_file, dir);
	share_dir_delete(dir);
	share_dir_close(dir);
	return 0;
}

/* ---- directories ---- */

static void names_that_could_leave_the_directory_are_refused(void **state)
{
	const char *const wrong[] = {"", ".", "..", "../x", "a/b", "A", "\xc3\xa4"};
	char longest[SHARE_NAME_MAX + 2];

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct share_segment segment;
		struct share_dir *none;
		struct hf_io *bell;

		assert_int_equal(share_dir_open(wrong[i], &none, NULL), -EINVAL);
		assert_int_equal(share_segment_create(dir, wrong[i], 4096, &segment, NULL), -EINVAL);
		assert_int_equal(share_segment_open(dir, wrong[i], &segment, NULL), -EINVAL);
		assert_int_equal(share_bell_create(env, dir, wrong[i], &bell), -EINVAL);
		assert_int_equal(share_dir_remove(dir, wrong[i]), -EINVAL);
	}
	memset(longest, 'a', sizeof(longest));
	longest[SHARE_NAME_MAX + 1] = '\0';
	assert_false(share_name_valid(longest));
	longest[SHARE_NAME_MAX] = '\0';
	assert_true(share_name_valid(longest));
}

static void a_directory_that_others_could_enter_is_refused(void **state)
{
	struct share_dir *again;
	struct hf_error error = {""};

	(void)state;
	assert_int_equal(chmod(dir_path, 0755), 0);
	assert_int_equal(share_dir_open(dir_name, &again, &error), -EACCES);
	assert_non_null(strstr(error.text, "chmod 700"));
	assert_int_equal(chmod(dir_path, 0700), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(dir_path, 12345, (gid_t)-1), 0);
		assert_int_equal(share_dir_open(dir_name, &again, &error), -EACCES);
		assert_non_null(strstr(error.text, "12345"));
		assert_int_equal(chown(dir_path, 0, (gid_t)-1), 0);
	}
}

static void a_symlink_in_the_place_of_a_directory_is_refused(void **state)
{
	char path[160], name[80];
	struct share_dir *linked;

	(void)state;
	snprintf(path, sizeof(path), "%s-link", dir_path);
	snprintf(name, sizeof(name), "%s-link", dir_name);
	assert_int_equal(symlink(dir_path, path), 0);
	assert_int_equal(share_dir_open(name, &linked, NULL), -EACCES);
	assert_int_equal(share_dir_find(name, &linked, NULL), -EACCES);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(share_dir_find(name, &linked, NULL), -ENOENT);
}

static void count_file(const char *name, void *context)
{
	assert_true(strcmp(name, "one") == 0 || strcmp(name, "two") == 0);
	++*(unsigned *)context;
}

/* ---- segments ---- */

static void a_segment_is_the_same_memory_for_all_who_open_it(void **state)
{
	struct share_segment one, again, two;
	unsigned files = 0;

	(void)state;
	assert_int_equal(share_segment_create(dir, "one", 8192, &one, NULL), 0);
	assert_int_equal(share_segment_create(dir, "one", 8192, &again, NULL), -EEXIST);
	assert_int_equal(share_segment_create(dir, "two", 4096, &two, NULL), 0);
	assert_int_equal(share_segment_open(dir, "one", &again, NULL), 0);
	assert_int_equal(again.bytes, 8192);
	((char *)one.addr)[8191] = 'x';
	assert_int_equal(((char *)again.addr)[8191], 'x');
	assert_int_equal(share_dir_list(dir, count_file, &files), 0);
	assert_int_equal(files, 2);
	assert_int_equal(share_dir_remove(dir, "one"), 0);
	assert_int_equal(share_dir_remove(dir, "one"), -ENOENT);
	share_segment_close(&again);
	share_segment_close(&again); /* harmless */
	assert_int_equal(share_segment_open(dir, "one", &again, NULL), -ENOENT);
	share_segment_close(&one);
	share_segment_close(&two);
}

static void a_segment_that_does_not_fit_is_refused_and_leaves_nothing(void **state)
{
	struct share_segment segment;
	struct hf_error error = {""};
	unsigned files = 0;

	(void)state;
	assert_int_equal(share_segment_create(dir, "one", (size_t)1 << 50, &segment, &error), -ENOSPC);
	assert_non_null(strstr(error.text, "/dev/shm"));
	assert_int_equal(share_dir_list(dir, count_file, &files), 0);
	assert_int_equal(files, 0);
}

static void a_file_that_is_no_segment_is_not_opened(void **state)
{
	struct share_segment segment;
	struct hf_io *bell;
	char path[160];
	int fd;

	(void)state;
	assert_int_equal(share_bell_create(env, dir, "bell", &bell), 0);
	assert_int_equal(share_segment_open(dir, "bell", &segment, NULL), -EINVAL);
	hf_io_close(bell);
	snprintf(path, sizeof(path), "%s/empty", dir_path);
	assert_true((fd = open(path, O_CREAT | O_WRONLY, 0600)) >= 0);
	close(fd);
	assert_int_equal(share_segment_open(dir, "empty", &segment, NULL), -EINVAL);
	assert_int_equal(share_bell_open(dir, "empty", &fd), -EINVAL);
}

/* Descriptors run out at every point of it once: nothing leaks, and it works when there are enough. */
static void segments_survive_a_lack_of_descriptors(void **state)
{
	struct rlimit before, tight;
	int lowest = dup(0), code = -1;
	unsigned failed = 0;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	close(lowest);
	for (rlim_t extra = 0; code != 0; extra++) {
		struct share_segment segment = {0};
		struct share_dir *tight_dir = NULL;

		assert_true(extra < 16);
		tight = before;
		tight.rlim_cur = (rlim_t)lowest + extra;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
		code = share_dir_open(dir_name, &tight_dir, NULL);
		if (code == 0)
			code = share_segment_create(tight_dir, "tight", 4096, &segment, NULL);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		failed += code != 0;
		share_segment_close(&segment);
		share_dir_close(tight_dir);
	}
	assert_true(failed > 0);
	code = dup(0);
	assert_int_equal(code, lowest);
	close(code);
}

/* ---- locks ---- */

static int hold_locks(struct child *child, void *context)
{
	struct share_segment segment;

	(void)context;
	if (share_segment_open(dir, "one", &segment, NULL) != 0 || !share_owner_lock(&segment) ||
		!share_slot_lock(&segment, 7))
		return 1;
	child_step(child);
	return 0;
}

static void a_lock_is_free_once_its_holder_is_killed(void **state)
{
	struct share_segment segment;
	struct child child;

	(void)state;
	assert_int_equal(share_segment_create(dir, "one", 4096, &segment, NULL), 0);
	assert_false(share_owner_alive(&segment));
	child = child_start(hold_locks, NULL);
	assert_true(child_wait_step(&child));
	assert_true(share_owner_alive(&segment));
	assert_false(share_owner_lock(&segment));
	assert_true(share_slot_locked(&segment, 7));
	assert_false(share_slot_lock(&segment, 7));
	assert_true(share_slot_lock(&segment, 6));
	child_kill(&child);
	assert_false(share_owner_alive(&segment));
	assert_true(share_owner_lock(&segment));
	assert_true(share_owner_alive(&segment)); /* ourselves included */
	assert_int_equal(share_slot_wait(&segment, 7), 0);
	share_segment_close(&segment);
}

static void two_openings_in_one_process_exclude_each_other(void **state)
{
	struct share_segment a, b;

	(void)state;
	assert_int_equal(share_segment_create(dir, "one", 4096, &a, NULL), 0);
	assert_int_equal(share_segment_open(dir, "one", &b, NULL), 0);
	assert_true(share_slot_lock(&a, 0));
	assert_false(share_slot_lock(&b, 0));
	share_slot_unlock(&a, 0);
	assert_true(share_slot_lock(&b, 0));
	share_segment_close(&b);
	assert_false(share_slot_locked(&a, 0));
	share_segment_close(&a);
}

/* ---- memory ---- */

struct offer {
	struct share_backing backing;
	pid_t pid;
	uint64_t *words;
};

static int store_through_the_peer(struct child *child, void *context)
{
	const struct offer *offer = context;
	uint64_t *mapped;

	if (share_peer_map(offer->pid, offer->backing.fd, offer->backing.inode, offer->backing.offset, 4096, true,
		    (void **)&mapped) != 0)
		return 1;
	mapped[0] = 1;
	child_step(child);
	mapped[0] = 2; /* late: after the pages were moved */
	mapped[1] = 2;
	child_step(child);
	share_peer_unmap(mapped, 4096);
	return 0;
}

static void a_late_store_of_a_peer_lands_in_orphaned_pages(void **state)
{
	struct offer offer = {.pid = getpid()};
	struct share_backing moved;
	struct child child;
	void *addr;

	(void)state;
	assert_int_equal(hf_mem_alloc(env, 3 * 4096, &addr, NULL), 0);
	offer.words = (uint64_t *)((char *)addr + 4096);
	assert_int_equal(share_backing_find(offer.words, 4096, &offer.backing), 0);
	assert_int_equal(offer.backing.offset, 4096);
	assert_true(offer.backing.writable);
	child = child_start(store_through_the_peer, &offer);
	assert_true(child_wait_step(&child));
	assert_int_equal(offer.words[0], 1);
	assert_int_equal(share_move_pages(offer.words, 4096, &moved, NULL), 0);
	assert_int_not_equal(moved.inode, offer.backing.inode);
	assert_int_equal(offer.words[0], 1); /* same content */
	child_go_on(&child);
	assert_true(child_wait_step(&child));
	assert_int_equal(offer.words[0], 1);
	assert_int_equal(offer.words[1], 0);
	child_go_on(&child);
	assert_int_equal(child_end(&child), 0);
	hf_mem_free(env, addr);
}

static void the_backing_of_moved_pages_is_found_and_of_a_mixture_refused(void **state)
{
	struct share_backing before, after, moved;
	char *addr;

	(void)state;
	assert_int_equal(hf_mem_alloc(env, 8 * 4096, (void **)&addr, NULL), 0);
	memset(addr, 'x', 8 * 4096);
	assert_int_equal(share_backing_find(addr, 8 * 4096, &before), 0);
	assert_int_equal(share_move_pages(addr + 2 * 4096, 2 * 4096, &moved, NULL), 0);
	assert_int_equal(share_backing_find(addr, 2 * 4096, &after), 0); /* left of it */
	assert_int_equal(after.inode, before.inode);
	assert_int_equal(share_backing_find(addr + 4 * 4096 + 8, 16, &after), 0); /* right of it */
	assert_int_equal(after.inode, before.inode);
	assert_int_equal(after.offset, 4 * 4096 + 8);
	assert_int_equal(share_backing_find(addr + 3 * 4096, 4096, &after), 0);
	assert_int_equal(after.inode, moved.inode);
	assert_int_equal(after.offset, 4096);
	assert_int_equal(share_backing_find(addr, 3 * 4096, &after), -EXDEV);
	assert_int_equal(share_backing_find(addr, 9 * 4096, &after), -EXDEV);
	assert_int_equal(share_move_pages(addr, 8 * 4096, &moved, NULL), 0); /* all of it: one file again */
	assert_int_equal(share_backing_find(addr, 8 * 4096, &after), 0);
	assert_int_equal(after.inode, moved.inode);
	assert_int_not_equal(share_backing_find(addr, 9 * 4096, &after), 0);
	for (unsigned i = 0; i < 8 * 4096; i++)
		assert_int_equal(addr[i], 'x');
	hf_mem_free(env, addr);
}

static void what_cannot_be_moved_is_refused_and_stays(void **state)
{
	struct share_backing out;
	struct hf_error error = {""};
	struct hf_file *file;
	char path[160];
	char *addr, *mapped;
	char on_stack[3 * 4096];

	(void)state;
	assert_int_equal(hf_mem_alloc(env, 4096, (void **)&addr, NULL), 0);
	assert_int_equal(share_move_pages(addr + 8, 4096, &out, NULL), -EINVAL);
	assert_int_equal(share_move_pages(addr, 8, &out, NULL), -EINVAL);
	assert_int_equal(share_move_pages(addr, 0, &out, NULL), -EINVAL);
	assert_int_equal(share_move_pages((void *)(((uintptr_t)on_stack + 4095) / 4096 * 4096), 4096, &out, &error),
		-EOPNOTSUPP);
	assert_non_null(strstr(error.text, "stack"));
	hf_mem_free(env, addr);

	snprintf(path, sizeof(path), "%s/file", dir_path);
	assert_int_equal(hf_file_open(env, path, HF_FILE_WRITE | HF_FILE_CREATE, &file), 0);
	assert_int_equal(hf_file_resize(file, 4096), 0);
	assert_int_equal(hf_mem_map_file(env, file, 0, 4096, HF_MAP_WRITE, (void **)&mapped, NULL), 0);
	assert_int_equal(share_move_pages(mapped, 4096, &out, &error), -EOPNOTSUPP);
	assert_non_null(strstr(error.text, "file"));
	hf_mem_free(env, mapped);
	hf_file_close(file);
}

enum { COUNTERS = 512, COUNTING_PAGES = 64 };

struct counting {
	_Atomic uint64_t *counters; /* spread over all pages */
	_Atomic bool stop, started;
	uint64_t rounds;
};

static void *count(void *argument)
{
	struct counting *counting = argument;

	while (!atomic_load(&counting->stop)) {
		for (unsigned i = 0; i < COUNTERS; i++) {
			_Atomic uint64_t *counter = &counting->counters[i * (COUNTING_PAGES * 4096 / 8 / COUNTERS)];

			/* A load and a store, as programs do: a lost store is not made good by the next one. */
			atomic_store_explicit(
				counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
		}
		counting->rounds++;
		atomic_store(&counting->started, true);
	}
	return NULL;
}

static void no_store_of_our_own_threads_is_lost_in_a_move(void **state)
{
	struct counting counting = {0};
	struct share_backing moved;
	pthread_t thread;

	(void)state;
	assert_int_equal(hf_mem_alloc(env, COUNTING_PAGES * 4096, (void **)&counting.counters, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, count, &counting), 0);
	while (!atomic_load(&counting.started))
		;
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(share_move_pages((void *)counting.counters, COUNTING_PAGES * 4096, &moved, NULL), 0);
	atomic_store(&counting.stop, true);
	pthread_join(thread, NULL);
	for (unsigned i = 0; i < COUNTERS; i++)
		assert_int_equal(counting.counters[i * (COUNTING_PAGES * 4096 / 8 / COUNTERS)], counting.rounds);
	hf_mem_free(env, (void *)counting.counters);
}

/* As a container's filter does. */
static int forbid_userfaultfd(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) : -1;
}

enum { CHILD_PASSED, CHILD_HAD_NO_FILTER, CHILD_MOVED_WRONGLY, CHILD_LOST_CONTENT };

static int move_without_userfaultfd(struct child *child, void *context)
{
	struct counting counting = {0};
	struct share_backing moved;
	struct hf_error error = {""};
	struct stat tasks;
	pthread_t thread;
	int code;

	(void)child, (void)context;
	if (forbid_userfaultfd() != 0)
		return CHILD_HAD_NO_FILTER;
	if (hf_mem_alloc(env, COUNTING_PAGES * 4096, (void **)&counting.counters, NULL) != 0)
		return CHILD_HAD_NO_FILTER;
	counting.counters[1] = 5;
	code = share_move_pages((void *)counting.counters, 4096, &moved, NULL);
	if (stat("/proc/self/task", &tasks) != 0 ||
		(tasks.st_nlink == 3 && code != 0)) /* not so: a sanitizer's thread */
		return CHILD_MOVED_WRONGLY;
	if (counting.counters[1] != 5)
		return CHILD_LOST_CONTENT;
	pthread_create(&thread, NULL, count, &counting);
	while (!atomic_load(&counting.started))
		;
	code = share_move_pages((void *)counting.counters, 4096, &moved, &error);
	atomic_store(&counting.stop, true);
	pthread_join(thread, NULL);
	return code == -EOPNOTSUPP && strstr(error.text, "userfaultfd") != NULL ? CHILD_PASSED : CHILD_MOVED_WRONGLY;
}

static void without_userfaultfd_pages_are_moved_only_where_no_store_can_be_lost(void **state)
{
	struct child child = child_start(move_without_userfaultfd, NULL);
	int outcome = child_end(&child);

	(void)state;
	if (outcome == CHILD_HAD_NO_FILTER)
		skip();
	assert_int_equal(outcome, CHILD_PASSED);
}

static void shared_mappings_of_the_program_are_found_by_their_file(void **state)
{
	struct share_backing backing, again;
	struct share_segment segment;
	char private_bytes[64];
	uint64_t *mapped;

	(void)state;
	assert_int_equal(share_segment_create(dir, "one", 4 * 4096, &segment, NULL), 0);
	assert_int_equal(mprotect((char *)segment.addr + 4096, 4096, PROT_READ), 0); /* one file, three mappings */
	assert_int_equal(mprotect((char *)segment.addr + 4096, 4096, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(madvise((char *)segment.addr + 4096, 4096, MADV_DONTFORK), 0);
	assert_int_equal(share_backing_find((char *)segment.addr + 8, 4 * 4096 - 8, &backing), 0);
	assert_int_equal(backing.offset, 8);
	assert_true(backing.writable);
	assert_int_equal(share_backing_find(segment.addr, 8, &again), 0);
	assert_int_equal(again.fd, backing.fd);
	assert_int_equal(share_peer_map(getpid(), backing.fd, backing.inode, 0, 4096, true, (void **)&mapped), 0);
	mapped[1] = 77;
	assert_int_equal(((uint64_t *)segment.addr)[1], 77);
	share_peer_unmap(mapped, 4096);
	assert_int_not_equal(share_backing_find(segment.addr, 5 * 4096, &again), 0);
	assert_int_equal(share_backing_find(private_bytes, sizeof(private_bytes), &again), -ENOENT);
	assert_int_equal(share_backing_find(segment.addr, 0, &again), -ENOENT);
	assert_int_equal(share_backing_find(segment.addr, SIZE_MAX, &again), -EFAULT);
	share_segment_close(&segment);
}

static void a_memfd_of_the_program_is_found_through_its_descriptor(void **state)
{
	int fd = memfd_create("program", 0);
	struct share_backing backing;
	struct stat stat;
	char *addr;

	(void)state;
	assert_int_equal(ftruncate(fd, 2 * 4096), 0);
	addr = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
	assert_ptr_not_equal(addr, MAP_FAILED);
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(share_backing_find(addr, 4096, &backing), 0);
	assert_int_equal(backing.inode, stat.st_ino);
	assert_int_equal(backing.offset, 4096);
	munmap(addr, 4096);
	close(fd);
}

static unsigned open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < DESCRIPTORS; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* A program that registers a file, is done with it, and takes the next, runs out of nothing. */
static void a_file_is_closed_behind_the_last_who_holds_it(void **state)
{
	unsigned before = open_descriptors();

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		int fd = memfd_create("program", 0);
		struct share_backing backing, again;
		char *addr;

		assert_int_equal(ftruncate(fd, 4096), 0);
		addr = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(addr, MAP_FAILED);
		assert_int_equal(share_backing_find(addr, 4096, &backing), 0);
		close(fd);
		if (i > 0) { /* nobody holds the first one, which goes when the second is looked for */
			share_backing_hold(&backing);
			assert_int_equal(share_backing_find(addr, 64, &again), 0);
			assert_int_equal(again.fd, backing.fd);
			share_backing_hold(&again);
			share_backing_release(&backing);
			assert_true(fcntl(again.fd, F_GETFD) >= 0);
			share_backing_release(&again);
			assert_int_equal(fcntl(again.fd, F_GETFD), -1);
		}
		munmap(addr, 4096);
	}
	assert_true(open_descriptors() <= before);
}

/* Peers map whole pages, and a file's length is seldom a multiple of them. */
static void the_last_page_of_a_file_of_odd_length_is_mapped_whole(void **state)
{
	int fd = memfd_create("odd", 0);
	struct stat stat;
	void *mapped;

	(void)state;
	assert_int_equal(ftruncate(fd, 4096 + 1), 0);
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(share_peer_map(getpid(), fd, stat.st_ino, 0, 2 * 4096, true, &mapped), 0);
	((char *)mapped)[4096] = 1;
	share_peer_unmap(mapped, 2 * 4096);
	assert_int_equal(share_peer_map(getpid(), fd, stat.st_ino, 0, 2 * 4096 + 1, true, &mapped), -EINVAL);
	close(fd);
}

static void a_peer_that_is_not_the_same_any_more_is_stale(void **state)
{
	struct share_backing backing;
	void *addr, *mapped;

	(void)state;
	assert_int_equal(hf_mem_alloc(env, 4096, &addr, NULL), 0);
	assert_int_equal(share_backing_find(addr, 4096, &backing), 0);
	assert_int_equal(share_peer_map(getpid(), backing.fd, backing.inode + 1, 0, 4096, true, &mapped), -ESTALE);
	assert_int_equal(share_peer_map(getpid(), 9999, backing.inode, 0, 4096, true, &mapped), -ESTALE);
	assert_int_equal(share_peer_map(getpid(), backing.fd, backing.inode, 0, 8192, true, &mapped), -EINVAL);
	assert_int_equal(share_peer_map(getpid(), backing.fd, backing.inode, 8192, 1, true, &mapped), -EINVAL);
	assert_null(mapped);
	hf_mem_free(env, addr);
}

/* ---- processes ---- */

static int wait_to_be_killed(struct child *child, void *context)
{
	(void)context;
	child_step(child);
	return 0;
}

static void a_process_has_exited_once_it_was_killed(void **state)
{
	struct child child = child_start(wait_to_be_killed, NULL);
	struct share_process *process;

	(void)state;
	assert_true(child_wait_step(&child));
	assert_int_equal(share_process_open(child.pid, &process), 0);
	assert_false(share_process_exited(process));
	child_kill(&child);
	assert_true(share_process_exited(process));
	share_process_close(process);
	assert_int_equal(share_process_open(child.pid, &process), -ESRCH);
	share_process_close(NULL);
	assert_int_equal(share_own_pid(), getpid());
}

int main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_DIR(names_that_could_leave_the_directory_are_refused),
		WITH_DIR(a_directory_that_others_could_enter_is_refused),
		WITH_DIR(a_symlink_in_the_place_of_a_directory_is_refused),
		WITH_DIR(a_segment_is_the_same_memory_for_all_who_open_it),
		WITH_DIR(a_segment_that_does_not_fit_is_refused_and_leaves_nothing),
		WITH_DIR(a_file_that_is_no_segment_is_not_opened),
		WITH_DIR(segments_survive_a_lack_of_descriptors),
		WITH_DIR(a_lock_is_free_once_its_holder_is_killed),
		WITH_DIR(two_openings_in_one_process_exclude_each_other),
		WITH_DIR(a_late_store_of_a_peer_lands_in_orphaned_pages),
		WITH_DIR(the_backing_of_moved_pages_is_found_and_of_a_mixture_refused),
		WITH_DIR(what_cannot_be_moved_is_refused_and_stays),
		WITH_DIR(no_store_of_our_own_threads_is_lost_in_a_move),
		WITH_DIR(without_userfaultfd_pages_are_moved_only_where_no_store_can_be_lost),
		WITH_DIR(shared_mappings_of_the_program_are_found_by_their_file),
		WITH_DIR(a_memfd_of_the_program_is_found_through_its_descriptor),
		WITH_DIR(a_file_is_closed_behind_the_last_who_holds_it),
		WITH_DIR(the_last_page_of_a_file_of_odd_length_is_mapped_whole),
		WITH_DIR(a_peer_that_is_not_the_same_any_more_is_stale),
		WITH_DIR(a_process_has_exited_once_it_was_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
