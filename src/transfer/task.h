/* task.h - the life of one owner request, as a pure step (TENT, "Cross-transport failover").
 *
 * A task is carried by one transport at a time: `xport_priority` is its place in the ranked list. When a transport
 * gives the task up, or its submit is refused by the environment, the task moves to the next transport that reaches
 * the peer, at most max_failover_attempts times; only the ranges that are not done are sent again (R-T6).
 *
 * A task ends only when no slice of it is out (R-T2): the transport's DRAINED is final, nothing arrives after it.
 * Until then its status is PENDING. */
#ifndef HOLDFAST_TRANSFER_TASK_H
#define HOLDFAST_TRANSFER_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include <holdfast/transfer.h>

#include "transfer/ranges.h"

enum task_state {
	TASK_INITIAL,  /* waits for its first submit */
	TASK_ACTIVE,   /* the transport sends slices */
	TASK_DRAINING, /* no new slices; waits until none is out */
	TASK_ENDED,    /* `status` is final */
	TASK_STATES,
};

enum task_event_type {
	TASK_EVENT_BEGIN,    /* to the first transport */
	TASK_EVENT_ACCEPTED, /* answers TASK_SUBMIT: the transport sends slices from now */
	TASK_EVENT_REFUSED,  /* answers TASK_SUBMIT: the environment refused, and nothing was left behind (X2, R-T7) */
	TASK_EVENT_INVALID,  /* answers TASK_SUBMIT: the request itself is wrong */
	TASK_EVENT_DONE,     /* the bytes `done` are in place */
	TASK_EVENT_GIVEN_UP, /* the transport cannot reach the peer any more, or took too long */
	TASK_EVENT_PROGRAM_ERROR,
	TASK_EVENT_CANCEL,
	TASK_EVENT_DEADLINE,
	TASK_EVENT_DRAINED, /* no slice is out, and none will be sent */
	TASK_EVENT_TICK,
};

struct task_event {
	enum task_event_type type;
	struct range done;
	uint32_t reachable; /* bit per priority: transports that may carry the task and reach the peer now */
};

enum task_action {
	TASK_SUBMIT = 1u << 0,   /* the ranges that are not done, to the transport at xport_priority */
	TASK_WITHDRAW = 1u << 1, /* the transport is to end the slices that are out, and answers with DRAINED */
	TASK_SWITCHED = 1u << 2, /* the transport changed from `from_priority`: log and count the failover (R-T9) */
	TASK_LIMIT = 1u << 3,    /* it failed: the failover limit is reached */
	TASK_NO_MORE = 1u << 4,  /* it failed: no further transport reaches the peer */
	TASK_END = 1u << 5,      /* `status` is final and may be reported */
};

#define TASK_UNSPEC 0xffu

struct task_config {
	unsigned max_failover_attempts; /* 0: a task stays on its first transport */
	uint64_t cancel_grace_ns;       /* from a cancel until the slices that are out are withdrawn (R-T19) */
};

struct task {
	const struct task_config *config;
	enum task_state state;
	enum hf_transfer_status status; /* as reported */
	enum hf_transfer_status reason; /* DRAINING: what it ends as; PENDING: it moves to another transport */
	uint64_t length;
	struct ranges done;
	unsigned failover_count;
	uint8_t xport_priority; /* of the transport that carries it; TASK_UNSPEC: none is left */
	uint8_t from_priority;  /* TASK_SWITCHED: of the transport that carried it before */
	uint8_t carried_by;     /* priority of the transport that accepted it last; at first, of the first one */
	bool withdrawn;         /* from the transport that carries it */
	uint64_t withdraw_ns;   /* DRAINING: when to withdraw what is out; UINT64_MAX: never */
};

/* `config` outlives the task. A submit reserves room in `done` for the slices. */
void task_init(struct task *task, const struct task_config *config, uint64_t length);
void task_free(struct task *task);

/* Returns task_actions. TASK_SUBMIT is answered by the next event, before any other. */
unsigned task_step(struct task *task, const struct task_event *event, uint64_t now_ns);

/* When a TICK is due; UINT64_MAX: none is. */
uint64_t task_wake_ns(const struct task *task);

#endif
