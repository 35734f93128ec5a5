#include "vqp/recovery/recovery.h"

#include "base/ensure.h"
#include "base/states.h"

/* Of the budget, and the time that a wr waits on it: a path that was there for so long ends an outage. */
#define HELD_PART 2

static const struct state recovery_states[RECOVERY_STATES] = {
	[RECOVERY_IDLE] = {"idle", BIT(RECOVERY_QUIET) | BIT(RECOVERY_FENCE)},
	[RECOVERY_QUIET] = {"quiet", BIT(RECOVERY_QUIET) | BIT(RECOVERY_FENCE) | BIT(RECOVERY_EXCHANGE)},
	[RECOVERY_FENCE] = {"fence", BIT(RECOVERY_QUIET) | BIT(RECOVERY_FENCE) | BIT(RECOVERY_EXCHANGE) |
					     BIT(RECOVERY_PATH) | BIT(RECOVERY_FAILED)},
	[RECOVERY_EXCHANGE] = {"exchange",
		BIT(RECOVERY_QUIET) | BIT(RECOVERY_FENCE) | BIT(RECOVERY_PATH) | BIT(RECOVERY_FAILED)},
	[RECOVERY_PATH] = {"path", BIT(RECOVERY_QUIET) | BIT(RECOVERY_FENCE) | BIT(RECOVERY_BUILD) |
					   BIT(RECOVERY_IDLE) | BIT(RECOVERY_FAILED)},
	[RECOVERY_BUILD] = {"build",
		BIT(RECOVERY_QUIET) | BIT(RECOVERY_FENCE) | BIT(RECOVERY_IDLE) | BIT(RECOVERY_FAILED)},
	[RECOVERY_FAILED] = {"failed", 0},
};

const char *recovery_state_name(enum recovery_state state)
{
	static const char *const names[RECOVERY_STATES] = {
		[RECOVERY_IDLE] = "nothing",
		[RECOVERY_QUIET] = "the last wr",
		[RECOVERY_FENCE] = "the fence",
		[RECOVERY_EXCHANGE] = "the peer's STATE",
		[RECOVERY_PATH] = "a rail",
		[RECOVERY_BUILD] = "the peer's qp",
		[RECOVERY_FAILED] = "nothing",
	};

	return names[state];
}

static void recovery_move(struct recovery *recovery, enum recovery_state to)
{
	states_move("recovery", recovery_states, &recovery->state, to, "of vqp %u", recovery->vqp);
}

void recovery_init(struct recovery *recovery, uint32_t vqp, bool picks, uint64_t budget_ns, uint64_t retries_ns)
{
	*recovery = (struct recovery){.vqp = vqp,
		.picks = picks,
		.rail = -1,
		.budget_ns = budget_ns,
		.held_ns = budget_ns / HELD_PART + retries_ns};
}

void recovery_progress(struct recovery *recovery)
{
	if (recovery->state == RECOVERY_IDLE)
		recovery->stopped = false;
}

/* An outage is over when a wr completes, but its last ones may have been judged, and the program post nothing more. */
static bool is_new_outage(const struct recovery *recovery, uint64_t now_ns)
{
	return !recovery->stopped ||
	       (recovery->state == RECOVERY_IDLE && now_ns - recovery->resumed_ns >= recovery->held_ns);
}

static unsigned begin(struct recovery *recovery, uint32_t epoch, enum recovery_kind kind, uint64_t now_ns)
{
	if (is_new_outage(recovery, now_ns)) {
		recovery->stopped = true;
		recovery->since_ns = now_ns;
	}
	recovery->epoch = epoch;
	recovery->kind = kind;
	recovery->said = recovery->heard = recovery->settled = recovery->fenced = recovery->go = false;
	recovery->rail = -1;
	if (kind == RECOVERY_FAILBACK) {
		recovery_move(recovery, RECOVERY_QUIET);
		return RECOVERY_HOLD | RECOVERY_DO_QUIET;
	}
	recovery_move(recovery, RECOVERY_FENCE);
	return RECOVERY_HOLD | RECOVERY_DO_FENCE;
}

static unsigned resume(struct recovery *recovery)
{
	recovery_move(recovery, RECOVERY_IDLE);
	if (recovery->idle)
		recovery_progress(recovery);
	return RECOVERY_RESUME;
}

/* Once more it would take a path that may carry nothing, as those before it. */
static unsigned choose(struct recovery *recovery, uint32_t usable)
{
	if (recovery->spent) {
		recovery_move(recovery, RECOVERY_FAILED);
		return RECOVERY_FAIL;
	}
	if (recovery->picks) {
		if (usable == 0)
			return 0;
		ensure(recovery->said && recovery->heard);
		recovery->rail = __builtin_ctz(usable);
		recovery_move(recovery, RECOVERY_BUILD);
		return RECOVERY_DO_GO;
	}
	if (!recovery->go)
		return 0;
	recovery->go = false;
	recovery_move(recovery, RECOVERY_BUILD);
	return RECOVERY_DO_BUILD | (recovery->go_at_once ? resume(recovery) : 0);
}

/* Both STATEs are known and our old qp is fenced: verdicts, then the path. */
static unsigned settle(struct recovery *recovery, uint32_t usable)
{
	ensure(recovery->fenced);
	recovery_move(recovery, RECOVERY_PATH);
	recovery->settled = true;
	return RECOVERY_SETTLE | choose(recovery, usable);
}

static unsigned say(struct recovery *recovery)
{
	ensure(!recovery->said);
	recovery->said = true;
	recovery_move(recovery, RECOVERY_EXCHANGE);
	return RECOVERY_SEND_STATE;
}

