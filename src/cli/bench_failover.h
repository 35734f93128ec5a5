/* bench_failover.h - what a failover costs, on the axes of Varuna's figures 11 and 12 and its table of memory.
 *
 * Clients keep lists of 64 wrs in flight on rail r0, which is cut at a random moment: both ways (the ports say so), or
 * silently for requests or for acknowledgements only. For each cut:
 *   sent again    wrs and bytes that the vqps posted once more
 *   not executed  of these, what had not taken effect: bytes sent again, less those that took effect a second time. The
 *                 latter are known from the devices' own counters of what they executed, not from the vqps
 *   first         from the cut to the first completion on the other rail
 *   recovered     from the cut until all has completed that was in flight when the failure was found (the first
 *                 vqp left its rail); and from then on, since a silent cut is found by timeouts that are the same
 *                 for every policy */
#ifndef HOLDFAST_CLI_BENCH_FAILOVER_H
#define HOLDFAST_CLI_BENCH_FAILOVER_H

#include <stdio.h>

#include "cli/bench_nodes.h"

#define FAILOVER_SERIES    120u /* steps: a sixth before the cut */
#define FAILOVER_BEFORE    20u
#define FAILOVER_TABLE_MAX 128u
#define FAILOVER_CUTS_MAX  99u

enum failover_cut { FAILOVER_BOTH, FAILOVER_REQUESTS, FAILOVER_ACKS, FAILOVER_CUT_KINDS };
extern const char *const failover_cut_names[FAILOVER_CUT_KINDS];

struct failover_shape {
	const char *name;
	enum bench_op op;
	uint32_t bytes;
};

struct failover_result {
	const char *kind; /* of the devices */
	const struct bench_mode *mode;
	const struct failover_shape *shape;
	enum failover_cut cut;
	unsigned cuts;
	double in_flight_bytes, resent_bytes, unexecuted_bytes, doubled_bytes; /* means of a cut */
	double executed_share;         /* of the bytes then in flight: post-failure requests */
	double first_us, first_p99_us; /* medians and p99 over the cuts */
	double recovered_us, from_detected_us;
	double step_us;
	double mb_per_s[FAILOVER_SERIES]; /* around the cut; mean of the cuts */
};

struct failover_options {
	const char *const *kinds; /* NULL terminated */
	const char *only_mode;    /* NULL: all that fail over */
	unsigned cuts, clients;
	FILE *log;
};

/* The caller's to free. -errno with words. */
int failover_run(const struct failover_options *options, struct failover_result **results_out, unsigned *n_out,
	struct hf_error *error);

/* Memory of both processes together with so many vqps connected, each having done one WRITE, in bytes; and the time
 * from a cut both ways until the first and until every vqp has completed another (0: the policy does not recover). */
struct failover_scale {
	const char *kind;
	const struct bench_mode *mode;
	unsigned vqps;
	double memory_bytes, first_us, all_us;
};
int failover_scale(const char *kind, const struct bench_mode *mode, unsigned vqps, struct failover_scale *scale_out,
	struct hf_error *error);

#endif
