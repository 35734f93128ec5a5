/* Directories of mode 0700 below /dev/shm, the segments in them, and locks that the kernel drops with their holder.
 *
 * Locks are open-file-description locks on single bytes of the segment's file, past its end where need be: byte 0 is
 * the owner's, byte 1 + n is slot n. A segment is written before it has a name, so a process that opens it finds it
 * whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "env/linux/share_dir.h"

#define SHARE_ROOT        "/dev/shm"
#define SHARE_PREFIX      "holdfast-%u-"
#define PREFIX_BYTES      32
#define OWNER_BYTE        0
#define SLOT_BYTE(slot)   (1 + (off_t)(slot))
#define SLOT_WAIT_STEPS   2000
#define SLOT_WAIT_STEP_NS 1000000

bool share_name_valid(const char *name)
{
	size_t length = strlen(name);

	return length > 0 && length <= SHARE_NAME_MAX && name[0] != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

static int refuse_name(const char *what, const char *name, struct hf_error *error)
{
	return hf_error_set(error, -EINVAL,
		"%s name '%.40s' is not valid: use 1 to %d of a-z, 0-9, '_', '-' and '.', not beginning with a dot",
		what, name, SHARE_NAME_MAX);
}

static void path_of(const char *name, char path[SHARE_PATH_BYTES])
{
	snprintf(path, SHARE_PATH_BYTES, SHARE_ROOT "/" SHARE_PREFIX "%s", (unsigned)geteuid(), name);
}

/* What others could read or replace is not ours, whatever name it bears. */
static int check_ownership(int fd, const char *path, struct hf_error *error)
{
	struct stat stat;

	if (fstat(fd, &stat) != 0)
		return hf_error_set(error, -errno, "%s: %s", path, strerror(errno));
	if (stat.st_uid != geteuid())
		return hf_error_set(error, -EACCES, "%s belongs to user %u, not to user %u; use another name", path,
			(unsigned)stat.st_uid, (unsigned)geteuid());
	if ((stat.st_mode & 077) != 0)
		return hf_error_set(error, -EACCES, "%s is open to other users (mode %o); `chmod 700` or remove it",
			path, (unsigned)stat.st_mode & 0777);
	return 0;
}

static int open_dir(const char *name, bool create, struct share_dir **dir_out, struct hf_error *error)
{
	struct share_dir *dir;
	const char *path;
	int code = 0;

	*dir_out = NULL;
	if (!share_name_valid(name))
		return refuse_name("fabric", name, error);
	dir = calloc(1, sizeof(*dir));
	if (dir == NULL)
		return hf_error_set(error, -ENOMEM, "out of memory");
	path_of(name, dir->path);
	path = dir->path;
	if (create && mkdir(path, 0700) != 0 && errno != EEXIST) {
		code = hf_error_set(error, -errno, "cannot make %s: %s%s", path, strerror(errno),
			errno == ENOENT ? "; mount a tmpfs on " SHARE_ROOT : "");
		goto fail;
	}
	dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir->fd < 0) {
		code = hf_error_set(error, errno == ELOOP || errno == ENOTDIR ? -EACCES : -errno, "cannot open %s: %s",
			path, strerror(errno));
		goto fail;
	}
	code = check_ownership(dir->fd, path, error);
	if (code == 0) {
		*dir_out = dir;
		return 0;
	}
	close(dir->fd);
fail:
	free(dir);
	return code;
}

int share_dir_open(const char *name, struct share_dir **dir_out, struct hf_error *error)
{
	return open_dir(name, true, dir_out, error);
}

int share_dir_find(const char *name, struct share_dir **dir_out, struct hf_error *error)
{
	return open_dir(name, false, dir_out, error);
}

void share_dir_close(struct share_dir *dir)
{
	if (dir == NULL)
		return;
	close(dir->fd);
	free(dir);
}

/* Calls found for the entries that begin with prefix, without it. Takes the descriptor. */
static int list_entries(int fd, const char *prefix, void (*found)(const char *name, void *context), void *context)
{
	DIR *entries = fdopendir(fd);
	struct dirent *entry;

	if (entries == NULL) {
		int error = -errno;

		close(fd);
		return error;
	}
	while ((entry = readdir(entries)) != NULL)
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
			share_name_valid(entry->d_name + strlen(prefix)))
			found(entry->d_name + strlen(prefix), context);
	closedir(entries);
	return 0;
}

