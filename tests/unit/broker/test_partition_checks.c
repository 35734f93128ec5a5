/* Batches that a partition's log takes or refuses. */
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

#include "base/bytes.h"
#include "batches.h"
#include "broker/codec/compression.h"
#include "broker/log/partition_log.h"
#include "log_bed.h"

#define T0 LOG_BED_T0

static struct log_config config;
static struct partition_log *partition_log;
static char directory[64];

static void open_log(void)
{
	partition_log = log_bed_open(directory, &config, NULL, true);
}

static int set_up(void **state)
{
	(void)state;
	log_bed_make_directory(directory);
	config = log_bed_config(65536, 8192);
	config.segment_ms = 3600000;
	open_log();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	partition_log_remove(partition_log);
	return 0;
}

static void a_timestamp_that_is_far_ahead_is_refused(void **state)
{
	static uint8_t data[1024];
	struct batch_wish wish = {
		.records = 1, .value_bytes = 10, .producer_id = -1, .timestamp_ms = T0 + config.timestamp_after_ms};
	struct append_result result;
	size_t bytes = batches_make(&wish, data);

	(void)state;
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_NONE);
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0 - 1, &result), KAFKA_INVALID_TIMESTAMP);
	assert_non_null(result.message);
	wish.timestamp_ms = INT64_MAX - 1;
	bytes = batches_make(&wish, data);
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_INVALID_TIMESTAMP);
	wish.timestamp_ms = INT64_MIN;
	bytes = batches_make(&wish, data);
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_NONE);
	/* Of what is compressed too, whatever the header says. */
	wish.timestamp_ms = T0 + config.timestamp_after_ms + 1;
	bytes = batches_pack(data, batches_make(&wish, data), HF_CODEC_ZSTD);
	memset(data + 35, 0, 8);
	batches_seal(data, bytes);
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_INVALID_TIMESTAMP);
	partition_log->config.log_append_time = true;
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_NONE);
}

/* It would be acknowledged, and no consumer gets past it (R-B42). */
static void what_is_wrong_inside_a_packed_batch_is_refused(void **state)
{
	static uint8_t data[8192];
	const struct batch_wish wish = {.records = 20, .value_bytes = 100, .producer_id = -1, .timestamp_ms = T0};
	struct append_result result;
	size_t bytes;

	(void)state;
	for (unsigned codec = HF_CODEC_GZIP; codec < HF_CODECS; codec++) {
		bytes = batches_make(&wish, data);
		data[22] = (uint8_t)codec; /* it says so, and is not */
		batches_seal(data, bytes);
		assert_int_equal(
			partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_INVALID_RECORD);
		assert_non_null(result.message);
		for (int32_t count = 19; count <= 21; count += 2) {
			bytes = batches_pack(data, batches_make(&wish, data), codec);
			put_be32(data + 23, (uint32_t)(count - 1));
			put_be32(data + 57, (uint32_t)count);
			batches_seal(data, bytes);
			assert_int_equal(
				partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_INVALID_RECORD);
		}
		assert_int_equal(partition_log_end(partition_log), 20 * (int64_t)(codec - 1));
		bytes = batches_pack(data, batches_make(&wish, data), codec);
		memset(data + 35, 0x11,
			8); /* its largest timestamp is that of its records, as where nothing is packed */
		batches_seal(data, bytes);
		assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_NONE);
		assert_int_equal(partition_log_head(partition_log)->max_timestamp_ms, T0 + 19);
	}
	assert_int_equal(partition_log_end(partition_log), 80);
}

static void only_a_broker_sets_log_append_time(void **state)
{
	static uint8_t data[1024];
	const struct batch_wish wish = {.records = 1, .value_bytes = 10, .producer_id = -1, .timestamp_ms = T0};
	struct append_result result;
	size_t bytes = batches_make(&wish, data);

	(void)state;
	put_be16(data + 21, BATCH_LOG_APPEND_TIME);
	batches_seal(data, bytes);
	for (unsigned i = 0; i < 2; i++) {
		partition_log->config.log_append_time = i == 1;
		assert_int_equal(
			partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_INVALID_TIMESTAMP);
		assert_non_null(result.message);
	}
}

