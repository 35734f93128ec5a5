#include "transfer/lane_news.h"

#include <stdio.h>

static struct hf_metric *series(
	const struct lane_news *news, const char *node, enum hf_metric_kind kind, const char *name, const char *help)
{
	char remote[HF_METRIC_LABEL_BYTES];

	(void)snprintf(remote, sizeof(remote), "%s/%s", news->peer, news->rail);
	return hf_metric_register(&(struct hf_metric_info){.name = name,
		.help = help,
		.kind = kind,
		.labels = {{"node", node}, {"local_nic", news->rail}, {"remote_nic", remote}}});
}

void lane_news_init(struct lane_news *news, const char *node, const char *rail, const char *peer)
{
	*news = (struct lane_news){.rail = rail};
	(void)snprintf(news->peer, sizeof(news->peer), "%s", peer);
	news->state = series(news, node, HF_METRIC_GAUGE, "holdfast_transfer_rail_state",
		"0: the rail is healthy, 1: it is paused, 2: it is being probed.");
	news->pause = series(news, node, HF_METRIC_GAUGE, "holdfast_transfer_rail_cooldown_seconds",
		"How long the pause of the rail is; 0: it is not paused.");
	news->trips = series(news, node, HF_METRIC_COUNTER, "holdfast_transfer_rail_trips_total",
		"How often errors paused the rail.");
	news->bytes = series(news, node, HF_METRIC_COUNTER, "holdfast_transfer_rail_bytes_total",
		"Bytes of slices that completed over the rail.");
	hf_metric_set(news->state, RAIL_MONITOR_HEALTHY);
	hf_metric_set(news->pause, 0);
}

void lane_news_close(struct lane_news *news)
{
	hf_metric_hide(news->state);
	hf_metric_hide(news->pause);
}

static void say_paused(const struct lane_news *news, const struct rail_monitor *monitor, uint64_t now_ns)
{
	uint64_t left_ns = monitor->resume_ns > now_ns ? monitor->resume_ns - now_ns : 0;

	log_warn("Rail paused: local_nic=%s remote_nic=%s/%s (for %.3f s)", news->rail, news->peer, news->rail,
		(double)left_ns / 1e9);
}

void lane_news_turn(struct lane_news *news, const struct rail_monitor *monitor, uint64_t now_ns)
{
	bool due = news->paused ? news->untold > 0 : news->told_paused;
	uint64_t suppressed;

	if (!due || !log_limit_allows(&news->limit, now_ns, &suppressed))
		return;
	if (news->paused)
		say_paused(news, monitor, now_ns);
	else
		log_info("Rail recovered: local_nic=%s remote_nic=%s/%s (%s)", news->rail, news->peer, news->rail,
			news->early ? "un-paused by successful transfer" : "cooldown expired");
	news->told_paused = news->paused;
	news->untold = 0;
}

void lane_news_step(struct lane_news *news, const struct rail_monitor *monitor,
	const struct rail_monitor_actions *actions, uint64_t now_ns)
{
	if (actions->paused) {
		news->paused = true;
		news->untold++;
		hf_metric_add(news->trips, 1);
	}
	if (actions->recovered) {
		news->paused = false;
		news->early = actions->early;
	}
	hf_metric_set(news->state, monitor->state);
	hf_metric_set(news->pause, !news->paused || monitor->resume_ns < now_ns
					   ? 0
					   : (int64_t)((monitor->resume_ns - now_ns + 999999999u) / 1000000000u));
	lane_news_turn(news, monitor, now_ns);
}
