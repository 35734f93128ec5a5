/* rc.h - plain RC queue pairs between two processes: the device contract under faults.
 *
 * Each rail has its device on both sides and a number of lanes, a lane being a qp on either side. Both ends post
 * work of all kinds. When an end fails, or a lane has lived its time, both ends are fenced, what the devices then say
 * is compared with the truth, and the lane is connected afresh.
 *
 * Elsewhere: a process of it (rc_side.c), lanes and the verdict (scenario_rc.c). */
#ifndef HOLDFAST_SIM_RC_H
#define HOLDFAST_SIM_RC_H

#include "sim/checkers/execution.h"
#include "sim/checkers/linear.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#define RC_SIDES      2u
#define RC_RAILS      2u
#define RC_LANES      3u /* of a rail */
#define RC_SLOTS      16u
#define RC_SLOT_BYTES 2048u
#define RC_WINDOW     (RC_SLOTS * RC_SLOT_BYTES)
#define RC_WORDS      4u
#define RC_DEPTH      8u /* wrs in flight */

struct rc;
struct rc_lane;
struct rc_side;

/* Atomic words of one device in one incarnation, with what clients saw of them. Kept to the end of the run. */
struct rc_words {
	struct list node;
	uint64_t *at;
	struct area *area;
	struct linear history[RC_WORDS];
};

/* An end's memory: [target][receives][sources][landing], each RC_WINDOW bytes. */
struct rc_end {
	struct rc_side *side;
	struct rc_lane *lane;
	struct hf_qp *qp;   /* NULL: none */
	struct hf_srq *srq; /* of this qp; NULL: it has receives of its own */
	uint8_t *memory;
	struct area *target;
	struct flow *flow;      /* what this end asks of the other */
	struct rc_words *words; /* the other side's */
	size_t history[RC_SLOTS];
	uint64_t seen[RC_WORDS]; /* a value of each word, to compare with */
	uint64_t next_post_ns;
	uint32_t budget, receives_posted;
	bool hot; /* posts without rest */
	bool failed, fenced, unfenceable;
	bool last_wqe; /* the event came */
	bool denies;   /* the peer may do nothing with our memory at the moment */
};

enum rc_lane_state { RC_DOWN, RC_RUNNING, RC_SETTLING };

struct rc_lane {
	struct rc *rc;
	unsigned rail;
	enum rc_lane_state state;
	struct rc_end ends[RC_SIDES];
	struct world_event check;
	uint64_t until_ns, completed_since_quiet;
};

struct rc_rail {
	struct hf_dev *dev;
	struct hf_pd *pd;
	struct hf_cq *cq;
	struct hf_mr *mr;
	uint8_t *memory;
	struct rc_words *words;
	struct hf_watch watch;
};

struct rc_side {
	struct rc *rc;
	unsigned index;
	struct host host;
	struct process *process;
	struct hf_loop *loop;
	struct hf_poller poller;
	struct hf_timer timer;
	struct rc_rail rails[RC_RAILS];
};

struct rc {
	struct world *world;
	struct network network;
	struct execution execution;
	struct faults faults;
	struct rc_side sides[RC_SIDES];
	unsigned rail_count, lane_count; /* lanes of each rail */
	struct rc_lane lanes[RC_RAILS * RC_LANES];
	struct list words;
	struct outcome *outcome;
	enum ibv_mtu mtu;
	uint8_t timeout, retry_cnt;
	bool stopping; /* nothing new is posted */
};

/* ---- rc_side.c ---- */

extern const struct program rc_program;

static inline struct rc_end *rc_other(const struct rc_end *end)
{
	return &end->lane->ends[1 - end->side->index];
}

/* Takes what the cq has; for the judge, who must know everything before he judges. */
unsigned rc_poll_cq(struct rc_side *side, unsigned rail);
void rc_take_events(struct rc_side *side, unsigned rail);
void rc_destroy_qp(struct rc_end *end);
int rc_post_receives(struct rc_end *end);
unsigned rc_in_flight(const struct rc_end *end);

#endif
