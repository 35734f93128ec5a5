#include "cli/demo/schedule.h"

#include "base/ensure.h"

#include <string.h>

#define MS               1000000ull
#define FIRST_CUT_NS     (300 * MS)  /* so that the picture begins with undisturbed traffic */
#define SETTLE_NS        (150 * MS)  /* beyond the fail-back */
#define PATIENCE_NS      (3000 * MS) /* for the other rail to come back; then the cut is made regardless */
#define CUTS_A_ROUND     3
#define CUT_BEFORE_ROUND 0 /* in each round, the pause after this cut ends before the fail-back */

void schedule_start(struct schedule *schedule, uint64_t now_ns, uint64_t seconds_ns, uint64_t down_ns,
	uint64_t failback_ns, unsigned least, unsigned most)
{
	memset(schedule, 0, sizeof(*schedule));
	schedule->state = SCHEDULE_QUIET;
	schedule->due_ns = now_ns + FIRST_CUT_NS;
	schedule->end_ns = now_ns + seconds_ns;
	schedule->down_ns = down_ns;
	schedule->failback_ns = failback_ns;
	schedule->least = least;
	schedule->most = most;
}

static uint64_t pause_after(const struct schedule *schedule)
{
	if ((schedule->cuts - 1) % CUTS_A_ROUND == CUT_BEFORE_ROUND)
		return schedule->failback_ns / 2;
	return schedule->failback_ns + SETTLE_NS;
}

static bool is_over(const struct schedule *schedule, uint64_t now_ns)
{
	return schedule->cuts >= schedule->most || (schedule->cuts >= schedule->least && now_ns >= schedule->end_ns);
}

static bool may_cut(const struct schedule *schedule, const struct schedule_view *view, uint64_t now_ns)
{
	if (view->active < 0)
		return false; /* nothing to be seen when nothing moves */
	return (view->up[0] && view->up[1]) || now_ns >= schedule->due_ns + PATIENCE_NS;
}

enum schedule_act schedule_step(struct schedule *schedule, const struct schedule_view *view, uint64_t now_ns)
{
	switch (schedule->state) {
	case SCHEDULE_QUIET:
		if (now_ns < schedule->due_ns)
			return SCHEDULE_WAIT;
		if (is_over(schedule, now_ns)) {
			schedule->state = SCHEDULE_OVER;
			return SCHEDULE_WAIT;
		}
		if (!may_cut(schedule, view, now_ns))
			return SCHEDULE_WAIT;
		schedule->state = SCHEDULE_DOWN;
		schedule->rail = (unsigned)view->active;
		schedule->cuts++;
		schedule->due_ns = now_ns + schedule->down_ns;
		return SCHEDULE_CUT;
	case SCHEDULE_DOWN:
		if (now_ns < schedule->due_ns)
			return SCHEDULE_WAIT;
		schedule->state = SCHEDULE_QUIET;
		schedule->due_ns = now_ns + pause_after(schedule);
		return SCHEDULE_RESTORE;
	case SCHEDULE_OVER:
		return SCHEDULE_WAIT;
	}
	ensure(false);
	return SCHEDULE_WAIT;
}
