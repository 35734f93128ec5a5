/* Guarded copies (guard.h): restartable sequences around a look at the gate and a copy.
 *
 *   0  announce the sequence [1, 2) to the kernel
 *   1  look at the gate
 *      copy: one instruction, which stores by itself (rep movsb, mov) or enters the kernel (syscall), or words in turn
 *   2  done
 *
 * The kernel sends a thread that returns to user mode in [1, 2) after a preemption or a signal to 4, which leads back
 * to 0. An interrupted rep movsb has its progress in its registers and goes on from there; words are stored again from
 * the first one. A system call returns to 2, which is outside, so it is not made twice. */
#include "env/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/order.h"

#define WORD_BYTES      sizeof(uint64_t)
#define WORDS_BYTES     256u /* of words, so many are stored one by one: rep movsb takes longer to begin */
#define PROC_PATH_BYTES 64
#define PROC_TEXT_BYTES 512
#define YAMA_SCOPE      "/proc/sys/kernel/yama/ptrace_scope"
#define YAMA_ASKS       1
#define FLAG_EXITING    4u /* PF_EXITING of the kernel, in the ninth word of /proc/PID/stat */

#if defined(__x86_64__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define HAS_RSEQ
#endif

static inline bool is_open(struct guard guard)
{
	return observe(guard.word) == guard.open;
}

#ifdef HAS_RSEQ

_Static_assert(RSEQ_SIG == 0x53053053, "the signature in front of label 4");

/* Operands: %[cs] where the kernel looks, %[gate], %[open]; %[closed] becomes 1 when the gate was closed. */
#define SEQUENCE(copy)                                                                                                 \
	".pushsection __rseq_cs, \"aw\"\n"                                                                             \
	".balign 32\n"                                                                                                 \
	"3: .long 0, 0\n"                                                                                              \
	".quad 1f, 2f - 1f, 4f\n"                                                                                      \
	".popsection\n"                                                                                                \
	"0: leaq 3b(%%rip), %%rax\n"                                                                                   \
	"movq %%rax, (%[cs])\n"                                                                                        \
	"1: cmpq %[open], (%[gate])\n"                                                                                 \
	"jne 5f\n" copy "2: jmp 6f\n"                                                                                  \
	".byte 0x0f, 0xb9, 0x3d\n" /* ud1: the signature is not an instruction's */                                    \
	".long 0x53053053\n"                                                                                           \
	"4: jmp 0b\n"                                                                                                  \
	"5: movl $1, %[closed]\n"                                                                                      \
	"6: movq $0, (%[cs])\n"

static struct rseq *own_rseq(void)
{
	char *thread;

	__asm__("movq %%fs:0, %0" : "=r"(thread));
	return (struct rseq *)(void *)(thread + __rseq_offset);
}

bool guard_works(void)
{
	return __rseq_size != 0 && (int32_t)own_rseq()->cpu_id >= 0;
}

static void *own_sequence(void)
{
	return &own_rseq()->rseq_cs;
}

static int store_word(struct guard guard, uint64_t *to, uint64_t value)
{
	uint32_t closed = 0;

	__asm__ volatile(SEQUENCE("movq %[value], (%[to])\n")
			 : [closed] "+r"(closed)
			 : [cs] "r"(own_sequence()), [gate] "r"(guard.word), [open] "r"(guard.open), [value] "r"(value),
			 [to] "r"(to)
			 : "rax", "memory", "cc");
	return closed != 0 ? -ECANCELED : 0;
}

/* Ascending. A copy that is sent back begins with the first one again, which does no harm: what ends it is stored
 * later. */
static int store_words(struct guard guard, void *to, const void *from, size_t bytes)
{
	uint32_t closed = 0;
	uint64_t at, word;

	__asm__ volatile(SEQUENCE("xorl %k[at], %k[at]\n"
				  "7: movq (%[from], %[at]), %[word]\n"
				  "movq %[word], (%[to], %[at])\n"
				  "addq $8, %[at]\n"
				  "cmpq %[bytes], %[at]\n"
				  "jne 7b\n")
			 : [closed] "+r"(closed), [at] "=&r"(at), [word] "=&r"(word)
			 : [cs] "r"(own_sequence()), [gate] "r"(guard.word), [open] "r"(guard.open), [to] "r"(to),
			 [from] "r"(from), [bytes] "r"(bytes)
			 : "rax", "memory", "cc");
	return closed != 0 ? -ECANCELED : 0;
}

static int store_bytes(struct guard guard, void *to, const void *from, size_t bytes)
{
	uint32_t closed = 0;

	if (bytes <= WORDS_BYTES && bytes % WORD_BYTES == 0 && bytes > 0)
		return store_words(guard, to, from, bytes);
	__asm__ volatile(SEQUENCE("rep movsb\n")
			 : [closed] "+r"(closed), "+D"(to), "+S"(from), "+c"(bytes)
			 : [cs] "r"(own_sequence()), [gate] "r"(guard.word), [open] "r"(guard.open)
			 : "rax", "memory", "cc");
	return closed != 0 ? -ECANCELED : 0;
}

static int guarded_write(struct guard guard, pid_t pid, const struct iovec *local, unsigned n,
	const struct iovec *remote, long *written_out)
{
	register const struct iovec *remote_in __asm__("r10") = remote;
	register long remotes __asm__("r8") = 1, flags __asm__("r9") = 0;
	uint32_t closed = 0;
	long result;

	__asm__ volatile(SEQUENCE("movl %[number], %%eax\nsyscall\n")
			 : [closed] "+r"(closed), "=&a"(result)
			 : [cs] "r"(own_sequence()), [gate] "r"(guard.word), [open] "r"(guard.open),
			 [number] "i"(SYS_process_vm_writev), "D"((long)pid), "S"(local), "d"((long)n), "r"(remote_in),
			 "r"(remotes), "r"(flags)
			 : "rcx", "r11", "memory", "cc");
	*written_out = result;
	return closed != 0 ? -ECANCELED : 0;
}

