/* cut.h - one cut under load: the wrs in flight, those that had executed, and their recovery times.
 *
 * Clients keep lists of 64 wrs in flight. Every list writes a number of its own, at the end of each WRITE or as the
 * swap value of each CAS, so the far side's memory shows the progress of the responder in each list when the
 * failure was detected: executed wrs without a completion are the post-failure requests.
 *
 *   cut --- detection ---> the vqp leaves its rail --- recovery ---> post-failure requests complete ... all complete
 *
 * Detection is the same for all policies (retransmission timeouts, when a cut is silent: those of some vqps expire
 * milliseconds after others'), so it is measured separately, vqp by vqp. The recovery of a cut is the longest of its
 * vqps: they share the other rail, so that vqp has waited for the others as well. It begins with the turn of the loop
 * in which the vqp left its rail: the policies' turns differ in length, and may contain a part of the recovery. */
#ifndef HOLDFAST_BENCH_CUT_H
#define HOLDFAST_BENCH_CUT_H

#include "bench/failover.h"
#include "bench/fleet.h"

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
