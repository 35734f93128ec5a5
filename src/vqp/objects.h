/* objects.h - the objects of vqps and their relations; private to src/vqp.
 *
 *   vqps, of a node (vqps.h)
 *    |-- peers   (the vqps' state of another incarnation: its regions)
 *    |-- vpds -- regions (an mr on every rail)
 *    |-- vcqs -- vqps (the request log, the receive log, the qp in use, standby qps, the state of recovery) */
#ifndef HOLDFAST_VQP_OBJECTS_H
#define HOLDFAST_VQP_OBJECTS_H

#include <holdfast/vqp.h>

#include "base/list.h"
#include "node/node.h"
#include "node/peer.h"
#include "vqp/access.h"
#include "vqp/kinds.h"
#include "vqp/marks.h"
#include "vqp/data/completion_log.h"
#include "vqp/recovery/ending.h"
#include "vqp/recovery/evidence.h"
#include "vqp/recovery/failover.h"
#include "vqp/recovery/fence.h"
#include "vqp/data/request_log.h"
#include "vqp/data/imm_lengths.h"
#include "vqp/data/log_slab.h"
#include "vqp/policy.h"
#include "vqp/path/path.h"
#include "vqp/path/rebuild.h"
#include "vqp/recovery/recovery.h"
#include "vqp/region.h"
#include "vqp/vqps.h"

#define VQP_SGE_MAX 32u /* of a wr, whatever the devices can do */
struct owner;
struct uid_arena;  /* uid_slots.h */
struct uid_client; /* uid_post.c */

struct hf_vpd {
	struct list node_link, regions, audiences;
	struct hf_node *node;
	uint32_t num; /* unique in the node; identifies it for peers */
	struct hf_pd *pds[HF_RAILS_MAX];
	struct uid_arena *uids; /* NULL: no region needs one */
	struct list log_slabs;
	struct home home;
	struct owner *owner; /* owner.h; NULL: the owner did no atomics through a NIC */
	unsigned users;
};

struct hf_vcq {
	struct list node_link;
	struct hf_node *node;
	void *context;
	void (*notify)(struct hf_vcq *cq, void *context);
	uint64_t awaited;                     /* wrs in the request logs of its vqps */
	uint64_t looked;                      /* completions_look */
	bool fresh;                           /* a completion became ready after that request */
	struct list ready_sends, ready_recvs; /* vqps with something to poll, or that had */
	unsigned users;
};

