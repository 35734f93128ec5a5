/* Files. A rename is durable once the directories of both names are. A lock is the kernel's flock, which belongs to the
 * opening: a mapping of the file has a descriptor of the same one, so closing takes the lock back by name. */
#include "env/linux/linux.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

struct linux_file {
	struct hf_file file;
	int fd;
	bool locked;
};

static int fd_of(const struct hf_file *file)
{
	return container_of(file, const struct linux_file, file)->fd;
}

static void file_close(struct hf_file *file)
{
	struct linux_file *linux_file = container_of(file, struct linux_file, file);

	if (linux_file->locked)
		flock(linux_file->fd, LOCK_UN);
	close(linux_file->fd);
	free(linux_file);
}

static int64_t file_bytes(struct hf_file *file)
{
	struct stat stat;

	return fstat(fd_of(file), &stat) == 0 ? stat.st_size : -errno;
}

static int64_t file_changed_ns(struct hf_file *file)
{
	struct stat stat;

	return fstat(fd_of(file), &stat) == 0 ? stat.st_mtim.tv_sec * 1000000000ll + stat.st_mtim.tv_nsec : -errno;
}

static int file_mode(struct hf_file *file)
{
	struct stat stat;

	return fstat(fd_of(file), &stat) == 0 ? (int)(stat.st_mode & 07777) : -errno;
}

static int file_identity(struct hf_file *file, uint64_t *device_out, uint64_t *inode_out)
{
	struct stat stat;

	if (fstat(fd_of(file), &stat) != 0)
		return -errno;
	*device_out = stat.st_dev;
	*inode_out = stat.st_ino;
	return 0;
}

/* A file system without holes has the whole file as one part. */
static int file_next_data(struct hf_file *file, uint64_t from, uint64_t *begin_out, uint64_t *end_out)
{
	off_t begin = lseek(fd_of(file), (off_t)from, SEEK_DATA), end;

	if (begin < 0)
		return -errno;
	end = lseek(fd_of(file), begin, SEEK_HOLE);
	if (end < 0)
		return -errno;
	*begin_out = (uint64_t)begin;
	*end_out = (uint64_t)end;
	return 0;
}

static ssize_t file_read_at(struct hf_file *file, void *data, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t got = pread(fd_of(file), (char *)data + done, bytes - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

static ssize_t file_write_at(struct hf_file *file, const void *data, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t put = pwrite(fd_of(file), (const char *)data + done, bytes - done, (off_t)(offset + done));

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0 && done == 0)
			return -errno;
		if (put <= 0)
			break;
		done += (size_t)put;
	}
	return (ssize_t)done;
}

static int file_resize(struct hf_file *file, uint64_t bytes)
{
	return ftruncate(fd_of(file), (off_t)bytes) == 0 ? 0 : -errno;
}

static int file_sync(struct hf_file *file, bool data_only)
{
	return (data_only ? fdatasync(fd_of(file)) : fsync(fd_of(file))) == 0 ? 0 : -errno;
}

/* syncfs(2) tells of failed writes since Linux 5.8. File systems that hand it on to a server may not, and are not in
 * the list. */
static bool syncs_all(int fd)
{
	static const uint32_t known[] = {0xef53 /* ext4 */, 0x58465342 /* xfs */, 0x9123683e /* btrfs */,
		0xf2f52010 /* f2fs */, 0x01021994 /* tmpfs */};
	struct utsname name;
	unsigned major, minor;
	struct statfs on;

	if (uname(&name) != 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2 || fstatfs(fd, &on) != 0 ||
		major < 5 || (major == 5 && minor < 8))
		return false;
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if ((uint32_t)on.f_type == known[i])
			return true;
	return false;
}

static int file_sync_all(struct hf_file *file, bool only_ask)
{
	if (!syncs_all(fd_of(file)))
		return -EOPNOTSUPP;
	return only_ask || syncfs(fd_of(file)) == 0 ? 0 : -errno;
}

static int file_lock(struct hf_file *file)
{
	while (flock(fd_of(file), LOCK_EX | LOCK_NB) != 0)
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	container_of(file, struct linux_file, file)->locked = true;
	return 0;
}

static int file_map(
	struct hf_file *file, uint64_t offset, size_t bytes, enum hf_map how, void **addr_out, struct hf_error *error)
{
	return linux_mem_map(fd_of(file), offset, bytes, how, addr_out, error);
}

static const struct world_file_ops file_ops = {
	.close = file_close,
	.bytes = file_bytes,
	.changed_ns = file_changed_ns,
	.mode = file_mode,
	.identity = file_identity,
	.next_data = file_next_data,
	.read_at = file_read_at,
	.write_at = file_write_at,
	.resize = file_resize,
	.sync = file_sync,
	.sync_all = file_sync_all,
	.lock = file_lock,
	.map = file_map,
};

int linux_file_open(struct hf_env *env, const char *path, unsigned flags, struct hf_file **file_out)
{
	struct linux_file *file = calloc(1, sizeof(*file));
	int how = O_CLOEXEC | ((flags & HF_FILE_WRITE) != 0 ? O_RDWR : O_RDONLY);
	int error;

	(void)env;
	if (file == NULL)
		return -ENOMEM;
	if ((flags & HF_FILE_CREATE) != 0)
		how |= O_CREAT;
	if ((flags & HF_FILE_EXCLUSIVE) != 0)
		how |= O_EXCL;
	if ((flags & HF_FILE_TRUNCATE) != 0)
		how |= O_TRUNC;
	file->file.ops = &file_ops;
	file->fd = open(path, how, (flags & HF_FILE_PUBLIC) != 0 ? 0666 : 0600);
	if (file->fd >= 0) {
		*file_out = &file->file;
		return 0;
	}
	error = -errno;
	free(file);
	return error;
}

static int sync_directory_of(const char *path)
{
	char copy[PATH_MAX];

	if ((size_t)snprintf(copy, sizeof(copy), "%s", path) >= sizeof(copy))
		return -ENAMETOOLONG;
	return linux_dir_sync(NULL, dirname(copy));
}

int linux_file_rename(struct hf_env *env, const char *from, const char *to)
{
	int error;

	(void)env;
	if (rename(from, to) != 0)
		return -errno;
	error = sync_directory_of(to);
	return error != 0 ? error : sync_directory_of(from);
}

int linux_file_remove(struct hf_env *env, const char *path)
{
	(void)env;
	return unlink(path) == 0 ? 0 : -errno;
}
