/* Which members are alive, by their heartbeats alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "smr/elect.h"

#define TIMES 1000u

static struct smr_elect elect;
static uint64_t heartbeat;

static void change(unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		smr_elect_answered(&elect, ++heartbeat, 0);
}

static void stand_still(unsigned reads)
{
	for (unsigned i = 0; i < reads; i++)
		smr_elect_answered(&elect, heartbeat, 0);
}

static void begin(void)
{
	elect = (struct smr_elect){0};
	change(SMR_ELECT_ALIVE + 1);
	assert_true(elect.alive);
}

static void a_member_fails_when_its_heartbeat_stands_still(void **state)
{
	(void)state;
	begin();
	stand_still(SMR_ELECT_STILL - 1);
	assert_true(elect.alive);
	stand_still(1);
	assert_false(elect.alive);
}

/* A busy machine: the process has a core for one turn, and waits for the next one. */
static void lateness_does_not_add_up(void **state)
{
	(void)state;
	begin();
	for (unsigned i = 0; i < TIMES; i++) {
		stand_still(SMR_ELECT_STILL - 1);
		change(1);
		assert_true(elect.alive);
	}
}

static void one_that_failed_must_beat_again_for_a_while(void **state)
{
	(void)state;
	begin();
	smr_elect_silent(&elect);
	assert_false(elect.alive);
	change(SMR_ELECT_ALIVE);
	assert_false(elect.alive);
	stand_still(1);
	change(1);
	assert_false(elect.alive);
	change(1);
	assert_true(elect.alive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_member_fails_when_its_heartbeat_stands_still),
		cmocka_unit_test(lateness_does_not_add_up),
		cmocka_unit_test(one_that_failed_must_beat_again_for_a_while),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