struct hf_vqp {
	struct list node_link, fence_link, resumed_link, cold_link, recovering_link, ready_send_link, ready_recv_link;
	struct list pool_link, pool_wait_link, member_link, mark_link;
	struct wc_sink sink;
	struct hf_node *node;
	struct hf_vpd *pd;
	struct hf_vcq *send_cq, *recv_cq;
	struct hf_peer *peer;
	struct region_audience *audience; /* that it counts in; NULL: none */
	struct ibv_qp_cap cap;
	struct hf_qp shape; /* what arguments of posts are checked against */
	bool sq_sig_all;
	int access;
	void *context;
	void (*changed)(struct hf_vqp *vqp, void *context);
	enum hf_vqp_state state;
	enum hf_vqp_end ended_for; /* end.c */
	enum ibv_wc_status ended_with;
	int lane; /* the rail that it is pinned to, and hands back when that is lost; -1: any */
	uint32_t num, remote_num;
	uint32_t wanted_num; /* hf_vqp_connect_num: the other's; 0 otherwise */
	bool forsaken;       /* vqp_forsake */
	uint32_t remote_access, remote_pd;
	struct grants grants;
	char service[HF_NAME_BYTES];
	uint8_t *private_data; /* until CONNECT is sent, ours; then the reply; NULL: none */
	uint16_t private_bytes;
	bool begun;              /* to connect, whatever became of it */
	bool asked;              /* CONNECT was sent */
	uint64_t unanswered_ns;  /* something has been posted since, and no answer came; 0: nothing */
	struct hf_error *reason; /* why it was not connected; NULL: none was given */
	struct request_log sends, recvs;
	uint64_t looked;          /* completions_look, when the request log was full */
	uint64_t messages;        /* numbered so far */
	uint64_t consumed;        /* of the peer's */
	struct log_ring log_ring; /* of the peer's wrs, here */
	struct log_writer log;    /* of ours, there */
	uint32_t log_rkeys[HF_RAILS_MAX];
	uint32_t log_footers;         /* bit per rail of ours: its entries are footers there */
	struct imm_lengths lengths;   /* of the peer's that resume */
	uint8_t rnr_retry;            /* of messages */
	uint32_t unsignaled, packets; /* posted since the last that has a signal; unretired */
	uint64_t moved_ns;            /* when the oldest that is unretired became that, about */
	bool path_broken, path_cut;   /* the path in use is of no use any more; is about to be: failover_cut */
	struct path *path;            /* in use: own_path, or that of a standby qp */
	struct path own_path, backup[HF_RAILS_MAX];
	bool qp_remains;   /* of one that ended: a qp could be neither fenced nor destroyed */
	bool rail_suspect; /* a wr failed as it does when the path is broken */
	bool refuses_rail; /* that the picker chose: no qp can be made there; told with the next FENCE or STATE */
	bool told_lengths; /* and the peer has not forgotten them */
	bool held, probing;
	bool fence_unsaid; /* FENCE is sent if the fence is not done at its first turn; else STATE implies it */
	bool doomed;       /* a wr is unknown: the vqp fails once it has the path where the other side may post */
	enum fence fence;  /* of the path in use, while it is being fenced */
	struct pool *pool; /* that it may fall back on */
	struct rebuild rebuild;
	unsigned last_rail; /* that it was on before the exchange */
	struct recovery recovery;
	bool resumes;             /* as evidence.resumes, of this side */
	struct evidence evidence; /* of the other side, in this epoch */
	struct path_offer go;     /* what the picker goes to */
	struct ending ending;     /* of a vqp in HF_VQP_ERROR */
	bool awaits_go;           /* the picker may post already, on a standby qp that we do not know of */
	uint64_t detected_ns;
	uint64_t strays_ns, lease_ns; /* of one that ends: since when, and for how long what is under way may execute */
	struct uid_client *uid;       /* NULL: no wr needed it */
	int home_rail;                /* of the other side's atomics, as far as it mattered; -1 */
	uint64_t home_wait_ns;        /* an atomic has waited for it since; 0: none does */
	bool home_leaves;             /* ours is moving away from its path */
	uint32_t homes_told, homes_theirs; /* our rails on which our home may be, as it was told; and theirs */
	struct hf_vqp_counters counters;
};

/* This many wrs left the request log. */
static inline void vcq_left(struct hf_vqp *vqp, uint64_t wrs)
{
	vqp->send_cq->awaited -= wrs;
}

#define WR_RECV     (1ull << 63)
#define WR_PROBE    (1ull << 62)
#define WR_UID      (1ull << 61) /* uid_post.c */
#define WR_POSITION ((1ull << 48) - 1)

static inline struct message_head kinds_head(const struct hf_vqp *vqp, const struct vqp_kind *kind)
{
	return (struct message_head){.kind = &kind->kind, .to = vqp->remote_num, .from = vqp->num};
}

static inline bool vqp_uses(const struct hf_vqp *vqp, const struct hf_peer *peer)
{
	return vqp->peer == peer && vqp->state != HF_VQP_INIT && vqp->state != HF_VQP_ERROR;
}

static inline struct hf_vqp *vqp_find(const struct hf_node *node, uint32_t num)
{
	return table_get(&vqps_of(node)->nums, num);
}

/* Its path in use is to be fenced, for the exchange. */
static inline bool vqp_is_fencing(const struct hf_vqp *vqp)
{
	return vqp->recovery.state == RECOVERY_FENCE && vqp->state != HF_VQP_ERROR && vqp->fence != FENCE_DONE;
}

static inline bool vqp_is_ending(const struct hf_vqp *vqp)
{
	return ending_goes_on(&vqp->ending);
}

/* The time until which the peer may write for a vqp that ends, although its paths are fenced: by then the peer has
 * received the end, or its lease is over. 0: it may not; UINT64_MAX: not known. */
static inline uint64_t vqp_strays_until(const struct hf_vqp *vqp)
{
	const struct hf_node *node = vqp->node;

	if (vqp->qp_remains)
		return UINT64_MAX;
	return vqp->awaits_go ? hf_env_now_ns(node->env) + lease_with_margin(node->config.lease_ns) : 0;
}

