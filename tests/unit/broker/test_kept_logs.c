/* Logs of a process that was killed are whole if each has a mark of this boot, and no sync has failed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/controller/controller.h"
#include "broker/controller/kept_logs.h"

static const struct codec_uuid topic = {.byte = {1, 2, 3, [15] = 9}};
static char directory[64];
static struct log_marks *marks;
static struct log_mark *mark;

static void open_marks(void)
{
	struct hf_error error = {0};

	if (log_marks_open(hf_env_host(), directory, 7, &marks, &error) != 0)
		fail_msg("%s", error.text);
}

static void take(int32_t index)
{
	struct hf_error error = {0};

	if (log_marks_take(marks, topic.byte, index, &mark, &error) != 0)
		fail_msg("%s", error.text);
}

static void write_file(const char *name, const char *text)
{
	char path[160];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* A directory as topics.c makes it, with one segment. */
static void make_log(int32_t index)
{
	char path[160], text[96], id[CONTROLLER_ID_TEXT];

	snprintf(path, sizeof(path), "%s/t-%d", directory, index);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "t-%d/00000000000000000000.log", index);
	write_file(path, "");
	snprintf(path, sizeof(path), "t-%d/partition.metadata", index);
	snprintf(text, sizeof(text), "version: 0\ntopic_id: %s\n", controller_id_text(topic, id));
	write_file(path, text);
}

/* The process is killed, and starts again: whether its logs are whole. */
static bool are_proven_again(void)
{
	log_marks_close(marks);
	open_marks();
	return kept_logs_are_proven(hf_env_host(), directory, marks);
}

static int set_up(void **state)
{
	(void)state;
	snprintf(directory, sizeof(directory), "/tmp/holdfast-kept-XXXXXX");
	if (mkdtemp(directory) == NULL)
		return -1;
	open_marks();
	log_marks_go_on(marks, 0);
	take(0);
	make_log(0);
	return 0;
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	log_marks_close(marks);
	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command);
}

static void a_killed_process_leaves_whole_logs(void **state)
{
	(void)state;
	log_mark_written(mark, 20);
	assert_true(are_proven_again());
	assert_true(are_proven_again());
}

static void a_log_without_a_mark_is_not_whole(void **state)
{
	(void)state;
	make_log(1);
	assert_false(are_proven_again());
	take(1);
	assert_true(are_proven_again());
	write_file("t-1/partition.metadata", "version: 0\n");
	assert_false(are_proven_again());
}

static void logs_whose_marks_are_gone_are_not_whole(void **state)
{
	char path[160];

	(void)state;
	snprintf(path, sizeof(path), "%s/synced", directory);
	assert_int_equal(unlink(path), 0);
	assert_false(are_proven_again());
	assert_false(kept_logs_are_proven(hf_env_host(), directory, NULL));
}

/* It may have been one that a loss of power has torn: another inode has no proof, and its lock proves no end. */
static void marks_of_a_copy_prove_nothing(void **state)
{
	char command[400];

	(void)state;
	(void)log_marks_begin_life(marks, 77);
	assert_true(are_proven_again());
	assert_int_equal(log_marks_ended(marks), 77);
	log_marks_close(marks);
	snprintf(command, sizeof(command), "cp %s/synced %s/other && mv %s/other %s/synced", directory, directory,
		directory, directory);
	assert_int_equal(system(command), 0);
	open_marks();
	assert_int_equal(log_marks_ended(marks), 0);
	assert_false(are_proven_again());
	assert_int_equal(log_marks_ended(NULL), 0);
}

/* Memory may lack what the disk refused, also after the next start; a sync of everything ends that. */
static void a_failed_sync_is_remembered(void **state)
{
	(void)state;
	log_mark_written(mark, 20);
	log_mark_synced(mark, 10);
	log_mark_failed(mark);
	assert_false(are_proven_again());
	take(0);
	log_mark_written(mark, 15);
	assert_false(are_proven_again());
	take(0);
	log_mark_synced(mark, 12);
	assert_false(are_proven_again());
	take(0);
	log_mark_synced(mark, 15);
	assert_true(are_proven_again());
}

/* The controller may have heard of more lives than a copy of the directory has. */
static void lives_are_counted(void **state)
{
	(void)state;
	assert_int_equal(log_marks_begin_life(marks, 5), 1);
	assert_int_equal(log_marks_begin_life(marks, 5), 2);
	assert_true(are_proven_again());
	assert_int_equal(log_marks_begin_life(marks, 5), 3);
	log_marks_go_on(marks, 7);
	assert_true(are_proven_again());
	assert_int_equal(log_marks_begin_life(marks, 5), 8);
	assert_int_equal(log_marks_begin_life(NULL, 5), 0);
}

#define KEPT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		KEPT_TEST(a_killed_process_leaves_whole_logs),
		KEPT_TEST(a_log_without_a_mark_is_not_whole),
		KEPT_TEST(logs_whose_marks_are_gone_are_not_whole),
		KEPT_TEST(marks_of_a_copy_prove_nothing),
		KEPT_TEST(a_failed_sync_is_remembered),
		KEPT_TEST(lives_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
