/* A partition's log: append, roll, read, find, recover; and what it remembers of producers. */
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
#include "broker/log/next_segment.h"
#include "broker/log/partition.h"
#include "log_bed.h"

#define SEGMENT_BYTES 16384u
#define T0            LOG_BED_T0

static char directory[64];
static struct partition_log *partition_log;
static struct log_mark *mark; /* NULL: none is kept */
static struct log_config config;

static void open_log(bool clean)
{
	partition_log = log_bed_open(directory, &config, mark, clean);
}

static void crash(void)
{
	log_bed_kill(partition_log);
	partition_log = NULL;
}

static int set_up(void **state)
{
	(void)state;
	log_bed_make_directory(directory);
	config = log_bed_config(SEGMENT_BYTES, 8192);
	open_log(true);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	partition_log_remove(partition_log);
	return access(directory, F_OK) == 0;
}

static enum kafka_error append_as(int64_t producer, int16_t epoch, int32_t sequence, int32_t records,
	int32_t leader_epoch, struct append_result *result)
{
	static uint8_t data[65536];
	struct batch_wish wish = {.records = records,
		.value_bytes = 100,
		.producer_id = producer,
		.epoch = epoch,
		.sequence = sequence,
		.timestamp_ms = T0 + partition_log_end(partition_log) * 10};
	size_t bytes = batches_make(&wish, data);

	return partition_log_append(partition_log, data, bytes, leader_epoch, T0, result);
}

static int64_t append(int32_t records)
{
	struct append_result result;

	assert_int_equal(append_as(-1, 0, 0, records, 0, &result), KAFKA_NONE);
	return result.base_offset;
}

/* Reads everything from `offset` on, batch by batch; returns the offset behind. */
static int64_t read_all(int64_t offset)
{
	int64_t end = partition_log_end(partition_log);

	while (offset < end) {
		struct log_span span;
		struct batch batch;

		assert_int_equal(partition_log_read(partition_log, offset, end, 1, true, &span), KAFKA_NONE);
		assert_non_null(span.segment);
		assert_int_equal(batch_read(span.at, span.bytes, &batch), BATCH_RIGHT);
		assert_int_equal(batch_check(span.at, &batch), BATCH_RIGHT);
		assert_int_equal(batch.base_offset, offset);
		offset = batch_next_offset(&batch);
		segment_release(span.segment);
	}
	return offset;
}

static unsigned segments(void)
{
	unsigned n = 0;

	list_for_each (at, &partition_log->segments)
		n++;
	return n;
}

static void batches_follow_each_other_across_segments(void **state)
{
	(void)state;
	for (int64_t i = 0; i < 100; i++)
		assert_int_equal(append(5), i * 5);
	assert_true(segments() > 3);
	assert_int_equal(read_all(0), 500);
}

static void a_read_ends_at_its_limits(void **state)
{
	struct log_span span;

	(void)state;
	append(1);
	append(2);
	append(3);
	assert_int_equal(partition_log_read(partition_log, 0, 3, 100000, true, &span), KAFKA_NONE);
	assert_true(span.bytes > 61 * 2 && span.bytes < 61 * 2 + 3 * 130);
	segment_release(span.segment);
	assert_int_equal(partition_log_read(partition_log, 0, 6, 10, false, &span), KAFKA_NONE);
	assert_null(span.segment);
	assert_int_equal(partition_log_read(partition_log, 6, 6, 10, true, &span), KAFKA_NONE);
	assert_null(span.segment);
	assert_int_equal(partition_log_read(partition_log, 7, 6, 10, true, &span), KAFKA_OFFSET_OUT_OF_RANGE);
	/* From within a batch: the whole of it. */
	assert_int_equal(partition_log_read(partition_log, 4, 6, 10, true, &span), KAFKA_NONE);
	assert_non_null(span.segment);
	segment_release(span.segment);
}

static void a_log_closed_in_order_opens_as_it_was(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 60; i++)
		append(4);
	partition_log_close(partition_log);
	open_log(true);
	assert_int_equal(read_all(0), 240);
	assert_int_equal(append(1), 240);
}

