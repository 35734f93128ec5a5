/* memory_snapshot.h - a snapshot that is made completely when it is opened, and read in pieces.
 *
 * For applications of a replicated log whose state is small: `read` and `close` are functions of struct hf_smr_app. */
#ifndef HOLDFAST_SMR_MEMORY_SNAPSHOT_H
#define HOLDFAST_SMR_MEMORY_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct smr_memory_snapshot {
	size_t bytes, read;
	uint8_t data[]; /* that snapshot_open fills */
};

struct smr_memory_snapshot *smr_memory_snapshot_new(size_t bytes); /* NULL: no memory */
ssize_t smr_memory_snapshot_read(void *context, void *snapshot, void *data, size_t bytes);
void smr_memory_snapshot_close(void *context, void *snapshot);

#endif
