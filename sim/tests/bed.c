/* The simulator's world for the tests of tests/unit/env/worlds: one seed, and processes that do nothing else. */
#include "tests/unit/env/worlds/bed.h"

#include "sim/tests/fixture.h"

#define STEP_NS NS_US
#define MOST_NS (100 * NS_S)

struct bed bed;

static struct fixture fixture;

int bed_open(void **state)
{
	(void)state;
	fixture_open(&fixture, 11, NULL, NULL);
	bed = (struct bed){.env = fixture_env(&fixture, 0), .directory = ".", .address = "10.0.0.1"};
	return hf_loop_create(bed.env, &bed.loop);
}

int bed_close(void **state)
{
	(void)state;
	hf_loop_destroy(bed.loop);
	fixture_close(&fixture);
	return fixture.world.violations == 0 ? 0 : -1;
}

void bed_until(bool (*holds)(void))
{
	uint64_t end_ns = fixture.world.now_ns + MOST_NS;

	while (!holds()) {
		assert_true(fixture.world.now_ns < end_ns);
		fixture_run(&fixture, STEP_NS);
	}
}
