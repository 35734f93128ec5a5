/* carrier.h - the device's qp that sends the wrs of standby qps (pool.h).
 *
 *   standby qp of peer b  --\
 *   standby qp of peer c  ---- DC initiator of (rail, protection domain)        standby qp of peer d --- RC qp
 *
 * An RC qp carries one standby qp. A DC initiator carries those of all peers, so its number depends on the rails, not
 * on the peers. It keeps one order for all of them: where two peers take turns, each turn waits for the last
 * acknowledgement of the other (dev/soft/dc.h), and it fails as a whole. Then the vqps of all its standby qps settle,
 * each with the evidence of its own peer.
 *
 * Psns of an initiator are those of all its peers together. So that they can be compared at each peer, however long
 * it received nothing from the initiator, an initiator is replaced after CARRIER_PACKETS of its life. */
#ifndef HOLDFAST_VQP_PATH_CARRIER_H
#define HOLDFAST_VQP_PATH_CARRIER_H

#include "vqp/objects.h"

#define CARRIER_DEPTH   512u       /* wrs in flight, of all vqps on it */
#define CARRIER_PACKETS (1u << 21) /* with those that may be unretired less than 2^23 */

struct carrier_wr {
	uint64_t wr_id;
	uint32_t num; /* of its vqp */
};

struct carrier {
	struct list node_link; /* of an initiator */
	struct hf_vpd *pd;
	struct wc_sink sink;
	struct path path;
	bool is_initiator, broken;
	bool fenced;                              /* or ended */
	struct list standbys;                     /* carrier_link; on it */
	unsigned users;                           /* those */
	struct list told, waiting;                /* sinks with completions in this batch; vqps that found it full */
	const struct hf_vqp *turn;                /* of those, the one that may post */
	uint32_t packets;                         /* unretired, of all vqps */
	struct carrier_wr wrs[2 * CARRIER_DEPTH]; /* by their wr_id on the qp, which counts them */
	uint64_t posted, completed;               /* wrs, ever */
	uint64_t posted_at_read;                  /* when the queue was last read to its end */
	uint64_t reads;                           /* of the queue, then */
};

/* An RC qp, not connected. NULL: the device has no room. */
struct carrier *carrier_make(struct hf_vpd *pd, unsigned rail, int access, struct hf_lease *lease);
/* An initiator, ready; one that there is, once there are `most`. */
struct carrier *carrier_share(struct hf_vpd *pd, unsigned rail, unsigned most);
void carrier_add(struct carrier *carrier, struct list *standby_link);
void carrier_drop(struct carrier *carrier, struct list *standby_link); /* with the last one it goes */

/* All vqps of all its standby qps have to settle. */
void carrier_break(struct carrier *carrier);
int carrier_fence(struct carrier *carrier); /* as hf_qp_fence */
int carrier_end(struct carrier *carrier);   /* as path_end_qp */
void carrier_stop(struct carrier *carrier); /* now: nothing of it arrives any more; may block as fence_insist */

/* The number of wrs that the vqp may post now. It queues behind waiting vqps: otherwise later lists of others could
 * keep it from ever finding room. */
uint32_t carrier_room(const struct hf_vqp *vqp);
/* As hf_qp_post_send, all of the list or none. -ENOMEM: the list does not fit now; the vqp is pumped when there is
 * room. */
int carrier_post_send(
	struct hf_vqp *vqp, struct ibv_send_wr *wr, const struct hf_footer *footers, struct ibv_send_wr **bad_wr);
void carrier_wait(struct hf_vqp *vqp);
bool carrier_pump(struct carrier *carrier); /* those that wait; true: some may post again */

#endif
