/* tally.h - a count that a program outside of our loops waits for: a descriptor that is readable while it is not zero.
 *
 * The program gets the descriptor, and may use it in its own poll(2) and make it non-blocking. Any thread may add and
 * take counts. */
#ifndef HOLDFAST_ENV_TALLY_H
#define HOLDFAST_ENV_TALLY_H

#include <stdbool.h>

int tally_open(int *fd_out);
void tally_close(int fd);
void tally_add(int fd);
/* Takes one, after waiting for it unless the program made the descriptor non-blocking: -EAGAIN then; -EINTR. */
int tally_take(int fd);
/* Takes one without ever waiting. False: a waiting reader was faster, or the kernel does not support it (before 5.8):
 * the count stays. */
bool tally_drop(int fd);

#endif
