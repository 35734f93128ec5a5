/* trips.h - what an engine says of its rails and switches, held against the plan of faults and the rules.
 *
 *   blame      a rail is paused only if something happened to its path shortly before (R-T10 to R-T12, R-T16)
 *   pause      the first pause is the cooldown; each later one at most twice the longest that was possible before
 *              (R-T13), and none begins before the last one is over, unless the rail recovered between (T6)
 *   half-open  a rail does not recover while nothing passes its path (R-T14)
 *   budget     no task moves more often than it may (R-T9), and not more is said than counted
 *
 * It reads log lines, as an operator does, and shares no code with the product. */
#ifndef HOLDFAST_SIM_CHECKERS_TRIPS_H
#define HOLDFAST_SIM_CHECKERS_TRIPS_H

#include <stdbool.h>
#include <stdint.h>

#define TRIPS_RAILS 8u

/* Of one rail to one node, in the requester's life. */
struct trip_rail {
	unsigned trips;
	bool paused;
	uint64_t paused_ns, pause_ns;
};

struct trips {
	uint64_t cooldown_ns;
	unsigned attempts; /* that a task may move */
	uint64_t switches; /* said so far, and those that were said to be left out */
	struct trip_rail rails[TRIPS_RAILS];
};

/* What is known of the path of a rail at this moment. */
struct trip_path {
	bool troubled;      /* something happened to it, so recently that it may be an error that counts */
	uint64_t closed_ns; /* nothing has passed it for so long, while the requester ran; 0: it is open */
};

enum trip_line { TRIP_OTHER, TRIP_PAUSED, TRIP_RECOVERED, TRIP_SWITCH };

/* What a line is about; PAUSED and RECOVERED: rail_out and the first letter of the peer. */
enum trip_line trips_read(const char *line, unsigned *rail_out, char *peer_out);

/* NULL: as it may be; else the claim, and the words why in `why`. `slot`: the caller's, of this rail and peer. */
const char *trips_hear(struct trips *trips, const char *line, unsigned slot, const struct trip_path *path,
	uint64_t now_ns, char why[160]);

#endif