static void a_log_of_a_killed_process_opens_as_it_was(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 60; i++)
		append(4);
	crash();
	open_log(false);
	assert_int_equal(read_all(0), 240);
	assert_int_equal(append(1), 240);
}

static void edit_head(int64_t base_offset, off_t from_tail, uint32_t tail, char value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%020lld.log", directory, (long long)base_offset);
	fd = open(path, O_RDWR);
	assert_int_equal(pwrite(fd, &value, 1, (off_t)tail + from_tail), 1);
	close(fd);
}

static void a_torn_batch_and_what_lies_behind_it_is_gone(void **state)
{
	uint32_t tail;

	(void)state;
	append(2);
	tail = container_of(partition_log->segments.prev, struct segment, node)->bytes;
	append(2);
	append(2);
	crash();
	edit_head(0, 100, tail, 'X');
	open_log(false);
	assert_int_equal(partition_log_end(partition_log), 2);
	assert_int_equal(append(1), 2);
	assert_int_equal(read_all(0), 3);
}

static struct segment *head_of_log(void)
{
	return container_of(partition_log->segments.prev, struct segment, node);
}

/* After a crash, the log opens with a whole batch of this epoch behind its tail; two records are before it. */
static void crash_with_a_batch_behind_the_tail(int32_t leader_epoch)
{
	struct segment *head;

	append(2);
	head = head_of_log();
	assert_int_equal(segment_prepare(head, 4096), 0);
	memcpy(head->map + head->bytes, head->map, head->bytes);
	batch_commit(head->map + head->bytes, 2, leader_epoch);
	crash();
	open_log(false);
	assert_int_equal(partition_log_end(partition_log), 2);
}

/* A sector ended within the epoch: its first three bytes were assigned on the disk, the last one was not. */
static void a_batch_with_a_part_of_an_epoch_is_not_recovered(void **state)
{
	(void)state;
	crash_with_a_batch_behind_the_tail(0xff);
	assert_int_equal(append(1), 2);
}

/* R-B9: what lies whole behind the tail, with an epoch that was never assigned, is not a part of the log. */
static void a_batch_without_an_epoch_is_not_recovered(void **state)
{
	struct segment *head;

	(void)state;
	crash_with_a_batch_behind_the_tail(-1);
	head = head_of_log();
	for (uint32_t i = head->bytes; i < head->capacity; i++)
		assert_int_equal(head->map[i], 0);
}

static void what_is_wrong_is_refused_and_changes_nothing(void **state)
{
	static uint8_t data[65536];
	struct batch_wish wish = {.records = 1, .value_bytes = 10, .producer_id = -1};
	struct append_result result;
	size_t bytes = batches_make(&wish, data);

	(void)state;
	assert_int_equal(partition_log_append(partition_log, data, bytes - 1, 0, T0, &result), KAFKA_CORRUPT_MESSAGE);
	assert_int_equal(partition_log_append(partition_log, data, bytes + 1, 0, T0, &result), KAFKA_INVALID_RECORD);
	assert_int_equal(partition_log_append(partition_log, data, 0, 0, T0, &result), KAFKA_CORRUPT_MESSAGE);
	data[70] ^= 1;
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_CORRUPT_MESSAGE);
	assert_non_null(result.message);
	wish.value_bytes = 9000;
	bytes = batches_make(&wish, data);
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_MESSAGE_TOO_LARGE);
	wish = (struct batch_wish){.records = 1, .value_bytes = 10, .producer_id = INT64_MAX};
	bytes = batches_make(&wish, data);
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_UNKNOWN_PRODUCER_ID);
	assert_int_equal(partition_log_end(partition_log), 0);
}

/* A batch that says what none of its records does: a segment would be kept until that time. */
static void the_largest_timestamp_is_that_of_the_records(void **state)
{
	static uint8_t data[1024];
	const struct batch_wish wish = {.records = 3, .value_bytes = 10, .producer_id = -1, .timestamp_ms = T0};
	struct append_result result;
	size_t bytes = batches_make(&wish, data);

	(void)state;
	memset(data + 35, 0x7f, 8);
	batches_seal(data, bytes);
	assert_int_equal(partition_log_append(partition_log, data, bytes, 0, T0, &result), KAFKA_NONE);
	assert_int_equal(head_of_log()->max_timestamp_ms, T0 + 2);
	assert_int_equal(read_all(0), 3); /* its CRC is right */
	crash();
	open_log(false);
	assert_int_equal(partition_log_end(partition_log), 3);
	assert_int_equal(head_of_log()->max_timestamp_ms, T0 + 2);
}

