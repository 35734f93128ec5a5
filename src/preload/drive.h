/* drive.h - one loop for all threads of a program, and the thread that turns it.
 *
 * The nodes behind a program's devices belong to one loop, and a program may call from any thread. So one lock guards
 * loop, nodes and objects. A thread that polls drives the loop while it has the lock (it is borrowed); the library's
 * own thread drives it when no thread has polled for 100 us, and at once when a thread of the program waits for events.
 * While the program polls, the library's thread naps; without work it sleeps until the devices have events.
 * So the peer's recovery gets its replies even while the program computes (docs/protocol.md, R2).
 *
 * The lock is held for the length of a call, never during a sleep, and a thread that has it is not cancelled. */
#ifndef HOLDFAST_PRELOAD_DRIVE_H
#define HOLDFAST_PRELOAD_DRIVE_H

#include <holdfast/loop.h>

/* Makes the loop and starts the thread, for the first user; the last one ends both. Without the lock; opening and
 * closing are serialized by the caller. */
int drive_open(void);
void drive_close(void);
struct hf_loop *drive_loop(void);

void drive_lock(void);
void drive_unlock(void);
/* False: another thread of the program is at it, and others have had a chance to run. */
bool drive_try_lock(void);

/* With the lock held. */
void drive_turn(void);  /* by a thread that polls */
void drive_again(void); /* a call has left work for the loop */

/* Around a wait for events, without the lock. A thread may be cancelled in it: the end is its clean-up. */
void drive_wait_begin(void);
void drive_wait_end(void *nothing);

#endif