#else

bool guard_works(void)
{
	return false;
}

static int store_word(struct guard guard, uint64_t *to, uint64_t value)
{
	if (!is_open(guard))
		return -ECANCELED;
	atomic_store_explicit((_Atomic uint64_t *)(void *)to, value, memory_order_relaxed);
	return 0;
}

static int store_bytes(struct guard guard, void *to, const void *from, size_t bytes)
{
	if (!is_open(guard))
		return -ECANCELED;
	memcpy(to, from, bytes);
	return 0;
}

#endif

static int unguarded_write(struct guard guard, pid_t pid, const struct iovec *local, unsigned n,
	const struct iovec *remote, long *written_out)
{
	if (!is_open(guard))
		return -ECANCELED;
	*written_out = syscall(SYS_process_vm_writev, pid, local, (unsigned long)n, remote, 1ul, 0ul);
	if (*written_out < 0)
		*written_out = -errno;
	return 0;
}

static _Thread_local uint32_t own_thread;

static void forget_own_thread(void)
{
	own_thread = 0;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget_own_thread);
}

uint32_t guard_thread(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (own_thread == 0) {
		pthread_once(&once, watch_forks);
		own_thread = (uint32_t)syscall(SYS_gettid);
	}
	return own_thread;
}

/* ---- copying ---- */

int guard_store(struct guard guard, void *to, const void *from, size_t bytes)
{
	uint8_t *last = (uint8_t *)to + bytes - WORD_BYTES;
	uint64_t value;
	int rc = 0;

	if (bytes < WORD_BYTES || ((uintptr_t)last & (WORD_BYTES - 1)) != 0)
		return store_bytes(guard, to, from, bytes);
	memcpy(&value, (const uint8_t *)from + bytes - WORD_BYTES, WORD_BYTES);
	if (bytes > WORD_BYTES)
		rc = store_bytes(guard, to, from, bytes - WORD_BYTES);
	return rc != 0 ? rc : store_word(guard, (uint64_t *)(void *)last, value);
}

/* A copy that stops short met a page that is not there. */
static int outcome(long moved, size_t bytes)
{
	if (moved < 0)
		return moved == -EINVAL ? -EFAULT : (int)moved;
	return (size_t)moved == bytes ? 0 : -EFAULT;
}

int guard_write(struct guard guard, pid_t pid, const struct iovec *local, unsigned n, uint64_t remote, size_t bytes)
{
	struct iovec there = {.iov_base = (void *)(uintptr_t)remote, .iov_len = bytes};
	long written = 0;
	int rc;

#ifdef HAS_RSEQ
	if (guard_works())
		rc = guarded_write(guard, pid, local, n, &there, &written);
	else
#endif
		rc = unguarded_write(guard, pid, local, n, &there, &written);
	return rc != 0 ? rc : outcome(written, bytes);
}

int guard_read(pid_t pid, const struct iovec *local, unsigned n, uint64_t remote, size_t bytes)
{
	struct iovec there = {.iov_base = (void *)(uintptr_t)remote, .iov_len = bytes};
	long got = syscall(SYS_process_vm_readv, pid, local, (unsigned long)n, &there, 1ul, 0ul);

	return outcome(got < 0 ? -errno : got, bytes);
}

/* ---- enter and leave ---- */

/* What there is of the file; errno tells why nothing is. */
static bool read_text(const char *path, char text[PROC_TEXT_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;
	ssize_t got = fd < 0 ? -1 : read(fd, text, PROC_TEXT_BYTES - 1);

	error = got == 0 ? ESRCH : errno;
	if (fd >= 0)
		close(fd);
	text[got < 0 ? 0 : got] = 0;
	errno = error;
	return got > 0;
}

int guard_admit_peers(void)
{
	char text[PROC_TEXT_BYTES];
	long scope = read_text(YAMA_SCOPE, text) ? strtol(text, NULL, 10) : 0;

	if (scope < YAMA_ASKS)
		return 0;
	return scope == YAMA_ASKS && prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0 ? 0 : -EPERM;
}

/* The letter behind the name, which is in parentheses and may contain any. */
static char state_of(const char *stat)
{
	const char *end = strrchr(stat, ')');

	return end != NULL && end[1] == ' ' ? end[2] : 0;
}

/* In the kernel for good: it exits, which may take milliseconds while its memory is given back. */
static bool is_exiting(const char *stat)
{
	const char *end = strrchr(stat, ')');
	unsigned flags;

	return end != NULL && sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       (flags & FLAG_EXITING) != 0;
}

bool guard_is_out(pid_t pid, uint32_t thread)
{
	char path[PROC_PATH_BYTES], text[PROC_TEXT_BYTES], *end;
	char state;
	long call;

	snprintf(path, sizeof(path), "/proc/%d/task/%u/stat", (int)pid, thread);
	if (!read_text(path, text))
		return errno == ENOENT || errno == ESRCH;
	state = state_of(text);
	if (state == 'T' || state == 'Z' || state == 'X' || is_exiting(text))
		return true;
	/* "running", or the number of the system call that it waits in, -1 for none: a page fault, the freezer. */
	snprintf(path, sizeof(path), "/proc/%d/task/%u/syscall", (int)pid, thread);
	if (!read_text(path, text))
		return false;
	call = strtol(text, &end, 10);
	return end != text && call != SYS_process_vm_writev;
}
