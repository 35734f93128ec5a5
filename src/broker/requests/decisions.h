/* decisions.h - a request that waits for commands of the controller, and is answered when all of them were applied.
 *
 * Each command has a place; `decided` is called with its result, and `finish` after the last one, or when the time is
 * over. An undecided command has the error that its place had before, such as DECISIONS_LATE. With a single
 * broker, all of this happens within decisions_end. */
#ifndef HOLDFAST_BROKER_DECISIONS_H
#define HOLDFAST_BROKER_DECISIONS_H

#include "broker/requests/handlers.h"

#define DECISIONS_LATE KAFKA_REQUEST_TIMED_OUT

struct decisions;

struct decision {
	struct proposal proposal;
	struct decisions *all;
	int32_t place;
};

struct decisions {
	struct request *request;
	void *response; /* of the handler, in the request's arena */
	/* NULL: nothing to do. */
	void (*decided)(struct decisions *decisions, int32_t place, const struct controller_result *result);
	void (*finish)(struct decisions *decisions); /* answers the request */
	struct decision *at;
	int32_t count, left;
};

/* With memory for `count` commands, and a response of this many bytes; NULL: no memory, and the connection ends. */
struct decisions *decisions_begin(struct request *request, size_t response_bytes, int32_t count,
	void (*decided)(struct decisions *decisions, int32_t place, const struct controller_result *result),
	void (*finish)(struct decisions *decisions));
/* One for each place at most. `create`: a command of controller_check. */
void decisions_propose(struct decisions *decisions, int32_t place, const struct kafka_controller_command *command);
/* The proposal of a place, for calls of the broker that propose. */
struct proposal *decisions_expect(struct decisions *decisions, int32_t place);
/* All are proposed. */
void decisions_end(struct decisions *decisions, uint64_t timeout_ns);
/* A `finish` that sends the response. */
void decisions_answer(struct decisions *decisions);

#endif
