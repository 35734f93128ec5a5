/* shm.h - the inside of the shm device: its objects, and functions between its files.
 *
 * A device belongs to one thread, with the exceptions of dev.h. State that several threads may share under that rule
 * (the lists of the device, peers, regions, events) is under dev->lock, which the fast path does not take. */
#ifndef HOLDFAST_DEV_SHM_SHM_H
#define HOLDFAST_DEV_SHM_SHM_H

#include <holdfast/dev.h>

#include "base/list.h"
#include "base/log.h"
#include "base/order.h"
#include "dev/fabric.h"
#include "dev/shm/peer.h"
#include "dev/shm/segment.h"
#include "env/guard.h"
#include "env/share.h"

#define SHM_MAX_WR     16384u
#define SHM_MAX_INLINE 1024u
#define SHM_EVENTS     (4 * QP_SLOTS) /* a power of two */
#define BLOCK_LOGS     32u
#define FOOTER_BYTES   8u
#define CHUNK_BYTES    65536u      /* of a copy between two looks at whether it may go on; a multiple of every mtu */
#define STUCK_NS       20000000ull /* an operation that takes longer is that of a process that was stopped */
/* The time for which the fence waits for its thread to leave a copy by the kernel. */
#define LATE_NS 2000000000ull

/* A spin lock for slow paths of a few hundred instructions at most. */
static inline void shm_lock(atomic_flag *lock)
{
	while (atomic_flag_test_and_set_explicit(lock, memory_order_acquire))
		cpu_relax();
}

static inline void shm_unlock(atomic_flag *lock)
{
	atomic_flag_clear_explicit(lock, memory_order_release);
}

/* ---- objects ---- */

struct arena {
	struct share_segment segment;
	size_t used;
};

struct shm_dev {
	struct hf_dev dev;
	struct segment *shared;
	struct fabric_line *line;
	struct shm_qp *qps[QP_SLOTS];
	struct shm_mr *_Atomic mrs[MR_SLOTS];
	struct list stalled; /* qps with wrs that could not execute, or with a lost acknowledgement */
	_Atomic uint32_t seen_switches;
	_Atomic uint32_t silent_switches; /* by us, of one direction, since then */
	uint32_t polls;
	uint64_t alarm_ns;            /* what the alarm is set to; 0: to nothing */
	uint64_t look_after_peers_ns; /* when to look whether peers live */

	struct fabric_port *port;
	struct share_segment segment;
	union ibv_gid gid;
	enum ibv_mtu mtu;
	int own_bell;             /* rings our own io */
	struct hf_io *alarm, *io; /* the port's bell and the alarm are one io */
	bool port_down;
	bool remap_private; /* hf_dev_config */
	atomic_flag lock;
	struct list peers, pds;
	struct shm_srq *srqs[SRQ_SLOTS];
	struct shm_cq *cqs[CQ_SLOTS];
	uint32_t next_qp_count;
	uint32_t next_pd;
	struct arena arenas[SHM_ARENAS];
	struct list free_blocks[BLOCK_LOGS];     /* of the arenas, by power of two (arena.c) */
	struct hf_dev_event *events;             /* SHM_EVENTS of them */
	_Atomic uint32_t event_head, event_tail; /* changed under the lock */
	struct hf_dev_counters counters;         /* of destroyed qps, and what is rare */
	struct list process_node;                /* all devices of the process (move.c) */
};

struct shm_pd {
	struct hf_pd pd;
	uint32_t id;
	uint32_t users;
	struct list node;
};

struct shm_mr {
	struct hf_mr mr;
	uint32_t slot;
	uint64_t generation; /* of its entry */
	enum mr_kind kind;
	struct share_backing backing; /* unless it is private; held */
	bool shared;                  /* peers can reach it */
};

struct shm_cq {
	struct hf_cq cq;
	uint32_t slot, users;
	struct cq_slot *shared;
	struct list senders;   /* qps with wrs to complete */
	struct list receivers; /* qps that may have receives to complete */
};

struct shm_srq {
	struct hf_srq srq;
	struct srq_slot *shared;
	uint32_t slot, users;
	uint8_t *slots;
	_Atomic uint64_t *claims;
	uint32_t mask; /* of claims and of recv_slots */
	uint32_t stride, tail, free_count;
	uint16_t *free_slots;
	struct srq_post {
		uint32_t position; /* in claims */
		uint32_t claimer;  /* noted when its claim is overwritten */
		bool posted;
	} * posts; /* by recv_slot */
};

enum wr_outcome {
	WR_DONE,
	WR_NO_ANSWER,  /* a link is down, or the other end is gone */
	WR_NO_RECEIVE, /* RNR */
	WR_WAITS,      /* for responses of wrs before it */
	WR_AGAIN,      /* the responder is moving the memory: try at the next poll */
	WR_UNMAPPED,   /* this process cannot map the memory: its limits, not the path */
	WR_NO_LOCAL,   /* memory of this process is not there any more */
	WR_FAILED,     /* sqe.status has the reason */
};

