/* guard.h - copies into a peer's memory that a stopped process does not resume.
 *
 * A process can be stopped anywhere, also between the check of its permission to copy and the copy. A guarded copy
 * makes both one restartable sequence (rseq(2)): a thread that was stopped or preempted in it restarts with the check.
 *
 *   GUARD-1  After the gate was closed, a thread that is not running now stores nothing more through a guarded copy,
 *            unless it is inside the system call that copies.
 *   GUARD-2  A stop (SIGSTOP) takes hold in user mode only: a stopped thread is not inside that call.
 *
 * So the owner closes the gate and waits until guard_is_out returns true; no copy follows then. This needs x86-64,
 * Linux 4.18 and a C library that registers rseq (glibc 2.35); elsewhere guard_works is false and the same calls copy
 * without the promise. */
#ifndef HOLDFAST_ENV_GUARD_H
#define HOLDFAST_ENV_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Open while *word == open. */
struct guard {
	const _Atomic uint64_t *word;
	uint64_t open;
};

/* For the calling thread. */
bool guard_works(void);
/* The calling thread, by the number that other processes know it by. */
uint32_t guard_thread(void);

/* Stores to memory that is mapped here; a last word that is aligned is stored last, as a word and once. 0; -ECANCELED:
 * the gate is closed, and a part may have been stored. */
int guard_store(struct guard guard, void *to, const void *from, size_t bytes);
/* Copies the local pieces, `bytes` in all, to the memory of process `pid` at `remote`, whatever memory it is. As above;
 * -EFAULT: it is not mapped, or not writable, there; -EPERM: that process may not be reached (guard_admit_peers);
 * -ESRCH: it is gone. */
int guard_write(struct guard guard, pid_t pid, const struct iovec *local, unsigned n, uint64_t remote, size_t bytes);
/* The other direction, which needs no guard. */
int guard_read(pid_t pid, const struct iovec *local, unsigned n, uint64_t remote, size_t bytes);

/* Permits other processes of our user to access this one's memory where Yama requires it (ptrace_scope 1: prctl
 * PR_SET_PTRACER_ANY, for the rest of the process's life). -EPERM: Yama forbids it (ptrace_scope 2 and 3). */
int guard_admit_peers(void);

/* True when that thread of a peer stores nothing more: behind a closed gate, and for threads with guard_works. Reads
 * /proc: some 20 us. */
bool guard_is_out(pid_t pid, uint32_t thread);

#endif
