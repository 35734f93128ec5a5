/* pool.h - standby qps, made beforehand and shared by the vqps that lose their link (Varuna, section 3.4; R6, R7).
 *
 *   vqps ...... dedicated qps on rail 0        after rail 0 failed:   vqps \
 *   pool ...... one qp or a few on each rail                          vqps -- standby qp on rail 1
 *                                                                     vqps /
 *
 * A pool belongs to a pair of protection domains of two nodes, and to one set of access rights, because a qp has one
 * of each: nobody gets more through a standby qp than through his own (R14). Both ends use the same standby qps, as
 * requester and as responder. The picker of the exchange makes them, offers them, and picks one at random, once per
 * vqp and failover; so many per rail, or one for so many vqps.
 *
 * Where both devices have DC and tell what executed, a standby qp is a target at each end, of its own, and an initiator
 * at each end, which it has in common with those of other peers (carrier.h, dc_end.h). Elsewhere it is an ordinary RC
 * qp. In both cases there is a note of whose each wr is.
 *
 * It fails as one (R6): whatever ends it, all its vqps settle in the exchange, each with the evidence of that one
 * standby qp, and go on elsewhere. Only the vqp whose wr was at fault sees an error. Messages wait for a dedicated qp
 * (R7), so it has no receives.
 *
 * Invariants:
 *   POOL-1  A vqp is in the list of the one standby qp that its path names, and in no other.
 *   POOL-2  A standby qp that was fenced carries no further vqp's traffic; it is destroyed when the last has left.
 *   POOL-3  The side that does not pick keeps a broken one for as long as a vqp may still be sent there, which happened
 *           before the picker knew: that vqp joins it to tell what executed, and settles again at once.
 *   POOL-4  Of an initiator, what is posted for a standby qp is over when that is fenced: its wrs have completed, or
 *           the initiator is fenced too, with all others that it carries. */
#ifndef HOLDFAST_VQP_POOL_H
#define HOLDFAST_VQP_POOL_H

#include "vqp/carrier.h"
#include "vqp/dc_end.h"

enum pool_qp_state {
	POOL_OFFERED, /* waiting for the other end's qp */
	POOL_READY,
	POOL_BROKEN, /* waiting for its last vqp to leave */
};

struct pool_qp {
	struct list link, carrier_link; /* of the pool's; of the carrier's */
	struct pool *pool;
	struct carrier *carrier;
	struct dc_end *dc; /* NULL: it is an RC qp */
	struct wc_sink dc_sink;
	struct path path; /* the carrier's qp, as the vqps on it have it */
	uint32_t offer;   /* the number of the picker's RC qp or target: what they call it until both ends have one */
	enum pool_qp_state state;
	bool fenced;
	uint64_t offered_ns, broken_ns;
	struct list vqps; /* pool_link; on it */
	unsigned users;
	uint64_t posted_end; /* behind its newest wr, by the numbers of the carrier */
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
uint64_t pool_fence_retry_ns(const struct pool_qp *standby);
/* The vqp ends now: nothing of it happens on the standby qp any more, and the others settle. */
void pool_evict(struct hf_vqp *vqp);
int pool_end_qp(struct pool_qp *standby); /* as path_end_qp, of what cannot be fenced */
bool pool_is_ended(const struct pool_qp *standby);

/* After the fence, as hf_qp_executed_psn, hf_qp_atomic_results and hf_qp_refusal: of the peer's wrs on it. */
bool pool_tells(const struct pool_qp *standby); /* false: what could was ended */
int pool_executed_psn(const struct pool_qp *standby, uint32_t *psn_out);
int pool_atomic_results(const struct pool_qp *standby, struct hf_atomic_result *results_out, unsigned n);
int pool_refusal(const struct pool_qp *standby, struct hf_refusal *refusal_out);

void pool_message(struct hf_vqp *vqp, const struct message *message, unsigned rail);
bool pool_turn(struct hf_node *node);
void pool_tick(struct hf_node *node, uint64_t now_ns);
void pool_free_peer(struct hf_peer *peer);
void pool_free_pd(struct hf_vpd *pd);

#endif
