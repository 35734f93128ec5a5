#include "transfer/schedule.h"

#include "base/ensure.h"

#define EWMA_WEIGHT 0.125
#define STALL       8.0           /* an end counts as so many times slower than before at the most */
#define ESTIMATE_NS 1000000000ull /* an idle lane's estimate is believed for so long; then the lane is tried again */

void lane_load_init(struct lane_load *lane, uint64_t window)
{
	*lane = (struct lane_load){.window = window};
}

void lane_load_sent(struct lane_load *lane, uint64_t bytes, uint64_t now_ns)
{
	if (lane->in_flight == 0)
		lane->ended_ns = now_ns;
	lane->in_flight += bytes;
}

static void learn_speed(struct lane_load *lane, double bytes, double ns)
{
	if (lane->speed > 0 && ns > STALL * bytes / lane->speed)
		ns = STALL * bytes / lane->speed;
	lane->bytes += bytes - EWMA_WEIGHT * lane->bytes;
	lane->ns += ns - EWMA_WEIGHT * lane->ns;
	if (lane->ns > 0)
		lane->speed = lane->bytes / lane->ns;
}

void lane_load_ended(struct lane_load *lane, uint64_t bytes, bool good, uint64_t now_ns)
{
	ensure(bytes <= lane->in_flight);
	lane->in_flight -= bytes;
	if (good)
		learn_speed(lane, (double)bytes, (double)(now_ns - lane->ended_ns));
	lane->ended_ns = now_ns;
}

static bool is_known(const struct lane_load *lane, uint64_t now_ns)
{
	return lane->speed > 0 && (lane->in_flight > 0 || now_ns - lane->ended_ns < ESTIMATE_NS);
}

/* A lane whose speed is not known counts as fast as the fastest. */
static double fastest(const struct lane_load *lanes, unsigned n, uint64_t now_ns)
{
	double speed = 0;

	for (unsigned i = 0; i < n; i++)
		if (is_known(&lanes[i], now_ns) && lanes[i].speed > speed)
			speed = lanes[i].speed;
	return speed > 0 ? speed : 1;
}

int schedule_choose(const struct lane_load *lanes, unsigned n, uint32_t open, uint64_t bytes, uint64_t now_ns)
{
	double best_ns = 0, unknown = fastest(lanes, n, now_ns);
	int best = -1;

	for (unsigned i = 0; i < n; i++) {
		double speed = is_known(&lanes[i], now_ns) ? lanes[i].speed : unknown;
		double ns = (double)(lanes[i].in_flight + bytes) / speed;

		if ((open & 1u << i) == 0 || (best >= 0 && ns >= best_ns))
			continue;
		best = (int)i;
		best_ns = ns;
	}
	if (best >= 0 && lanes[best].in_flight > 0 && lanes[best].in_flight + bytes > lanes[best].window)
		return -1;
	return best;
}
