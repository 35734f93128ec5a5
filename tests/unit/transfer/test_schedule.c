/* Slices over two lanes of a model: each lane carries its slices one behind the other at a set speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transfer/schedule.h"

#define LANES  2u
#define SLICE  65536u
#define WINDOW (16u * SLICE)
#define MILLI  1000000ull
#define FAST   0.5 /* bytes a nanosecond: 500 MB/s */
#define SLOW   0.05

struct model {
	struct lane_load lanes[LANES];
	double speed[LANES];
	uint64_t ends_ns[LANES]; /* of the oldest slice in flight */
	uint64_t bytes[LANES];
	uint32_t open;
	uint64_t now_ns;
};

static uint64_t slice_ns(const struct model *model, unsigned lane)
{
	return (uint64_t)(SLICE / model->speed[lane]);
}

static void fill(struct model *model)
{
	int lane;

	while ((lane = schedule_choose(model->lanes, LANES, model->open, SLICE, model->now_ns)) >= 0) {
		if (model->lanes[lane].in_flight == 0)
			model->ends_ns[lane] = model->now_ns + slice_ns(model, (unsigned)lane);
		lane_load_sent(&model->lanes[lane], SLICE, model->now_ns);
	}
}

/* The lane whose oldest slice ends first. */
static unsigned next_end(const struct model *model)
{
	if (model->lanes[0].in_flight == 0)
		return 1;
	return model->lanes[1].in_flight == 0 || model->ends_ns[0] <= model->ends_ns[1] ? 0 : 1;
}

static void run(struct model *model, uint64_t until_ns)
{
	for (unsigned i = 0; i < LANES; i++)
		model->bytes[i] = 0;
	while (model->now_ns < until_ns) {
		unsigned lane;

		fill(model);
		lane = next_end(model);
		model->now_ns = model->ends_ns[lane];
		lane_load_ended(&model->lanes[lane], SLICE, true, model->now_ns);
		model->bytes[lane] += SLICE;
		model->ends_ns[lane] = model->now_ns + slice_ns(model, lane);
	}
}

static void begin(struct model *model, double first, double second)
{
	*model = (struct model){.speed = {first, second}, .open = 3};
	for (unsigned i = 0; i < LANES; i++)
		lane_load_init(&model->lanes[i], WINDOW);
}

/* Completions come in pairs, the second soon after the first: what they say together counts. */
static void uneven_completions_do_not_speed_a_lane_up(void **state)
{
	struct lane_load lane;
	uint64_t now_ns = 0;

	(void)state;
	lane_load_init(&lane, WINDOW);
	for (unsigned i = 0; i < 100; i++) {
		lane_load_sent(&lane, 2ull * SLICE, now_ns);
		lane_load_ended(&lane, SLICE, true, now_ns += 99 * MILLI);
		lane_load_ended(&lane, SLICE, true, now_ns += MILLI);
	}
	assert_in_range((uint64_t)(lane.speed * 100 * MILLI), SLICE * 18 / 10, SLICE * 22 / 10);
}

static void a_stall_does_not_make_a_lane_slow(void **state)
{
	struct lane_load lane;

	(void)state;
	lane_load_init(&lane, WINDOW);
	for (unsigned i = 0; i < 100; i++) {
		lane_load_sent(&lane, SLICE, i * MILLI);
		lane_load_ended(&lane, SLICE, true, (i + 1) * MILLI);
	}
	lane_load_sent(&lane, SLICE, 100 * MILLI);
	lane_load_ended(&lane, SLICE, true, 1000 * MILLI);
	assert_true(lane.speed * MILLI >= SLICE / 4.0);
}

static void lanes_of_one_speed_share_alike(void **state)
{
	struct model model;

	(void)state;
	begin(&model, FAST, FAST);
	run(&model, 1000 * MILLI);
	assert_in_range(model.bytes[0] * 100 / (model.bytes[0] + model.bytes[1]), 45, 55);
}

static void a_lane_of_a_tenth_of_the_speed_costs_nothing(void **state)
{
	struct model model;
	uint64_t alone;

	(void)state;
	begin(&model, FAST, SLOW);
	model.open = 1;
	run(&model, 1000 * MILLI);
	alone = model.bytes[0];
	begin(&model, FAST, SLOW);
	run(&model, 1000 * MILLI);
	assert_true(model.bytes[1] * 5 < model.bytes[0] + model.bytes[1]);
	assert_true(model.bytes[0] + model.bytes[1] >= alone);
}

static void a_lane_that_is_fast_again_has_its_share_within_two_seconds(void **state)
{
	struct model model;

	(void)state;
	begin(&model, FAST, SLOW);
	run(&model, 1000 * MILLI);
	model.speed[1] = FAST;
	run(&model, 2000 * MILLI);
	run(&model, 3000 * MILLI);
	assert_in_range(model.bytes[1] * 100 / (model.bytes[0] + model.bytes[1]), 45, 55);
}

/* R-T18's window: a lane takes no more than it, but always one slice, however large. */
static void a_window_bounds_what_is_in_flight(void **state)
{
	struct model model;

	(void)state;
	begin(&model, FAST, FAST);
	fill(&model);
	assert_int_equal(model.lanes[0].in_flight, WINDOW);
	assert_int_equal(model.lanes[1].in_flight, WINDOW);
	begin(&model, FAST, FAST);
	assert_int_equal(schedule_choose(model.lanes, LANES, 3, 4 * WINDOW, 0), 0);
	assert_int_equal(schedule_choose(model.lanes, LANES, 0, SLICE, 0), -1);
}

/* A lane that ended badly, or was idle for long, is not believed to be slow for ever. */
static void an_old_estimate_is_forgotten(void **state)
{
	struct model model;

	(void)state;
	begin(&model, FAST, SLOW);
	run(&model, 1000 * MILLI);
	for (unsigned i = 0; i < LANES; i++)
		lane_load_ended(&model.lanes[i], model.lanes[i].in_flight, false, model.now_ns);
	assert_int_equal(schedule_choose(model.lanes, LANES, 3, SLICE, model.now_ns + MILLI), 0);
	lane_load_sent(&model.lanes[0], SLICE, model.now_ns + 2000 * MILLI);
	assert_int_equal(schedule_choose(model.lanes, LANES, 3, SLICE, model.now_ns + 2000 * MILLI), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uneven_completions_do_not_speed_a_lane_up),
		cmocka_unit_test(a_stall_does_not_make_a_lane_slow),
		cmocka_unit_test(lanes_of_one_speed_share_alike),
		cmocka_unit_test(a_lane_of_a_tenth_of_the_speed_costs_nothing),
		cmocka_unit_test(a_lane_that_is_fast_again_has_its_share_within_two_seconds),
		cmocka_unit_test(a_window_bounds_what_is_in_flight),
		cmocka_unit_test(an_old_estimate_is_forgotten),
	};

	return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
