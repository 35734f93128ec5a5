/* The rail monitor of transfers, step by step (docs/rules.md, R-T12 to R-T16). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "transfer/rail_monitor.h"

#define SECOND 1000000000ull

static const struct rail_monitor_config config = {
	.error_threshold = 3, .error_window_ns = 10 * SECOND, .cooldown_ns = 30 * SECOND, .probe_interval_ns = SECOND};

static struct rail_monitor rail;
static struct rail_monitor_actions actions;

static int begin(void **state)
{
	(void)state;
	rail_monitor_init(&rail, "rail0", "b", &config, true, 0);
	return 0;
}

static void step(enum rail_monitor_event_type type, uint64_t now_ns)
{
	rail_monitor_step(
		&rail, &(struct rail_monitor_event){.type = type, .life = rail_monitor_admit(&rail)}, now_ns, &actions);
}

static void trip_at(uint64_t now_ns)
{
	for (unsigned i = 0; i < config.error_threshold; i++)
		step(RAIL_MONITOR_EVENT_ERROR, now_ns);
	assert_int_equal(rail.state, RAIL_MONITOR_PAUSED);
}

static void recover_at(uint64_t now_ns)
{
	step(RAIL_MONITOR_EVENT_TICK, now_ns);
	assert_true(actions.probe);
	step(RAIL_MONITOR_EVENT_PROBE_GOOD, now_ns);
	assert_true(rail_monitor_available(&rail));
}

static void the_third_error_within_the_window_trips_the_rail(void **state)
{
	(void)state;
	step(RAIL_MONITOR_EVENT_ERROR, 1 * SECOND);
	step(RAIL_MONITOR_EVENT_ERROR, 2 * SECOND);
	assert_true(rail_monitor_available(&rail));
	step(RAIL_MONITOR_EVENT_ERROR, 3 * SECOND);
	assert_true(actions.paused);
	assert_false(rail_monitor_available(&rail));
	assert_int_equal(rail.resume_ns, 33 * SECOND);
}

static void an_error_older_than_the_window_does_not_count(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10; i++)
		step(RAIL_MONITOR_EVENT_ERROR, (1 + 11 * i) * SECOND);
	assert_true(rail_monitor_available(&rail));
	assert_int_equal(rail.error_count, 1);
}

/* R-T13: errors below the threshold leave the first pause at its length. */
static void errors_before_the_threshold_do_not_double_the_pause(void **state)
{
	(void)state;
	step(RAIL_MONITOR_EVENT_ERROR, SECOND);
	step(RAIL_MONITOR_EVENT_ERROR, SECOND);
	assert_int_equal(rail.level, 0);
	step(RAIL_MONITOR_EVENT_ERROR, SECOND);
	assert_int_equal(rail.resume_ns, 31 * SECOND);
}

/* R-T12: what was in flight when the rail tripped ends later and says nothing more. */
static void errors_of_lanes_made_before_the_trip_are_ignored(void **state)
{
	uint32_t before = rail_monitor_admit(&rail);

	(void)state;
	trip_at(SECOND);
	recover_at(31 * SECOND);
	for (unsigned i = 0; i < 64; i++)
		rail_monitor_step(&rail, &(struct rail_monitor_event){.type = RAIL_MONITOR_EVENT_ERROR, .life = before},
			31 * SECOND, &actions);
	assert_true(rail_monitor_available(&rail));
	assert_int_equal(rail.error_count, 0);
}

/* R-T14 */
static void the_end_of_the_pause_probes_and_does_not_open(void **state)
{
	(void)state;
	trip_at(SECOND);
	step(RAIL_MONITOR_EVENT_TICK, 40 * SECOND);
	assert_true(actions.probe);
	assert_false(rail_monitor_available(&rail));
	step(RAIL_MONITOR_EVENT_PROBE_GOOD, 41 * SECOND);
	assert_true(actions.recovered);
	assert_false(actions.early);
	assert_true(rail_monitor_available(&rail));
}

/* R-T14 */
static void a_port_that_is_back_probes_and_does_not_open(void **state)
{
	(void)state;
	step(RAIL_MONITOR_EVENT_UNREACHABLE, SECOND);
	assert_false(rail_monitor_available(&rail));
	step(RAIL_MONITOR_EVENT_REACHABLE, 2 * SECOND);
	assert_true(actions.probe);
	assert_false(rail_monitor_available(&rail));
	step(RAIL_MONITOR_EVENT_PROBE_GOOD, 3 * SECOND);
	assert_true(rail_monitor_available(&rail));
	assert_false(actions.recovered);
}

