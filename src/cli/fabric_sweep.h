/* fabric_sweep.h - removes files of killed runs below /dev/shm: fabrics whose name is the
 * prefix and the number of a process that is gone. */
#ifndef HOLDFAST_CLI_FABRIC_SWEEP_H
#define HOLDFAST_CLI_FABRIC_SWEEP_H

void fabric_sweep(const char *prefix);

#endif
