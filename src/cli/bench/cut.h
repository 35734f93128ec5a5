/* cut.h - one cut under load: what was in flight, what of it had executed, and when what was back.
 *
 * Clients keep lists of 64 wrs in flight. Every list writes a number of its own, at the end of each WRITE or as what
 * each CAS swaps in, so a look at the far side's memory tells how far the responder had come in each list when the
 * failure was found: these are the post-failure requests, as long as their completions have not come.
 *
 *   cut --- detection ---> the vqp leaves its rail --- recovery ---> post-failure requests complete ... all complete
 *
 * Detection is the same for all policies (retransmission timeouts, when a cut is silent: those of some vqps expire
 * milliseconds after others'), so it is kept apart, vqp by vqp. The recovery of a cut is that of the vqp whose took
 * longest: they share the other rail, so it has waited for the others' as well. It begins with the turn of the loop in
 * which the vqp left its rail: turns of one policy are longer than another's, and part of the recovery may be in that
 * one. */
#ifndef HOLDFAST_CLI_BENCH_CUT_H
#define HOLDFAST_CLI_BENCH_CUT_H

#include "cli/bench/failover.h"
#include "cli/bench/fleet.h"

struct cut_sample {
	double in_flight, post_failure; /* bytes when the failure was found */
	double resent, doubled;         /* bytes sent again, and executed twice */
	double detection_us;            /* from the cut */
	double first_us;                /* from the cut to the first completion on another rail */
	/* Of the vqp that took longest, from when it had found the failure until they completed; post_us is 0 when no
	 * signaled one was among them. */
	double post_us, all_us;
};

struct cuts;
/* For clients as in the fleet's setup; the fleet runs. */
int cuts_open(
	struct bench_fleet *fleet, const struct failover_shape *shape, enum failover_cut kind, struct cuts **cuts_out);
void cuts_close(struct cuts *cuts);
/* Loads that mode's vqps, cuts their rail, waits until they are back, mends it. The bytes that completed in each step
 * around the cut are added to series[FAILOVER_SERIES]. With the policy `none` the vqps fail; as a program would, each
 * client makes a new one when the first wr has failed, and begins with a new list. The sample is zeros then. */
int cuts_one(struct cuts *cuts, unsigned mode, double *series, struct cut_sample *sample_out);

uint64_t cut_step_ns(enum failover_cut kind);

#endif
