/* cursor.h - a walk over the local scatter/gather list of a wr, copying as it goes. */
#ifndef HOLDFAST_DEV_SHM_CURSOR_H
#define HOLDFAST_DEV_SHM_CURSOR_H

#include <infiniband/verbs.h>

#include <stdatomic.h>
#include <string.h>

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

#define WORD_BYTES 8u

/* A word is stored as a word: whoever polls it never sees half of it. What ends with a word has that stored last and
 * once: memcpy may store bytes twice, and who saw the last of them may have changed the others by then. */
static inline void copy(void *to, const void *from, size_t bytes)
{
	uint8_t *end = (uint8_t *)to + bytes;
	uint64_t last;

	if (bytes < WORD_BYTES || ((uintptr_t)end & (WORD_BYTES - 1)) != 0) {
		memcpy(to, from, bytes);
		return;
	}
	bytes -= WORD_BYTES;
	memcpy(&last, (const uint8_t *)from + bytes, WORD_BYTES);
	if (bytes > 0)
		memcpy(to, from, bytes);
	atomic_store_explicit((_Atomic uint64_t *)((uint8_t *)to + bytes), last, memory_order_release);
}

/* `gather`: from the sges to `remote`; otherwise the other way. */
static inline void copy_sges(struct cursor *cursor, uint8_t *remote, size_t bytes, bool gather)
{
	while (bytes > 0) {
		size_t part;
		uint8_t *local = cursor_at(cursor, bytes, &part);

		if (gather)
			copy(remote, local, part);
		else
			copy(local, remote, part);
		remote += part;
		bytes -= part;
		cursor_pass(cursor, part);
	}
}

#endif
