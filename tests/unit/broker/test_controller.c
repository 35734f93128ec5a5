/* The controller: commands change topics, and a journal brings them back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/controller/journal.h"

static struct topic_config defaults;
static struct controller controller;
static struct controller_result result;

static struct codec_string text(const char *at)
{
	return (struct codec_string){at, (int32_t)strlen(at)};
}

static struct kafka_controller_command command(enum controller_kind kind, const char *topic, int32_t partitions)
{
	return (struct kafka_controller_command){.kind = (int8_t)kind, .topic = text(topic), .partitions = partitions};
}

static enum kafka_error apply(enum controller_kind kind, const char *topic, int32_t partitions)
{
	struct kafka_controller_command what = command(kind, topic, partitions);

	controller_apply(&controller, &what, &result);
	return result.error;
}

static int set_up(void **state)
{
	(void)state;
	topic_config_default(&defaults);
	controller_init(&controller, &defaults);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	controller_free(&controller);
	return 0;
}

static void topics_are_made_grown_and_deleted(void **state)
{
	(void)state;
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "b", 1), KAFKA_NONE);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "a", 2), KAFKA_NONE);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "ab", 3), KAFKA_NONE);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "a", 1), KAFKA_TOPIC_ALREADY_EXISTS);
	assert_int_equal(controller_find(&controller, text("ab"))->partitions, 3);
	assert_null(controller_find(&controller, text("aa")));
	assert_int_equal(apply(CONTROLLER_ADD_PARTITIONS, "a", 2), KAFKA_INVALID_PARTITIONS);
	assert_int_equal(apply(CONTROLLER_ADD_PARTITIONS, "a", 5), KAFKA_NONE);
	assert_int_equal(controller_find(&controller, text("a"))->partitions, 5);
	assert_int_equal(apply(CONTROLLER_DELETE_TOPIC, "a", 0), KAFKA_NONE);
	assert_int_equal(apply(CONTROLLER_DELETE_TOPIC, "a", 0), KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
	assert_int_equal(controller.topic_count, 2);
}

static void names_and_numbers_are_checked(void **state)
{
	char longest[251] = {0};

	(void)state;
	memset(longest, 'x', 250);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "", 1), KAFKA_INVALID_TOPIC);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "..", 1), KAFKA_INVALID_TOPIC);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "a/b", 1), KAFKA_INVALID_TOPIC);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, longest, 1), KAFKA_INVALID_TOPIC);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, longest + 1, 1), KAFKA_NONE);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "a", 0), KAFKA_INVALID_PARTITIONS);
	assert_int_equal(apply(CONTROLLER_CREATE_TOPIC, "a", 10001), KAFKA_INVALID_PARTITIONS);
	assert_int_equal(apply(CONTROLLER_KINDS, longest + 1, 1), KAFKA_INVALID_REQUEST);
}

static void configuration_is_taken_whole_or_not_at_all(void **state)
{
	struct kafka_controller_command_command_config configs[] = {{text("retention.ms"), text("1000")},
		{text("segment.bytes"), text("65536")}, {text("nonsense"), text("1")}};
	struct kafka_controller_command what = command(CONTROLLER_CREATE_TOPIC, "a", 1);
	const struct controller_topic *topic;

	(void)state;
	what.configs.at = configs;
	what.configs.count = 3;
	controller_apply(&controller, &what, &result);
	assert_int_equal(result.error, KAFKA_INVALID_CONFIG);
	what.configs.count = 2;
	controller_apply(&controller, &what, &result);
	topic = controller_find(&controller, text("a"));
	assert_int_equal(topic->config.log.retention_ms, 1000);
	assert_int_equal(topic->config.log.segment_bytes, 65536);
	what.kind = CONTROLLER_SET_CONFIGS;
	configs[0].value.bytes = -1;
	what.configs.count = 1;
	controller_apply(&controller, &what, &result);
	assert_int_equal(result.error, KAFKA_NONE);
	assert_int_equal(topic->config.log.retention_ms, defaults.log.retention_ms);
	configs[0] = (struct kafka_controller_command_command_config){text("cleanup.policy"), text("compact")};
	controller_apply(&controller, &what, &result);
	assert_int_equal(result.error, KAFKA_INVALID_CONFIG);
	assert_non_null(result.message);
}

static void producer_ids_are_handed_out_once(void **state)
{
	struct kafka_controller_command what = {.kind = CONTROLLER_TAKE_PRODUCER_IDS, .count = 1000};

	(void)state;
	for (int64_t i = 0; i < 3; i++) {
		controller_apply(&controller, &what, &result);
		assert_int_equal(result.first_producer_id, i * 1000);
	}
}

static void a_journal_brings_everything_back_but_its_torn_end(void **state)
{
	char path[] = "/tmp/holdfast-test-XXXXXX";
	struct kafka_controller_command what = command(CONTROLLER_CREATE_TOPIC, "a", 3);
	struct journal *journal;
	struct hf_error error;
	int fd = mkstemp(path);

	(void)state;
	close(fd);
	assert_int_equal(journal_open(hf_env_host(), path, NULL, &controller, &journal, &error), 0);
	journal_propose(journal, &what, &result);
	assert_int_equal(result.error, KAFKA_NONE);
	what.topic = text("b");
	journal_propose(journal, &what, &result);
	journal_close(journal);
	fd = open(path, O_RDWR);
	assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
	close(fd);
	controller_free(&controller);
	assert_int_equal(journal_open(hf_env_host(), path, NULL, &controller, &journal, &error), 0);
	assert_int_equal(controller.topic_count, 1);
	assert_int_equal(controller_find(&controller, text("a"))->partitions, 3);
	journal_propose(journal, &what, &result);
	journal_close(journal);
	controller_free(&controller);
	assert_int_equal(journal_open(hf_env_host(), path, NULL, &controller, &journal, &error), 0);
	assert_int_equal(controller.topic_count, 2);
	journal_close(journal);
	unlink(path);
}

/* ---- damage of the journal ---- */

