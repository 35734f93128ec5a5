#include "vqp/recovery/ending.h"

#include "base/ensure.h"
#include "base/states.h"

static const struct state ending_states[ENDING_STATES] = {
	[ENDING_NOT] = {"not", BIT(ENDING_FENCE)},
	[ENDING_FENCE] = {"fence", BIT(ENDING_ANSWER) | BIT(ENDING_LEASE) | BIT(ENDING_OVER) | BIT(ENDING_NOT)},
	[ENDING_ANSWER] = {"answer", BIT(ENDING_FENCE) | BIT(ENDING_OVER)},
	[ENDING_LEASE] = {"lease", BIT(ENDING_OVER)},
	[ENDING_OVER] = {"over", BIT(ENDING_NOT)},
};

static void ending_move(struct ending *ending, enum ending_state to)
{
	states_move("ending", ending_states, &ending->state, to, "of vqp %u", ending->vqp);
}

void ending_begin(struct ending *ending, enum ending_state next, bool tells)
{
	ensure(next == ENDING_ANSWER || next == ENDING_LEASE || next == ENDING_OVER);
	ending_move(ending, ENDING_FENCE);
	ending->next = next;
	ending->tells = tells;
}

void ending_reset(struct ending *ending)
{
	if (ending->state != ENDING_NOT)
		ending_move(ending, ENDING_NOT);
}

static unsigned on_fenced(struct ending *ending)
{
	ending_move(ending, ending->next);
	if (ending->state == ENDING_OVER)
		return ENDING_REPORT;
	if (ending->state != ENDING_ANSWER)
		return 0;
	ending->tells = false; /* it is told now */
	return ENDING_ASK;
}

/* The other side may end before it was asked to. */
static void on_closed(struct ending *ending, enum ending_state next)
{
	if (!ending_asks(ending))
		return;
	if (ending->state == ENDING_ANSWER)
		ending_move(ending, ENDING_FENCE);
	ending->next = next;
}

unsigned ending_step(struct ending *ending, enum ending_event event)
{
	switch (event) {
	case ENDING_EVENT_FENCED:
		return ending->state == ENDING_FENCE ? on_fenced(ending) : 0;
	case ENDING_EVENT_CLOSED:
		on_closed(ending, ENDING_OVER);
		return 0;
	case ENDING_EVENT_STRAYS:
		on_closed(ending, ENDING_LEASE);
		return 0;
	case ENDING_EVENT_LEASE:
		if (ending->state != ENDING_ANSWER && ending->state != ENDING_LEASE)
			return 0;
		ending_move(ending, ENDING_OVER);
		return ENDING_REPORT;
	}
	return 0;
}
