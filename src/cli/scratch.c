#include "cli/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/process.h"

#define NAME_FORM     "holdfast-tmp-%u-"
#define LOCK_NAME     "lock"
#define MEMORY_PARENT "/dev/shm"
#define NAME_BYTES    64
#define DEPTH_MAX     64u

static uint64_t room_of(const char *path)
{
	struct statvfs status;

	if (statvfs(path, &status) != 0)
		return UINT64_MAX; /* unknown: a full disk will be told by the write */
	return (uint64_t)status.f_bavail * status.f_frsize;
}

static const char *wanted_parent(void)
{
	const char *path = getenv("TMPDIR");

	return path != NULL && path[0] == '/' ? path : NULL;
}

static const char *disk_parent(void)
{
	return wanted_parent() != NULL ? wanted_parent() : "/tmp";
}

static const char *parent_for(uint64_t memory_bytes)
{
	struct statvfs status;

	if (wanted_parent() == NULL && memory_bytes > 0 && statvfs(MEMORY_PARENT, &status) == 0 &&
		room_of(MEMORY_PARENT) >= memory_bytes)
		return MEMORY_PARENT;
	return disk_parent();
}

static int take_lock(const char *path)
{
	char lock[SCRATCH_PATH_BYTES + sizeof(LOCK_NAME) + 1];
	int fd;

	snprintf(lock, sizeof(lock), "%s/%s", path, LOCK_NAME);
	fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		int failed = -errno;

		close(fd);
		return failed;
	}
	return fd;
}

/* What is in the directory, which it closes. */
static void empty(int dir_fd, unsigned depth)
{
	DIR *dir = dir_fd >= 0 ? fdopendir(dir_fd) : NULL;
	const struct dirent *entry;

	if (dir == NULL) {
		if (dir_fd >= 0)
			close(dir_fd);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			unlinkat(dir_fd, entry->d_name, 0) == 0)
			continue;
		if (depth < DEPTH_MAX)
			empty(openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
				depth + 1);
		unlinkat(dir_fd, entry->d_name, AT_REMOVEDIR);
	}
	closedir(dir);
}

void scratch_remove_path(const char *path)
{
	empty(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), 0);
	rmdir(path);
}

static bool clean_one(const char *parent, const char *name, const char *prefix)
{
	char path[SCRATCH_PATH_BYTES];
	struct stat status;
	long pid = strtol(name + strlen(prefix), NULL, 10);
	int fd;

	/* The lock decides. The pid covers the moment between the making of a directory and of its lock. */
	if (pid <= 0 || process_alive((pid_t)pid) ||
		snprintf(path, sizeof(path), "%s/%s", parent, name) >= (int)sizeof(path))
		return false;
	if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != getuid())
		return false;
	fd = take_lock(path);
	if (fd < 0)
		return false;
	scratch_remove_path(path);
	close(fd);
	return true;
}

static unsigned clean_parent(const char *parent)
{
	char prefix[NAME_BYTES];
	DIR *dir = opendir(parent);
	const struct dirent *entry;
	unsigned removed = 0;

	if (dir == NULL)
		return 0;
	snprintf(prefix, sizeof(prefix), NAME_FORM, getuid());
	while ((entry = readdir(dir)) != NULL)
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && clean_one(parent, entry->d_name, prefix))
			removed++;
	closedir(dir);
	return removed;
}

unsigned scratch_clean(void)
{
	return clean_parent(disk_parent()) + clean_parent(MEMORY_PARENT);
}

int scratch_create(struct scratch *scratch, uint64_t memory_bytes, struct hf_error *error)
{
	const char *parent = parent_for(memory_bytes);
	int failed;

	scratch_clean();
	memset(scratch, 0, sizeof(*scratch));
	scratch->lock_fd = -1;
	if (snprintf(scratch->path, sizeof(scratch->path), "%s/" NAME_FORM "%d-XXXXXX", parent, getuid(),
		    process_own_pid()) >= (int)sizeof(scratch->path) ||
		mkdtemp(scratch->path) == NULL) {
		failed = errno != 0 ? -errno : -ENAMETOOLONG;
		scratch->path[0] = '\0';
		return hf_error_set(error, failed, "no temporary directory can be made in %s: %s; set TMPDIR", parent,
			strerror(-failed));
	}
	scratch->lock_fd = take_lock(scratch->path);
	if (scratch->lock_fd >= 0)
		return 0;
	failed = scratch->lock_fd;
	scratch_remove(scratch);
	return hf_error_set(error, failed, "the temporary directory cannot be locked: %s; set TMPDIR to a local disk",
		strerror(-failed));
}

void scratch_remove(struct scratch *scratch)
{
	if (scratch->path[0] == '\0')
		return;
	scratch_remove_path(scratch->path);
	if (scratch->lock_fd >= 0)
		close(scratch->lock_fd);
	scratch->path[0] = '\0';
}

uint64_t scratch_room_bytes(const struct scratch *scratch)
{
	return room_of(scratch->path);
}
