/* bench_verbs.h - what a vqp costs while nothing fails, on the axes of Varuna's figures 8 to 10.
 *
 *   figure 8    WRITE of 16 B to 1 MB, one at a time and in batches of 64, 16 clients
 *   figure 9    one at a time: WRITE of 4 KB, CAS of 8 B; 1 to 16 clients
 *   figure 10   in batches of 64: WRITE of 4 KB, one CAS with three READs; 1 to 16 clients
 *
 * Clients are vqps of one process, each a closed loop; the server is another process. In a round every mode measures
 * all points, so that ratios compare what was measured within a few seconds. */
#ifndef HOLDFAST_CLI_BENCH_VERBS_H
#define HOLDFAST_CLI_BENCH_VERBS_H

#include <stdio.h>

#include "cli/bench_nodes.h"

#define VERBS_ROUNDS_MAX 31u
#define VERBS_POINTS_MAX 64u

struct verbs_point {
	unsigned figure; /* of the paper */
	enum bench_op op;
	bool batch;
	uint32_t bytes;
	unsigned clients;
};
/* Returns how many there are. */
unsigned verbs_points(const struct verbs_point **points_out);

/* Of a point in a mode: medians of the rounds. */
struct verbs_result {
	double median_ns, p99_ns; /* from post to completion: of a wr, or of a whole batch */
	double mb_per_s, ops_per_s;
	double latency_ratio, bandwidth_ratio; /* to the first mode in the same round; 0: that one was not measured */
};

struct verbs_options {
	const char *const *kinds; /* NULL terminated */
	const char *only_mode;    /* NULL: all */
	unsigned rounds, only_figure;
	FILE *log;
};

struct verbs_table {
	const char *kind;
	const struct bench_mode *mode;
	struct verbs_result results[VERBS_POINTS_MAX];
};
/* One table for each kind and mode, in that order; the caller's to free. -errno with words. */
int verbs_run(
	const struct verbs_options *options, struct verbs_table **tables_out, unsigned *n_out, struct hf_error *error);

const char *verbs_op_name(const struct verbs_point *point);

#endif
