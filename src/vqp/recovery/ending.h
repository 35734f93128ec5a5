/* ending.h - the states of a failed vqp until the completions of its wrs, as a pure step (docs/protocol.md, V4).
 *
 *   fails --> FENCE --our path is fenced--> OVER      the program gets its completions, the other side CLOSED
 *               |--> ANSWER: a request to the other side to end as well: our last wrs may execute there until then
 *               |--> LEASE:  the other side is unreachable, or may have them where it does not fence for us
 *
 *   ANSWER --CLOSED--> FENCE again, whose turn reports;  ANSWER, LEASE --the lease is over--> OVER
 *
 * The state after the fence is decided when the vqp fails, and again when the other side ends before the request. */
#ifndef HOLDFAST_VQP_RECOVERY_ENDING_H
#define HOLDFAST_VQP_RECOVERY_ENDING_H

#include <stdbool.h>

#include "vqp/data/request_log.h"

enum ending_state {
	ENDING_NOT,    /* it has not failed */
	ENDING_FENCE,  /* waiting for the fence of the path in use, or for the turn after it */
	ENDING_ANSWER, /* waiting for the other side's CLOSED, or for its lease */
	ENDING_LEASE,  /* waiting for the other side's lease */
	ENDING_OVER,   /* its wrs have completed */
	ENDING_STATES,
};

enum ending_event {
	ENDING_EVENT_FENCED,
	ENDING_EVENT_CLOSED, /* the other side has ended, and nothing of our wrs happens there any more */
	ENDING_EVENT_STRAYS, /* the same, but for the wrs on a standby qp that it did not know of */
	ENDING_EVENT_LEASE,  /* the other side's lease is over, or there is no other side */
};

enum ending_action {
	ENDING_ASK = 1 << 0,    /* the other side is to end */
	ENDING_REPORT = 1 << 1, /* wrs complete */
};

struct ending {
	uint32_t vqp;                  /* its number, in the log */
	enum ending_state state, next; /* next: what follows the fence */
	bool tells;                    /* CLOSED, when it is over */
	struct request_log_end wrs;    /* how they end */
};

static inline bool ending_goes_on(const struct ending *ending)
{
	return ending->state != ENDING_NOT && ending->state != ENDING_OVER;
}

/* The other side got a request to end, or will get it. */
static inline bool ending_asks(const struct ending *ending)
{
	return ending->state == ENDING_ANSWER || (ending->state == ENDING_FENCE && ending->next == ENDING_ANSWER);
}

void ending_begin(struct ending *ending, enum ending_state next, bool tells);
unsigned ending_step(struct ending *ending, enum ending_event event); /* returns the actions */
void ending_reset(struct ending *ending);                             /* as new */

#endif
