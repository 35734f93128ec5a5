/* Damage of a partition's log on disk is told from a torn tail, and never cut in silence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batches.h"
#include "broker/log/partition.h"
#include "log_bed.h"

#define SEGMENT_BYTES 4096u
#define VALUE_BYTES   100u
#define T0            LOG_BED_T0
#define FIRST         "00000000000000000000.log"

static const uint8_t owner[LOG_OWNER_BYTES] = {1, 2, 3};
static char directory[64], logs[80];
static struct log_marks *marks;
static struct partition_log *one;
static struct log_config config;

/* ---- the log and its mark ---- */

static void open_log(bool closed)
{
	struct hf_error error = {0};
	struct log_mark *mark;

	if (log_marks_open(hf_env_host(), directory, 7, &marks, &error) != 0 ||
		log_marks_take(marks, owner, 0, &mark, &error) != 0)
		fail_msg("%s", error.text);
	one = log_bed_open(logs, &config, mark, closed);
}

static void kill_process(void)
{
	log_bed_kill(one);
	log_marks_close(marks);
}

static void close_in_order(void)
{
	assert_int_equal(partition_log_close(one), 0);
	log_marks_close(marks);
}

static void append(unsigned records)
{
	static uint8_t data[1024];
	struct append_result result;

	while (records-- > 0) {
		struct batch_wish wish = {
			.records = 1, .value_bytes = VALUE_BYTES, .producer_id = -1, .timestamp_ms = T0};

		assert_int_equal(
			partition_log_append(one, data, batches_make(&wish, data), 0, T0, &result), KAFKA_NONE);
	}
}

static uint32_t batch_bytes(void)
{
	static uint8_t data[1024];
	struct batch_wish wish = {.records = 1, .value_bytes = VALUE_BYTES, .producer_id = -1, .timestamp_ms = T0};

	return (uint32_t)batches_make(&wish, data);
}

static void sync_log(void)
{
	assert_int_equal(flusher_flush(one), 0);
}

static int set_up(void **state)
{
	(void)state;
	log_bed_make_directory(directory);
	snprintf(logs, sizeof(logs), "%s/t-0", directory);
	config = log_bed_config(SEGMENT_BYTES, 2048);
	open_log(true);
	return 0;
}

static void remove_all(const char *path)
{
	DIR *dir = opendir(path);
	char at[400];

	for (struct dirent *entry = dir == NULL ? NULL : readdir(dir); entry != NULL; entry = readdir(dir)) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(at, sizeof(at), "%s/%s", path, entry->d_name);
		unlink(at);
	}
	if (dir != NULL)
		closedir(dir);
	rmdir(path);
}

static int tear_down(void **state)
{
	(void)state;
	partition_log_close(one);
	log_marks_close(marks);
	remove_all(logs);
	remove_all(directory);
	return 0;
}

/* ---- its files ---- */

static const char *path_of(const char *name)
{
	static char path[400];

	snprintf(path, sizeof(path), "%s/%s", logs, name);
	return path;
}

static int64_t size_of(const char *name)
{
	struct stat stat_;

	return stat(path_of(name), &stat_) == 0 ? stat_.st_size : -1;
}

