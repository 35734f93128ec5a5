/* recovery.h - the exchange with which both ends of a vqp recover, as a pure step (docs/protocol.md, R1 and R2).
 *
 *   either end                          the other
 *     | FENCE(e) -------------------------> |   a path failed (or: traffic is to return to the primary)
 *     |  fence, drain                       |  fence, drain
 *     | STATE(e) ------------------------>  |
 *     | <------------------------ STATE(e)  |
 *     | GO(e, rail, qp) ------------------> |   from the lower node name, the picker
 *     | <--------------------- QP(e, qp)    |   built, receives posted
 *     | READY(e) -------------------------> |   now both post again
 *
 * An end that receives a STATE of an epoch that it has not begun begins it, so FENCE is sent only where the other side
 * has no event of the failure, or the fence takes longer than a turn. Vqps whose port went down are fenced in groups
 * (fence_queue.c).
 *
 * A failback drains first: both hold new posts until their last wr has completed, send STATE, and fence when
 * both have sent it. A failover of the same epoch overrules a failback. Messages of older epochs are ignored; a
 * failure during the exchange begins the next epoch.
 *
 * Invariants, checked by ensure() and by the tests:
 *   VQP-1  A side sends STATE(e) only after its old qp was fenced and drained (failback: its wrs have completed).
 *   VQP-2  GO(e) is sent only when both STATEs of e are known. */
#ifndef HOLDFAST_VQP_RECOVERY_RECOVERY_H
#define HOLDFAST_VQP_RECOVERY_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

enum recovery_state {
	RECOVERY_IDLE,     /* nothing to settle: traffic flows, or the vqp is not connected */
	RECOVERY_QUIET,    /* failback: waiting for our last wr */
	RECOVERY_FENCE,    /* waiting for our fence and the last completions */
	RECOVERY_EXCHANGE, /* waiting for the other side's STATE */
	RECOVERY_PATH,     /* waiting for a usable rail (picker) or for GO */
	RECOVERY_BUILD,    /* waiting for the new qp to be ready on both sides */
	RECOVERY_FAILED,   /* the budget is spent; final */
	RECOVERY_STATES,
};

enum recovery_kind {
	RECOVERY_FAILOVER,
	RECOVERY_FAILBACK,
};

enum recovery_event_type {
	RECOVERY_EVENT_CONNECTED, /* both numbers are known: find the first path */
	RECOVERY_EVENT_BROKEN,    /* the path in use, or being built, failed */
	RECOVERY_EVENT_RETURN,    /* the primary has been up for long enough (picker only) */
	RECOVERY_EVENT_QUIET,     /* our last wr has completed */
	RECOVERY_EVENT_FENCED,    /* fenced and drained */
	RECOVERY_EVENT_FENCE,     /* message: epoch, kind */
	RECOVERY_EVENT_STATE,     /* message: epoch, kind */
	RECOVERY_EVENT_GO,        /* message: epoch, rail */
	RECOVERY_EVENT_READY,     /* message QP (to the picker) or READY (from it): epoch */
	RECOVERY_EVENT_RAILS,     /* `usable` changed, or time passed */
};

struct recovery_event {
	enum recovery_event_type type;
	uint32_t epoch;
	enum recovery_kind kind;
	int rail;
	bool ready_at_once; /* GO: the qps were made beforehand */
	uint32_t usable;    /* rails that both sides can use, in order of preference; valid in every event */
	bool idle;          /* none of our wrs is waiting; valid in every event */
};

enum recovery_action {
	RECOVERY_HOLD = 1 << 0,       /* post nothing more */
	RECOVERY_SEND_FENCE = 1 << 1, /* epoch, kind */
	RECOVERY_DO_QUIET = 1 << 2,   /* say QUIET when nothing is in flight */
	RECOVERY_DO_FENCE = 1 << 3,   /* fence, drain, say FENCED */
	RECOVERY_SEND_STATE = 1 << 4, /* epoch, kind */
	RECOVERY_SETTLE = 1 << 5,     /* both STATEs are known: verdicts enter the request log */
	RECOVERY_DO_GO = 1 << 6,      /* picker: make a qp on `rail`, send GO */
	RECOVERY_DO_BUILD = 1 << 7,   /* the other: make one to match, send QP */
	RECOVERY_SEND_READY = 1 << 8,
	RECOVERY_RESUME = 1 << 9, /* traffic flows on `rail` */
	RECOVERY_FAIL = 1 << 10,  /* no path within the budget: every wr completes in error */
};

struct recovery {
	uint32_t vqp; /* its number, in the log */
	enum recovery_state state;
	enum recovery_kind kind;
	bool picks;
	uint32_t epoch;
	bool said, heard; /* STATE of this epoch: sent, received */
	bool fenced;      /* in this epoch */
	bool settled;
	int rail; /* chosen; -1 */
	bool go;  /* GO came before we were ready for it */
	bool go_at_once;
	uint64_t budget_ns, held_ns;
	uint64_t since_ns, resumed_ns; /* when traffic stopped, when it last went on */
	bool stopped, idle;
	bool spent;      /* the budget of this outage */
	unsigned stalls; /* failbacks in a row that made no progress in time */
};

/* retries_ns: the longest time that a wr waits on a path before it fails. */
void recovery_init(struct recovery *recovery, uint32_t vqp, bool picks, uint64_t budget_ns, uint64_t retries_ns);
/* Returns the actions, to be done in the order of their bits. */
unsigned recovery_step(struct recovery *recovery, const struct recovery_event *event, uint64_t now_ns);
/* This end's STATE of the exchange was sent, and the exchange is not at the next path yet. */
bool recovery_has_said(const struct recovery *recovery);
/* What is waited for in that state, for people. */
const char *recovery_state_name(enum recovery_state state);
/* A wr completed on the new path: the outage is over and the next one has a budget of its own. Where none is waiting,
 * as at a responder that never posts, it is over when traffic may flow; and in any case when the path was there for
 * half of the budget, besides the time that a wr waits there before it fails. */
void recovery_progress(struct recovery *recovery);

#endif
