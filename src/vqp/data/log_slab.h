/* log_slab.h - memory for the completion logs that peers write: rings are cut from slabs, which are registered once on
 * every rail for all vqps of a protection domain.
 *
 * A slab is registered for remote write only (R17: no relaxed ordering), and lives as long as its domain:
 * a ring may be written until its vqp's last qp was fenced, and is given to no other vqp before. */
#ifndef HOLDFAST_VQP_DATA_LOG_SLAB_H
#define HOLDFAST_VQP_DATA_LOG_SLAB_H

#include <holdfast/dev.h>
#include <holdfast/node.h>

#include "base/list.h"

struct hf_vpd;

struct log_slab {
	struct list pd_link;
	uint8_t *memory;
	struct hf_mr *mrs[HF_RAILS_MAX];
	uint32_t ring_entries, rings;
	uint32_t taken, resting;
	uint64_t *free_ns; /* by ring: 0, or the end of its rest; UINT64_MAX: a vqp has it, or it rests for ever */
};

/* A ring of a slab, zeroed. */
struct log_ring {
	struct log_slab *slab; /* NULL: none */
	uint64_t *entries;
};

int log_slab_take(struct hf_vpd *pd, uint32_t entries, struct log_ring *ring_out);
/* The peer may still write to it until then; 0: it may not. An empty one is legal. */
void log_slab_give(struct log_ring *ring, uint64_t until_ns);
uint32_t log_slab_bytes(const struct log_ring *ring);
void log_slabs_free(struct hf_vpd *pd);

#endif