static void a_duplicate_is_answered_with_its_old_offset(void **state)
{
	struct append_result result;

	(void)state;
	for (int32_t i = 0; i < 6; i++)
		assert_int_equal(append_as(7, 0, i * 2, 2, 0, &result), KAFKA_NONE);
	assert_int_equal(append_as(7, 0, 10, 2, 0, &result), KAFKA_NONE);
	assert_int_equal(result.base_offset, 10);
	assert_int_equal(append_as(7, 0, 2, 2, 0, &result), KAFKA_NONE); /* the oldest of the last five */
	assert_int_equal(result.base_offset, 2);
	assert_int_equal(append_as(7, 0, 0, 2, 0, &result), KAFKA_OUT_OF_ORDER_SEQUENCE); /* forgotten */
	assert_int_equal(append_as(7, 0, 14, 1, 0, &result), KAFKA_OUT_OF_ORDER_SEQUENCE);
	assert_int_equal(partition_log_end(partition_log), 12);
}

static void a_replaced_producer_is_fenced(void **state)
{
	struct append_result result;

	(void)state;
	assert_int_equal(append_as(7, 0, 0, 1, 0, &result), KAFKA_NONE);
	assert_int_equal(append_as(7, 1, 1, 1, 0, &result), KAFKA_OUT_OF_ORDER_SEQUENCE);
	assert_int_equal(append_as(7, 1, 0, 1, 0, &result), KAFKA_NONE);
	assert_int_equal(append_as(7, 0, 1, 1, 0, &result), KAFKA_INVALID_PRODUCER_EPOCH);
}

static void producers_are_known_after_a_restart(void **state)
{
	struct append_result result;

	(void)state;
	for (int32_t i = 0; i < 300; i++)
		assert_int_equal(append_as(7, 3, i, 1, 0, &result), KAFKA_NONE);
	assert_true(segments() > 1);
	for (unsigned i = 0; i < 2; i++) {
		if (i == 0)
			partition_log_close(partition_log);
		else
			crash();
		open_log(i == 0);
		assert_int_equal(append_as(7, 3, 299, 1, 0, &result), KAFKA_NONE);
		assert_int_equal(result.base_offset, 299);
		assert_int_equal(append_as(7, 3, 295, 1, 0, &result), KAFKA_NONE); /* the oldest of the last five */
		assert_int_equal(result.base_offset, 295);
		assert_int_equal(append_as(7, 3, 294, 1, 0, &result), KAFKA_OUT_OF_ORDER_SEQUENCE);
		assert_int_equal(append_as(7, 3, 301, 1, 0, &result), KAFKA_OUT_OF_ORDER_SEQUENCE);
		assert_int_equal(append_as(7, 2, 300, 1, 0, &result), KAFKA_INVALID_PRODUCER_EPOCH);
	}
}

/* Looks into batches as ListOffsets does. */
static bool find_time(int64_t timestamp_ms, int64_t *offset_out, int64_t *timestamp_out)
{
	struct batch_contents_place place = {.offset = -1};
	int64_t from = partition_log->start_offset;
	struct log_batch found;

	while (place.offset < 0 && partition_log_find_time(partition_log, timestamp_ms, from, &found)) {
		assert_int_equal(batch_contents_find_time(
					 found.at, &found.batch, timestamp_ms, from, BATCH_CONTENTS_MOST, &place),
			BATCH_CONTENTS_RIGHT);
		from = batch_next_offset(&found.batch);
	}
	*offset_out = place.offset;
	*timestamp_out = place.timestamp_ms;
	return place.offset >= 0;
}

