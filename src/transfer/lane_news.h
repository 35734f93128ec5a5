/* lane_news.h - reports of a lane about its rail: a line in the log when it is paused or recovers, and metrics.
 *
 * At most one line a second. A change within the second is logged at its end, unless it was reverted. */
#ifndef HOLDFAST_TRANSFER_LANE_NEWS_H
#define HOLDFAST_TRANSFER_LANE_NEWS_H

#include <holdfast/dev.h>
#include <holdfast/metrics.h>

#include "base/log.h"
#include "transfer/rail_monitor.h"

struct lane_news {
	const char *rail;         /* its name */
	char peer[HF_NAME_BYTES]; /* likewise; a copy: the lane may outlive the peer */
	struct hf_metric *state, *pause, *trips, *bytes;
	struct log_limit limit;
	bool paused, told_paused; /* the current state, and the logged one */
	bool early;               /* it recovered before the end of the pause */
	unsigned untold;          /* trips since the last line */
};

void lane_news_init(struct lane_news *news, const char *node, const char *rail, const char *peer);
void lane_news_close(struct lane_news *news);

void lane_news_step(struct lane_news *news, const struct rail_monitor *monitor,
	const struct rail_monitor_actions *actions, uint64_t now_ns);
void lane_news_turn(struct lane_news *news, const struct rail_monitor *monitor, uint64_t now_ns);

#endif
