#include "sim/checkers/trips.h"

#include <stdio.h>
#include <string.h>

#define CLOSED_NS_MAX 5000000ull /* from the end of a probe until its success is seen */
#define COOLDOWN_MAX  300e9
#define RAILS         2u /* of a peer: nodes are named a, b, c, rails r0 and r1 */

static const char *tripped(struct trips *trips, struct trip_rail *rail, const struct trip_sight *sight,
	const struct trip_path *path, uint64_t now_ns, char why[TRIPS_WORDS])
{
	double most = (double)trips->cooldown_ns;
	bool too_soon = rail->paused && now_ns - rail->paused_ns < rail->pause_ns / 1000 * 990;

	for (unsigned i = 0; i < rail->trips && most < COOLDOWN_MAX; i++)
		most *= 2;
	most = most < COOLDOWN_MAX ? most : COOLDOWN_MAX;
	snprintf(why, TRIPS_WORDS,
		"trip %u pauses a rail for %.3f ms; %.3f ms is the most; the last one was %.3f ms ago", rail->trips + 1,
		(double)sight->left_ns / 1e6, most / 1e6, (double)(now_ns - rail->paused_ns) / 1e6);
	rail->trips++;
	rail->paused = true;
	rail->paused_ns = now_ns;
	rail->pause_ns = sight->left_ns;
	if (!path->troubled)
		return "blame";
	return (double)sight->left_ns > most * 1.001 || too_soon ? "pause" : NULL;
}

static const char *opened(struct trip_rail *rail, const struct trip_path *path, char why[TRIPS_WORDS])
{
	rail->paused = false;
	if (path->closed_ns <= CLOSED_NS_MAX)
		return NULL;
	snprintf(why, TRIPS_WORDS, "a rail opens although nothing has passed its path for %.3f ms",
		(double)path->closed_ns / 1e6);
	return "half-open";
}

const char *trips_see(struct trips *trips, unsigned number, const struct trip_sight *sight,
	const struct trip_path *path, uint64_t now_ns, char why[TRIPS_WORDS])
{
	struct trip_rail *rail = &trips->rails[number];
	bool was_open = rail->open;

	if (rail->peer != sight->peer) { /* its successor is judged anew */
		unsigned trips_before = rail->trips;

		*rail = (struct trip_rail){.peer = sight->peer, .life = sight->life, .trips = trips_before};
		rail->open = sight->open;
		return NULL;
	}
	rail->open = sight->open;
	if (rail->life != sight->life) {
		const char *claim = tripped(trips, rail, sight, path, now_ns, why);

		rail->life = sight->life;
		if (claim != NULL)
			return claim;
		was_open = false; /* meanwhile it was not */
	}
	return sight->open && !was_open ? opened(rail, path, why) : NULL;
}

static const char *switched(struct trips *trips, const char *line, char why[TRIPS_WORDS])
{
	const char *at = strstr(line, "(attempt "), *more = strstr(line, "; ");
	unsigned attempt = 0, most = 0, left_out = 0;

	if (more != NULL && sscanf(more, "; %u such lines were left out", &left_out) != 1)
		left_out = 0;
	trips->switches += 1 + left_out;
	snprintf(why, TRIPS_WORDS, "%.150s", line);
	if (at == NULL || sscanf(at, "(attempt %u/%u)", &attempt, &most) != 2)
		return "budget";
	return attempt == 0 || attempt > most || most != trips->attempts ? "budget" : NULL;
}

static const char *said(
	struct trip_rail *rail, uint64_t gap_ns, const char *line, uint64_t now_ns, char why[TRIPS_WORDS])
{
	uint64_t before_ns = rail->line_ns;

	rail->line_ns = now_ns;
	snprintf(
		why, TRIPS_WORDS, "%.100s, %.3f ms after another line of it", line, (double)(now_ns - before_ns) / 1e6);
	return before_ns != 0 && now_ns - before_ns < gap_ns / 1000 * 999 ? "lines" : NULL;
}

const char *trips_hear(struct trips *trips, const char *line, uint64_t now_ns, char why[TRIPS_WORDS])
{
	unsigned here, there;
	char peer;

	if (strncmp(line, "Transport failover: ", 20) == 0)
		return switched(trips, line, why);
	if (sscanf(line, "Rail paused: local_nic=r%u remote_nic=%c/r%u", &here, &peer, &there) != 3 &&
		sscanf(line, "Rail recovered: local_nic=r%u remote_nic=%c/r%u", &here, &peer, &there) != 3)
		return NULL;
	return said(&trips->rails[(unsigned)(peer - 'a') * RAILS + here], trips->line_gap_ns, line, now_ns, why);
}
