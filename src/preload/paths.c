/* The device as programs look for it beside libibverbs: UCX and what stands on it, Mooncake and others ask the file
 * system for a device before they use it. Calls that name such a path are answered from a folder next to this library,
 * which scripts/device_tree.sh makes; all others go on as they are.
 *
 *   /sys/class/infiniband/holdfast0...   device/holdfast0/infiniband/holdfast0...
 *   /dev/infiniband/uverbs1024           /dev/null: a character device that may be read and written
 *   /dev/infiniband/rdma_cm              likewise; opened, the device of connection management (descriptors.c)
 *   /sys/class/infiniband                device/holdfast0/infiniband, where the machine has no such folder
 *   /dev/infiniband                      device/dev, likewise
 *
 * The kernel numbers its devices from 0 to 1023. This is a library of its own because its functions, unlike those of
 * libibverbs, have no version. It keeps nothing and locks nothing, so that every thread and handler may call it. */
#undef _FILE_OFFSET_BITS /* both kinds of each function are defined here */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/descriptors.h"
#include "preload/next.h"

#define CLASS_PATH  "/sys/class/infiniband"
#define DEV_PATH    "/dev/infiniband"
#define DEVICE_NAME "holdfast0"
#define NODE_NAME   "uverbs1024"
#define CM_NAME     "rdma_cm"

/* ---- which path ---- */

/* What follows the prefix in the path: a slash, or nothing. NULL: the path does not begin with it. */
static const char *behind(const char *path, const char *prefix)
{
	size_t bytes = strlen(prefix);

	if (strncmp(path, prefix, bytes) != 0 || (path[bytes] != '/' && path[bytes] != '\0'))
		return NULL;
	return path + bytes;
}

static bool machine_has(const char *path)
{
	return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

static char folder[PATH_MAX]; /* of this library */

__attribute__((constructor)) static void find_folder(void)
{
	Dl_info info;
	const char *slash;

	if (dladdr(folder, &info) != 0 && (slash = strrchr(info.dli_fname, '/')) != NULL &&
		(size_t)(slash - info.dli_fname) < sizeof(folder))
		memcpy(folder, info.dli_fname, (size_t)(slash - info.dli_fname));
}

/* False: there is no room for its name. */
static bool in_our_folder(char out[PATH_MAX], const char *name, const char *rest)
{
	return snprintf(out, PATH_MAX, "%s/device/%s%s", folder, name, rest) < PATH_MAX;
}

static bool is_cm(const char *path)
{
	return path != NULL && strcmp(path, DEV_PATH "/" CM_NAME) == 0;
}

/* The path to use in place of `path`, in `out` when it is another one. */
static const char *resolve(const char *path, char out[PATH_MAX])
{
	const char *rest;
	bool ours = false;

	if (path == NULL || path[0] != '/')
		return path;
	if ((rest = behind(path, CLASS_PATH "/" DEVICE_NAME)) != NULL)
		ours = in_our_folder(out, DEVICE_NAME "/infiniband/" DEVICE_NAME, rest);
	else if ((rest = behind(path, DEV_PATH "/" NODE_NAME)) != NULL)
		return *rest == '\0' ? "/dev/null" : path;
	else if (is_cm(path))
		return machine_has(path) ? path : "/dev/null";
	else if ((rest = behind(path, CLASS_PATH)) != NULL && rest[strspn(rest, "/")] == '\0' &&
		 !machine_has(CLASS_PATH))
		ours = in_our_folder(out, DEVICE_NAME "/infiniband", rest);
	else if ((rest = behind(path, DEV_PATH)) != NULL && rest[strspn(rest, "/")] == '\0' && !machine_has(DEV_PATH))
		ours = in_our_folder(out, "dev", rest);
	return ours ? out : path;
}

/* ---- the calls ---- */

/* Defines `name`, which calls that one with the path that is meant. */
#define CALL(type, name, declared, ...)                                                                                \
	NEXT(type, name, declared)                                                                                     \
	type name declared                                                                                             \
	{                                                                                                              \
		char out[PATH_MAX];                                                                                    \
                                                                                                                       \
		return CALL_NEXT(name, __VA_ARGS__);                                                                   \
	}

/* The same of a function whose last argument is there if the flags say so. */
#define OPEN_CALL(name, declared, ...)                                                                                 \
	NEXT(int, name, declared)                                                                                      \
	int name declared                                                                                              \
	{                                                                                                              \
		char out[PATH_MAX];                                                                                    \
		mode_t mode = 0;                                                                                       \
		va_list more;                                                                                          \
                                                                                                                       \
		va_start(more, flags);                                                                                 \
		if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE)                                        \
			mode = va_arg(more, mode_t);                                                                   \
		va_end(more);                                                                                          \
		if (is_cm(path))                                                                                       \
			return descriptors_open_cm();                                                                  \
		return CALL_NEXT(name, __VA_ARGS__);                                                                   \
	}