static void an_offset_is_found_by_its_time(void **state)
{
	int64_t offset, timestamp;

	(void)state;
	assert_false(find_time(0, &offset, &timestamp));
	assert_false(partition_log_latest_time(partition_log, &timestamp));
	for (unsigned i = 0; i < 100; i++)
		append(5); /* record n * 5 + k has the time T0 + n * 50 + k */
	for (int64_t i = 0; i < 100; i++) {
		assert_true(find_time(T0 + i * 50 + 3, &offset, &timestamp));
		assert_int_equal(offset, i * 5 + 3);
		assert_int_equal(timestamp, T0 + i * 50 + 3);
	}
	assert_false(find_time(T0 + 5000, &offset, &timestamp));
	assert_true(partition_log_latest_time(partition_log, &timestamp));
	assert_int_equal(timestamp, T0 + 99 * 50 + 4);
	partition_log_advance_start(partition_log, 252); /* within a segment, and within a batch */
	assert_true(container_of(partition_log->segments.next, struct segment, node)->base_offset < 245);
	assert_true(find_time(T0, &offset, &timestamp));
	assert_int_equal(offset, 252);
	assert_int_equal(timestamp, T0 + 2502);
}

static void what_is_old_or_too_much_is_deleted(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++)
		append(5);
	partition_log->config.retention_bytes = 2 * SEGMENT_BYTES;
	/* Records above the high watermark stay, and segments that have some. */
	assert_false(partition_log_retain(partition_log, 1, T0, true));
	partition_log->config.retention_ms = 1000;
	assert_false(partition_log_retain(partition_log, 1, T0 + 1000000, true));
	partition_log->config.retention_ms = -1;
	assert_true(partition_log_retain(partition_log, 500, T0, true));
	assert_true(partition_log_bytes(partition_log) >= 2 * SEGMENT_BYTES - 1000);
	assert_true(partition_log_bytes(partition_log) < 3 * SEGMENT_BYTES);
	assert_int_equal(read_all(partition_log->start_offset), 500);
	partition_log->config.retention_ms = 1000;
	assert_true(partition_log_retain(partition_log, 500, T0 + 1000000, true));
	assert_int_equal(partition_log->start_offset, 500);
	assert_int_equal(append(1), 500);
}

/* The age of a segment is that of its records: a producer of old ones must not make a segment of each batch. */
static void old_records_do_not_roll_and_late_ones_do(void **state)
{
	(void)state;
	partition_log->config.segment_ms = 100; /* 10 records */
	for (unsigned i = 0; i < 11; i++)
		append(1);
	assert_int_equal(segments(), 1);
	append(1);
	assert_int_equal(segments(), 2);
}

static void a_log_ends_at_a_gap_and_keeps_what_followed(void **state)
{
	char path[128];

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		append(5);
	assert_true(segments() > 3);
	crash();
	edit_head(0, 100, 0, 'X'); /* the first batch */
	open_log(false);
	assert_int_equal(partition_log_end(partition_log), 0);
	assert_int_equal(segments(), 1);
	assert_int_equal(append(1), 0);
	assert_int_equal(read_all(0), 1);
	for (unsigned i = 0, found = 0; i <= 500; i++) {
		snprintf(path, sizeof(path), "%s/%020u.log.cut", directory, i);
		found += access(path, F_OK) == 0;
		assert_true(i < 500 || found >= 3);
	}
}

static void a_segment_that_is_held_stays_readable(void **state)
{
	struct log_span span;
	struct batch batch;

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		append(5);
	assert_int_equal(partition_log_read(partition_log, 0, 500, 1000, true, &span), KAFKA_NONE);
	partition_log_advance_start(partition_log, 400);
	assert_int_equal(batch_read(span.at, span.bytes, &batch), BATCH_RIGHT);
	assert_int_equal(batch_check(span.at, &batch), BATCH_RIGHT);
	segment_release(span.segment);
	assert_int_equal(partition_log_read(partition_log, 0, 500, 1000, true, &span), KAFKA_OFFSET_OUT_OF_RANGE);
}

