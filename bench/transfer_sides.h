/* transfer_sides.h - two transfer engines in a process each: the near one submits, the far one turns its loop. */
#ifndef HOLDFAST_BENCH_TRANSFER_SIDES_H
#define HOLDFAST_BENCH_TRANSFER_SIDES_H

#include <holdfast/transfer.h>

#include "bench/bed.h"

struct transfer_setup {
	const char *kind; /* of the rails; "tcp": none */
	unsigned rails;
	uint64_t bytes; /* that the far side registers; the near side has twice as many */
};

struct transfer_side {
	const struct transfer_setup *setup;
	struct bed bed;
	struct hf_node *node;
	struct hf_transfer *transfer;
	struct hf_peer *peer;
	struct hf_segment *segment;
	uint8_t *memory;
	uint64_t target; /* where the far side's memory begins, there */
};

/* Both sides call it with the same setup; when it returns 0 at the near one, it can submit. -errno with words in
 * side->bed.error. */
int transfer_sides_open(
	struct transfer_side *side, const struct transfer_setup *setup, struct bench_meeting *meeting, bool near);
void transfer_sides_close(struct transfer_side *side); /* also what was not opened */

/* ---- measuring, the near side's ---- */

enum transfer_mix { TRANSFER_READS, TRANSFER_WRITES, TRANSFER_MIX };

struct transfer_point {
	enum transfer_mix mix;
	uint64_t block;
	unsigned batch, submitters; /* requests of a batch; batches in flight */
};
struct transfer_figures {
	double mb_s, median_us, p99_us; /* of a batch, from submit to its end */
	unsigned batches;
};
/* For this time at least, and three batches. block * batch * submitters fit into setup->bytes. */
int transfer_sides_measure(struct transfer_side *side, const struct transfer_point *point, uint64_t duration_ns,
	struct transfer_figures *figures_out);
/* WRITEs a pattern with that point's requests and READs it back. 0; -EBADMSG: other bytes came back. */
int transfer_sides_check(struct transfer_side *side, const struct transfer_point *point, uint64_t seed);

#endif
