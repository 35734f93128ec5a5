/* scratch.h - a temporary directory that is removed even if its program is killed.
 *
 *   DIRECTORY/holdfast-tmp-UID-PID-XXXXXX/    mode 0700
 *       lock                                   held (flock) by its owner as long as it lives
 *
 * The next run removes directories whose lock is free. */
#ifndef HOLDFAST_CLI_SCRATCH_H
#define HOLDFAST_CLI_SCRATCH_H

#include <holdfast/error.h>

#include <stdbool.h>
#include <stdint.h>

#define SCRATCH_PATH_BYTES 512

struct scratch {
	char path[SCRATCH_PATH_BYTES];
	int lock_fd;
};

/* Makes a directory, after removing those of dead owners; in $TMPDIR, otherwise in /dev/shm when that has room for
 * memory_bytes (0: not there), otherwise in /tmp. -errno with words. */
int scratch_create(struct scratch *scratch, uint64_t memory_bytes, struct hf_error *error);
void scratch_remove(struct scratch *scratch); /* with what is in it; harmless when it was not created or is gone */
/* Removes a directory of that form and what is in it; for a process that outlived the owner. */
void scratch_remove_path(const char *path);
/* Removes those of dead owners; returns how many. */
unsigned scratch_clean(void);

/* What the file system can still take. */
uint64_t scratch_room_bytes(const struct scratch *scratch);

#endif
