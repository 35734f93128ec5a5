/* sge.h - walks a scatter/gather list from an offset, piece by contiguous piece. */
#ifndef HOLDFAST_DEV_SOFT_SGE_H
#define HOLDFAST_DEV_SOFT_SGE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct sge_walk {
	const struct ibv_sge *next;
	uint32_t left;   /* sges from `next` on */
	uint64_t offset; /* into them, in bytes: where the next piece begins */
};

/* The next piece, of at most `bytes`; false at the end of the list. */
static inline bool sge_walk_next(struct sge_walk *walk, uint32_t bytes, struct ibv_sge *piece_out)
{
	for (; walk->left > 0; walk->next++, walk->left--) {
		if (walk->offset >= walk->next->length) {
			walk->offset -= walk->next->length;
			continue;
		}
		*piece_out = *walk->next;
		piece_out->addr += walk->offset;
		piece_out->length -= (uint32_t)walk->offset;
		if (piece_out->length > bytes)
			piece_out->length = bytes;
		walk->offset += piece_out->length;
		return true;
	}
	return false;
}

#endif