static void a_pause_is_probed_at_each_interval_and_ends_early(void **state)
{
	(void)state;
	trip_at(SECOND);
	assert_int_equal(rail_monitor_wake_ns(&rail), 2 * SECOND);
	step(RAIL_MONITOR_EVENT_TICK, 2 * SECOND);
	assert_true(actions.probe);
	step(RAIL_MONITOR_EVENT_PROBE_BAD, 2 * SECOND);
	assert_int_equal(rail.resume_ns, 31 * SECOND);
	assert_int_equal(rail.level, 1);
	step(RAIL_MONITOR_EVENT_TICK, 3 * SECOND);
	step(RAIL_MONITOR_EVENT_PROBE_GOOD, 3 * SECOND);
	assert_true(actions.recovered);
	assert_true(actions.early);
}

static void a_bad_probe_after_the_pause_is_a_trip(void **state)
{
	(void)state;
	trip_at(SECOND);
	step(RAIL_MONITOR_EVENT_TICK, 31 * SECOND);
	step(RAIL_MONITOR_EVENT_PROBE_BAD, 32 * SECOND);
	assert_true(actions.paused);
	assert_int_equal(rail.resume_ns, 92 * SECOND);
}

static void a_pause_is_probed_at_its_end(void **state)
{
	(void)state;
	trip_at(SECOND);
	step(RAIL_MONITOR_EVENT_TICK, 30 * SECOND + SECOND / 2);
	step(RAIL_MONITOR_EVENT_PROBE_BAD, 30 * SECOND + SECOND / 2);
	assert_int_equal(rail_monitor_wake_ns(&rail), 31 * SECOND);
}

/* R-T16 */
static void a_port_that_is_down_is_no_error(void **state)
{
	(void)state;
	step(RAIL_MONITOR_EVENT_UNREACHABLE, SECOND);
	for (unsigned i = 0; i < 10; i++)
		step(RAIL_MONITOR_EVENT_ERROR, SECOND);
	assert_int_equal(rail.state, RAIL_MONITOR_HEALTHY);
	step(RAIL_MONITOR_EVENT_REACHABLE, 2 * SECOND);
	step(RAIL_MONITOR_EVENT_UNREACHABLE, 2 * SECOND);
	step(RAIL_MONITOR_EVENT_PROBE_BAD, 3 * SECOND);
	assert_false(actions.paused);
	assert_int_equal(rail.level, 0);
	assert_int_equal(rail_monitor_wake_ns(&rail), UINT64_MAX);
}

/* R-T13: a rail that flaps pauses for longer each time, and faultless service takes that back step by step. */
static void the_pause_doubles_up_to_300_s_and_decays_with_service(void **state)
{
	static const uint64_t pauses[] = {30, 60, 120, 240, 300, 300};
	uint64_t now_ns = SECOND;

	(void)state;
	for (unsigned i = 0; i < sizeof(pauses) / sizeof(*pauses); i++) {
		trip_at(now_ns);
		assert_int_equal(rail.resume_ns - now_ns, pauses[i] * SECOND);
		now_ns = rail.resume_ns;
		recover_at(now_ns);
	}
	now_ns += 700 * SECOND; /* two periods of 300 s */
	trip_at(now_ns);
	assert_int_equal(rail.level, 5);
	recover_at(rail.resume_ns);
	now_ns = rail.resume_ns + 3000 * SECOND;
	trip_at(now_ns);
	assert_int_equal(rail.resume_ns - now_ns, 30 * SECOND);
}

static void asking_whether_a_rail_is_available_changes_nothing(void **state)
{
	struct rail_monitor before;

	(void)state;
	trip_at(SECOND);
	before = rail;
	assert_false(rail_monitor_available(&rail));
	assert_memory_equal(&before, &rail, sizeof(rail));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_third_error_within_the_window_trips_the_rail, begin),
		cmocka_unit_test_setup(an_error_older_than_the_window_does_not_count, begin),
		cmocka_unit_test_setup(errors_before_the_threshold_do_not_double_the_pause, begin),
		cmocka_unit_test_setup(errors_of_lanes_made_before_the_trip_are_ignored, begin),
		cmocka_unit_test_setup(the_end_of_the_pause_probes_and_does_not_open, begin),
		cmocka_unit_test_setup(a_port_that_is_back_probes_and_does_not_open, begin),
		cmocka_unit_test_setup(a_pause_is_probed_at_each_interval_and_ends_early, begin),
		cmocka_unit_test_setup(a_bad_probe_after_the_pause_is_a_trip, begin),
		cmocka_unit_test_setup(a_pause_is_probed_at_its_end, begin),
		cmocka_unit_test_setup(a_port_that_is_down_is_no_error, begin),
		cmocka_unit_test_setup(the_pause_doubles_up_to_300_s_and_decays_with_service, begin),
		cmocka_unit_test_setup(asking_whether_a_rail_is_available_changes_nothing, begin),
	};

	return cmocka_run_group_tests_name("rail_monitor", tests, NULL, NULL);
}
