/* The directory of a broker's logs: its mark of an orderly end, and where logs begin. */
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

#include "broker/controller/topics.h"

#define SELF   1
#define T0     1700000000000ll /* milliseconds */
#define STARTS "0\n2\nother 3 17\nt 0 5\n"

static char directory[64];
static struct topic_config defaults;
static struct controller controller;
static struct hf_loop *loop;
static struct flusher flusher;
static struct topics topics;

static const char *path(const char *name)
{
	static char at[128];

	snprintf(at, sizeof(at), "%s/%s", directory, name);
	return at;
}

static void put(const char *name, const char *text)
{
	int fd = open(path(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static bool is_marked(void)
{
	return access(path(".kafka_cleanshutdown"), F_OK) == 0;
}

static void assert_starts(const char *text)
{
	char found[128] = {0};
	int fd = open(path("log-start-offset-checkpoint"), O_RDONLY);

	assert_true(fd >= 0);
	assert_true(read(fd, found, sizeof(found) - 1) >= 0);
	close(fd);
	assert_string_equal(found, text);
}

static int set_up(void **state)
{
	struct kafka_controller_command_command_endpoint endpoint = {{"PLAINTEXT", 9}, {"host", 4}, 9092};
	struct kafka_controller_command registration = {.kind = CONTROLLER_REGISTER_BROKER,
		.broker = SELF,
		.incarnation = 10,
		.sequence = 1,
		.cluster_id = {"", 0},
		.endpoints = {&endpoint, 1}};
	struct kafka_controller_command creation = {
		.kind = CONTROLLER_CREATE_TOPIC, .topic = {"t", 1}, .partitions = 1};
	struct controller_result result;

	(void)state;
	snprintf(directory, sizeof(directory), "/tmp/holdfast-topics.XXXXXX");
	assert_non_null(mkdtemp(directory));
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	topic_config_default(&defaults);
	controller_init(&controller, &defaults);
	controller_apply(&controller, &registration, &result);
	assert_int_equal(result.error, KAFKA_NONE);
	controller_apply(&controller, &creation, &result);
	assert_int_equal(result.error, KAFKA_NONE);
	assert_true(controller_set_has(&controller.topics[0]->at[0].replicas, SELF));
	return 0;
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	controller_free(&controller);
	hf_loop_destroy(loop);
	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command);
}

/* As with a quorum: its topics come later. */
static void start(void)
{
	const struct controller none = {0};
	struct hf_error error = {0};

	flusher_open(&flusher, loop, 1000000000);
	assert_int_equal(topics_open(&topics, hf_env_host(), directory, SELF, &none, &flusher, NULL, T0, &error), 0);
}

static void follow(int expected)
{
	struct hf_error error = {0};

	assert_int_equal(topics_follow(&topics, controller.topics[0], T0, &error), expected);
}

/* A log that this broker has, closed in order or not. */
static void leave_a_log(bool marked)
{
	start();
	follow(0);
	topics_known(&topics, &controller);
	topics_close(&topics);
	assert_true(is_marked());
	put("log-start-offset-checkpoint", STARTS);
	if (!marked)
		assert_int_equal(unlink(path(".kafka_cleanshutdown")), 0);
}

static void broker_that_never_joins_leaves_its_directory_as_it_was(void **state)
{
	(void)state;
	leave_a_log(false);
	start();
	topics_close(&topics);
	assert_false(is_marked()); /* nobody has looked at the log */
	assert_starts(STARTS);
	leave_a_log(true);
	start();
	assert_true(is_marked()); /* also if it is killed now */
	topics_close(&topics);
	assert_true(is_marked());
	assert_starts(STARTS);
}

static void logs_that_were_not_opened_keep_their_start(void **state)
{
	(void)state;
	leave_a_log(true);
	start();
	follow(0);
	assert_false(is_marked());
	topics_partition(&topics, (struct codec_string){"t", 1}, 0)->log->start_offset = 4;
	topics_close(&topics);
	assert_true(is_marked());
	assert_starts("0\n2\nt 0 4\nother 3 17\n");
	start();
	follow(0);
	topics_known(&topics, &controller);
	topics_close(&topics);
	assert_starts("0\n0\n"); /* the log is empty, and no topic is called other */
}

static void log_that_cannot_be_opened_leaves_no_mark(void **state)
{
	char aside[128];

	(void)state;
	leave_a_log(true);
	snprintf(aside, sizeof(aside), "%s/aside", directory);
	assert_int_equal(rename(path("t-0"), aside), 0);
	put("t-0", "no directory");
	start();
	follow(-ENOTDIR);
	topics_known(&topics, &controller);
	topics_close(&topics);
	assert_false(is_marked());
	assert_starts("0\n2\nother 3 17\nt 0 5\n");
	start();
	topics_known(&topics, &controller);
	follow(-ENOTDIR);
	assert_int_equal(unlink(path("t-0")), 0);
	assert_int_equal(rename(aside, path("t-0")), 0);
	follow(0); /* the disk is mended */
	topics_close(&topics);
	assert_true(is_marked());
}

static void log_whose_topic_cannot_be_read_stays(void **state)
{
	(void)state;
	leave_a_log(true);
	assert_int_equal(access(path("t-0/00000000000000000000.log"), F_OK), 0);
	assert_int_equal(unlink(path("t-0/partition.metadata")), 0);
	assert_int_equal(mkdir(path("t-0/partition.metadata"), 0700), 0);
	put("t-0/witness", "");
	start();
	follow(-EISDIR);
	topics_close(&topics);
	assert_int_equal(access(path("t-0/witness"), F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			broker_that_never_joins_leaves_its_directory_as_it_was, set_up, tear_down),
		cmocka_unit_test_setup_teardown(logs_that_were_not_opened_keep_their_start, set_up, tear_down),
		cmocka_unit_test_setup_teardown(log_whose_topic_cannot_be_read_stays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(log_that_cannot_be_opened_leaves_no_mark, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
