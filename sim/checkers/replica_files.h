/* replica_files.h - whether replicas of a partition have the same log on their disks. Knows nothing of the broker: it
 * reads the files of Kafka's names and record batches byte by byte.
 *
 * Claims: offsets have no gaps (B2), epochs do not fall, and all replicas have the same batches in the same
 * segments. */
#ifndef HOLDFAST_SIM_CHECKERS_REPLICA_FILES_H
#define HOLDFAST_SIM_CHECKERS_REPLICA_FILES_H

#include "sim/host.h"

/* DIRECTORY/TOPIC-N at each of the processes. */
bool replica_files_equal(struct process *const *processes, unsigned count, const char *directory, const char *topic,
	unsigned partitions);

#endif