/* Clients that READ it, or one that cannot be fenced, still have its bytes. */
static void a_segment_that_is_registered_is_not_cut(void **state)
{
	struct segment *segment;
	struct hf_error error;
	uint32_t bytes;

	(void)state;
	append(5);
	append(5);
	segment = partition_log_head(partition_log);
	bytes = segment->bytes;
	segment_pin(segment);
	assert_int_equal(partition_log_truncate(partition_log, 5, T0, &error), -EBUSY);
	while (segments() == 1)
		append(5);
	assert_int_equal(partition_log_truncate(partition_log, 10, T0, &error), -EBUSY);
	assert_int_equal(segments(), 2);
	assert_int_equal(hf_file_bytes(segment->file), SEGMENT_BYTES);
	segment_unpin(segment);
	assert_int_equal(partition_log_truncate(partition_log, 10, T0, &error), 0);
	assert_int_equal(partition_log_head(partition_log)->bytes, bytes);
	assert_int_equal(append(1), 10);
	assert_int_equal(read_all(0), 11);
}

/* A roll allocates no whole segment: in tmpfs that is 0.3 s for a GiB, in which the loop serves nobody. */
static void pages_of_the_head_are_made_as_it_grows(void **state)
{
	uint32_t most = 256u << 20;
	char path[128];
	struct stat file;

	(void)state;
	partition_log->config.segment_bytes = most;
	while (partition_log_head(partition_log)->capacity < most)
		append(5);
	snprintf(path, sizeof(path), "%s/%020lld.log", directory,
		(long long)partition_log_head(partition_log)->base_offset);
	assert_int_equal(stat(path, &file), 0);
	assert_int_equal(file.st_size, most);
	assert_true((uint64_t)file.st_blocks * 512 <= most / 16);
}

static void leader_epochs_are_kept(void **state)
{
	struct append_result result;
	int32_t epoch;
	int64_t end;

	(void)state;
	assert_int_equal(append_as(-1, 0, 0, 3, 1, &result), KAFKA_NONE);
	assert_int_equal(append_as(-1, 0, 0, 3, 4, &result), KAFKA_NONE);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(leader_epochs_end(&partition_log->epochs, 3, 6, &epoch, &end));
		assert_int_equal(epoch, 1);
		assert_int_equal(end, 3);
		assert_int_equal(leader_epochs_at(&partition_log->epochs, 3), 4);
		assert_false(leader_epochs_end(&partition_log->epochs, 0, 6, &epoch, &end));
		if (i == 0)
			partition_log_close(partition_log);
		else
			crash();
		open_log(i == 0);
	}
}

/* ---- the high watermark ---- */

static uint64_t told_bytes;

static void note_growth(struct partition_wait *wait, uint32_t bytes)
{
	(void)wait;
	told_bytes += bytes;
}

static void other_replicas_lack_it(struct partition *partition)
{
	(void)partition;
}

/* It moves in other steps than the log grew in, and over what this broker took as a follower. */
static void who_waits_is_told_of_the_bytes_that_became_readable(void **state)
{
	struct partition_wait wait = {.grown = note_growth};
	struct append_result result;
	struct partition partition;
	uint8_t data[1024];
	uint64_t bytes = 0;

	(void)state;
	append(3);
	partition_init(&partition, 0, partition_log);
	partition.appended = other_replicas_lack_it;
	partition_add_wait(&partition, &wait);
	for (unsigned i = 0; i < 100; i++) {
		const struct batch_wish wish = {.records = 2, .value_bytes = 100, .producer_id = -1};

		bytes = batches_make(&wish, data);
		assert_int_equal(partition_append(&partition, data, bytes, T0, &result), KAFKA_NONE);
	}
	assert_true(segments() > 1);
	assert_int_equal(told_bytes, 0);
	for (int64_t i = 1; i <= 97; i++) {
		partition_set_hw(&partition, 3 + 2 * i);
		assert_int_equal(told_bytes, (uint64_t)i * bytes);
	}
	partition_set_hw(&partition, 203);
	assert_int_equal(told_bytes, 100 * bytes);
	partition_end(&partition);
}

/* ---- flushes ---- */

static struct hf_loop *loop;
static struct flusher flusher;

