/* Directories, and the space of the file system that they are on. */
#include "env/linux/linux.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int linux_dir_make(struct hf_env *env, const char *path)
{
	(void)env;
	return mkdir(path, 0700) == 0 ? 0 : -errno;
}

int linux_dir_list(struct hf_env *env, const char *path, void (*found)(const char *name, void *context), void *context)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	int error;

	(void)env;
	if (directory == NULL)
		return -errno;
	for (errno = 0; (entry = readdir(directory)) != NULL; errno = 0)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			found(entry->d_name, context);
	error = -errno;
	closedir(directory);
	return error;
}

int linux_dir_remove(struct hf_env *env, const char *path)
{
	(void)env;
	return rmdir(path) == 0 ? 0 : errno == EEXIST ? -ENOTEMPTY : -errno;
}

int linux_dir_sync(struct hf_env *env, const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = 0;

	(void)env;
	if (fd < 0)
		return -errno;
	if (fsync(fd) != 0)
		error = -errno;
	close(fd);
	return error;
}

int linux_dir_space(struct hf_env *env, const char *path, uint64_t *free_bytes_out, uint64_t *bytes_out)
{
	struct statvfs space;

	(void)env;
	if (statvfs(path, &space) != 0)
		return -errno;
	*free_bytes_out = (uint64_t)space.f_bavail * space.f_frsize;
	*bytes_out = (uint64_t)space.f_blocks * space.f_frsize;
	return 0;
}
