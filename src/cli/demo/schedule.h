/* schedule.h - the schedule of cuts and repairs: a pure step.
 *
 * The rail that carries the traffic is cut, after the other one was observed up; it stays down for a while and is
 * restored. Some cuts come before traffic has returned to the preferred rail and some after, so that both rails are cut
 * and fail-back is exercised too. */
#ifndef HOLDFAST_CLI_DEMO_SCHEDULE_H
#define HOLDFAST_CLI_DEMO_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#define SCHEDULE_RAILS 2

enum schedule_state {
	SCHEDULE_QUIET, /* both up; waiting for the time of the next cut, and for both rails to be seen up */
	SCHEDULE_DOWN,  /* one is cut; waiting for the time to restore it */
	SCHEDULE_OVER,  /* all is up again and stays so */
};

struct schedule {
	enum schedule_state state;
	uint64_t due_ns;  /* of the next move */
	uint64_t end_ns;  /* no cut begins after it, but for the least */
	uint64_t down_ns; /* how long a rail stays cut */
	uint64_t failback_ns;
	unsigned least, most, cuts;
	unsigned rail; /* the one that is cut, or was last */
};

struct schedule_view {
	int active; /* the rail that carries traffic; -1: none does */
	bool up[SCHEDULE_RAILS];
};

enum schedule_act { SCHEDULE_WAIT, SCHEDULE_CUT, SCHEDULE_RESTORE };

/* At least `least` cuts, whatever the time; at most `most`. */
void schedule_start(struct schedule *schedule, uint64_t now_ns, uint64_t seconds_ns, uint64_t down_ns,
	uint64_t failback_ns, unsigned least, unsigned most);
/* What to do now; the rail that it is about is in schedule->rail. */
enum schedule_act schedule_step(struct schedule *schedule, const struct schedule_view *view, uint64_t now_ns);

#endif
