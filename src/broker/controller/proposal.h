/* proposal.h - a command on its way to the controller, and the callback for its result.
 *
 * The struct is the caller's, usually in a request's arena, until done() or proposal_cancel. */
#ifndef HOLDFAST_BROKER_PROPOSAL_H
#define HOLDFAST_BROKER_PROPOSAL_H

#include "broker/controller/controller.h"

struct proposal {
	/* Once, after the command was applied here: within broker_propose where there is one broker. */
	void (*done)(struct proposal *proposal, const struct controller_result *result);
	struct proposal **held; /* the pointer to this struct while it waits; NULL: none */
};

/* The command continues, without a callback. Also legal after done(). */
static inline void proposal_cancel(struct proposal *proposal)
{
	if (proposal->held != NULL)
		*proposal->held = NULL;
	proposal->held = NULL;
}

#endif