/* ---- records without a timestamp (R-B44) ---- */

static void append_at(int64_t now_ms, int64_t timestamp_ms)
{
	static uint8_t data[1024];
	const struct batch_wish wish = {
		.records = 1, .value_bytes = 10, .producer_id = -1, .timestamp_ms = timestamp_ms};
	struct append_result result;
	size_t bytes = batches_make(&wish, data);

	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, now_ms, &result), KAFKA_NONE);
}

static unsigned segments(void)
{
	unsigned n = 0;

	list_for_each (at, &partition_log->segments)
		n++;
	return n;
}

static void set_file_time(int64_t ms)
{
	const struct timespec times[2] = {{ms / 1000, ms % 1000 * 1000000}, {ms / 1000, ms % 1000 * 1000000}};
	char path[128];

	snprintf(path, sizeof(path), "%s/%020d.log", directory, 0);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* The file's time is that of its last batch; behind a restart it is what the disk has. */
static void records_without_a_timestamp_age_by_the_time_of_the_file(void **state)
{
	(void)state;
	partition_log->config.retention_ms = 1000;
	append_at(T0, -1);
	append_at(T0 + 500, -1);
	assert_false(partition_log_retain(partition_log, 2, T0 + 1500, true));
	assert_int_equal(partition_log->start_offset, 0);
	assert_int_equal(partition_log_close(partition_log), 0);
	set_file_time(T0 + 700);
	open_log();
	partition_log->config.retention_ms = 1000;
	assert_false(partition_log_retain(partition_log, 2, T0 + 1700, true));
	assert_true(partition_log_retain(partition_log, 2, T0 + 1701, true));
	assert_int_equal(partition_log->start_offset, 2);
	append_at(T0 + 10000, T0); /* one that has a timestamp ages by it */
	append_at(T0 + 10000, -1);
	assert_true(partition_log_retain(partition_log, 4, T0 + 10000, true));
}

/* A sealed segment keeps its time through restarts. */
static void a_restart_does_not_make_a_segment_younger(void **state)
{
	(void)state;
	partition_log->config.segment_ms = 0;
	append_at(T0, -1);
	append_at(T0 + 1, -1);
	assert_int_equal(segments(), 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(partition_log_close(partition_log), 0);
		if (i == 0)
			set_file_time(T0);
		open_log();
	}
	partition_log->config.retention_ms = 1000;
	assert_true(partition_log_retain(partition_log, 2, T0 + 1001, true));
	assert_int_equal(partition_log->start_offset, 1);
}

static void a_segment_without_timestamps_rolls_by_its_age(void **state)
{
	(void)state;
	partition_log->config.segment_ms = 1000;
	append_at(T0, -1);
	append_at(T0 + 1000, -1);
	append_at(T0 + 1000, T0 + 5000);
	assert_int_equal(segments(), 1);
	append_at(T0 + 1001, -1);
	assert_int_equal(segments(), 2);
	partition_log->config.log_append_time = true; /* what clients say plays no part */
	append_at(T0 + 2001, -1);
	assert_int_equal(segments(), 2);
	append_at(T0 + 2002, T0);
	append_at(T0 + 3003, -1);
	assert_int_equal(segments(), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CHECK_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		CHECK_TEST(a_timestamp_that_is_far_ahead_is_refused),
		CHECK_TEST(what_is_wrong_inside_a_packed_batch_is_refused),
		CHECK_TEST(only_a_broker_sets_log_append_time),
		CHECK_TEST(records_without_a_timestamp_age_by_the_time_of_the_file),
		CHECK_TEST(a_restart_does_not_make_a_segment_younger),
		CHECK_TEST(a_segment_without_timestamps_rolls_by_its_age),
	};

	return cmocka_run_group_tests_name("partition checks", tests, NULL, NULL);
}
