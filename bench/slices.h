/* slices.h - modes taking turns at one point, in slices of some milliseconds.
 *
 * A slice is a number of lists, each posted when its client's one before has completed; its time is exact, from a
 * completion after the first eighth (or from the first post when there are few) to the last completion. A block is
 * every mode once in a random order and then once in the reverse order, so that a steady drift is the same for all
 * modes. The better one of a mode's two slices, with that of the first mode, is one pair. Each round counts as one
 * value, the median of its pairs: properties of its processes, such as the pages of their buffers, affect all its
 * pairs, and are no properties of the mode. */
#ifndef HOLDFAST_BENCH_SLICES_H
#define HOLDFAST_BENCH_SLICES_H

#include "base/histogram.h"
#include "bench/fleet.h"
#include "bench/verbs.h"

#define SLICES_ROUNDS_MAX 1024u

/* Of one mode at one point. */
struct slices {
	unsigned n; /* rounds */
	double per_op_ns[SLICES_ROUNDS_MAX], ratio[SLICES_ROUNDS_MAX], cost_ns[SLICES_ROUNDS_MAX];
	double cpu[SLICES_ROUNDS_MAX];
	struct histogram latency; /* of lists */
};

/* Adds a round, of blocks for about so long, two at least. due: bit per mode of the fleet, the first always; into: by
 * mode. */
int slices_measure(struct bench_fleet *fleet, const struct verbs_point *point, uint32_t due, uint64_t for_ns,
	unsigned handicap, struct slices **into);

#endif
