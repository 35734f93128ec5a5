/* What a program does with an opened device of connection management: write(2) is a command, close(2) is its end, and
 * fstat(2) says that it is a device. The device is in the other library (cm/cm.h); its descriptor can be polled.
 * Every other descriptor costs a look at one bit. */
#undef _FILE_OFFSET_BITS /* both kinds of fstat are defined here */
#include "preload/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "preload/next.h"

#define DESCRIPTORS 65536
#define WORD_BITS   64

/* Of libholdfast-verbs.so; NULL where that is not loaded. */
#define OTHER __attribute__((weak, visibility("default")))
OTHER int holdfast_cm_open(void);
OTHER ssize_t holdfast_cm_command(int fd, const void *command, size_t bytes);
OTHER void holdfast_cm_close(int fd);

static _Atomic uint64_t cm[DESCRIPTORS / WORD_BITS]; /* a bit for each */
static _Atomic pid_t owner;                          /* a child of it has copies of the descriptors, and no device */

static bool is_cm(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS &&
	       (atomic_load_explicit(&cm[fd / WORD_BITS], memory_order_relaxed) >> (fd % WORD_BITS) & 1) != 0 &&
	       atomic_load_explicit(&owner, memory_order_relaxed) == getpid();
}

/* In a child that opens one itself the parent's are none any more. */
static void own(void)
{
	if (atomic_exchange(&owner, getpid()) == getpid())
		return;
	for (unsigned i = 0; i < DESCRIPTORS / WORD_BITS; i++)
		atomic_store(&cm[i], 0);
}

/* The number of the kernel's device, where the machine has one: librdmacm compares it. */
static dev_t number_of_device(void)
{
	unsigned major_number = 0, minor_number = 0;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/sys/class/misc/rdma_cm/dev", O_RDONLY | O_CLOEXEC);
	char text[32] = "";

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0 || sscanf(text, "%u:%u", &major_number, &minor_number) != 2)
		major_number = minor_number = 0;
	(void)close(fd);
	return makedev(major_number, minor_number);
}

int descriptors_open_cm(void)
{
	int fd;

	if (holdfast_cm_open == NULL) {
		errno = ENODEV;
		return -1;
	}
	fd = holdfast_cm_open();
	if (fd >= DESCRIPTORS) {
		holdfast_cm_close(fd);
		(void)close(fd);
		errno = EMFILE;
		return -1;
	}
	own();
	if (fd >= 0)
		atomic_fetch_or(&cm[fd / WORD_BITS], (uint64_t)1 << (fd % WORD_BITS));
	return fd;
}

static void forget(int fd)
{
	atomic_fetch_and(&cm[fd / WORD_BITS], ~((uint64_t)1 << (fd % WORD_BITS)));
	holdfast_cm_close(fd);
}

/* ---- the calls ---- */

/* Defines `name`: of the device it does `ours`, and goes on to the next library's unless that has returned. */
#define CALL(type, name, declared, ours, ...)                                                                          \
	NEXT(type, name, declared)                                                                                     \
	type name declared                                                                                             \
	{                                                                                                              \
		if (is_cm(fd))                                                                                         \
			ours;                                                                                          \
		return CALL_NEXT(name, __VA_ARGS__);                                                                   \
	}

CALL(ssize_t, write, (int fd, const void *data, size_t bytes), return holdfast_cm_command(fd, data, bytes), fd, data,
	bytes)
CALL(int, close, (int fd), forget(fd), fd)

#define FSTAT_CALL(name, declared, ...)                                                                                \
	NEXT(int, name, declared)                                                                                      \
	int name declared                                                                                              \
	{                                                                                                              \
		int rc;                                                                                                \
                                                                                                                       \
		rc = CALL_NEXT(name, __VA_ARGS__);                                                                     \
		if (rc == 0 && is_cm(fd)) {                                                                            \
			out_stat->st_mode = S_IFCHR | (out_stat->st_mode & ~(mode_t)S_IFMT);                           \
			out_stat->st_rdev = number_of_device();                                                        \
		}                                                                                                      \
		return rc;                                                                                             \
	}

FSTAT_CALL(fstat, (int fd, struct stat *out_stat), fd, out_stat)
FSTAT_CALL(fstat64, (int fd, struct stat64 *out_stat), fd, out_stat)
/* Programs that were linked before glibc 2.33 call these. */
FSTAT_CALL(__fxstat, (int version, int fd, struct stat *out_stat), version, fd, out_stat)
FSTAT_CALL(__fxstat64, (int version, int fd, struct stat64 *out_stat), version, fd, out_stat)