/* connect.c */
void connect_send(struct hf_vqp *vqp);
bool connect_waits(const struct hf_vqp *vqp); /* for the other side's JOIN */
void connect_move(struct hf_vqp *vqp, struct hf_peer *successor);
void connect_tick(struct hf_vqp *vqp, uint64_t now_ns); /* wrs of a vqp without an answer fail after the budget */

/* vqp.c */
void vqp_move(struct hf_vqp *vqp, enum hf_vqp_state to);
/* The other side ended. A vqp that a program connected by numbers is then what a plain qp is: its receives stay, what
 * is in flight ends as the device's own retries do, or with a standby qp, and what is posted later fails. False: it
 * has to fail now. */
bool vqp_forsake(struct hf_vqp *vqp);
void vqp_fail(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest, bool tell);
/* The same where the other side may not have fenced: wrs complete when its lease is over as well. */
void vqp_fail_with_lease(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest);
/* The same where the peer is gone, or about to be, and no message is sent; `lease`: it may go on executing. */
void vqp_fail_alone(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest, bool lease);
/* The same where what was posted may be on its way: it completes when the other side has fenced as well (V4). */
void vqp_abort(struct hf_vqp *vqp, enum ibv_wc_status first, enum ibv_wc_status rest);
void vqp_drop_path(struct hf_vqp *vqp);    /* the one in use, which is fenced, or was never connected */
void vqp_drop_backups(struct hf_vqp *vqp); /* nothing arrives through them any more */
void vqp_forget_paths(struct hf_vqp *vqp); /* all of them */
/* The same now, for paths that are not fenced; it may block. `reads`: what completed before is read. */
void vqp_end_paths(struct hf_vqp *vqp, bool reads);

/* end.c: why it ends. Only what is noted first counts. */
void end_for(struct hf_vqp *vqp, enum hf_vqp_end why);
void end_for_program(struct hf_vqp *vqp, enum ibv_wc_status status);
void end_for_path(struct hf_vqp *vqp); /* a port, the device or the path */
void end_for_port(struct hf_vqp *vqp); /* of a lane: as end_for_path, unless both ports are up */
void end_for_status(struct hf_vqp *vqp, enum ibv_wc_status status);

/* hand_back.c */
uint32_t hand_back_usable(const struct hf_vqp *vqp);    /* peer_usable; of a lane its rail, while both ports are up */
uint64_t hand_back_budget_ns(const struct hf_vqp *vqp); /* of the exchange */
/* `theirs`: the rail of the peer's lane, plus one; 0: it is none. */
bool hand_back_agrees(const struct hf_vqp *vqp, const struct hf_peer *peer, uint8_t theirs);
bool hand_back_is_due(const struct hf_vqp *vqp); /* at the verdicts */
void hand_back(struct hf_vqp *vqp);              /* behind them */

/* vcq.c */
bool vcq_ready(const struct hf_vcq *cq);
void vcq_note(struct hf_vqp *vqp); /* completions may have become ready */

/* post.c */
void post_pump(struct hf_vqp *vqp);
bool post_probe(struct hf_vqp *vqp);           /* on the path in use, unless one is under way; false: it cannot */
bool post_may_probe(const struct hf_vqp *vqp); /* the peer permits something that would do */
bool post_probe_on(struct hf_vqp *vqp, struct path *path);
bool post_quiet(const struct hf_vqp *vqp);
bool post_may_execute(const struct hf_vqp *vqp); /* something is under way that is not over, and is no READ */

/* completions.c */
void completions_init(struct hf_vqp *vqp);
enum hf_poll completions_turn(struct hf_node *node); /* reads the queues of every rail in use */
/* For a poll without completions: reads the queues, unless they were read since the caller's last poll; *looked is the
 * caller's, 0 at first. False: they were not read, because earlier completions were already available. */
bool completions_look(struct hf_node *node, uint64_t *looked);

/* failback.c */
bool failback_due(const struct hf_vqp *vqp, uint64_t now_ns);

/* evidence.c */
struct state_message;
void evidence_gather(const struct hf_vqp *vqp, bool fenced, struct state_message *state);
struct evidence evidence_of(const struct state_message *state, int our_rail);

#endif
