/* trips.h - how an engine judges its rails, and what it says of that, held against the plan of faults and the rules.
 *
 *   blame      a rail trips only if something happened to its path shortly before (R-T10 to R-T12, R-T16)
 *   pause      the first pause is the cooldown; each later one at most twice the longest that was possible before
 *              (R-T13), and none begins before the last one is over, unless the rail recovered between (T6)
 *   half-open  a rail does not open while nothing passes its path (R-T14)
 *   budget     no task moves more often than it may (R-T9), and not more is said than counted
 *   lines      of a rail an operator reads one line a second at most (T6)
 *
 * It looks at states and log lines, and shares no code with the product. */
#ifndef HOLDFAST_SIM_CHECKERS_TRIPS_H
#define HOLDFAST_SIM_CHECKERS_TRIPS_H

#include <stdbool.h>
#include <stdint.h>

#define TRIPS_RAILS 8u
#define TRIPS_WORDS 160u

/* Of one rail to one node, in the requester's life. */
struct trip_rail {
	const void *peer; /* incarnation of the node; NULL: not seen yet */
	unsigned trips;
	uint32_t life;
	bool open, paused;
	uint64_t paused_ns, pause_ns, line_ns;
};

struct trips {
	uint64_t cooldown_ns;
	uint64_t line_gap_ns; /* between lines of one rail, at least */
	unsigned attempts;    /* that a task may move */
	uint64_t switches;    /* said so far, and those that were said to be left out */
	struct trip_rail rails[TRIPS_RAILS];
};

/* A rail as it is seen now. */
struct trip_sight {
	const void *peer;
	uint32_t life;    /* counts trips */
	bool open;        /* it may carry requests */
	uint64_t left_ns; /* of the pause */
};

/* What is known of the path of a rail at this moment. */
struct trip_path {
	bool troubled;      /* something happened to it, so recently that it may be an error that counts */
	uint64_t closed_ns; /* nothing has passed it for so long, while the requester ran; 0: it is open */
};

/* Both: NULL: as it may be; else the claim, and the words why in `why`. */
const char *trips_see(struct trips *trips, unsigned rail, const struct trip_sight *sight, const struct trip_path *path,
	uint64_t now_ns, char why[TRIPS_WORDS]);
const char *trips_hear(struct trips *trips, const char *line, uint64_t now_ns, char why[TRIPS_WORDS]);

#endif
