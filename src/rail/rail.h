/* rail.h - health of one (local NIC, remote NIC) path, as a pure step, and the choice among paths in configured order.
 *
 * A rail whose wr failed although its links are up is paused, for twice as long each time it happens again soon. The
 * pause continues when the control path of the rail goes down and up: a failing rail makes it suspect, and it returns
 * at once when only data is lost. */
#ifndef HOLDFAST_RAIL_RAIL_H
#define HOLDFAST_RAIL_RAIL_H

#include <stdbool.h>
#include <stdint.h>

#include <holdfast/dev.h>

enum rail_state {
	RAIL_DOWN,   /* waiting for both ports and the control path */
	RAIL_UP,     /* may be used */
	RAIL_PAUSED, /* waiting for the cooldown to end */
	RAIL_STATES,
};

enum rail_event {
	RAIL_EVENT_LINK_UP,
	RAIL_EVENT_LINK_DOWN,
	RAIL_EVENT_WC_ERROR, /* a wr failed in a way that means the path */
	RAIL_EVENT_TICK,
};

struct rail {
	enum rail_state state;
	char name[2 * HF_NAME_BYTES + 4]; /* in the log */
	uint64_t up_since_ns, resume_at_ns;
	uint64_t pause_ns;  /* of the last pause */
	uint64_t failed_ns; /* when a wr failed last */
};

struct rail_actions {
	bool became_up, became_unusable;
};

void rail_init(struct rail *rail);
void rail_set_name(struct rail *rail, const char *name, const char *peer);
void rail_step(struct rail *rail, enum rail_event event, uint64_t now_ns, struct rail_actions *actions);

/* The first of the usable rails (bit per rail, in order of preference), or -1. */
int rail_choose(uint32_t usable);

#endif
