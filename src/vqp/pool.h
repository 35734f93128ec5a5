/* pool.h - standby qps, made beforehand and shared by the vqps that lose their link (Varuna, section 3.4; R6, R7).
 *
 *   vqps ...... dedicated qps on rail 0        after rail 0 failed:   vqps \
 *   pool ...... one qp or a few on each rail                          vqps -- standby qp on rail 1
 *                                                                     vqps /
 *
 * A pool belongs to a pair of protection domains of two nodes, and to one set of access rights, because a qp has one
 * of each: nobody gets more through a standby qp than through his own (R14). Both ends use the same qps, as requester
 * and as responder. The picker of the exchange makes them, offers them, and picks one at random, once per vqp and
 * failover; so many per rail, or one for so many vqps.
 *
 * A standby qp is an ordinary RC qp, with a note of whose each of its wrs is. It fails as one (R6): whatever ends it,
 * all its vqps settle in the exchange, each with the evidence of that one qp, and go on elsewhere. Only the vqp whose
 * wr was at fault sees an error. Messages wait for a dedicated qp (R7), so it has no receives.
 *
 * Invariants:
 *   POOL-1  A vqp is in the list of the one standby qp that its path names, and in no other.
 *   POOL-2  A standby qp that was fenced carries no further vqp's traffic; it is destroyed when the last has left.
 *   POOL-3  The side that does not pick keeps a broken one for as long as a vqp may still be sent there, which happened
 *           before the picker knew: that vqp joins it to tell what executed, and settles again at once. */
#ifndef HOLDFAST_VQP_POOL_H
#define HOLDFAST_VQP_POOL_H

#include "vqp/objects.h"

enum pool_qp_state {
	POOL_OFFERED, /* waiting for the other end's qp */
	POOL_READY,
	POOL_BROKEN, /* waiting for its last vqp to leave */
};

#define POOL_DEPTH 512u /* wrs in flight on a standby qp, of all its vqps */

struct pool_wr {
	uint64_t wr_id;
	uint32_t num; /* of its vqp */
};

struct pool_qp {
	struct list link; /* of the pool's */
	struct pool *pool;
	struct wc_sink sink;
	struct path path;
	enum pool_qp_state state;
	bool fenced;
	uint64_t offered_ns, broken_ns;
	struct list vqps;          /* pool_link; on it */
	struct list told, waiting; /* sinks with completions in this batch; vqps that found it full */
	unsigned users;
	uint32_t packets;                   /* unretired, of all its vqps */
	struct pool_wr wrs[2 * POOL_DEPTH]; /* by their wr_id on the qp, which counts them */
	uint64_t posted, completed;         /* wrs, ever */
	uint64_t posted_at_read;            /* when the queue was last read to its end */
	uint64_t reads;                     /* of the queue, then */
};

struct pool {
	struct list node_link;
	struct hf_peer *peer;
	struct hf_vpd *pd;
	uint32_t remote_pd;
	int access;
	uint32_t remote_access;
	struct ibv_qp_cap cap;    /* a vqp that wants more per wr stays off */
	unsigned vqps;            /* that may fall back on it */
	struct list qps, members; /* members: member_link of those vqps */
};

/* Of a vqp that came up: it may fall back on a pool from now, which is made if need be; but not where access may be
 * revoked (R13). */
void pool_enlist(struct hf_vqp *vqp);
void pool_forget(struct hf_vqp *vqp); /* the vqp ends, or loses its peer */

/* The picker's choice; NULL: none is ready there. */
struct pool_qp *pool_pick(struct hf_vqp *vqp, unsigned rail);
/* What the picker named; NULL: we have no such one. */
struct pool_qp *pool_named(struct hf_vqp *vqp, unsigned rail, uint32_t their_qp_num);
void pool_join(struct hf_vqp *vqp, struct pool_qp *standby); /* becomes the vqp's path */
void pool_leave(struct hf_vqp *vqp);                         /* the vqp has no path then */

/* All its vqps have to settle. */
void pool_break(struct pool_qp *standby);
enum fence pool_fence(struct hf_vqp *vqp, uint64_t now_ns);
/* The vqp ends now: nothing of it happens on the standby qp any more, and the others settle. */
void pool_evict(struct hf_vqp *vqp);
int pool_end_qp(struct pool_qp *standby); /* as path_end_qp */

/* As hf_qp_post_send, all or nothing of the list. -ENOMEM: so many do not fit now; the vqp is pumped when some do. */
int pool_post_send(
	struct hf_vqp *vqp, struct ibv_send_wr *wr, const struct hf_footer *footers, struct ibv_send_wr **bad_wr);
void pool_wait(struct hf_vqp *vqp);

void pool_message(struct hf_vqp *vqp, const struct message *message, unsigned rail);
bool pool_turn(struct hf_node *node);
void pool_tick(struct hf_node *node, uint64_t now_ns);
void pool_free_peer(struct hf_peer *peer);
void pool_free_pd(struct hf_vpd *pd);

#endif
