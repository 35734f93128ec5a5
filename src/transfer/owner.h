/* owner.h - a merged request and the transport that carries it: executes the actions of task.h.
 *
 * The owner is the only one that moves to another transport; requests that were merged into it mirror its status
 * (R-T8). Owned by the engine's loop. */
#ifndef HOLDFAST_TRANSFER_OWNER_H
#define HOLDFAST_TRANSFER_OWNER_H

#include <holdfast/loop.h>

#include "base/log.h"
#include "transfer/metrics.h"
#include "transfer/task.h"
#include "transfer/transport.h"

/* What all owners of an engine share. */
struct owner_context {
	struct hf_loop *loop;
	struct task_config config;
	bool fallback;                                    /* false: a task stays on its first transport (R-T23) */
	struct transport *ranked[HF_TRANSPORTS];          /* in the order of preference; NULL: not installed */
	uint64_t failovers[HF_TRANSPORTS][HF_TRANSPORTS]; /* switches by the transports' kinds */
	struct metrics *metrics;                          /* NULL: not measured */
	struct log_limit switched, failed;
};

struct owner {
	struct owner_context *context;
	struct task_request request;
	struct task task;
	struct transport_job job;
	struct hf_timer timer;
	unsigned aliases, cancels;
	uint64_t begun_ns, attempt_ns;      /* by the clock: when it was submitted, and to its transport */
	void (*ended)(struct owner *owner); /* once, when the status is final; may come before owner_begin returns */
};

/* The transport of this priority among those that the request may go to now; HF_TRANSPORTS: there is none. */
enum hf_transport owner_resolve(
	const struct owner_context *context, const struct task_request *request, unsigned priority);

/* The context outlives the owner. */
void owner_init(struct owner *owner, struct owner_context *context, const struct task_request *request);
void owner_free(struct owner *owner); /* of one that has ended, or never began */

void owner_begin(struct owner *owner);
/* Of one alias; the owner is cancelled when all aliases are. */
void owner_cancel(struct owner *owner);

#endif