static void change(const char *name, int64_t at)
{
	int fd = open(path_of(name), O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x20;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void zero(const char *name, int64_t at, size_t bytes)
{
	static uint8_t zeros[4096];
	int fd = open(path_of(name), O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, zeros, bytes, at), (ssize_t)bytes);
	close(fd);
}

/* Of all files of segments: name, bytes, content. */
static uint64_t sum_of_segments(void)
{
	DIR *dir = opendir(logs);
	uint64_t sum = 0;

	for (struct dirent *entry = dir == NULL ? NULL : readdir(dir); entry != NULL; entry = readdir(dir)) {
		int fd = strstr(entry->d_name, ".log") == NULL ? -1 : open(path_of(entry->d_name), O_RDONLY);
		uint8_t byte;
		uint64_t one_sum = 1469598103934665603ull;

		if (fd < 0)
			continue;
		for (const char *c = entry->d_name; *c != '\0'; c++)
			one_sum = (one_sum ^ (uint8_t)*c) * 1099511628211ull;
		while (read(fd, &byte, 1) == 1)
			one_sum = (one_sum ^ byte) * 1099511628211ull;
		close(fd);
		sum += one_sum;
	}
	if (dir != NULL)
		closedir(dir);
	return sum;
}

/* It is copied, so that it is another file: the life before may have been another host's (R-D9). */
static void lose_power(void)
{
	char from[96], to[96], command[480];

	snprintf(from, sizeof(from), "%s/synced", directory);
	snprintf(to, sizeof(to), "%s/copy", directory);
	snprintf(command, sizeof(command), "cp %s %s && mv %s %s", from, to, to, from);
	assert_int_equal(system(command), 0);
}

static void assert_damaged(int64_t end)
{
	uint64_t before = sum_of_segments();
	struct append_result result;
	uint8_t data[1024];
	struct batch_wish wish = {.records = 1, .value_bytes = VALUE_BYTES, .producer_id = -1, .timestamp_ms = T0};

	for (unsigned starts = 0; starts < 3; starts++) {
		open_log(false);
		assert_int_equal(one->verdict.state, LOG_DAMAGED);
		assert_int_equal(one->verdict.end, end);
		assert_int_equal(partition_log_end(one), end);
		assert_int_equal(partition_log_append(one, data, batches_make(&wish, data), 0, T0, &result),
			KAFKA_STORAGE_ERROR);
		close_in_order();
		assert_int_equal(sum_of_segments(), before);
		if (starts == 1)
			lose_power();
	}
	open_log(false);
}

static void assert_whole(int64_t end)
{
	open_log(false);
	assert_int_equal(one->verdict.state, LOG_WHOLE);
	assert_int_equal(partition_log_end(one), end);
}

/* ---- a killed process ---- */

static void a_changed_byte_of_a_synced_record_is_damage(void **state)
{
	(void)state;
	append(15);
	sync_log();
	kill_process();
	lose_power();
	change(FIRST, 10 * batch_bytes() + 80);
	assert_damaged(10);
}

static void a_changed_byte_of_the_last_record_is_damage(void **state)
{
	(void)state;
	append(15);
	kill_process();
	change(FIRST, 15 * batch_bytes() - 1);
	assert_damaged(14);
}

static void a_changed_header_of_a_synced_record_is_damage(void **state)
{
	(void)state;
	append(15);
	sync_log();
	kill_process();
	change(FIRST, 3 * batch_bytes() + 10);
	assert_damaged(3);
}

static void a_zeroed_page_below_the_mark_is_damage(void **state)
{
	(void)state;
	append(20);
	sync_log();
	kill_process();
	zero(FIRST, 0, 1024);
	assert_damaged(0);
}

static void a_truncated_file_is_damage(void **state)
{
	(void)state;
	append(20);
	sync_log();
	kill_process();
	assert_int_equal(truncate(path_of(FIRST), 5 * batch_bytes() + 7), 0);
	assert_damaged(5);
}

static void missing_files_are_damage(void **state)
{
	char name[32];

	(void)state;
	append(60);
	sync_log();
	snprintf(name, sizeof(name), "%020lld.log", (long long)partition_log_head(one)->base_offset);
	kill_process();
	assert_int_equal(rename(path_of(name), directory[0] == '/' ? "/tmp/holdfast-damage-kept" : ""), 0);
	assert_damaged(strtoll(name, NULL, 10));
	close_in_order();
	assert_int_equal(rename("/tmp/holdfast-damage-kept", path_of(name)), 0);
	assert_int_equal(unlink(path_of(FIRST)), 0);
	assert_damaged(0);
}

static void a_missing_directory_is_damage(void **state)
{
	(void)state;
	append(5);
	kill_process();
	remove_all(logs);
	assert_damaged(0);
}

static void an_older_copy_is_damage(void **state)
{
	char command[480];

	(void)state;
	append(5);
	sync_log();
	snprintf(command, sizeof(command), "cp %s/" FIRST " %s/older", logs, directory);
	assert_int_equal(system(command), 0);
	append(5);
	kill_process();
	snprintf(command, sizeof(command), "mv %s/older %s/" FIRST, directory, logs);
	assert_int_equal(system(command), 0);
	assert_damaged(5);
}

static void a_killed_process_loses_nothing_and_says_nothing(void **state)
{
	(void)state;
	append(70);
	kill_process();
	assert_whole(70);
}

static void what_was_not_proven_is_cut_and_kept_beside(void **state)
{
	(void)state;
	append(10);
	sync_log();
	append(10);
	kill_process();
	lose_power();
	change(FIRST, 12 * batch_bytes() + 80);
	open_log(false);
	assert_int_equal(one->verdict.state, LOG_TORN);
	assert_int_equal(partition_log_end(one), 12);
	assert_true(size_of(FIRST ".cut") >= 8 * batch_bytes());
	append(1);
}

static void zeros_above_the_mark_are_a_torn_tail(void **state)
{
	(void)state;
	append(10);
	sync_log();
	append(10);
	kill_process();
	lose_power();
	zero(FIRST, 10 * batch_bytes(), 10 * batch_bytes());
	assert_whole(10); /* and nothing is kept: there is nothing */
	assert_int_equal(size_of(FIRST ".cut"), -1);
}

/* ---- after an orderly stop ---- */

static void a_log_that_was_closed_and_is_shorter_is_damaged(void **state)
{
	(void)state;
	append(10);
	close_in_order();
	assert_int_equal(truncate(path_of(FIRST), 9 * batch_bytes()), 0);
	open_log(true);
	assert_int_equal(one->verdict.state, LOG_DAMAGED);
	assert_int_equal(one->verdict.end, 9);
}

static struct segment *first_of(void)
{
	return container_of(one->segments.next, struct segment, node);
}

static int64_t read_all(void)
{
	int64_t offset = 0;

	for (; offset < partition_log_end(one); offset++) {
		struct log_span span;

		if (partition_log_read(one, offset, partition_log_end(one), 1, true, &span) != KAFKA_NONE ||
			span.segment == NULL)
			break;
		segment_release(span.segment);
	}
	return offset;
}

/* What lies below the mark is not read when the log opens. An index that is wrong costs nothing but time. */
static void older_segments_are_opened_by_their_indexes(void **state)
{
	uint32_t entries;

	(void)state;
	append(90);
	entries = first_of()->places.count;
	assert_true(entries > 1);
	sync_log();
	kill_process();
	assert_whole(90);
	assert_true(first_of()->sealed && !first_of()->checked);
	assert_int_equal(first_of()->places.count, entries);
	assert_int_equal(read_all(), 90);
	kill_process();
	change("00000000000000000000.index", 7); /* a place */
	assert_whole(90);
	assert_int_equal(read_all(), 90);
	kill_process();
	change("00000000000000000000.timeindex", 7);
	assert_whole(90);
	assert_int_equal(first_of()->max_timestamp_ms, T0);
	kill_process();
	assert_int_equal(unlink(path_of("00000000000000000000.index")), 0);
	assert_whole(90);
	assert_int_equal(first_of()->places.count, entries);
	assert_int_equal(read_all(), 90);
}

static unsigned told;

static void note_told(struct partition_log *log, void *context)
{
	(void)log, (void)context;
	told++;
}

/* Its content is not looked at before the log is served, but then. */
static void damage_in_a_closed_log_is_found_later(void **state)
{
	struct flusher flusher;
	struct hf_loop *loop;
	struct hf_error error;

	(void)state;
	append(60);
	close_in_order();
	change(FIRST, 2 * batch_bytes() + 80);
	open_log(true);
	assert_int_equal(one->verdict.state, LOG_WHOLE);
	assert_int_equal(partition_log_end(one), 60);
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	flusher_open(&flusher, loop, 1000000);
	told = 0;
	one->flush.told = note_told;
	assert_int_equal(flusher_add(&flusher, one, &error), 0);
	while (!partition_log_is_damaged(one))
		(void)hf_loop_turn(loop, 1000000);
	assert_int_equal(one->verdict.end, 2);
	assert_int_equal(one->verdict.file, 0);
	assert_int_equal(told, 1);
	assert_true(one->failed);
	assert_int_equal(partition_log_cut_damage(one, T0, &error), 0);
	assert_int_equal(partition_log_end(one), 2);
	append(1);
	flusher_remove(one);
	assert_int_equal(flusher_close(&flusher), 0);
	hf_loop_destroy(loop);
}

/* ---- going on ---- */

static void a_damaged_log_is_cut_at_the_damage_and_keeps_the_rest(void **state)
{
	struct hf_error error;

	(void)state;
	append(60);
	sync_log();
	kill_process();
	change(FIRST, 4 * batch_bytes() + 3);
	assert_int_equal(unlink(path_of("00000000000000000000.index")), 0); /* so that all headers are read */
	assert_damaged(4);
	assert_int_equal(partition_log_cut_damage(one, T0, &error), 0);
	assert_int_equal(partition_log_end(one), 4);
	assert_true(size_of(FIRST ".damaged") > 0);
	append(3);
	kill_process();
	assert_whole(7);
}

static void a_log_that_was_damaged_is_verified_again_until_it_is_whole(void **state)
{
	(void)state;
	append(60);
	kill_process();
	change(FIRST, 4 * batch_bytes() + 3);
	assert_int_equal(unlink(path_of("00000000000000000000.index")), 0); /* so that all headers are read */
	assert_damaged(4);
	close_in_order();
	open_log(true); /* others were closed in order */
	assert_int_equal(one->verdict.state, LOG_DAMAGED);
	close_in_order();
	change(FIRST, 4 * batch_bytes() + 3); /* back */
	assert_whole(60);
	assert_true(one->mark->synced == 0 && !one->mark->damaged);
}

static void a_damaged_log_is_not_led(void **state)
{
	struct partition partition;

	(void)state;
	append(20);
	sync_log();
	partition_init(&partition, 0, one);
	assert_true(partition.leads);
	kill_process();
	change(FIRST, 4 * batch_bytes() + 80);
	assert_damaged(4);
	partition_init(&partition, 0, one);
	assert_false(partition.leads);
}

static void what_is_missing_can_be_given_up(void **state)
{
	struct hf_error error;

	(void)state;
	append(60);
	kill_process();
	assert_int_equal(unlink(path_of(FIRST)), 0);
	assert_damaged(0);
	assert_int_equal(partition_log_cut_damage(one, T0, &error), 0);
	assert_int_equal(partition_log_end(one), 0);
	append(3);
	kill_process();
	assert_whole(3);
}

static void a_log_that_was_cut_in_order_is_whole(void **state)
{
	struct hf_error error;

	(void)state;
	append(60);
	sync_log();
	assert_int_equal(partition_log_truncate(one, 30, T0, &error), 0);
	kill_process();
	assert_whole(30);
	assert_int_equal(partition_log_restart(one, 100, &error), 0);
	append(2);
	kill_process();
	assert_whole(102);
	partition_log_advance_start(one, 101);
	kill_process();
	assert_whole(102);
	assert_int_equal(one->start_offset, 101);
}

/* ---- marks ---- */

static void a_mark_outlives_its_torn_record(void **state)
{
	char path[96];
	uint8_t junk[64];
	int fd;

	(void)state;
	append(5);
	sync_log(); /* the records alternate: 4, 5, then 5 synced */
	kill_process();
	memset(junk, 0x55, sizeof(junk));
	snprintf(path, sizeof(path), "%s/synced", directory);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, junk, sizeof(junk), 0), (ssize_t)sizeof(junk));
	close(fd);
	open_log(false);
	assert_true(one->mark->before.known);
	assert_true(one->mark->before.written >= 4);
	kill_process();
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	for (off_t at = 0; at < 256; at += 64)
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at), (ssize_t)sizeof(junk));
	close(fd);
	assert_whole(5); /* without proof everything is verified */
}

