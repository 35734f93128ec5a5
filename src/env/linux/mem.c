/* Memory that can be shared: a memfd an allocation, its pages reserved at once, so that a lack of memory is an answer
 * here and not a SIGBUS later. The reservation is compared with what the machine and its control group have left,
 * because asking the kernel for more would call its killer of processes. */
#include "env/linux/linux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ensure.h"
#include "env/linux/memory.h"

#define MIB                (1024.0 * 1024.0)
#define SMALL_ALLOCATION   (1u << 20)  /* not worth reading /proc for */
#define HEADROOM_BYTES     (64u << 20) /* left to the rest of the machine */
#define PROC_ANSWER_BYTES  4096
#define CGROUP_MEMORY_MAX  "/sys/fs/cgroup/memory.max"
#define CGROUP_MEMORY_USED "/sys/fs/cgroup/memory.current"

static bool read_text(const char *path, char text[PROC_ANSWER_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return false;
	got = read(fd, text, PROC_ANSWER_BYTES - 1);
	close(fd);
	text[got < 0 ? 0 : got] = '\0';
	return got > 0;
}

/* UINT64_MAX where nothing says. */
static uint64_t available_bytes(void)
{
	char text[PROC_ANSWER_BYTES];
	uint64_t available = UINT64_MAX;
	const char *line;

	if (read_text("/proc/meminfo", text)) {
		line = strstr(text, "MemAvailable:");
		if (line != NULL)
			available = strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024;
	}
	if (read_text(CGROUP_MEMORY_MAX, text) && text[0] != 'm') { /* "max": no limit */
		uint64_t limit = strtoull(text, NULL, 10);
		uint64_t used = read_text(CGROUP_MEMORY_USED, text) ? strtoull(text, NULL, 10) : 0;
		uint64_t left = limit > used ? limit - used : 0;

		available = left < available ? left : available;
	}
	return available;
}

static int check_available(size_t bytes, struct hf_error *error)
{
	uint64_t available;

	if (bytes < SMALL_ALLOCATION)
		return 0;
	available = available_bytes();
	if (available == UINT64_MAX || (available > HEADROOM_BYTES && bytes <= available - HEADROOM_BYTES))
		return 0;
	return hf_error_set(error, -ENOMEM,
		"%.1f MiB of shared memory were requested and %.1f MiB are free; free some, or request less",
		(double)bytes / MIB, (double)available / MIB);
}

static int no_memory(int code, size_t bytes, struct hf_error *error)
{
	return hf_error_set(error, code == -ENOSPC ? -ENOMEM : code,
		"cannot get %.1f MiB of shared memory: %s; free some, or raise `ulimit -v`, `ulimit -n` or the memory "
		"limit",
		(double)bytes / MIB, strerror(-code));
}

int linux_mem_alloc(struct hf_env *env, size_t bytes, void **addr_out, struct hf_error *error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *addr = MAP_FAILED;
	int code, fd;

	(void)env;
	if (bytes > SIZE_MAX / 2)
		return no_memory(-ENOMEM, bytes, error);
	bytes = (bytes + page - 1) / page * page;
	code = check_available(bytes, error);
	if (code != 0)
		return code;
	fd = memfd_create("holdfast", MFD_CLOEXEC);
	if (fd < 0)
		return no_memory(-errno, bytes, error);
	if (ftruncate(fd, (off_t)bytes) != 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0 ||
		(addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
		code = -errno;
		goto fail;
	}
	code = memory_add(addr, bytes, fd, 0, true, true);
	if (code != 0)
		goto fail;
	*addr_out = addr;
	return 0;
fail:
	if (addr != MAP_FAILED)
		munmap(addr, bytes);
	close(fd);
	return no_memory(code, bytes, error);
}

void linux_mem_free(struct hf_env *env, void *addr)
{
	(void)env;
	ensure(memory_remove(addr));
}

int linux_mem_flush(struct hf_env *env, void *addr, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr / page * page;

	(void)env;
	return msync((void *)start, bytes + ((uintptr_t)addr - start), MS_SYNC) == 0 ? 0 : -errno;
}

int linux_mem_populate(struct hf_env *env, void *addr, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *start = (uint8_t *)((uintptr_t)addr / page * page);

	(void)env;
	bytes += (size_t)((uint8_t *)addr - start);
	if (madvise(start, bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno == EINVAL && madvise(start, bytes, MADV_POPULATE_READ) == 0)
		return 0; /* it is not writable */
	return errno == EINVAL ? -EOPNOTSUPP : -errno;
}

int linux_mem_map(int fd, uint64_t offset, size_t bytes, enum hf_map how, void **addr_out, struct hf_error *error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool writable = how != HF_MAP_READ;
	struct stat stat;
	void *addr;
	int code, own;

	if (offset % page != 0)
		return hf_error_set(error, -EINVAL, "cannot map a file at offset %llu: not a multiple of %zu",
			(unsigned long long)offset, page);
	if (fstat(fd, &stat) != 0)
		return hf_error_set(error, -errno, "cannot map a file: %s", strerror(errno));
	if (offset > (uint64_t)stat.st_size || bytes > (uint64_t)stat.st_size - offset)
		return hf_error_set(error, -EINVAL,
			"cannot map %zu bytes at offset %llu of a file of %lld bytes; resize it first", bytes,
			(unsigned long long)offset, (long long)stat.st_size);
	if (how == HF_MAP_WRITE && fallocate(fd, 0, (off_t)offset, (off_t)bytes) != 0 && errno != EOPNOTSUPP)
		return hf_error_set(error, -errno, "cannot map %zu bytes of a file: %s", bytes, strerror(errno));
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return hf_error_set(error, -errno, "cannot map a file: %s", strerror(errno));
	addr = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, own, (off_t)offset);
	code = addr == MAP_FAILED ? -errno : memory_add(addr, bytes, own, offset, writable, false);
	if (code == 0) {
		*addr_out = addr;
		return 0;
	}
	if (addr != MAP_FAILED)
		munmap(addr, bytes);
	close(own);
	return hf_error_set(error, code, "cannot map %zu bytes of a file: %s", bytes, strerror(-code));
}
