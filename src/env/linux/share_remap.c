/* Private memory gets pages that peers can map: a memfd with the same content at the same addresses.
 *
 * The mechanics are those of share_move.c: write-protect, copy, map over, wake the waiting threads. What else has to be
 * right:
 *
 *   REMAP-1  Untouched pages are mapped first: write protection does not see a store to them.
 *   REMAP-2  A stack is never remapped: a child that is forked shares these pages with its parent, and two that
 *            return on one stack destroy each other. Known are the main stack, the one we run on, those in which
 *            threads wait; and, while a thread runs that cannot be asked, whatever looks like one of glibc's: a guard
 *            page below it, and not the heap of a malloc arena.
 *   REMAP-3  The memfd stays open as long as a registration holds it, and no longer: pages that the program has
 *            unmapped are freed then. Remapped memory without a registration is known by its name and can be
 *            remapped again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/list.h"
#include "env/linux/remap.h"

#define REMAP_NAME      "holdfast-private"
#define TASK_PATH_BYTES 64
#define TASK_TEXT_BYTES 256
#define ARENA_BYTES     (64ull << 20) /* HEAP_MAX_SIZE of glibc on 64 bits: what its arenas are aligned to */

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

/* Of a remapped range. */
struct remap {
	struct list node;
	ino_t inode;
	int fd;
	unsigned holders;
};

static struct list remaps = {&remaps, &remaps};

bool remap_is_ours(const struct mapping *mapping)
{
	return strncmp(mapping->path, "/memfd:" REMAP_NAME, strlen("/memfd:" REMAP_NAME)) == 0;
}

static struct remap *find(uint64_t inode)
{
	list_for_each (node, &remaps) {
		struct remap *remap = container_of(node, struct remap, node);

		if (remap->inode == inode)
			return remap;
	}
	return NULL;
}

int remap_fd(uint64_t inode)
{
	const struct remap *remap = find(inode);

	return remap == NULL ? -ENOENT : remap->fd;
}

static void drop(struct remap *remap)
{
	list_remove(&remap->node);
	close(remap->fd);
	free(remap);
}

void remap_hold(uint64_t inode)
{
	struct remap *remap = find(inode);

	if (remap != NULL)
		remap->holders++;
}

void remap_release(uint64_t inode)
{
	struct remap *remap = find(inode);

	if (remap != NULL && --remap->holders == 0)
		drop(remap);
}

/* ---- stacks ---- */

struct stacks {
	uint64_t start, end; /* of the range that is asked about */
	bool hit;            /* a thread's stack pointer is in it */
	bool unsure;         /* a thread runs, and cannot be asked */
};

/* "running", or: number, six arguments, stack pointer, program counter; without arguments when it is in no call. */
static void ask_thread(const char *name, struct stacks *stacks)
{
	char path[TASK_PATH_BYTES], text[TASK_TEXT_BYTES], *at;
	ssize_t got = -1;
	uint64_t sp = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/syscall", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[got < 0 ? 0 : got] = 0;
	at = strrchr(text, ' '); /* before the program counter */
	if (at == NULL) {
		stacks->unsure = true;
		return;
	}
	*at = 0;
	if ((at = strrchr(text, ' ')) != NULL)
		sp = strtoull(at, NULL, 16);
	stacks->hit = stacks->hit || (sp >= stacks->start && sp < stacks->end);
}

static void ask_threads(struct stacks *stacks)
{
	uint64_t own = (uintptr_t)__builtin_frame_address(0);
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	pid_t self = (pid_t)syscall(SYS_gettid);

	stacks->hit = own >= stacks->start && own < stacks->end;
	stacks->unsure = tasks == NULL;
	while (tasks != NULL && (task = readdir(tasks)) != NULL)
		if (task->d_name[0] != '.' && strtol(task->d_name, NULL, 10) != self)
			ask_thread(task->d_name, stacks);
	if (tasks != NULL)
		closedir(tasks);
}

static bool is_stack(const struct mapping *mapping, bool guarded)
{
	struct stacks stacks = {.start = mapping->start, .end = mapping->end};

	if (strncmp(mapping->path, "[stack", strlen("[stack")) == 0)
		return true;
	ask_threads(&stacks);
	return stacks.hit || (stacks.unsure && guarded && mapping->start % ARENA_BYTES != 0);
}

/* ---- what can be remapped ---- */

static int check_mapping(const struct mapping *mapping, bool guarded, struct hf_error *error)
{
	if (mapping->shared)
		return remap_is_ours(mapping) ? 0
					      : hf_error_set(error, -EOPNOTSUPP,
							"a part of it is a shared mapping of a file: register "
							"the parts on their own");
	if (!mapping->readable || !mapping->writable || mapping->executable)
		return hf_error_set(error, -EOPNOTSUPP, "it is not memory for reading and writing only");
	if (strncmp(mapping->path, "/anon_hugepage", strlen("/anon_hugepage")) == 0)
		return hf_error_set(error, -EOPNOTSUPP, "it is on reserved huge pages");
	if (is_stack(mapping, guarded))
		return hf_error_set(error, -EOPNOTSUPP, "it is on a stack");
	return 0;
}

static int check_range(uint64_t start, uint64_t end, struct hf_error *error)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	struct mapping mapping;
	uint64_t guard_end = 0, seen = start;
	char *line = NULL;
	size_t capacity = 0;
	int code = 0;

	if (maps == NULL)
		return hf_error_set(error, -errno, "/proc/self/maps: %s", strerror(errno));
	while (code == 0 && seen < end && getline(&line, &capacity, maps) > 0 && share_mapping_parse(line, &mapping)) {
		bool guarded = guard_end == mapping.start;

		guard_end = mapping.readable || mapping.writable ? 0 : mapping.end;
		if (mapping.end <= start)
			continue;
		if (mapping.start > seen)
			break;
		code = check_mapping(&mapping, guarded, error);
		seen = mapping.end;
	}
	free(line);
	fclose(maps);
	if (code == 0 && seen < end)
		code = hf_error_set(error, -EFAULT, "not all of it is mapped");
	return code;
}

/* ---- remapping ---- */

static int new_remap(size_t bytes, struct remap **remap_out, struct hf_error *error)
{
	struct remap *remap = calloc(1, sizeof(*remap));
	struct stat stat;
	int code = 0;

	if (remap == NULL)
		return hf_error_set(error, -ENOMEM, "out of memory");
	remap->fd = memfd_create(REMAP_NAME, MFD_CLOEXEC);
	if (remap->fd < 0 || ftruncate(remap->fd, (off_t)bytes) != 0 || fallocate(remap->fd, 0, 0, (off_t)bytes) != 0 ||
		fstat(remap->fd, &stat) != 0)
		code = hf_error_set(
			error, -errno, "no shared pages for %zu bytes of private memory: %s", bytes, strerror(errno));
	list_init(&remap->node);
	if (code != 0) {
		if (remap->fd >= 0)
			close(remap->fd);
		free(remap);
		return code;
	}
	remap->inode = stat.st_ino;
	*remap_out = remap;
	return 0;
}

int remap_pages(char *addr, size_t bytes, struct hf_error *error)
{
	struct remap *remap = NULL;
	int code = check_range((uintptr_t)addr, (uintptr_t)addr + bytes, error);

	if (code != 0 || (code = new_remap(bytes, &remap, error)) != 0)
		return code;
	(void)madvise(addr, bytes, MADV_POPULATE_READ);
	code = share_pages_replace(addr, bytes, remap->fd, error);
	if (code != 0)
		drop(remap);
	else
		list_push_back(&remaps, &remap->node);
	return code;
}
