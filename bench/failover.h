/* failover.h - the cost of a failover, on the axes of Varuna's figures 11 and 12 and its table of memory.
 *
 * Clients keep lists of 64 wrs in flight on rail r0, which is cut at a random moment: both ways (with port events), or
 * silently for requests or for acknowledgements only (cut.h). The policies are open at once and take turns, a cut
 * each (fleet.h). For each cut:
 *   post-failure  wrs in flight at the detection of the failure that had executed
 *   sent again    bytes that the vqps posted once more
 *   not executed  the part of them that had not taken effect: bytes sent again, less those that took effect a second
 *                 time. The latter come from the devices' counters of executed bytes, not from the vqps
 *   detection     from the cut until the first vqp leaves its rail: timeouts, the same for every policy
 *   recovery      from the turn of the loop in which a vqp leaves its rail until its post-failure requests have
 *                 completed, and until all its wrs in flight have; of the vqp that takes longest
 *
 * With the policy `none` wrs fail without evidence, so these values are not defined. The program makes new vqps
 * and continues, and the throughput over time shows how soon. In a silent cut the new vqps have no event of the
 * failure, so they connect to the same rail, and fail too.
 *
 * So a recovery includes: the fence, the exchange with the other side, the setup of a path on the other rail, the bytes
 * sent again before the last post-failure request in the order of the list, and the work of other vqps meanwhile on the
 * same core and rail. It excludes the timeouts. The paper does not define the start of its recovery time (section 5.3);
 * it injects a port that goes down, with an event at once, so its figures contain hardly any detection either.
 *
 * On soft a list of long WRITEs is longer than a qp's window, so most of it has neither been sent nor executed when
 * acknowledgements stop. Every policy sends that part for the first time then, but it counts as sent again, since it
 * was posted. */
#ifndef HOLDFAST_BENCH_FAILOVER_H
#define HOLDFAST_BENCH_FAILOVER_H

#include <stdio.h>

#include "bench/nodes.h"
#include "bench/paired.h"

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

/* Of a policy in one experiment: means (bytes) and medians (times) over the cuts. */
struct failover_result {
	const char *kind; /* of the devices */
	const struct bench_mode *mode;
	const struct failover_shape *shape;
	enum failover_cut cut;
	unsigned cuts, vqps;
	unsigned resumed; /* cuts during which there were completions on another rail */
	double in_flight_bytes, post_failure_bytes, resent_bytes, unexecuted_bytes, doubled_bytes;
	double doubled_most;                         /* of a cut */
	double detection_us, first_us, first_p99_us; /* from the cut; first: until a completion on another rail */
	double post_us, all_us;                      /* from detection; post_us: 0 when nothing was post-failure */
	/* Beside `resend`, cut by cut; n is 0 for resend itself and where there is nothing to compare. */
	struct paired post_ratio, all_ratio;
	double resent_ratio; /* 0: unknown */
	double step_us;
	double mb_per_s[FAILOVER_SERIES]; /* around the cut; mean of the cuts */
};
/* Whether the mode can be cut: after that its program can go on. */
bool failover_measures(const struct bench_mode *mode);
/* Whether its vqps do so by themselves. Else a result has mb_per_s, first_us and what it is of, and nothing more. */
bool failover_recovers(const struct bench_mode *mode);

/* What the policy `varuna` has to keep to. */
#define FAILOVER_RATIO_MOST  0.35  /* recovery of post-failure requests beside resend's, acknowledgements cut */
#define FAILOVER_PAPER_RATIO 0.254 /* bytes sent again beside resend's, 64 KB; section 5.3 */
bool failover_has_recovery_bar(const struct failover_result *result);
/* Sent again at most what was not executed and one packet a vqp, in every cut. */
bool failover_within_a_packet(const struct failover_result *result);

/* Experiments have names such as "CAS cut acknowledgements"; whether any has this in it. */
bool failover_wants_any(const char *only);

struct failover_options {
	const char *const *kinds; /* NULL terminated */
	const char *only_mode;    /* NULL: all that can be cut */
	const char *only;         /* NULL: all; a part of the names */
	unsigned cuts, clients;
	FILE *log;
};

/* The caller's to free. -errno with words. */
int failover_run(const struct failover_options *options, struct failover_result **results_out, unsigned *n_out,
	struct hf_error *error);

/* Many vqps at once. Memory is what both processes have of their own and their shares of what they share (PSS), after
 * malloc has given back what it kept for later: with the nodes, their devices and regions but no vqp yet; with all vqps
 * connected; and when each has used every place of its queues. A policy's standby qps and logs are in there with all
 * that they need of a device, so a difference between two modes is what it costs: varuna-psn has standby qps and no
 * completion log. Pages of the devices' shared segments count once they were touched.
 *
 * Times are until all vqps are up, and, of the cuts, from a cut both ways until the first and until every vqp has
 * completed another wr (0 cuts: the mode is not cut). The far side sleeps when its rail is cut, as servers do that have
 * nothing to do; the near one polls. */
struct failover_scale {
	const char *kind;
	const struct bench_mode *mode;
	unsigned vqps;
	double nodes_bytes, connected_bytes, memory_bytes;
	double request_log_bytes, completion_log_bytes; /* of a vqp, all of them, as they are laid out */
	double connect_us;
	unsigned cuts;
	struct paired first;          /* us */
	double first_p99_us, cold_us; /* cold: of the first cut alone, when nothing of it was ever done before */
	double all_us;
};
/* What the policy `varuna` has to keep to, in the median; NULL: there is no such bar. */
struct scale_bar {
	const char *kind;
	unsigned vqps;
	double most_us;
};
const struct scale_bar *failover_scale_bar(const struct failover_scale *scale);
int failover_scale(const char *kind, const struct bench_mode *mode, unsigned vqps, struct failover_scale *scale_out,
	struct hf_error *error);

#endif
