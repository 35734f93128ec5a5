/* probe.h - memory for READs that probe a rail (R-T14) or confirm a WRITE: peers read one half, our READs go into the
 * other. */
#ifndef HOLDFAST_TRANSFER_PROBE_H
#define HOLDFAST_TRANSFER_PROBE_H

#include <holdfast/vqp.h>

#include "transfer/wire.h"

struct probe_memory {
	struct hf_env *env;
	uint8_t *memory;
	uint32_t bytes; /* of one half */
	struct hf_vmr *mr;
};

/* Halves of this many bytes, at most PROBE_BYTES_MAX. */
int probe_open(
	struct probe_memory *probe, struct hf_env *env, struct hf_vpd *pd, uint64_t bytes, struct hf_error *error);
void probe_close(struct probe_memory *probe); /* legal on zeroed memory */

struct wire_probe probe_describe(const struct probe_memory *probe);
/* The destination of a READ of this many bytes, or of fewer if the half is smaller. */
struct ibv_sge probe_sge(const struct probe_memory *probe, uint32_t bytes);

#endif