static char journals[64], journal_path[96];
static struct log_marks *marks;
static struct journal *journal;

static int open_journal(void)
{
	struct hf_error error = {0};
	int rc;

	controller_free(&controller);
	controller_init(&controller, &defaults);
	assert_int_equal(log_marks_open(hf_env_host(), journals, 1, &marks, &error), 0);
	rc = journal_open(hf_env_host(), journal_path, marks, &controller, &journal, &error);
	if (rc != 0)
		assert_non_null(strstr(error.text, journal_path)); /* and the remedies */
	return rc;
}

static void close_journal(void)
{
	journal_close(journal);
	journal = NULL;
	log_marks_close(marks);
	marks = NULL;
}

/* Three topics; returns the bytes of the file. */
static off_t make_journal(off_t ends[3])
{
	const char *names[] = {"a", "b", "c"};
	struct stat status;

	snprintf(journals, sizeof(journals), "/tmp/holdfast-journal-XXXXXX");
	assert_non_null(mkdtemp(journals));
	snprintf(journal_path, sizeof(journal_path), "%s/controller.journal", journals);
	assert_int_equal(open_journal(), 0);
	for (unsigned i = 0; i < 3; i++) {
		struct kafka_controller_command what = command(CONTROLLER_CREATE_TOPIC, names[i], 1);

		journal_propose(journal, &what, &result);
		assert_int_equal(result.error, KAFKA_NONE);
		assert_int_equal(stat(journal_path, &status), 0);
		ends[i] = status.st_size;
	}
	close_journal();
	return ends[2];
}

static void remove_journal(void)
{
	char command[128];

	close_journal();
	snprintf(command, sizeof(command), "rm -r %s", journals);
	assert_int_equal(system(command), 0);
}

static void edit_journal(off_t at, const void *bytes, size_t count)
{
	int fd = open(journal_path, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, count, at), (ssize_t)count);
	close(fd);
}

/* Refused, and the file is as it was. */
static void assert_journal_is_damaged(void)
{
	struct stat before, after;
	bool there = stat(journal_path, &before) == 0;

	assert_int_equal(open_journal(), -EBADMSG);
	close_journal();
	assert_int_equal(stat(journal_path, &after) == 0, there);
	if (there)
		assert_int_equal(after.st_size, before.st_size);
}

static void zeros_behind_a_journal_are_no_commands(void **state)
{
	off_t ends[3], end = make_journal(ends);
	struct stat status;

	(void)state;
	assert_int_equal(truncate(journal_path, end + 4096), 0);
	assert_int_equal(open_journal(), 0);
	assert_int_equal(controller.topic_count, 3);
	assert_int_equal(stat(journal_path, &status), 0);
	assert_int_equal(status.st_size, end);
	remove_journal();
}

static void a_journal_that_is_damaged_does_not_open(void **state)
{
	static const uint8_t zeros[4096];
	uint8_t whole[4096];
	off_t ends[3], end = make_journal(ends);
	int fd = open(journal_path, O_RDONLY);

	(void)state;
	assert_true(fd >= 0 && end < (off_t)sizeof(whole));
	assert_int_equal(read(fd, whole, sizeof(whole)), end);
	close(fd);
	edit_journal(ends[0] + 12, "\xff", 1); /* in the middle: a later command is whole */
	assert_journal_is_damaged();
	edit_journal(0, whole, (size_t)end);
	edit_journal(ends[1] + 12, "\xff", 1); /* the last one: the mark knows it */
	assert_journal_is_damaged();
	edit_journal(0, zeros, (size_t)end);
	assert_journal_is_damaged();
	edit_journal(0, whole, (size_t)end);
	assert_int_equal(truncate(journal_path, ends[1]), 0); /* an older copy */
	assert_journal_is_damaged();
	assert_int_equal(unlink(journal_path), 0);
	assert_journal_is_damaged();
	remove_journal();
}

static void a_later_command_is_proof_without_a_mark(void **state)
{
	struct hf_error error;
	off_t ends[3];

	(void)state;
	(void)make_journal(ends);
	edit_journal(ends[0] + 12, "\xff", 1);
	assert_int_equal(open_journal(), -EBADMSG);
	assert_int_equal(journal_open(hf_env_host(), journal_path, NULL, &controller, &journal, &error), -EBADMSG);
	remove_journal();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CONTROLLER_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		CONTROLLER_TEST(topics_are_made_grown_and_deleted),
		CONTROLLER_TEST(names_and_numbers_are_checked),
		CONTROLLER_TEST(configuration_is_taken_whole_or_not_at_all),
		CONTROLLER_TEST(producer_ids_are_handed_out_once),
		CONTROLLER_TEST(a_journal_brings_everything_back_but_its_torn_end),
		CONTROLLER_TEST(zeros_behind_a_journal_are_no_commands),
		CONTROLLER_TEST(a_journal_that_is_damaged_does_not_open),
		CONTROLLER_TEST(a_later_command_is_proof_without_a_mark),
	};

	return cmocka_run_group_tests_name("controller", tests, NULL, NULL);
}
