/* pool.h - standby qps, made beforehand and shared by the vqps that lose their link (Varuna, section 3.4; R6, R7).
 *
 *   vqps ...... dedicated qps on rail 0        after rail 0 failed:   vqps \
 *   pool ...... one qp or a few on each rail                          vqps -- standby qp on rail 1
 *                                                                     vqps /
 *
 * A pool belongs to a pair of protection domains of two nodes, and to one set of access rights, because a qp has one
 * of each: no vqp gets more access through a standby qp than through its own (R14). Both ends use the same standby
 * qps, as requester and as responder. The picker of the exchange makes them, offers them, and picks one at random,
 * once per vqp and failover. Their number is pool_size per rail, or one for each pool_vqps vqps.
 *
 * Where both devices have DC with evidence, a standby qp is a target at each end, of its own, and an
 * initiator at each end, shared with those of other peers (carrier.h, dc_end.h). Elsewhere it is an
 * ordinary RC qp. In both cases a note records the owner of each wr.
 *
 * It fails as a whole (R6): when it ends for any reason, all its vqps settle in the exchange, each with the evidence of
 * that one standby qp, and continue on another path. Only the vqp whose wr was at fault gets an error. Messages wait
 * for a dedicated qp (R7), so it has no receives.
 *
 * Invariants:
 *   POOL-1  A vqp is in the list of the one standby qp that its path names, and in no other.
 *   POOL-2  A standby qp that was fenced carries no further vqp's traffic; it is destroyed when the last has left.
 *   POOL-3  The side that does not pick reports a broken one, and keeps it until the picker has withdrawn it: a vqp
 *           that was sent there before the picker had the report joins it for its evidence, and settles again at once.
 *   POOL-4  When a standby qp is fenced, its wrs on the initiator have ended: they have completed, or
 *           the initiator is fenced too, with all others that it carries. */
#ifndef HOLDFAST_VQP_PATH_POOL_H
#define HOLDFAST_VQP_PATH_POOL_H

#include "vqp/path/standby.h"

struct pool {
	struct list node_link;
	struct hf_peer *peer;
	struct hf_vpd *pd;
	uint32_t remote_pd;
	int access;
	uint32_t remote_access;
	unsigned vqps;            /* that may fall back on it */
	struct list qps, members; /* members: member_link of those vqps */
};

/* Of a vqp that came up: it may fall back on a pool from now, which is made if need be; but not where access may be
 * revoked (R13). */
void pool_enlist(struct hf_vqp *vqp);
void pool_forget(struct hf_vqp *vqp); /* the vqp ends, or loses its peer */

/* The picker's choice; NULL: none is ready there. */
struct standby *pool_pick(struct hf_vqp *vqp, unsigned rail);
/* What the picker named; NULL: we have no such one. */
struct standby *pool_named(struct hf_vqp *vqp, unsigned rail, uint32_t their_qp_num);
void pool_join(struct hf_vqp *vqp, struct standby *standby); /* becomes the vqp's path */

bool pool_turn(struct hf_node *node);
void pool_tick(struct hf_node *node, uint64_t now_ns);
void pool_break_peer(struct hf_peer *peer); /* every standby qp for it: standby_retire */
void pool_free_peer(struct hf_peer *peer);
void pool_free_pd(struct hf_vpd *pd);

#endif
