/* Done ranges beside a plain array of flags that says the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "transfer/ranges.h"

#define BYTES  64u
#define ROUNDS 20000u

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

static void assert_same(const struct ranges *ranges, const bool *done)
{
	uint64_t at = 0;
	struct range hole;

	while (ranges_next_hole(ranges, at, BYTES, &hole)) {
		for (; at < hole.begin; at++)
			assert_true(done[at]);
		for (; at < hole.end; at++)
			assert_false(done[at]);
	}
	for (; at < BYTES; at++)
		assert_true(done[at]);
}

static void ranges_agree_with_an_array_of_flags(void **state)
{
	struct ranges ranges = {0};
	bool done[BYTES] = {0};
	uint64_t seed = 4711;

	(void)state;
	assert_int_equal(ranges_reserve(&ranges, BYTES / 2), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t begin = next_random(&seed) % BYTES;
		uint64_t end = begin + next_random(&seed) % (BYTES - begin + 1) / (1 + next_random(&seed) % 8);

		assert_true(ranges_add(&ranges, begin, end));
		memset(&done[begin], true, end - begin);
		assert_same(&ranges, done);
		assert_true(ranges_cover(&ranges, begin, end));
		if (ranges_cover(&ranges, 0, BYTES)) {
			assert_int_equal(ranges.count, 1);
			ranges_clear(&ranges);
			memset(done, false, sizeof(done));
		}
	}
	ranges_free(&ranges);
}

/* R-T1: a success that is found after the slice was sent again counts once. */
static void a_range_that_is_reported_twice_leaves_the_hole_beside_it(void **state)
{
	struct ranges ranges = {0};
	struct range hole;

	(void)state;
	assert_int_equal(ranges_reserve(&ranges, 4), 0);
	assert_true(ranges_add(&ranges, 0, 50));
	assert_true(ranges_add(&ranges, 0, 50));
	assert_false(ranges_cover(&ranges, 0, 100));
	assert_true(ranges_next_hole(&ranges, 0, 100, &hole));
	assert_int_equal(hole.begin, 50);
	assert_int_equal(hole.end, 100);
	ranges_free(&ranges);
}

static void a_range_without_room_is_refused_and_changes_nothing(void **state)
{
	struct ranges ranges = {0};

	(void)state;
	assert_int_equal(ranges_reserve(&ranges, 2), 0);
	assert_true(ranges_add(&ranges, 0, 1));
	assert_true(ranges_add(&ranges, 4, 5));
	assert_false(ranges_add(&ranges, 8, 9));
	assert_false(ranges_cover(&ranges, 8, 9));
	assert_true(ranges_add(&ranges, 1, 4));
	assert_true(ranges_cover(&ranges, 0, 5));
	ranges_free(&ranges);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_agree_with_an_array_of_flags),
		cmocka_unit_test(a_range_that_is_reported_twice_leaves_the_hole_beside_it),
		cmocka_unit_test(a_range_without_room_is_refused_and_changes_nothing),
	};

	return cmocka_run_group_tests_name("ranges", tests, NULL, NULL);
}
