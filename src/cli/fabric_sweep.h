/* fabric_sweep.h - removes what runs of ours that were killed have left below /dev/shm: fabrics whose name is the
 * prefix and the number of a process that is gone. */
#ifndef HOLDFAST_CLI_FABRIC_SWEEP_H
#define HOLDFAST_CLI_FABRIC_SWEEP_H

void fabric_sweep(const char *prefix);

#endif
