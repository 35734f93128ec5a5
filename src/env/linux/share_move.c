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
#include "env/linux/remap.h"

#define PROC_TASK "/proc/self/task"

/* Linux 5.11 and 5.19; Debian 12's headers have both, older ones may not. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED /* Linux 6.4: also of untouched private pages */
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

static int try_userfaultfd(uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), error;

	if (fd < 0 && errno == EPERM)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) == 0)
		return fd < 0 ? -errno : fd;
	error = -errno;
	close(fd);
	return error;
}

/* A descriptor, or -errno. System calls that store into the range wait too if we may ask for that. */
static int open_userfaultfd(void)
{
	int fd = try_userfaultfd(UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_UNPOPULATED);

	return fd == -EINVAL ? try_userfaultfd(UFFD_FEATURE_WP_HUGETLBFS_SHMEM) : fd;
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

/* Steps 1 to 4. Between 1 and 4 nothing is stored but on this stack: it might be the range that waits for us. */
int share_pages_replace(char *addr, size_t bytes, int fd, struct hf_error *error)
{
	int uffd = open_userfaultfd();
	int guarded = uffd < 0 ? uffd : protect(uffd, addr, bytes);
	bool possible = guarded == 0 || single_threaded();
	int code = possible ? copy_out(fd, addr, bytes) : 0;

	if (possible && code == 0 &&
		syscall(SYS_mmap, addr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == -1)
		code = -errno;
	if (uffd >= 0)
		close(uffd);
	if (!possible)
		return hf_error_set(error, -EOPNOTSUPP,
			"cannot move pages under running threads: userfaultfd: %s; Linux 5.19 with userfaultfd "
			"allowed by the container is needed",
			strerror(-guarded));
	if (code != 0)
		hf_error_set(error, code, "cannot move %zu bytes to shared pages: %s", bytes, strerror(-code));
	return code;
}

static int move_locked(char *addr, size_t bytes, struct hf_error *error)
{
	int code = memory_check_movable(addr, bytes);
	int fd;

	if (code == -ENOENT)
		return code;
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
		code = share_pages_replace(addr, bytes, fd, error);
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
	if (code == -ENOENT) /* not of hf_mem_alloc */
		code = share_remap(addr, bytes, error);
	return code == 0 ? share_backing_find(addr, bytes, out) : code;
}
