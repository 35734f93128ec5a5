/* fault.h - access to memory that its owner may have taken away.
 *
 * A program registers memory with a device, and may unmap it, truncate its file or make it read-only before it
 * deregisters it. The device's own loads and stores raise SIGSEGV or SIGBUS then. Within fault_try they fail instead.
 *
 * The handlers of both signals belong to the process: fault_catch installs ours, and again when the program has
 * installed others since. A fault outside fault_try goes to the handler that was there before. */
#ifndef HOLDFAST_ENV_FAULT_H
#define HOLDFAST_ENV_FAULT_H

#include <stdbool.h>
#include <stddef.h>

/* Before the first fault_try, and at each registration of memory. Thread-safe. */
void fault_catch(void);

/* Calls access(context), which loads and stores and does nothing else: no locks, no allocation. False: it met memory
 * that is not there or may not be accessed so, and was left in the middle. About 10 ns; nests. */
bool fault_try(void (*access)(void *context), void *context);

/* Where the last fault_try of this thread that failed met it; NULL: unknown. */
const void *fault_place(void);

/* Whether all of the memory is mapped for reading, and for writing if `writes`. Reads /proc/self/maps. 0, -EFAULT,
 * -EACCES: it may not be written. */
int fault_check(const void *addr, size_t bytes, bool writes);

#endif
