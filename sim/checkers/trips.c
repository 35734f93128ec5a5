#include "sim/checkers/trips.h"

#include <stdio.h>
#include <string.h>

#define CLOSED_NS_MAX 5000000ull /* from the end of a probe until its success is seen */
#define COOLDOWN_MAX  300e9

enum trip_line trips_read(const char *line, unsigned *rail_out, char *peer_out)
{
	unsigned there;
	char peer;

	if (sscanf(line, "Rail paused: local_nic=r%u remote_nic=%c/r%u", rail_out, &peer, &there) == 3) {
		*peer_out = peer;
		return TRIP_PAUSED;
	}
	if (sscanf(line, "Rail recovered: local_nic=r%u remote_nic=%c/r%u", rail_out, &peer, &there) == 3) {
		*peer_out = peer;
		return TRIP_RECOVERED;
	}
	return strncmp(line, "Transport failover: ", 20) == 0 ? TRIP_SWITCH : TRIP_OTHER;
}

static const char *paused(struct trips *trips, const char *line, struct trip_rail *rail, const struct trip_path *path,
	uint64_t now_ns, char why[160])
{
	const char *at = strstr(line, "(for ");
	double most = (double)trips->cooldown_ns, seconds = 0;

	for (unsigned i = 0; i < rail->trips && most < COOLDOWN_MAX; i++)
		most *= 2;
	most = most < COOLDOWN_MAX ? most : COOLDOWN_MAX;
	snprintf(why, 160, "%.150s", line);
	if (at == NULL || sscanf(at, "(for %lf s)", &seconds) != 1)
		return "pause";
	if (!path->troubled)
		return "blame";
	if (seconds * 1e9 > most * 1.001 || seconds * 1e9 < (double)trips->cooldown_ns * 0.999) {
		snprintf(why, 160, "trip %u of a rail pauses it for %.3f s, but %.3f s is the most", rail->trips + 1,
			seconds, most / 1e9);
		return "pause";
	}
	if (rail->paused && now_ns - rail->paused_ns < rail->pause_ns / 1000 * 999) {
		snprintf(why, 160, "a rail trips again %.3f ms after a trip, without having recovered",
			(double)(now_ns - rail->paused_ns) / 1e6);
		return "pause";
	}
	rail->trips++;
	rail->paused = true;
	rail->paused_ns = now_ns;
	rail->pause_ns = (uint64_t)(seconds * 1e9);
	return NULL;
}

static const char *recovered(struct trip_rail *rail, const struct trip_path *path, char why[160])
{
	rail->paused = false;
	if (path->closed_ns <= CLOSED_NS_MAX)
		return NULL;
	snprintf(why, 160, "a rail recovers although nothing has passed its path for %.3f ms",
		(double)path->closed_ns / 1e6);
	return "half-open";
}

static const char *switched(struct trips *trips, const char *line, char why[160])
{
	const char *at = strstr(line, "(attempt "), *more = strstr(line, "; ");
	unsigned attempt = 0, most = 0, left_out = 0;

	if (more != NULL && sscanf(more, "; %u such lines were left out", &left_out) != 1)
		left_out = 0;
	trips->switches += 1 + left_out;
	snprintf(why, 160, "%.150s", line);
	if (at == NULL || sscanf(at, "(attempt %u/%u)", &attempt, &most) != 2)
		return "budget";
	return attempt == 0 || attempt > most || most != trips->attempts ? "budget" : NULL;
}

const char *trips_hear(struct trips *trips, const char *line, unsigned slot, const struct trip_path *path,
	uint64_t now_ns, char why[160])
{
	char peer;
	unsigned rail;

	switch (trips_read(line, &rail, &peer)) {
	case TRIP_PAUSED:
		return paused(trips, line, &trips->rails[slot], path, now_ns, why);
	case TRIP_RECOVERED:
		return recovered(&trips->rails[slot], path, why);
	case TRIP_SWITCH:
		return switched(trips, line, why);
	case TRIP_OTHER:
		break;
	}
	return NULL;
}
