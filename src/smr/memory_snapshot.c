#include "smr/memory_snapshot.h"

#include <stdlib.h>
#include <string.h>

struct smr_memory_snapshot *smr_memory_snapshot_new(size_t bytes)
{
	struct smr_memory_snapshot *snapshot = malloc(sizeof(*snapshot) + bytes);

	if (snapshot != NULL)
		*snapshot = (struct smr_memory_snapshot){.bytes = bytes};
	return snapshot;
}

ssize_t smr_memory_snapshot_read(void *context, void *snapshot, void *data, size_t bytes)
{
	struct smr_memory_snapshot *from = snapshot;
	size_t left = from->bytes - from->read;

	(void)context;
	if (bytes > left)
		bytes = left;
	memcpy(data, from->data + from->read, bytes);
	from->read += bytes;
	return (ssize_t)bytes;
}

void smr_memory_snapshot_close(void *context, void *snapshot)
{
	(void)context;
	free(snapshot);
}
