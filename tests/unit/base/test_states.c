/* State machines by table (base/states.h). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/states.h"

enum door { DOOR_OPEN, DOOR_SHUT, DOOR_LOCKED, DOOR_STATES };

static const struct state door_states[DOOR_STATES] = {
	[DOOR_OPEN] = {"open", BIT(DOOR_SHUT)},
	[DOOR_SHUT] = {"shut", BIT(DOOR_OPEN) | BIT(DOOR_LOCKED)},
	[DOOR_LOCKED] = {"locked", BIT(DOOR_SHUT)},
};

static char heard[256];
static unsigned lines;

static void hear(enum log_level level, const char *line, void *context)
{
	(void)level;
	(void)context;
	snprintf(heard, sizeof(heard), "%s", line);
	lines++;
}

static int listen(void **state)
{
	(void)state;
	heard[0] = '\0';
	lines = 0;
	log_set_sink(hear, NULL);
	return 0;
}

static int stop_listening(void **state)
{
	(void)state;
	log_set_sink(NULL, NULL);
	log_set_level(LOG_INFO);
	return 0;
}

static void a_move_changes_the_state_and_is_logged(void **state)
{
	enum door door = DOOR_OPEN;

	(void)state;
	log_set_level(LOG_DEBUG);
	states_move("door", door_states, &door, DOOR_SHUT, "%u of %s", 2, "a");
	assert_int_equal(door, DOOR_SHUT);
	assert_string_equal(heard, "door 2 of a: open -> shut");
}

static void moves_are_logged_at_their_level_alone(void **state)
{
	enum door door = DOOR_OPEN;

	(void)state;
	log_set_level(LOG_INFO);
	states_move("door", door_states, &door, DOOR_SHUT, "%u", 1);
	log_set_level(LOG_DEBUG);
	states_move_often("door", door_states, &door, DOOR_LOCKED, "%u", 1);
	assert_int_equal(lines, 0);
	log_set_level(LOG_TRACE);
	states_move_often("door", door_states, &door, DOOR_SHUT, "%u", 1);
	assert_int_equal(lines, 1);
	assert_int_equal(door, DOOR_SHUT);
}

static int end_of(enum door from, enum door to)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		states_move("door", door_states, &from, to, "%u", 1);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void a_move_that_the_table_lacks_ends_the_process(void **state)
{
	int status;

	(void)state;
	assert_int_equal(end_of(DOOR_OPEN, DOOR_SHUT), 0);
	status = end_of(DOOR_OPEN, DOOR_LOCKED);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void a_state_without_a_row_ends_the_process(void **state)
{
	int status = end_of(DOOR_STATES, DOOR_OPEN);

	(void)state;
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_move_changes_the_state_and_is_logged, listen, stop_listening),
		cmocka_unit_test_setup_teardown(moves_are_logged_at_their_level_alone, listen, stop_listening),
		cmocka_unit_test(a_move_that_the_table_lacks_ends_the_process),
		cmocka_unit_test(a_state_without_a_row_ends_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
