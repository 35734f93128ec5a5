/* cursor.h - a walk over the local scatter/gather list of a wr, copying as it goes. */
#ifndef HOLDFAST_DEV_SHM_CURSOR_H
#define HOLDFAST_DEV_SHM_CURSOR_H

#include <infiniband/verbs.h>

#include "base/copy.h"

struct cursor {
	const struct ibv_sge *sge;
	uint32_t offset; /* in *sge; its length, when the list ends there */
};

static inline void cursor_skip(struct cursor *cursor, uint32_t bytes)
{
	while (bytes > 0 && bytes >= cursor->sge->length) {
		bytes -= cursor->sge->length;
		cursor->sge++;
	}
	cursor->offset = bytes;
}

/* The local address of the next bytes, of which there are *part_out, at most `bytes`. */
static inline uint8_t *cursor_at(const struct cursor *cursor, size_t bytes, size_t *part_out)
{
	size_t part = cursor->sge->length - cursor->offset;

	*part_out = part < bytes ? part : bytes;
	return (uint8_t *)(uintptr_t)cursor->sge->addr + cursor->offset;
}

static inline void cursor_pass(struct cursor *cursor, size_t part)
{
	cursor->offset += (uint32_t)part;
	if (cursor->offset == cursor->sge->length) {
		cursor->sge++;
		cursor->offset = 0;
	}
}

/* `gather`: from the sges to `remote`; otherwise the other way. */
static inline void copy_sges(struct cursor *cursor, uint8_t *remote, size_t bytes, bool gather)
{
	while (bytes > 0) {
		size_t part;
		uint8_t *local = cursor_at(cursor, bytes, &part);

		if (gather)
			copy_shown(remote, local, part);
		else
			copy_shown(local, remote, part);
		remote += part;
		bytes -= part;
		cursor_pass(cursor, part);
	}
}

#endif
