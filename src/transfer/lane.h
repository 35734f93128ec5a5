/* lane.h - slices over one rail to one peer: a vqp that is pinned and hands back, remade when it ends.
 *
 * A lane's life is one vqp. When its path breaks, both ends are fenced before the slices in flight come back
 * (R-T3), and the rail monitor gets one report, however many slices were in flight (R-T12). A lane that failed by one
 * slice's program error hands back the others without counting a retry (R-T11). */
#ifndef HOLDFAST_TRANSFER_LANE_H
#define HOLDFAST_TRANSFER_LANE_H

#include <holdfast/vqp.h>

#include "transfer/blame.h"
#include "transfer/lane_news.h"
#include "transfer/rail_monitor.h"
#include "transfer/schedule.h"
#include "transfer/slice.h"
#include "transfer/wire.h"

#define LANE_SERVICE "holdfast.lane"
#define LANE_WRS     128u

enum lane_state {
	LANE_CLOSED,     /* waits for retry_ns, or for the monitor's next probe */
	LANE_CONNECTING, /* waits for the peer's answer */
	LANE_PROBING,    /* waits for the probe's READ */
	LANE_UP,         /* carries slices */
	LANE_ENDING,     /* the vqp has ended, or is to; waits for its last completions */
	LANE_STATES,
};

struct lane_context {
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_vpd *pd;
	struct rail_monitor_config monitor;
	uint64_t block_bytes, window_bytes;
	unsigned max_retry_count;
	bool confirm_writes;
	struct probe_memory *probe; /* where READs go that probe and confirm */
};

struct lane {
	struct lane_context *context;
	struct hf_peer *peer;
	unsigned rail;
	enum lane_state state;
	struct rail_monitor monitor;
	struct blame *blames; /* of all rails to the peer, HF_RAILS_MAX of them */
	struct lane_news news;
	uint32_t life; /* of the monitor's, when the vqp was made */
	struct hf_vqp *vqp;
	struct hf_vcq *cq;
	struct ibv_send_wr *last; /* that was added and not posted; NULL: none */
	uint64_t silent_bytes;    /* sent since the last slice that has a completion of its own */
	uint64_t ended_bytes;     /* of the completions that are being taken */
	struct lane_load load;
	struct list out; /* slices, in the order in which they were sent */
	unsigned out_count;
	bool probes;             /* this life is to find out whether the rail carries */
	bool timed_out;          /* this life ends because a slice was out for too long */
	bool was_up;             /* this life has connected */
	bool ended;              /* the vqp has completed all wrs: none executes any more */
	bool returns;            /* the last life was up, and ended for no fault of the rail or the peer */
	uint64_t first_until_ns; /* so long work waits for the first life */
	uint64_t retry_ns, backoff_ns;
	uint64_t bytes; /* carried, for people */
	unsigned lives; /* that were begun, likewise */
};

/* blames: HF_RAILS_MAX, shared by the lanes to the peer. */
void lane_init(struct lane *lane, struct lane_context *context, struct hf_peer *peer, unsigned rail,
	struct blame *blames, bool reachable);
/* Blocks no longer than hf_vqp_destroy. Slices that are out come back first. */
void lane_close(struct lane *lane);

bool lane_is_open(const struct lane *lane); /* may be sent to */
/* It is not, but its rail is: the first life connects, to a peer that may wait for a core (R-G4); or the last one ended
 * for an error of a program, or was withdrawn, and the next begins. */
bool lane_is_coming(const struct lane *lane, bool reachable, uint64_t now_ns);
struct lane_target {
	uint64_t addr; /* at the peer */
	uint32_t rkey, lkey;
};
bool lane_has_room(const struct lane *lane);
/* Slices leave with lane_push, in one post: at the end of the turn in which they were sent. */
void lane_send(struct lane *lane, struct slice *slice, const struct lane_target *to);
void lane_push(struct lane *lane);
/* Ends this life: both ends are fenced and the slices come back. */
void lane_withdraw(struct lane *lane);
void lane_time_out(struct lane *lane); /* likewise; a slice was out for too long, which is an error of the rail */

/* Takes completions, makes the vqp again when it has ended, probes by a READ of `from`, the peer's probe memory. True:
 * something was done. */
bool lane_turn(struct lane *lane, bool reachable, const struct wire_probe *from, uint64_t now_ns);
/* When a turn is due without completions; UINT64_MAX: never. */
uint64_t lane_wake_ns(const struct lane *lane);

#endif
