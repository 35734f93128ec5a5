/* Moving pages under a running process, so that a stopped peer's late store lands in orphaned pages (R15).
 *
 *   1  write-protect the range by userfaultfd: from here on our threads' stores fault and wait
 *   2  copy the content into a new memfd
 *   3  map the memfd over the range, in one step under the kernel's lock on the address space
 *   4  close the userfaultfd: the waiting stores are done again, on the new pages
 *
 * A store of ours is either before 1, and copied, or after 3, and on the new pages: none is lost. Loads never wait.
 * Stores of peers between 1 and 3 go to the old pages and may miss the copy; the caller has fenced them before.
 * Stores through other mappings or pinned pages of our own (io_uring buffers, O_DIRECT) are not seen by 1.
 *
 * 2 and 3 are plain syscall()s: it is the page protection that orders them with our threads' accesses, of which
 * ThreadSanitizer, which watches pwrite() and mmap(), knows nothing. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "env/linux/memory.h"

#define PROC_TASK "/proc/self/task"

/* Linux 5.11 and 5.19; Debian 12's headers have both, older ones may not. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

/* A descriptor, or -errno. System calls that store into the range wait too if we may ask for that. */
static int open_userfaultfd(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 && errno == EPERM)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		fd = -1;
	}
	return fd < 0 ? -errno : fd;
}

static int protect(int uffd, const void *addr, size_t bytes)
{
	struct uffdio_register enlist = {
		.range = {.start = (uintptr_t)addr, .len = bytes}, .mode = UFFDIO_REGISTER_MODE_WP};
	struct uffdio_writeprotect guard = {.range = enlist.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};

	if (ioctl(uffd, UFFDIO_REGISTER, &enlist) != 0)
		return -errno;
	return ioctl(uffd, UFFDIO_WRITEPROTECT, &guard) == 0 ? 0 : -errno;
}

static bool single_threaded(void)
{
	struct stat stat_of_tasks;

	return stat(PROC_TASK, &stat_of_tasks) == 0 && stat_of_tasks.st_nlink == 3; /* ".", ".." and one thread */
}

static int copy_out(int fd, const char *addr, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		long put = syscall(SYS_pwrite64, fd, addr + done, bytes - done, (off_t)done);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		done += (size_t)put;
	}
	return 0;
}

/* Steps 1 to 4. */
static int replace(char *addr, size_t bytes, int fd, struct hf_error *error)
{
	int uffd = open_userfaultfd();
	int code = uffd < 0 ? uffd : protect(uffd, addr, bytes);

	if (code != 0 && !single_threaded()) {
		code = hf_error_set(error, -EOPNOTSUPP,
			"cannot move shared pages under running threads: userfaultfd: %s; Linux 5.19 with userfaultfd "
			"allowed by the container is needed",
			strerror(-code));
		goto out;
	}
	code = copy_out(fd, addr, bytes);
	if (code == 0 && syscall(SYS_mmap, addr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == -1)
		code = -errno;
	if (code != 0)
		hf_error_set(error, code, "cannot move %zu bytes of shared memory: %s", bytes, strerror(-code));
out:
	if (uffd >= 0)
		close(uffd);
	return code;
}

static int move_locked(char *addr, size_t bytes, struct hf_error *error)
{
	int code = memory_check_movable(addr, bytes);
	int fd;

	if (code == -ENOENT)
		return hf_error_set(error, code, "memory that did not come from hf_mem_alloc cannot be moved");
	if (code != 0)
		return hf_error_set(
			error, code, "memory of a file cannot be moved to other pages: it would leave the file");
	code = memory_reserve();
	if (code != 0)
		return hf_error_set(error, code, "out of memory");
	fd = memfd_create("holdfast", MFD_CLOEXEC);
	code = fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0 ? -errno : 0;
	if (code != 0)
		hf_error_set(error, code, "no fresh pages for %zu bytes of shared memory: %s", bytes, strerror(-code));
	else
		code = replace(addr, bytes, fd, error);
	if (code == 0)
		memory_replaced(addr, bytes, fd);
	else if (fd >= 0)
		close(fd);
	return code;
}

int share_move_pages(void *addr, size_t bytes, struct share_backing *out, struct hf_error *error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int code;

	if (bytes == 0 || bytes % page != 0 || (uintptr_t)addr % page != 0)
		return hf_error_set(error, -EINVAL, "only whole pages can be moved");
	memory_lock();
	code = move_locked(addr, bytes, error);
	memory_unlock();
	return code == 0 ? memory_find(addr, bytes, out) : code;
}
