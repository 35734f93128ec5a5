/* schedule.h - selects the lane of the next slice (R-T17). Pure.
 *
 * Each lane has an estimate of its speed, from the slices that end on it. Their bytes and times are averaged
 * separately: ends come unevenly, and two ends close together are no sign of a fast lane. The next slice goes to the
 * lane with the earliest expected end: least (bytes in flight + slice) / speed. So a slow lane keeps a small share, and
 * its estimate stays current. A lane whose window is full still counts: the slice waits for it instead of taking a lane
 * where it would end later. */
#ifndef HOLDFAST_TRANSFER_SCHEDULE_H
#define HOLDFAST_TRANSFER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct lane_load {
	uint64_t in_flight; /* bytes */
	uint64_t window;    /* bytes in flight at the most */
	double speed;       /* bytes a nanosecond; 0: not known */
	double bytes, ns;   /* which it is made of: of what ended, the older the less */
	uint64_t ended_ns;  /* when a slice ended on it last, or began on the idle lane */
};

void lane_load_init(struct lane_load *lane, uint64_t window);
void lane_load_sent(struct lane_load *lane, uint64_t bytes, uint64_t now_ns);
/* `good`: the bytes arrived, and tell the lane's speed. */
void lane_load_ended(struct lane_load *lane, uint64_t bytes, bool good, uint64_t now_ns);

/* The lane for a slice of `bytes` among those in `open` (bit per lane); -1: none is open, or the best is full. */
int schedule_choose(const struct lane_load *lanes, unsigned n, uint32_t open, uint64_t bytes, uint64_t now_ns);

#endif