static void open_flusher(int64_t messages, int64_t ms)
{
	struct hf_error error;

	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	flusher_open(&flusher, loop, 1000000);
	partition_log->config.flush_messages = messages;
	partition_log->config.flush_ms = ms;
	assert_int_equal(flusher_add(&flusher, partition_log, &error), 0);
}

static void close_flusher(void)
{
	flusher_remove(partition_log);
	assert_int_equal(flusher_close(&flusher), 0);
	hf_loop_destroy(loop);
}

static void turn_until_flushed(int64_t end)
{
	while (partition_log->flush.done < end)
		(void)hf_loop_turn(loop, 1000000);
	assert_int_equal(partition_log->flush.done, end);
}

static void turn_until_populated(const struct segment *segment, uint32_t bytes)
{
	while (segment->populated < bytes)
		(void)hf_loop_turn(loop, 1000000);
	assert_int_equal(segment->populated, bytes);
}

static void pages_are_made_ahead_by_another_thread(void **state)
{
	struct segment *segment = partition_log_head(partition_log);

	(void)state;
	open_flusher(FLUSH_NEVER, FLUSH_NEVER);
	partition_log_prepare_ahead(partition_log, 8192);
	assert_int_equal(segment->populated, 0);
	turn_until_populated(segment, 8192);
	partition_log_prepare_ahead(partition_log, 8192);
	assert_false(segment->ahead);
	partition_log_prepare_ahead(partition_log, 2 * SEGMENT_BYTES);
	assert_true(segment->ahead);
	while (segments() == 1) /* it is sealed, and its file shortened, meanwhile or not */
		append(5);
	close_flusher();
	assert_int_equal(read_all(0), partition_log_end(partition_log));
}

static unsigned files_named(const char *prefix)
{
	DIR *dir = opendir(directory);
	unsigned count = 0;

	assert_non_null(dir);
	for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
		count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	closedir(dir);
	return count;
}

static void make_file(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void turn_until_next_is_made(void)
{
	while (partition_log->next->state == NEXT_SEGMENT_MAKING)
		(void)hf_loop_turn(loop, 1000000);
	assert_int_equal(partition_log->next->state, NEXT_SEGMENT_READY);
}

static void fill_three_quarters(void)
{
	while (partition_log->next == NULL) {
		append(1);
		assert_int_equal(
			partition_log->next != NULL, partition_log_head(partition_log)->bytes >= SEGMENT_BYTES / 4 * 3);
	}
}

/* Twice; then a file is left behind by a process that died, and the log is closed while one is made. */
static void the_next_segment_is_made_before_the_head_is_full(void **state)
{
	(void)state;
	open_flusher(FLUSH_NEVER, FLUSH_NEVER);
	for (unsigned count = 1; count < 3; count++) {
		fill_three_quarters();
		turn_until_next_is_made();
		assert_int_equal(files_named("next-"), 1);
		while (segments() == count)
			append(1);
		assert_null(partition_log->next);
		assert_int_equal(partition_log_head(partition_log)->populated, SEGMENT_BYTES);
		assert_int_equal(files_named("next-"), 0);
	}
	assert_int_equal(read_all(0), partition_log_end(partition_log));
	fill_three_quarters();
	turn_until_next_is_made();
	close_flusher();
	crash();
	make_file("next-of-a-process-that-died.tmp");
	open_log(false);
	assert_int_equal(files_named("next-"), 0);
	open_flusher(FLUSH_NEVER, FLUSH_NEVER);
	append(1);
	assert_non_null(partition_log->next);
	assert_int_equal(partition_log_close(partition_log), 0); /* it is being made */
	assert_int_equal(flusher_close(&flusher), 0);
	hf_loop_destroy(loop);
	assert_int_equal(files_named("next-"), 0);
	open_log(true);
}

/* The loop makes no more than 1 MiB for a holder that waits. */
static void an_extent_is_as_large_as_there_are_pages(void **state)
{
	uint32_t most = 8u << 20;
	struct log_extent extent;

	(void)state;
	partition_log->config.segment_bytes = 4 * most;
	while (partition_log_head(partition_log)->capacity < most)
		append(5);
	open_flusher(FLUSH_NEVER, FLUSH_NEVER);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(partition_log_grant(partition_log, most, 1, &extent), 0);
		assert_int_equal(extent.end - extent.tail, i == 0 ? 1 << 20 : most);
		partition_log_prepare_ahead(partition_log, extent.end + most);
		turn_until_populated(extent.segment, extent.end + most);
		partition_log_end_grant(partition_log, &extent);
		segment_unpin(extent.segment);
	}
	close_flusher();
}

