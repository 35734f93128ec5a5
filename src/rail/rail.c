#include "rail/rail.h"

#include <stdio.h>

#include "base/ensure.h"
#include "base/states.h"

#define PAUSE_MIN_NS    100000000ull
#define PAUSE_MAX_NS    10000000000ull
#define PAUSE_FORGET_NS 5000000000ull /* up for so long without an error: the next pause is a short one again */

static const struct state rail_states[RAIL_STATES] = {
	[RAIL_DOWN] = {"down", BIT(RAIL_UP) | BIT(RAIL_PAUSED)},
	[RAIL_UP] = {"up", BIT(RAIL_DOWN) | BIT(RAIL_PAUSED)},
	[RAIL_PAUSED] = {"paused", BIT(RAIL_UP) | BIT(RAIL_DOWN)},
};

static void rail_move(struct rail *rail, enum rail_state to)
{
	states_move("rail", rail_states, &rail->state, to, "%s", rail->name);
}

void rail_init(struct rail *rail)
{
	*rail = (struct rail){.state = RAIL_DOWN};
}

void rail_set_name(struct rail *rail, const char *name, const char *peer)
{
	snprintf(rail->name, sizeof(rail->name), "%s to %s", name, peer);
}

static void rail_up(struct rail *rail, uint64_t now_ns, struct rail_actions *actions)
{
	rail_move(rail, RAIL_UP);
	rail->up_since_ns = now_ns;
	actions->became_up = true;
}

static void begin_pause(struct rail *rail, uint64_t now_ns)
{
	bool calm = now_ns - rail->up_since_ns >= PAUSE_FORGET_NS;

	rail->pause_ns = rail->pause_ns == 0 || calm ? PAUSE_MIN_NS : rail->pause_ns * 2;
	if (rail->pause_ns > PAUSE_MAX_NS)
		rail->pause_ns = PAUSE_MAX_NS;
	rail->resume_at_ns = now_ns + rail->pause_ns;
}

void rail_step(struct rail *rail, enum rail_event event, uint64_t now_ns, struct rail_actions *actions)
{
	*actions = (struct rail_actions){0};
	if (event == RAIL_EVENT_WC_ERROR)
		rail->failed_ns = now_ns;
	switch (rail->state) {
	case RAIL_DOWN:
		if (event == RAIL_EVENT_WC_ERROR && now_ns >= rail->resume_at_ns)
			begin_pause(rail, now_ns);
		else if (event == RAIL_EVENT_LINK_UP && now_ns < rail->resume_at_ns)
			rail_move(rail, RAIL_PAUSED);
		else if (event == RAIL_EVENT_LINK_UP)
			rail_up(rail, now_ns, actions);
		break;
	case RAIL_UP:
		if (event == RAIL_EVENT_LINK_DOWN) {
			rail_move(rail, RAIL_DOWN);
			actions->became_unusable = true;
		} else if (event == RAIL_EVENT_WC_ERROR) {
			rail_move(rail, RAIL_PAUSED);
			begin_pause(rail, now_ns);
			actions->became_unusable = true;
		}
		break;
	case RAIL_PAUSED:
		if (event == RAIL_EVENT_LINK_DOWN)
			rail_move(rail, RAIL_DOWN);
		else if (event == RAIL_EVENT_TICK && now_ns >= rail->resume_at_ns)
			rail_up(rail, now_ns, actions);
		break;
	case RAIL_STATES:
		ensure(false);
	}
}

int rail_choose(uint32_t usable)
{
	return usable == 0 ? -1 : __builtin_ctz(usable);
}
