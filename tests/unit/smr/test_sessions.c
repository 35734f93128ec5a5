/* The table of sessions alone: which session ends when there is no room for another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "smr/sessions.h"

#define ROOM 3u

static bool is_over(struct smr_sessions *sessions, uint64_t number)
{
	const void *result;
	uint32_t bytes;

	return smr_sessions_check(sessions, number, 1, &result, &bytes) == SMR_SESSIONS_OVER;
}

/* Sessions 1 to ROOM, of which 2 is the one unused for longest. */
static struct smr_sessions *full(void)
{
	struct smr_sessions *sessions = smr_sessions_new(ROOM);

	assert_non_null(sessions);
	for (uint64_t number = 1; number <= ROOM; number++)
		smr_sessions_open(sessions, number);
	assert_false(is_over(sessions, 1));
	return sessions;
}

static void expect_order(struct smr_sessions *sessions)
{
	smr_sessions_open(sessions, 4);
	assert_true(is_over(sessions, 2));
	assert_false(is_over(sessions, 1));
	smr_sessions_open(sessions, 5);
	assert_true(is_over(sessions, 3));
	assert_false(is_over(sessions, 1));
	assert_false(is_over(sessions, 4));
	assert_false(is_over(sessions, 5));
	smr_sessions_free(sessions);
}

static void the_session_unused_for_longest_ends(void **state)
{
	(void)state;
	expect_order(full());
}

/* A member that took a snapshot ends the same session as the others. */
static void a_snapshot_keeps_the_order_of_use(void **state)
{
	struct smr_sessions *given = full(), *taken = smr_sessions_new(ROOM);
	size_t bytes = smr_sessions_bytes(given);
	uint8_t *snapshot = malloc(bytes);

	(void)state;
	assert_true(taken != NULL && snapshot != NULL);
	smr_sessions_encode(given, snapshot);
	assert_true(smr_sessions_decode(taken, snapshot, bytes));
	expect_order(given);
	expect_order(taken);
	free(snapshot);
}

static void a_session_that_was_closed_leaves_its_room(void **state)
{
	struct smr_sessions *sessions = full();

	(void)state;
	smr_sessions_close(sessions, 3);
	assert_true(is_over(sessions, 3));
	smr_sessions_open(sessions, 4);
	for (uint64_t number = 1; number <= 4; number++)
		assert_int_equal(is_over(sessions, number), number == 3);
	smr_sessions_free(sessions);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_session_unused_for_longest_ends),
		cmocka_unit_test(a_snapshot_keeps_the_order_of_use),
		cmocka_unit_test(a_session_that_was_closed_leaves_its_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