int share_dir_each(void (*found)(const char *name, void *context), void *context)
{
	char prefix[PREFIX_BYTES];
	int fd = open(SHARE_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	snprintf(prefix, sizeof(prefix), SHARE_PREFIX, (unsigned)geteuid());
	return list_entries(fd, prefix, found, context);
}

int share_dir_list(struct share_dir *dir, void (*found)(const char *name, void *context), void *context)
{
	int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : list_entries(fd, "", found, context);
}

int share_dir_remove(struct share_dir *dir, const char *file)
{
	if (!share_name_valid(file))
		return -EINVAL;
	return unlinkat(dir->fd, file, 0) == 0 ? 0 : -errno;
}

int share_dir_delete(struct share_dir *dir)
{
	return rmdir(dir->path) == 0 ? 0 : -errno;
}

/* ---- segments ---- */

static int map_segment(int fd, size_t bytes, struct share_segment *out)
{
	void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (addr == MAP_FAILED)
		return -errno;
	*out = (struct share_segment){.addr = addr, .bytes = bytes, .fd = fd};
	return 0;
}

/* Gives the nameless file its name, which fails when that is taken. */
static int link_as(int fd, struct share_dir *dir, const char *file)
{
	char self[SHARE_PATH_BYTES];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, self, dir->fd, file, AT_SYMLINK_FOLLOW) == 0 ? 0 : -errno;
}

int share_segment_create(
	struct share_dir *dir, const char *file, size_t bytes, struct share_segment *out, struct hf_error *error)
{
	int fd, code;

	*out = (struct share_segment){.fd = -1};
	if (!share_name_valid(file))
		return refuse_name("segment", file, error);
	fd = openat(dir->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return hf_error_set(
			error, -errno, "cannot make segment %s in " SHARE_ROOT ": %s", file, strerror(errno));
	code = -posix_fallocate(fd, 0, (off_t)bytes);
	if (code == -ENOSPC || code == -ENOMEM || code == -EFBIG)
		hf_error_set(error, code,
			"no room for %zu bytes in " SHARE_ROOT ": remove files from it, or enlarge it with "
			"`mount -o remount,size=SIZE " SHARE_ROOT "`",
			bytes);
	else if (code != 0)
		hf_error_set(error, code, "cannot make a segment of %zu bytes: %s", bytes, strerror(-code));
	if (code == 0)
		code = map_segment(fd, bytes, out);
	if (code == 0)
		code = link_as(fd, dir, file);
	if (code == 0)
		return 0;
	if (out->addr != NULL) {
		munmap(out->addr, bytes);
		hf_error_set(error, code, "cannot name segment %s: %s", file, strerror(-code));
	}
	close(fd);
	*out = (struct share_segment){.fd = -1};
	return code;
}

int share_segment_open(struct share_dir *dir, const char *file, struct share_segment *out, struct hf_error *error)
{
	struct stat stat;
	int fd, code;

	*out = (struct share_segment){.fd = -1};
	if (!share_name_valid(file))
		return refuse_name("segment", file, error);
	fd = openat(dir->fd, file, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return hf_error_set(error, -errno, "cannot open segment %s: %s", file, strerror(errno));
	if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || stat.st_size == 0)
		code = -EINVAL;
	else
		code = map_segment(fd, (size_t)stat.st_size, out);
	if (code != 0) {
		close(fd);
		return hf_error_set(error, code, "segment %s cannot be used: %s", file, strerror(-code));
	}
	return 0;
}

void share_segment_close(struct share_segment *segment)
{
	if (segment->addr == NULL)
		return;
	munmap(segment->addr, segment->bytes);
	close(segment->fd);
	*segment = (struct share_segment){.fd = -1};
}

bool share_segment_has_name(const struct share_segment *segment)
{
	struct stat status;

	return fstat(segment->fd, &status) == 0 && status.st_nlink > 0;
}

/* ---- locks ---- */

static bool lock_byte(int fd, off_t byte, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static bool byte_locked_by_another(int fd, off_t byte)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool share_owner_lock(struct share_segment *segment)
{
	if (lock_byte(segment->fd, OWNER_BYTE, F_WRLCK))
		segment->owned = true;
	return segment->owned;
}

bool share_owner_alive(struct share_segment *segment)
{
	return segment->owned || byte_locked_by_another(segment->fd, OWNER_BYTE);
}

bool share_slot_lock(struct share_segment *segment, unsigned slot)
{
	return lock_byte(segment->fd, SLOT_BYTE(slot), F_WRLCK);
}

void share_slot_unlock(struct share_segment *segment, unsigned slot)
{
	lock_byte(segment->fd, SLOT_BYTE(slot), F_UNLCK);
}

bool share_slot_locked(struct share_segment *segment, unsigned slot)
{
	return byte_locked_by_another(segment->fd, SLOT_BYTE(slot));
}

int share_slot_wait(struct share_segment *segment, unsigned slot)
{
	struct timespec step = {.tv_nsec = SLOT_WAIT_STEP_NS};

	for (unsigned i = 0; i < SLOT_WAIT_STEPS; i++) {
		if (share_slot_lock(segment, slot))
			return 0;
		nanosleep(&step, NULL);
	}
	return -ETIMEDOUT;
}