static enum kafka_error append_large(struct append_result *result)
{
	static uint8_t data[16384];
	const struct batch_wish wish = {.records = 1, .value_bytes = 7000, .producer_id = -1, .timestamp_ms = T0};
	size_t bytes = batches_make(&wish, data);

	return partition_log_append(partition_log, data, bytes, 0, T0, result);
}

/* The empty head is as large as segment.bytes was, and has no other name. */
static void open_log_with_a_small_head(void)
{
	partition_log_remove(partition_log);
	config.segment_bytes = 4096;
	open_log(true);
	config.segment_bytes = SEGMENT_BYTES;
	partition_log->config.segment_bytes = SEGMENT_BYTES;
}

static void a_batch_larger_than_the_empty_head_makes_it_larger(void **state)
{
	struct append_result result;

	(void)state;
	open_log_with_a_small_head();
	assert_int_equal(append_large(&result), KAFKA_NONE);
	assert_int_equal(segments(), 1);
	assert_int_equal(partition_log_head(partition_log)->capacity, SEGMENT_BYTES);
	assert_int_equal(read_all(0), 1);
	crash();
	open_log(false);
	assert_int_equal(read_all(0), 1);
}

/* Who has it registered has its old length. */
static void a_batch_larger_than_a_registered_head_is_refused(void **state)
{
	struct append_result result;
	struct log_extent extent;
	struct segment *head;

	(void)state;
	open_log_with_a_small_head();
	head = partition_log_head(partition_log);
	segment_pin(head);
	assert_int_equal(append_large(&result), KAFKA_RECORD_LIST_TOO_LARGE);
	assert_non_null(result.message);
	assert_int_equal(partition_log_grant(partition_log, 65536, 7000, &extent), -EMSGSIZE);
	assert_false(partition_log->failed);
	assert_int_equal(append(1), 0);
	segment_unpin(head);
	assert_int_equal(append_large(&result), KAFKA_NONE);
	assert_int_equal(read_all(0), 2);
}

static void an_extent_larger_than_the_empty_head_makes_it_larger(void **state)
{
	struct log_extent extent;

	(void)state;
	open_log_with_a_small_head();
	assert_int_equal(partition_log_grant(partition_log, 65536, 7000, &extent), 0);
	assert_true(extent.end >= 7000);
	assert_int_equal(segments(), 1);
	partition_log_end_grant(partition_log, &extent);
	segment_unpin(extent.segment);
	assert_int_equal(append(1), 0);
	assert_int_equal(read_all(0), 1);
}

/* Who stands still and cannot be fenced goes on writing where its extent was. */
static void what_is_written_behind_a_sealed_segment_is_not_recovered(void **state)
{
	struct log_extent extent;

	(void)state;
	append(2);
	assert_int_equal(partition_log_grant(partition_log, 65536, 1, &extent), 0);
	partition_log_leave_grant(partition_log, &extent);
	assert_int_equal(segments(), 2);
	append(3);
	assert_true(extent.segment->bytes < extent.end - extent.segment->bytes);
	memcpy(extent.segment->map + extent.segment->bytes, extent.segment->map, extent.segment->bytes);
	batch_commit(extent.segment->map + extent.segment->bytes, 2, 0);
	crash();
	open_log(false);
	segment_unpin(extent.segment);
	assert_int_equal(partition_log_end(partition_log), 5);
	assert_int_equal(segments(), 2);
	assert_int_equal(read_all(0), 5);
}

