/* What a loss of power leaves of the log of a partition. */
#include "sim/tests/fixture.h"

#include <errno.h>

#include "broker/log/partition_log.h"
#include "sim/disk.h"
#include "tests/unit/broker/batches.h"

#define SEEDS     100u
#define BATCHES   60
#define DIRECTORY "t-0"

static const struct log_config config = {.segment_bytes = 4096,
	.index_interval_bytes = 1000,
	.max_message_bytes = 4096,
	.segment_ms = -1,
	.retention_ms = -1,
	.retention_bytes = -1,
	.timestamp_after_ms = 3600000,
	.flush_messages = FLUSH_NEVER,
	.flush_ms = FLUSH_NEVER};

static struct partition_log *open_log(struct fixture *f)
{
	struct partition_log *log;
	struct hf_error error = {0};

	if (partition_log_open(fixture_env(f, 0), DIRECTORY, &config, NULL, true, 0, 0, &log, &error) != 0)
		fail_msg("%s", error.text);
	return log;
}

static void append_one(struct partition_log *log)
{
	const struct batch_wish wish = {.records = 1, .value_bytes = 100, .producer_id = -1};
	struct append_result result;
	uint8_t data[512];
	size_t bytes = batches_make(&wish, data);

	assert_int_equal(partition_log_append(log, data, bytes, 0, 0, &result), KAFKA_NONE);
}

static void fill(struct partition_log *log)
{
	for (int i = 0; i < BATCHES; i++)
		append_one(log);
	assert_true(log->segments.next != log->segments.prev);
}

static void check(struct partition_log *log)
{
	for (int64_t offset = 0; offset < BATCHES; offset++) {
		struct log_span span;
		struct batch batch;

		assert_int_equal(partition_log_read(log, offset, BATCHES, 1, true, &span), KAFKA_NONE);
		assert_non_null(span.segment);
		assert_int_equal(batch_read(span.at, span.bytes, &batch), BATCH_RIGHT);
		assert_int_equal(batch_check(span.at, &batch), BATCH_RIGHT);
		assert_int_equal(batch.base_offset, offset);
		segment_release(span.segment);
	}
}

/* The next start believes such a log without a look at its records. */
static void a_log_closed_in_order_is_whole_after_a_loss_of_power(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct partition_log *log;
		struct fixture f;

		fixture_open(&f, seed, NULL, NULL);
		log = open_log(&f);
		fill(log);
		assert_int_equal(partition_log_close(log), 0);
		host_stop(&f.hosts[0]);
		host_start(&f.hosts[0]);
		log = open_log(&f);
		assert_int_equal(partition_log_end(log), BATCHES);
		check(log);
		(void)partition_log_close(log);
		fixture_close(&f);
	}
}

static void a_log_that_cannot_be_synced_was_not_closed_in_order(void **state)
{
	struct partition_log *log;
	struct fixture f;

	(void)state;
	fixture_open(&f, 1, NULL, NULL);
	log = open_log(&f);
	fill(log);
	f.hosts[0].disk->sync_fails_ppm = 1000000;
	assert_int_equal(partition_log_close(log), -EIO);
	fixture_close(&f);
}

/* A follower begins anew where its leader's log does. */
static void restart_at(int64_t offset)
{
	struct partition_log *log;
	struct hf_error error;
	struct fixture f;

	fixture_open(&f, 1, NULL, NULL);
	log = open_log(&f);
	fill(log);
	f.hosts[0].disk->bytes = 0;
	assert_int_equal(partition_log_restart(log, offset, &error), -ENOSPC);
	assert_true(log->failed);
	assert_int_equal(partition_log_end(log), BATCHES);
	check(log);
	f.hosts[0].disk->bytes = UINT64_MAX;
	log->failed = false;
	assert_int_equal(partition_log_restart(log, offset, &error), 0);
	assert_int_equal(log->start_offset, offset);
	append_one(log);
	assert_int_equal(partition_log_end(log), offset + 1);
	assert_int_equal(partition_log_close(log), 0);
	log = open_log(&f);
	assert_int_equal(log->start_offset, offset);
	assert_int_equal(partition_log_end(log), offset + 1);
	assert_int_equal(partition_log_close(log), 0);
	fixture_close(&f);
}

static void a_log_begins_anew_or_stays_as_it_is(void **state)
{
	(void)state;
	restart_at(0); /* where it has a segment */
	restart_at(1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_log_closed_in_order_is_whole_after_a_loss_of_power),
		cmocka_unit_test(a_log_that_cannot_be_synced_was_not_closed_in_order),
		cmocka_unit_test(a_log_begins_anew_or_stays_as_it_is),
	};

	return cmocka_run_group_tests_name("broker log in the simulator", tests, NULL, NULL);
}
