/* R-G6: which errors accuse a rail, and which the peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "transfer/blame.h"

#define MS          1000000ull
#define PATIENCE_NS (10000 * MS)
#define RAILS       2u

static struct blame all[RAILS];

static int begin(void **state)
{
	(void)state;
	for (unsigned i = 0; i < RAILS; i++) {
		all[i] = (struct blame){.usable = true};
		blame_waits(&all[i], 999 * MS);
		blame_served(&all[i], true, (1000 + i) * MS); /* the last slices of all rails do not end together */
	}
	return 0;
}

static bool fails(unsigned rail, uint64_t now_ns)
{
	return blame_peer(all, RAILS, rail, PATIENCE_NS, now_ns);
}

static void rails_that_fail_at_once_accuse_the_peer(void **state)
{
	(void)state;
	assert_true(fails(0, 1050 * MS));
	assert_true(fails(1, 1060 * MS));
	for (unsigned i = 0; i < RAILS; i++)
		blame_waits(&all[i], 1070 * MS); /* the next lives */
	assert_true(fails(1, 1110 * MS));
	assert_true(fails(0, 1120 * MS));
}

static void a_rail_that_fails_while_another_is_served_is_accused(void **state)
{
	(void)state;
	for (unsigned i = 2; i < 45; i++)
		blame_served(&all[1], true, (1000 + i) * MS);
	assert_false(fails(0, 1050 * MS));
	assert_true(all[1].waits);
}

/* The peer stood still, and answers the one a moment before the other one gives up. */
static void a_rail_that_is_served_again_does_not_accuse_the_other(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10; i++)
		blame_served(&all[1], true, 1048 * MS + i * MS / 10);
	assert_true(fails(0, 1050 * MS));
	blame_waits(&all[0], 3000 * MS);
	for (unsigned i = 0; i < 50; i++)
		blame_served(&all[1], true, (3000 + i) * MS);
	assert_false(fails(0, 3050 * MS)); /* it was served all the time */
}

/* It had nothing to carry, and says nothing. */
static void a_rail_that_fails_beside_an_idle_one_is_accused(void **state)
{
	(void)state;
	blame_idle(&all[1]);
	assert_false(fails(0, 1050 * MS));
}

static void a_rail_that_fails_beside_a_paused_one_is_accused(void **state)
{
	(void)state;
	all[1].usable = false;
	assert_false(fails(0, 1050 * MS));
}

/* A lane that waits anew after long idleness was not silent before. */
static void silence_begins_with_the_first_slice(void **state)
{
	(void)state;
	for (unsigned i = 0; i < RAILS; i++) {
		blame_served(&all[i], false, 2000 * MS);
		blame_waits(&all[i], 60000 * MS);
	}
	assert_true(fails(0, 60020 * MS));
	blame_served(&all[1], true, 60021 * MS);
	blame_served(&all[1], true, 60030 * MS);
	blame_waits(&all[0], 60022 * MS);
	blame_served(&all[1], true, 60031 * MS);
	assert_false(fails(0, 60050 * MS - 18 * MS));
}

static void a_peer_that_stays_silent_is_not_excused_for_ever(void **state)
{
	uint64_t now_ns = 1050 * MS;

	(void)state;
	for (; now_ns <= 1050 * MS + PATIENCE_NS; now_ns += 50 * MS) {
		blame_waits(&all[0], now_ns - 20 * MS);
		blame_waits(&all[1], now_ns - 20 * MS);
		assert_true(fails(0, now_ns));
	}
	blame_waits(&all[0], now_ns - 20 * MS);
	assert_false(fails(0, now_ns));
	blame_served(&all[1], true, now_ns + MS); /* it is back, and then silent again */
	blame_waits(&all[0], now_ns + 10 * MS);
	assert_true(fails(0, now_ns + 30 * MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(rails_that_fail_at_once_accuse_the_peer, begin),
		cmocka_unit_test_setup(a_rail_that_fails_while_another_is_served_is_accused, begin),
		cmocka_unit_test_setup(a_rail_that_is_served_again_does_not_accuse_the_other, begin),
		cmocka_unit_test_setup(a_rail_that_fails_beside_an_idle_one_is_accused, begin),
		cmocka_unit_test_setup(a_rail_that_fails_beside_a_paused_one_is_accused, begin),
		cmocka_unit_test_setup(silence_begins_with_the_first_slice, begin),
		cmocka_unit_test_setup(a_peer_that_stays_silent_is_not_excused_for_ever, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
