/* rebuild.h - a dedicated qp made in the background, for a vqp that is on a standby qp, or to go to a better rail.
 *
 *   waiting --admitted--> offered --both ends have it--> probing --a wr of ours completed--> swapping
 *
 * The number in progress is bounded, so that thousands of rebuilds do not delay traffic; none begins
 * just after another vqp began to fail over; and a vqp whose paths fail repeatedly waits longer each time. The
 * probe detects a rail that only appears to be up, so that traffic does not flap. The swap is the
 * exchange of recovery.h, which drains traffic first (R1). */
#ifndef HOLDFAST_VQP_PATH_REBUILD_H
#define HOLDFAST_VQP_PATH_REBUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct hf_node;
struct hf_vqp;

enum rebuild_state {
	REBUILD_NONE,
	REBUILD_WAITING,  /* for its turn */
	REBUILD_OFFERED,  /* for the other end's qp */
	REBUILD_PROBING,  /* for the completion of a wr on it */
	REBUILD_SWAPPING, /* for the end of the exchange */
};

struct rebuild {
	struct list link;
	enum rebuild_state state;
	unsigned rail;
	uint64_t at_ns; /* waiting: not before; else: given up then */
	uint64_t backoff_ns, failed_ns;
	/* Where in the log a message waits for a dedicated qp (R7), and since when; 0: none does. */
	uint64_t message, message_ns;
	bool answered, came_through; /* the probe's completion is here; it is a success */
};

/* Of a node. */
struct rebuilds {
	struct list waiting, running;
	unsigned running_count;
};

void rebuild_init(struct hf_vqp *vqp);
void rebuild_want(struct hf_vqp *vqp, unsigned rail, uint64_t now_ns);
void rebuild_want_dedicated(struct hf_vqp *vqp, uint64_t now_ns); /* on the rail in use, unless it is paused */
/* At each tick. True: a message has waited for a dedicated qp for the budget. */
bool rebuild_despairs(struct hf_vqp *vqp, uint64_t now_ns);
/* Goes on with what the marks are about (marks.h): both ends have the qp, or the probe is over. True: the swap can
 * begin. */
bool rebuild_drain(struct hf_vqp *vqp);
void rebuild_end(struct hf_vqp *vqp, bool path_failed, uint64_t now_ns); /* swapped, or no longer of use */
bool rebuild_turn(struct hf_node *node, uint64_t now_ns);
void rebuild_tick(struct hf_node *node, uint64_t now_ns);

#endif
