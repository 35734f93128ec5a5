/* The rail monitor's states and what moves between them.
 *
 *              threshold reached                      probe begins
 *   HEALTHY -----------------------> PAUSED ---------------------------> PROBING
 *      |  ^                          ^   ^        (resume_ns; every          |  |
 *      |  |                          |   |         probe_interval_ns;        |  |
 *      |  |                          |   |         ports up again)           |  |
 *      |  |        probe good        |   +-----------------------------------+  |
 *      |  +--------------------------)------------ probe bad ------------------ |
 *      |                             |                                          |
 *      +---- ports up again ---------)----------------------------------------->+
 *
 * A bad probe that began before resume_ns leaves the pause as it was; a later one is a trip. */
#include "transfer/rail_monitor.h"

#include "base/ensure.h"
#include "base/states.h"

static const struct state rail_monitor_states[RAIL_MONITOR_STATES] = {
	[RAIL_MONITOR_HEALTHY] = {"healthy", BIT(RAIL_MONITOR_PAUSED) | BIT(RAIL_MONITOR_PROBING)},
	[RAIL_MONITOR_PAUSED] = {"paused", BIT(RAIL_MONITOR_PROBING)},
	[RAIL_MONITOR_PROBING] = {"probing", BIT(RAIL_MONITOR_HEALTHY) | BIT(RAIL_MONITOR_PAUSED)},
};

static void rail_monitor_move(struct rail_monitor *rail, enum rail_monitor_state to)
{
	states_move("rail", rail_monitor_states, &rail->state, to, "%s to %s", rail->name, rail->peer);
}

void rail_monitor_init(struct rail_monitor *rail, const char *name, const char *peer,
	const struct rail_monitor_config *config, bool reachable, uint64_t now_ns)
{
	*rail = (struct rail_monitor){.name = name,
		.peer = peer,
		.config = config,
		.state = RAIL_MONITOR_HEALTHY,
		.reachable = reachable,
		.service_ns = now_ns};
}

static uint64_t cooldown_ns(const struct rail_monitor *rail)
{
	uint64_t cooldown = rail->config->cooldown_ns;

	for (unsigned i = 0; i < rail->level && cooldown < RAIL_COOLDOWN_MAX_NS; i++)
		cooldown *= 2;
	return cooldown < RAIL_COOLDOWN_MAX_NS ? cooldown : RAIL_COOLDOWN_MAX_NS;
}

/* Each period of faultless service that is as long as the next pause would be takes one doubling away (R-T13). */
static void decay(struct rail_monitor *rail, uint64_t now_ns)
{
	while (rail->level > 0 && now_ns - rail->service_ns >= cooldown_ns(rail)) {
		rail->service_ns += cooldown_ns(rail);
		rail->level--;
	}
}

/* PAUSED: the next probe is due after the interval, and at the end of the pause. */
static void schedule_probe(struct rail_monitor *rail, uint64_t now_ns)
{
	rail->probe_ns = now_ns + rail->config->probe_interval_ns;
	if (now_ns < rail->resume_ns && rail->resume_ns < rail->probe_ns)
		rail->probe_ns = rail->resume_ns;
}

static void trip(struct rail_monitor *rail, uint64_t now_ns, struct rail_monitor_actions *actions)
{
	rail_monitor_move(rail, RAIL_MONITOR_PAUSED);
	rail->resume_ns = now_ns + cooldown_ns(rail);
	schedule_probe(rail, now_ns);
	rail->level++;
	rail->life++;
	rail->error_count = 0;
	actions->paused = true;
}

static void count_error(struct rail_monitor *rail, uint64_t now_ns, struct rail_monitor_actions *actions)
{
	bool recent = rail->error_count > 0 && now_ns - rail->error_ns <= rail->config->error_window_ns;

	decay(rail, now_ns);
	rail->service_ns = now_ns;
	rail->error_count = recent ? rail->error_count + 1 : 1;
	rail->error_ns = now_ns;
	if (rail->error_count >= rail->config->error_threshold)
		trip(rail, now_ns, actions);
}

static void begin_probe(struct rail_monitor *rail, uint64_t now_ns, struct rail_monitor_actions *actions)
{
	rail_monitor_move(rail, RAIL_MONITOR_PROBING);
	rail->early = now_ns < rail->resume_ns;
	actions->probe = true;
}

/* A probe that fails because a port went down again, or before the pause is over, is no further error. */
static void probe_failed(struct rail_monitor *rail, uint64_t now_ns, struct rail_monitor_actions *actions)
{
	if (rail->reachable && !rail->early) {
		trip(rail, now_ns, actions);
		return;
	}
	rail_monitor_move(rail, RAIL_MONITOR_PAUSED);
	schedule_probe(rail, now_ns);
}

static void probe_succeeded(struct rail_monitor *rail, uint64_t now_ns, struct rail_monitor_actions *actions)
{
	rail_monitor_move(rail, RAIL_MONITOR_HEALTHY);
	rail->service_ns = now_ns;
	actions->recovered = rail->resume_ns != 0;
	actions->early = now_ns < rail->resume_ns;
}

void rail_monitor_step(struct rail_monitor *rail, const struct rail_monitor_event *event, uint64_t now_ns,
	struct rail_monitor_actions *actions)
{
	bool back = event->type == RAIL_MONITOR_EVENT_REACHABLE && !rail->reachable;

	*actions = (struct rail_monitor_actions){0};
	if (event->type == RAIL_MONITOR_EVENT_REACHABLE)
		rail->reachable = true;
	else if (event->type == RAIL_MONITOR_EVENT_UNREACHABLE)
		rail->reachable = false;
	switch (rail->state) {
	case RAIL_MONITOR_HEALTHY:
		if (back)
			begin_probe(rail, now_ns, actions);
		else if (event->type == RAIL_MONITOR_EVENT_ERROR && rail->reachable && event->life == rail->life)
			count_error(rail, now_ns, actions);
		break;
	case RAIL_MONITOR_PAUSED:
		if (back || (event->type == RAIL_MONITOR_EVENT_TICK && rail->reachable && now_ns >= rail->probe_ns))
			begin_probe(rail, now_ns, actions);
		break;
	case RAIL_MONITOR_PROBING:
		if (event->type == RAIL_MONITOR_EVENT_PROBE_GOOD)
			probe_succeeded(rail, now_ns, actions);
		else if (event->type == RAIL_MONITOR_EVENT_PROBE_BAD)
			probe_failed(rail, now_ns, actions);
		break;
	case RAIL_MONITOR_STATES:
		ensure(false);
	}
}

bool rail_monitor_available(const struct rail_monitor *rail)
{
	return rail->state == RAIL_MONITOR_HEALTHY && rail->reachable;
}

uint32_t rail_monitor_admit(const struct rail_monitor *rail)
{
	return rail->life;
}

uint64_t rail_monitor_wake_ns(const struct rail_monitor *rail)
{
	return rail->state == RAIL_MONITOR_PAUSED && rail->reachable ? rail->probe_ns : UINT64_MAX;
}
