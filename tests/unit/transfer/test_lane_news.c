/* What is said of a rail: each trip and each recovery, at most one line a second. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "transfer/lane_news.h"

#define MILLI  1000000ull
#define SECOND 1000000000ull

static const struct rail_monitor_config config = {.error_threshold = 1,
	.error_window_ns = 10 * SECOND,
	.cooldown_ns = 30 * SECOND,
	.probe_interval_ns = 100 * MILLI};

struct said {
	unsigned lines;
	char last[256];
};

static void note(enum log_level level, const char *line, void *context)
{
	struct said *said = context;

	(void)level;
	said->lines++;
	(void)snprintf(said->last, sizeof(said->last), "%s", line);
}

static void step(struct rail_monitor *rail, struct lane_news *news, enum rail_monitor_event_type type, uint64_t now_ns)
{
	struct rail_monitor_actions actions;

	rail_monitor_step(rail, &(struct rail_monitor_event){.type = type, .life = rail->life}, now_ns, &actions);
	lane_news_step(news, rail, &actions, now_ns);
}

static void a_trip_and_a_recovery_are_said_in_these_words(void **state)
{
	struct rail_monitor rail;
	struct lane_news news;
	struct said said = {0};

	(void)state;
	log_set_sink(note, &said);
	rail_monitor_init(&rail, "rail0", "b", &config, true, SECOND);
	lane_news_init(&news, "test-news", "r0", "b");
	step(&rail, &news, RAIL_MONITOR_EVENT_ERROR, SECOND);
	assert_non_null(strstr(said.last, "Rail paused: local_nic=r0 remote_nic=b/r0 (for 30.000 s)"));
	assert_int_equal(hf_metric_value(news.state), RAIL_MONITOR_PAUSED);
	assert_int_equal(hf_metric_value(news.pause), 30);
	step(&rail, &news, RAIL_MONITOR_EVENT_TICK, 4 * SECOND);
	step(&rail, &news, RAIL_MONITOR_EVENT_PROBE_GOOD, 4 * SECOND);
	assert_non_null(
		strstr(said.last, "Rail recovered: local_nic=r0 remote_nic=b/r0 (un-paused by successful transfer)"));
	assert_int_equal(hf_metric_value(news.pause), 0);
	step(&rail, &news, RAIL_MONITOR_EVENT_ERROR, 40 * SECOND);
	step(&rail, &news, RAIL_MONITOR_EVENT_TICK, 200 * SECOND);
	step(&rail, &news, RAIL_MONITOR_EVENT_PROBE_GOOD, 200 * SECOND);
	assert_non_null(strstr(said.last, "Rail recovered: local_nic=r0 remote_nic=b/r0 (cooldown expired)"));
	assert_int_equal(said.lines, 4);
	log_set_sink(NULL, NULL);
}

/* Ten times a second for a minute. What is said last is how it is. */
static void a_rail_that_flaps_is_one_line_a_second(void **state)
{
	struct rail_monitor rail;
	struct lane_news news;
	struct said said = {0};
	uint64_t now_ns = SECOND;
	int64_t trips;

	(void)state;
	log_set_sink(note, &said);
	rail_monitor_init(&rail, "rail0", "b", &config, true, now_ns);
	lane_news_init(&news, "test-news", "r1", "b");
	trips = hf_metric_value(news.trips);
	for (unsigned i = 0; i < 600; i++, now_ns += 100 * MILLI) {
		step(&rail, &news, RAIL_MONITOR_EVENT_ERROR, now_ns);
		step(&rail, &news, RAIL_MONITOR_EVENT_TICK, rail.probe_ns);
		step(&rail, &news, RAIL_MONITOR_EVENT_PROBE_GOOD, rail.probe_ns);
	}
	assert_in_range(said.lines, 30, 61);
	assert_int_equal(hf_metric_value(news.trips) - trips, 600);
	lane_news_turn(&news, &rail, now_ns + SECOND);
	assert_non_null(strstr(said.last, "Rail recovered"));
	log_set_sink(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_trip_and_a_recovery_are_said_in_these_words),
		cmocka_unit_test(a_rail_that_flaps_is_one_line_a_second),
	};

	return cmocka_run_group_tests_name("lane_news", tests, NULL, NULL);
}
