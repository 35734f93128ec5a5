/* smr_gaps.h - how long members wait that could go on: a majority of them runs, nothing is wrong with rails and disks,
 * and yet nothing is decided, although nobody leads or the leader has proposals in flight. */
#ifndef HOLDFAST_SIM_SMR_SMR_GAPS_H
#define HOLDFAST_SIM_SMR_SMR_GAPS_H

#include "sim/smr/smr_hits.h"

struct smr_gaps {
	struct world_event event;
	struct smr_sim *sim;
	const struct smr_hits *hits;
	uint64_t since_ns, longest_ns, limit_ns;
	uint32_t decided;
};

/* From now on; a violation when it is longer than the limit. */
void smr_gaps_watch(struct smr_gaps *gaps, struct smr_sim *sim, const struct smr_hits *hits, uint64_t limit_ns);
void smr_gaps_end(struct smr_gaps *gaps);

#endif
