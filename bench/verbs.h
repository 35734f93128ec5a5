/* verbs.h - the cost of a vqp while nothing fails, on the axes of Varuna's figures 8 to 10.
 *
 *   figure 8    WRITE of 8 B to 1 MB, one at a time and in batches of 64, 16 clients
 *   figure 9    one at a time: WRITE of 4 KB, CAS of 8 B; 1 to 16 clients
 *   figure 10   in batches of 64: WRITE of 4 KB, one CAS with three READs; 1 to 16 clients
 *
 * Clients are vqps of one process, each a closed loop; the server is another process. All modes are open at once and
 * take turns of some milliseconds (slices.h); a mode is compared with `none` round by round (paired.h).
 * Every point is measured in some rounds, each in new processes, and points whose bars (bars.h) are undecided
 * in further rounds, while there is time.
 *
 * Batches of 256 KB and more have 4 clients: with 16, a gigabyte would be in flight. */
#ifndef HOLDFAST_BENCH_VERBS_H
#define HOLDFAST_BENCH_VERBS_H

#include <stdio.h>

#include "bench/nodes.h"
#include "bench/paired.h"

#define VERBS_ROUNDS_MAX  99u
#define VERBS_POINTS_MAX  64u
#define VERBS_CLIENTS     16u
#define VERBS_SECONDS_MAX 3600u

struct verbs_point {
	unsigned figure; /* of the paper */
	enum bench_op op;
	bool batch;
	uint32_t bytes;
	unsigned clients;
};
/* Returns how many there are. */
unsigned verbs_points(const struct verbs_point **points_out);

/* Of a point in a mode. */
struct verbs_result {
	double median_ns, p99_ns; /* from post to completion: of a wr, or of a whole batch */
	double mb_per_s, ops_per_s;
	/* Beside the first mode: the time an operation takes as a ratio, which is that of the latencies and the inverse
	 * of the bandwidths' in a closed loop; the same in ns an operation; the ratio of the time that cores were used,
	 * both processes together. n is 0 for the first mode, and where nothing was measured. */
	struct paired time, cost_ns, cpu;
};

struct verbs_options {
	const char *const *kinds; /* NULL terminated */
	const char *only_mode;    /* NULL: all */
	unsigned rounds, only_figure;
	unsigned seconds;  /* of each kind: while they last, undecided points are measured again */
	unsigned handicap; /* per cent more work, which is not counted, in every mode but the first */
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