/* What follows when both have spoken: a failback fences only now. */
static unsigned both_spoke(struct recovery *recovery, uint32_t usable)
{
	if (recovery->fenced)
		return settle(recovery, usable);
	recovery_move(recovery, RECOVERY_FENCE);
	return RECOVERY_DO_FENCE;
}

static unsigned on_fenced(struct recovery *recovery, uint32_t usable)
{
	unsigned actions = 0;

	if (recovery->state != RECOVERY_FENCE)
		return 0;
	recovery->fenced = true;
	if (!recovery->said)
		actions |= say(recovery);
	return recovery->heard ? actions | settle(recovery, usable) : actions;
}

static unsigned on_fence_message(struct recovery *recovery, const struct recovery_event *event, uint64_t now_ns)
{
	bool newer = (int32_t)(event->epoch - recovery->epoch) > 0;
	bool overrules = event->epoch == recovery->epoch && recovery->state != RECOVERY_IDLE &&
			 recovery->kind == RECOVERY_FAILBACK && event->kind == RECOVERY_FAILOVER;

	return newer || overrules ? begin(recovery, event->epoch, event->kind, now_ns) : 0;
}

static unsigned on_state(struct recovery *recovery, const struct recovery_event *event)
{
	if (event->epoch != recovery->epoch || event->kind != recovery->kind || recovery->heard)
		return 0;
	recovery->heard = true;
	return recovery->state == RECOVERY_EXCHANGE ? both_spoke(recovery, event->usable) : 0;
}

static unsigned on_quiet(struct recovery *recovery, uint32_t usable)
{
	unsigned actions;

	if (recovery->state != RECOVERY_QUIET)
		return 0;
	actions = say(recovery);
	return recovery->heard ? actions | both_spoke(recovery, usable) : actions;
}

static unsigned on_rails(struct recovery *recovery, const struct recovery_event *event)
{
	bool waits = recovery->state == RECOVERY_FENCE || recovery->state == RECOVERY_EXCHANGE ||
		     recovery->state == RECOVERY_PATH || recovery->state == RECOVERY_BUILD;

	if (waits && recovery->spent) {
		recovery_move(recovery, RECOVERY_FAILED);
		return RECOVERY_FAIL;
	}
	return recovery->state == RECOVERY_PATH ? choose(recovery, event->usable) : 0;
}

static unsigned on_broken(struct recovery *recovery, uint64_t now_ns)
{
	/* While the old path is being fenced it fails no further; a failback that loses its path is a failover. */
	if (recovery->state != RECOVERY_IDLE && recovery->state != RECOVERY_QUIET &&
		recovery->state != RECOVERY_BUILD &&
		!(recovery->kind == RECOVERY_FAILBACK && recovery->state == RECOVERY_EXCHANGE))
		return 0;
	return RECOVERY_SEND_FENCE | begin(recovery, recovery->epoch + 1, RECOVERY_FAILOVER, now_ns);
}

static unsigned on_event(struct recovery *recovery, const struct recovery_event *event, uint64_t now_ns)
{
	switch (event->type) {
	case RECOVERY_EVENT_CONNECTED:
		ensure(recovery->epoch == 0);
		return begin(recovery, 1, RECOVERY_FAILOVER, now_ns);
	case RECOVERY_EVENT_BROKEN:
		return on_broken(recovery, now_ns);
	case RECOVERY_EVENT_RETURN:
		if (recovery->state != RECOVERY_IDLE || !recovery->picks)
			return 0;
		return RECOVERY_SEND_FENCE | begin(recovery, recovery->epoch + 1, RECOVERY_FAILBACK, now_ns);
	case RECOVERY_EVENT_QUIET:
		return on_quiet(recovery, event->usable);
	case RECOVERY_EVENT_FENCED:
		return on_fenced(recovery, event->usable);
	case RECOVERY_EVENT_FENCE:
		return on_fence_message(recovery, event, now_ns);
	case RECOVERY_EVENT_STATE:
		return on_state(recovery, event);
	case RECOVERY_EVENT_GO:
		if (event->epoch != recovery->epoch || recovery->picks || recovery->rail >= 0)
			return 0;
		recovery->rail = event->rail;
		recovery->go = true;
		recovery->go_at_once = event->ready_at_once;
		return recovery->state == RECOVERY_PATH ? choose(recovery, event->usable) : 0;
	case RECOVERY_EVENT_READY:
		if (event->epoch != recovery->epoch || recovery->state != RECOVERY_BUILD)
			return 0;
		return (recovery->picks ? RECOVERY_SEND_READY : 0) | resume(recovery);
	case RECOVERY_EVENT_RAILS:
		return on_rails(recovery, event);
	}
	return 0;
}

bool recovery_has_said(const struct recovery *recovery)
{
	return recovery->said && (recovery->state == RECOVERY_FENCE || recovery->state == RECOVERY_EXCHANGE ||
					 recovery->state == RECOVERY_PATH);
}

unsigned recovery_step(struct recovery *recovery, const struct recovery_event *event, uint64_t now_ns)
{
	unsigned actions;

	if (recovery->state == RECOVERY_FAILED)
		return 0;
	recovery->idle = event->idle;
	recovery->spent = recovery->stopped && now_ns - recovery->since_ns >= recovery->budget_ns;
	actions = on_event(recovery, event, now_ns);
	if (actions & RECOVERY_RESUME)
		recovery->resumed_ns = now_ns;
	return actions;
}