static void so_many_messages_wait_for_the_disk(void **state)
{
	(void)state;
	open_flusher(3, FLUSH_NEVER);
	append(2);
	assert_int_equal(partition_log_sure_end(partition_log), 2);
	append(2);
	assert_int_equal(partition_log_sure_end(partition_log), 0);
	append(1); /* comes with the next flush, if one is due then */
	assert_int_equal(partition_log_sure_end(partition_log), 0);
	turn_until_flushed(4);
	assert_int_equal(partition_log_sure_end(partition_log), 5);
	append(2);
	assert_int_equal(partition_log_sure_end(partition_log), 4);
	turn_until_flushed(7);
	close_flusher();
}

static void after_some_time_what_nobody_waits_for_is_flushed(void **state)
{
	(void)state;
	open_flusher(FLUSH_NEVER, 1);
	for (int32_t i = 1; i < 60; i++) {
		append(3);
		assert_int_equal(partition_log_sure_end(partition_log), 3 * i);
	}
	assert_int_equal(partition_log->flush.done, 0);
	turn_until_flushed(177);
	close_flusher();
}

static void a_flush_from_before_a_cut_does_not_count(void **state)
{
	struct hf_error error;

	(void)state;
	open_flusher(1, FLUSH_NEVER);
	append(3);
	assert_int_equal(partition_log_truncate(partition_log, 0, T0, &error), 0);
	append(1);
	assert_int_equal(partition_log_sure_end(partition_log), 0);
	turn_until_flushed(1);
	close_flusher();
}

static void what_there_is_when_a_log_is_opened_is_durable(void **state)
{
	(void)state;
	append(3);
	open_flusher(1, FLUSH_NEVER);
	assert_int_equal(partition_log_sure_end(partition_log), 3);
	assert_int_equal(partition_log->flush.done, 3);
	close_flusher();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define LOG_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		LOG_TEST(batches_follow_each_other_across_segments),
		LOG_TEST(a_read_ends_at_its_limits),
		LOG_TEST(a_log_closed_in_order_opens_as_it_was),
		LOG_TEST(a_log_of_a_killed_process_opens_as_it_was),
		LOG_TEST(a_torn_batch_and_what_lies_behind_it_is_gone),
		LOG_TEST(a_batch_without_an_epoch_is_not_recovered),
		LOG_TEST(a_batch_with_a_part_of_an_epoch_is_not_recovered),
		LOG_TEST(what_is_wrong_is_refused_and_changes_nothing),
		LOG_TEST(the_largest_timestamp_is_that_of_the_records),
		LOG_TEST(a_duplicate_is_answered_with_its_old_offset),
		LOG_TEST(a_replaced_producer_is_fenced),
		LOG_TEST(producers_are_known_after_a_restart),
		LOG_TEST(an_offset_is_found_by_its_time),
		LOG_TEST(what_is_old_or_too_much_is_deleted),
		LOG_TEST(old_records_do_not_roll_and_late_ones_do),
		LOG_TEST(a_log_ends_at_a_gap_and_keeps_what_followed),
		LOG_TEST(a_segment_that_is_held_stays_readable),
		LOG_TEST(a_segment_that_is_registered_is_not_cut),
		LOG_TEST(pages_are_made_ahead_by_another_thread),
		LOG_TEST(the_next_segment_is_made_before_the_head_is_full),
		LOG_TEST(an_extent_is_as_large_as_there_are_pages),
		LOG_TEST(what_is_written_behind_a_sealed_segment_is_not_recovered),
		LOG_TEST(a_batch_larger_than_the_empty_head_makes_it_larger),
		LOG_TEST(a_batch_larger_than_a_registered_head_is_refused),
		LOG_TEST(an_extent_larger_than_the_empty_head_makes_it_larger),
		LOG_TEST(pages_of_the_head_are_made_as_it_grows),
		LOG_TEST(leader_epochs_are_kept),
		LOG_TEST(who_waits_is_told_of_the_bytes_that_became_readable),
		LOG_TEST(so_many_messages_wait_for_the_disk),
		LOG_TEST(after_some_time_what_nobody_waits_for_is_flushed),
		LOG_TEST(a_flush_from_before_a_cut_does_not_count),
		LOG_TEST(what_there_is_when_a_log_is_opened_is_durable),
	};

	return cmocka_run_group_tests_name("partition log", tests, NULL, NULL);
}
