/* Which file backs a piece of memory, and a peer's file mapped through its process.
 *
 * Our own allocations are in the registry (memory.h). Any other shared mapping of a file is found in /proc/self/maps,
 * and the file is opened a second time: by its path, through a descriptor that the program has of it, or through the
 * mapping itself, which takes privilege. The inode is checked. There is one such descriptor a file, and it is closed
 * with its last holder: no event tells when the program unmaps the file, and its memory would be kept. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/list.h"
#include "env/linux/memory.h"
#include "env/linux/remap.h"

#define PROC_PATH_BYTES 64

struct opened_file {
	struct list node;
	dev_t device;
	ino_t inode;
	bool writable;
	int fd;
	unsigned holders;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list opened = {&opened, &opened};

bool share_mapping_parse(char *line, struct mapping *out)
{
	char access[5];
	int path_at = 0;

	*out = (struct mapping){0};
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &out->start, &out->end, access,
		    &out->offset, &out->major, &out->minor, &out->inode, &path_at) < 7)
		return false;
	out->readable = access[0] == 'r';
	out->writable = access[1] == 'w';
	out->executable = access[2] == 'x';
	out->shared = access[3] == 's';
	line[strcspn(line, "\n")] = '\0';
	out->path = path_at > 0 ? line + path_at : "";
	return true;
}

/* A descriptor of that file, or -1. */
static int open_checked(const char *path, const struct mapping *mapping)
{
	int fd = open(path, (mapping->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
	struct stat stat;

	/* The device number is not compared: btrfs and overlayfs show another one in maps than in stat. */
	if (fd < 0 || (fstat(fd, &stat) == 0 && stat.st_ino == mapping->inode))
		return fd;
	close(fd);
	return -1;
}

/* Files without a name (memfd_create, unlinked) can be opened again through a descriptor of them. */
static int open_through_descriptors(const struct mapping *mapping)
{
	DIR *descriptors = opendir("/proc/self/fd");
	char path[PROC_PATH_BYTES];
	struct dirent *entry;
	struct stat stat;
	int fd = -1;

	while (fd < 0 && descriptors != NULL && (entry = readdir(descriptors)) != NULL) {
		int number = (int)strtol(entry->d_name, NULL, 10);

		if (fstat(number, &stat) != 0 || stat.st_ino != mapping->inode || !S_ISREG(stat.st_mode) ||
			stat.st_dev != makedev(mapping->major, mapping->minor))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
		fd = open_checked(path, mapping);
	}
	if (descriptors != NULL)
		closedir(descriptors);
	return fd;
}

static int open_mapped(const struct mapping *mapping)
{
	char through[PROC_PATH_BYTES];
	int fd = mapping->path[0] == '/' ? open_checked(mapping->path, mapping) : -1;

	if (fd < 0)
		fd = open_through_descriptors(mapping);
	if (fd < 0) {
		snprintf(through, sizeof(through), "/proc/self/map_files/%" PRIx64 "-%" PRIx64, mapping->start,
			mapping->end);
		fd = open_checked(through, mapping);
	}
	return fd < 0 ? -ENOENT : fd;
}

static void close_file(struct opened_file *file)
{
	list_remove(&file->node);
	close(file->fd);
	free(file);
}

/* What was found before and is of no use after all: its region was refused. */
static void close_unheld(void)
{
	list_for_each_safe (node, &opened) {
		struct opened_file *file = container_of(node, struct opened_file, node);

		if (file->holders == 0)
			close_file(file);
	}
}

static struct opened_file *find_opened(const struct share_backing *backing)
{
	list_for_each (node, &opened) {
		struct opened_file *file = container_of(node, struct opened_file, node);

		if (backing->opened && file->fd == backing->fd)
			return file;
	}
	return NULL;
}

/* The descriptor kept for the file of `mapping`, opened when it is new. */
static int keep_open(const struct mapping *mapping)
{
	dev_t device = makedev(mapping->major, mapping->minor);
	struct opened_file *file;
	int fd;

	if (remap_is_ours(mapping))
		return remap_fd(mapping->inode);
	list_for_each (node, &opened) {
		file = container_of(node, struct opened_file, node);
		if (file->device == device && file->inode == mapping->inode && file->writable == mapping->writable)
			return file->fd;
	}
	close_unheld();
	fd = open_mapped(mapping);
	if (fd < 0)
		return fd;
	file = calloc(1, sizeof(*file));
	if (file == NULL) {
		close(fd);
		return -ENOMEM;
	}
	*file = (struct opened_file){
		.device = device, .inode = mapping->inode, .writable = mapping->writable, .fd = fd};
	list_push_back(&opened, &file->node);
	return fd;
}

/* Whether `next` goes on where the mapping ends: mprotect and madvise split what is one mapping of a file. */
static bool continues(const struct mapping *mapping, const struct mapping *next)
{
	return next->start == mapping->end && next->shared && next->inode == mapping->inode &&
	       next->major == mapping->major && next->minor == mapping->minor &&
	       next->offset == mapping->offset + (mapping->end - mapping->start);
}

/* What the lines of /proc/self/maps say of [start, end). */
struct survey {
	uint64_t start, end;
	uint64_t seen;        /* mapped and readable up to here */
	struct mapping first; /* its path is the survey's */
	struct mapping last;
	bool writable, shared; /* all of it so far; shared: one file, without a break */
};

/* False: there is a hole, or something that cannot be read. */
static bool survey_add(struct survey *survey, const struct mapping *next)
{
	bool first = survey->first.path == NULL;

	if (next->end <= survey->start)
		return true;
	if (next->start > survey->seen || !next->readable)
		return false;
	if (first) {
		survey->first = *next;
		survey->first.path = strdup(next->path);
		survey->writable = survey->shared = true;
	}
	survey->shared = survey->shared && next->shared && next->inode != 0 && survey->first.path != NULL &&
			 (first || continues(&survey->last, next));
	survey->writable = survey->writable && next->writable;
	survey->last = *next;
	survey->seen = next->end;
	return true;
}

static int survey_backing(struct survey *survey, struct share_backing *out)
{
	int fd;

	*out = (struct share_backing){.fd = -1, .writable = survey->writable};
	if (survey->seen < survey->end)
		return -EFAULT;
	if (!survey->shared)
		return -ENOENT;
	survey->first.writable = survey->writable;
	fd = keep_open(&survey->first);
	if (fd < 0)
		return fd;
	out->fd = fd;
	out->offset = survey->first.offset + (survey->start - survey->first.start);
	out->inode = survey->first.inode;
	out->movable = remap_is_ours(&survey->first);
	out->opened = !out->movable;
	return 0;
}

static int find_in_maps(FILE *maps, uint64_t start, uint64_t end, struct share_backing *out)
{
	struct survey survey = {.start = start, .end = end, .seen = start};
	struct mapping next;
	char *line = NULL;
	size_t capacity = 0;
	int error;

	while (survey.seen < end && getline(&line, &capacity, maps) > 0 && share_mapping_parse(line, &next))
		if (!survey_add(&survey, &next))
			break;
	error = survey_backing(&survey, out);
	free((char *)(uintptr_t)survey.first.path);
	free(line);
	return error;
}

int share_backing_find(const void *addr, size_t bytes, struct share_backing *out)
{
	int error = memory_find(addr, bytes, out);
	FILE *maps;

	if (error != -ENOENT)
		return error;
	if (bytes == 0)
		return -ENOENT;
	if ((uintptr_t)addr + bytes < (uintptr_t)addr)
		return -EFAULT;
	maps = fopen("/proc/self/maps", "re");
	if (maps == NULL)
		return -errno;
	pthread_mutex_lock(&lock);
	error = find_in_maps(maps, (uintptr_t)addr, (uintptr_t)addr + bytes, out);
	pthread_mutex_unlock(&lock);
	fclose(maps);
	return error;
}

void share_backing_hold(const struct share_backing *backing)
{
	struct opened_file *file;

	pthread_mutex_lock(&lock);
	file = find_opened(backing);
	if (file != NULL)
		file->holders++;
	if (backing->movable)
		remap_hold(backing->inode);
	pthread_mutex_unlock(&lock);
}

void share_backing_release(const struct share_backing *backing)
{
	struct opened_file *file;

	pthread_mutex_lock(&lock);
	file = find_opened(backing);
	if (file != NULL && --file->holders == 0)
		close_file(file);
	if (backing->movable)
		remap_release(backing->inode);
	pthread_mutex_unlock(&lock);
}

int share_remap(void *addr, size_t bytes, struct hf_error *error)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	int code;

	if (bytes == 0 || bytes % page != 0 || (uintptr_t)addr % page != 0)
		return hf_error_set(error, -EINVAL, "only whole pages can be remapped");
	pthread_mutex_lock(&lock);
	code = remap_pages(addr, bytes, error);
	pthread_mutex_unlock(&lock);
	return code;
}

static uint64_t whole_pages(uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

int share_peer_map(pid_t pid, int fd, uint64_t inode, uint64_t offset, size_t bytes, bool writable, void **addr_out)
{
	char path[PROC_PATH_BYTES];
	struct stat stat;
	void *addr = MAP_FAILED;
	int opened_fd, error = 0;

	*addr_out = NULL;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	opened_fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
	if (opened_fd < 0)
		return errno == ENOENT || errno == ESRCH ? -ESTALE : -errno;
	if (fstat(opened_fd, &stat) != 0 || stat.st_ino != inode)
		error = -ESTALE;
	else if (offset > whole_pages((uint64_t)stat.st_size) || bytes > whole_pages((uint64_t)stat.st_size) - offset)
		error = -EINVAL; /* beyond the last page: a store would be a SIGBUS */
	else
		addr = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, opened_fd,
			(off_t)offset);
	if (error == 0 && addr == MAP_FAILED)
		error = -errno;
	close(opened_fd);
	if (error == 0)
		*addr_out = addr;
	return error;
}

void share_peer_unmap(void *addr, size_t bytes)
{
	if (addr != NULL)
		munmap(addr, bytes);
}
