/* Which log is an older copy, by what was reported of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "kv/told.h"

static void a_log_that_ends_before_a_report_is_an_older_one(void **state)
{
	const struct told kept = {.incarnation = 7, .durable = 640};

	(void)state;
	assert_true(kv_told_is_behind(&kept, &(struct told){.incarnation = 7, .durable = 704}));
	assert_false(kv_told_is_behind(&kept, &(struct told){.incarnation = 7, .durable = 640}));
	assert_false(kv_told_is_behind(&kept, &(struct told){.incarnation = 7, .durable = 64}));
}

/* R-K25: a disk of yesterday has the process of yesterday. */
static void a_log_without_the_last_process_is_an_older_one(void **state)
{
	(void)state;
	assert_false(kv_told_lacks(&(struct told){.incarnation = 7, .durable = 640}, 7));
	assert_true(kv_told_lacks(&(struct told){.incarnation = 6, .durable = 640}, 7));
	assert_true(kv_told_lacks(&(struct told){.incarnation = 7}, 7));
}

/* Positions of two processes say nothing of each other: the log may be another one. */
static void a_report_of_another_process_does_not_count(void **state)
{
	(void)state;
	assert_false(kv_told_is_behind(
		&(struct told){.incarnation = 7, .durable = 640}, &(struct told){.incarnation = 6, .durable = 704}));
	assert_false(kv_told_is_behind(&(struct told){.incarnation = 7, .durable = 640}, &(struct told){0}));
}

static void the_highest_report_of_the_last_process_remains(void **state)
{
	struct told told = {0};

	(void)state;
	kv_told_note(&told, 7, 640);
	kv_told_note(&told, 7, 64);
	assert_int_equal(told.durable, 640);
	kv_told_note(&told, 8, 128);
	assert_int_equal(told.incarnation, 8);
	assert_int_equal(told.durable, 128);
}

/* The list of members may have been longer or shorter when the MARK was logged. */
static void as_many_reports_are_read_as_there_are(void **state)
{
	const struct told told[3] = {{7, 640}, {8, 64}, {9, 128}};
	struct told read[3] = {0};
	uint8_t at[3 * TOLD_BYTES];

	(void)state;
	kv_told_write(told, 3, at);
	kv_told_read(read, 3, at, sizeof(at));
	assert_memory_equal(read, told, sizeof(told));
	read[1] = read[2] = (struct told){0};
	kv_told_read(read, 3, at, 2 * TOLD_BYTES + 1);
	assert_int_equal(read[1].durable, 64);
	assert_int_equal(read[2].incarnation, 0);
	kv_told_read(read, 3, at, 0);
	assert_int_equal(read[1].durable, 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_log_that_ends_before_a_report_is_an_older_one),
		cmocka_unit_test(a_log_without_the_last_process_is_an_older_one),
		cmocka_unit_test(a_report_of_another_process_does_not_count),
		cmocka_unit_test(the_highest_report_of_the_last_process_remains),
		cmocka_unit_test(as_many_reports_are_read_as_there_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