#define PATH resolve(path, out)

typedef int choose_fn(const struct dirent *entry);
typedef int compare_fn(const struct dirent **a, const struct dirent **b);
typedef int choose64_fn(const struct dirent64 *entry);
typedef int compare64_fn(const struct dirent64 **a, const struct dirent64 **b);

OPEN_CALL(open, (const char *path, int flags, ...), PATH, flags, mode)
OPEN_CALL(open64, (const char *path, int flags, ...), PATH, flags, mode)
OPEN_CALL(openat, (int at, const char *path, int flags, ...), at, PATH, flags, mode)
OPEN_CALL(openat64, (int at, const char *path, int flags, ...), at, PATH, flags, mode)
CALL(int, __open_2, (const char *path, int flags), PATH, flags)
CALL(int, __open64_2, (const char *path, int flags), PATH, flags)
CALL(int, __openat_2, (int at, const char *path, int flags), at, PATH, flags)
CALL(int, __openat64_2, (int at, const char *path, int flags), at, PATH, flags)
CALL(FILE *, fopen, (const char *path, const char *mode), PATH, mode)
CALL(FILE *, fopen64, (const char *path, const char *mode), PATH, mode)

CALL(DIR *, opendir, (const char *path), PATH)
CALL(int, scandir, (const char *path, struct dirent ***list, choose_fn *choose, compare_fn *compare), PATH, list,
	choose, compare)
CALL(int, scandir64, (const char *path, struct dirent64 ***list, choose64_fn *choose, compare64_fn *compare), PATH,
	list, choose, compare)

CALL(int, stat, (const char *path, struct stat *out_stat), PATH, out_stat)
CALL(int, stat64, (const char *path, struct stat64 *out_stat), PATH, out_stat)
CALL(int, lstat, (const char *path, struct stat *out_stat), PATH, out_stat)
CALL(int, lstat64, (const char *path, struct stat64 *out_stat), PATH, out_stat)
CALL(int, fstatat, (int at, const char *path, struct stat *out_stat, int flags), at, PATH, out_stat, flags)
CALL(int, fstatat64, (int at, const char *path, struct stat64 *out_stat, int flags), at, PATH, out_stat, flags)
CALL(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *out_stat), at, PATH, flags, mask,
	out_stat)
/* Programs that were linked before glibc 2.33 call these. */
CALL(int, __xstat, (int version, const char *path, struct stat *out_stat), version, PATH, out_stat)
CALL(int, __xstat64, (int version, const char *path, struct stat64 *out_stat), version, PATH, out_stat)
CALL(int, __lxstat, (int version, const char *path, struct stat *out_stat), version, PATH, out_stat)
CALL(int, __lxstat64, (int version, const char *path, struct stat64 *out_stat), version, PATH, out_stat)
CALL(int, __fxstatat, (int version, int at, const char *path, struct stat *out_stat, int flags), version, at, PATH,
	out_stat, flags)
CALL(int, __fxstatat64, (int version, int at, const char *path, struct stat64 *out_stat, int flags), version, at, PATH,
	out_stat, flags)

CALL(int, access, (const char *path, int mode), PATH, mode)
CALL(int, faccessat, (int at, const char *path, int mode, int flags), at, PATH, mode, flags)
CALL(ssize_t, readlink, (const char *path, char *link, size_t bytes), PATH, link, bytes)
CALL(ssize_t, readlinkat, (int at, const char *path, char *link, size_t bytes), at, PATH, link, bytes)
CALL(ssize_t, __readlink_chk, (const char *path, char *link, size_t bytes, size_t room), PATH, link, bytes, room)
CALL(char *, realpath, (const char *path, char *real), PATH, real)
CALL(char *, __realpath_chk, (const char *path, char *real, size_t room), PATH, real, room)
CALL(char *, canonicalize_file_name, (const char *path), PATH)