static void a_verdict_needs_proof(void **state)
{
	static const struct {
		struct log_proof proof;
		struct log_found found;
		bool rest;
		enum log_state state;
	} cases[] = {
		{{0}, {0, 10, false}, false, LOG_WHOLE},
		{{0}, {0, 10, false}, true, LOG_TORN},
		{{0}, {0, 10, true}, false, LOG_TORN},
		{{.closed = true}, {0, 10, true}, false, LOG_DAMAGED},
		{{.known = true, .synced = 10, .written = 20}, {0, 10, false}, true, LOG_TORN},
		{{.known = true, .synced = 10, .written = 20}, {0, 10, true}, true, LOG_TORN},
		{{.known = true, .synced = 11, .written = 20}, {0, 10, false}, true, LOG_DAMAGED},
		{{.known = true, .same_boot = true, .synced = 10, .written = 20}, {0, 19, false}, true, LOG_DAMAGED},
		{{.known = true, .same_boot = true, .synced = 10, .written = 20}, {0, 20, false}, true, LOG_TORN},
		{{.known = true, .same_boot = true, .synced = 10, .written = 20}, {0, 21, false}, false, LOG_WHOLE},
		{{.known = true, .same_boot = true, .start = 3}, {4, 21, false}, false, LOG_DAMAGED},
		{{.known = true, .start = 3}, {4, 21, false}, false, LOG_DAMAGED},
		{{.known = true, .same_boot = true, .start = 5}, {4, 21, false}, false, LOG_WHOLE},
		{{.known = true, .damaged = true, .synced = 21}, {0, 21, true}, false, LOG_DAMAGED},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct log_verdict verdict = log_verdict_of(&cases[i].proof, &cases[i].found, cases[i].rest);

		if (verdict.state != cases[i].state)
			fail_msg("case %u: %d", i, (int)verdict.state);
		assert_int_equal(verdict.fault != NULL, verdict.state == LOG_DAMAGED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define DAMAGE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		DAMAGE_TEST(a_changed_byte_of_a_synced_record_is_damage),
		DAMAGE_TEST(a_changed_byte_of_the_last_record_is_damage),
		DAMAGE_TEST(a_changed_header_of_a_synced_record_is_damage),
		DAMAGE_TEST(a_zeroed_page_below_the_mark_is_damage),
		DAMAGE_TEST(a_truncated_file_is_damage),
		DAMAGE_TEST(missing_files_are_damage),
		DAMAGE_TEST(a_missing_directory_is_damage),
		DAMAGE_TEST(an_older_copy_is_damage),
		DAMAGE_TEST(a_killed_process_loses_nothing_and_says_nothing),
		DAMAGE_TEST(what_was_not_proven_is_cut_and_kept_beside),
		DAMAGE_TEST(zeros_above_the_mark_are_a_torn_tail),
		DAMAGE_TEST(a_log_that_was_closed_and_is_shorter_is_damaged),
		DAMAGE_TEST(older_segments_are_opened_by_their_indexes),
		DAMAGE_TEST(damage_in_a_closed_log_is_found_later),
		DAMAGE_TEST(a_damaged_log_is_cut_at_the_damage_and_keeps_the_rest),
		DAMAGE_TEST(a_log_that_was_damaged_is_verified_again_until_it_is_whole),
		DAMAGE_TEST(a_damaged_log_is_not_led),
		DAMAGE_TEST(what_is_missing_can_be_given_up),
		DAMAGE_TEST(a_log_that_was_cut_in_order_is_whole),
		DAMAGE_TEST(a_mark_outlives_its_torn_record),
		cmocka_unit_test(a_verdict_needs_proof),
	};

	return cmocka_run_group_tests_name("log damage", tests, NULL, NULL);
}