/* A send wr between post and poll. */
struct sqe {
	uint64_t wr_id;
	uint32_t bytes, psn;
	uint32_t psns;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t status; /* enum ibv_wc_status */
	uint8_t num_sge;
	bool response_lost; /* a READ that executed while its response could not come back */
	unsigned flags;     /* enum ibv_send_flags */
	uint32_t rkey;
	uint64_t remote_addr;
	const struct ibv_sge *sges; /* the caller's while it posts, the sqe's own later */
	uint32_t done;              /* bytes that executed already */
	uint32_t imm;
	uint64_t compare_add, swap;
	uint64_t original;
	uint64_t foot_addr, foot_value; /* a footer */
	uint32_t foot_rkey;             /* 0: it has none */
};

struct shm_qp {
	struct hf_qp qp;
	struct qp_slot *shared; /* ours: what our requester works on */
	uint32_t slot;

	/* As requester. Counts, [polled, acked) are complete, [acked, executed) lack their acknowledgement. */
	uint32_t polled, acked, executed, tail;
	uint32_t sq_slots; /* not rounded up: thousands of qps have queues of odd sizes */
	uint32_t sq_base;  /* the count that is in slot 0, at most sq_slots behind `polled`: see sqe_at */
	struct sqe *sq;
	uint32_t next_psn;    /* of the next wr to be posted */
	uint32_t execute_psn; /* of the next packet to execute */
	uint32_t reads;       /* READs and atomics in [acked, executed) */
	bool ack_lost;
	uint8_t fail_status; /* of the wr at `acked` once the qp is in ERR; 0: it is flushed as well */

	/* What is known of the responder: valid while `peer` and `bound`. */
	bool bound;
	struct peer *peer;
	struct qp_slot *remote;
	uint64_t incarnation;
	uint64_t op;  /* its op word when idle */
	bool guarded; /* it wants all stores to be guarded, and they can be */
	struct region *cached[2];
	uint32_t cached_turn;
	uint32_t remote_pd;
	struct region *foot_region; /* of the last footer; NULL: none */
	bool foot_shown;            /* touch_foot is set, or what it is is not known */
	struct ring_view {
		uint8_t *at;
		uint32_t mask, stride;
	} remote_receives, remote_claims, remote_srq_slots;
	struct srq_slot *remote_srq; /* NULL: a receive queue of its own */
	uint32_t srq_pd, claimed;    /* recv_slot held for the wr in progress, + 1 */
	uint32_t remote_slot, remote_recv_cq;

	struct list stalled_node, sender_node, receiver_node;
	uint64_t stalled_since_ns, rnr_since_ns;
	uint64_t bind_again_ns;
	uint32_t rnr_tries;

	/* As responder. */
	uint8_t *recv_ring;
	uint32_t recv_mask, recv_stride, recv_tail, recv_polled;
	bool drained; /* in ERR: no requester touches anything any more, and `evidence` is final */
	bool held;    /* its operation was taken over, but its thread may be in the middle of a guarded copy still */
	bool unmoved; /* held: moving the pages instead was not tried yet */
	bool unknown; /* an atomic was under way when a stopped process was fenced: D4 and D4b cannot tell */
	bool last_wqe, claims_flushed; /* last_wqe: its event was raised */
	uint64_t evidence;             /* the op word when drained */
	uint64_t drain_since_ns; /* access or state is withdrawn, and an operation may be under way since; 0: not */
	uint64_t stuck_ns;       /* an operation that takes longer than this since then is taken over */
	uint64_t held_since_ns;
	int fence_error;
	struct ring_place ring;

	enum ibv_qp_state state; /* the shared one may be in ERR already */
	struct ibv_qp_attr attr;
	uint64_t incarnation_own;
	struct ibv_sge *sge_store; /* max_send_sge per sqe; behind sq */
	uint8_t *inline_store;     /* max_inline_data per sqe; behind that */
	uint64_t packets, bytes, retransmitted, dropped;
};

static inline struct shm_dev *shm_dev_of(const struct hf_dev *dev)
{
	return (struct shm_dev *)(void *)dev;
}

static inline struct shm_qp *shm_qp_of(struct hf_qp *qp)
{
	return (struct shm_qp *)qp;
}

/* Where the wr of that count is. The base moves on before a post: it is less than a lap behind `polled` then, so less
 * than two behind `tail`. */
static inline struct sqe *sqe_at(const struct shm_qp *qp, uint32_t count)
{
	uint32_t at = count - qp->sq_base;

	return &qp->sq[at < qp->sq_slots ? at : at - qp->sq_slots];
}

static inline struct shm_cq *shm_cq_of(struct hf_cq *cq)
{
	return (struct shm_cq *)cq;
}

static inline bool region_is_current(const struct shm_qp *qp, const struct region *region)
{
	return atomic_load(&qp->peer->shared->mrs[region->slot].word) == region->word;
}

#include "dev/shm/shm_calls.h"

#endif
