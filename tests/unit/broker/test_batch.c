/* Record batches: what is right, and every way to be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/bytes.h"
#include "batches.h"
#include "broker/log/batch.h"

static uint8_t data[4096];

static size_t make(int32_t records)
{
	struct batch_wish wish = {.records = records, .value_bytes = 10, .producer_id = -1, .timestamp_ms = 1000};

	return batches_make(&wish, data);
}

static enum batch_verdict look(size_t bytes)
{
	struct batch batch;
	enum batch_verdict verdict = batch_read(data, bytes, &batch);

	return verdict == BATCH_RIGHT ? batch_check(data, &batch) : verdict;
}

static void a_right_batch_is_right(void **state)
{
	struct batch batch;
	size_t bytes = make(3);

	(void)state;
	assert_int_equal(look(bytes), BATCH_RIGHT);
	assert_int_equal(look(bytes + 5), BATCH_RIGHT);
	assert_int_equal(batch_read(data, bytes, &batch), BATCH_RIGHT);
	assert_int_equal(batch.length, bytes);
	assert_int_equal(batch.count, 3);
	assert_int_equal(batch.max_timestamp_ms, 1002);
	batch_commit(data, 77, 5);
	assert_int_equal(look(bytes), BATCH_RIGHT); /* what the leader assigns lies outside the CRC */
	assert_int_equal(batch_read(data, bytes, &batch), BATCH_RIGHT);
	assert_int_equal(batch_last_offset(&batch), 79);
	assert_int_equal(batch.leader_epoch, 5);
}

static void every_flipped_bit_under_the_crc_is_found(void **state)
{
	size_t bytes = make(2);

	(void)state;
	for (size_t bit = 16 * 8; bit < bytes * 8; bit++) {
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(look(bytes), BATCH_RIGHT);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(look(bytes), BATCH_RIGHT);
}

static void a_part_of_a_batch_is_short(void **state)
{
	size_t bytes = make(2);

	(void)state;
	for (size_t cut = 0; cut < bytes; cut++)
		assert_int_equal(look(cut), BATCH_SHORT);
}

static void contradictions_under_a_right_crc_are_found(void **state)
{
	static const struct {
		unsigned at, bytes;
		uint64_t value;
		enum batch_verdict verdict;
	} wrong[] = {
		{8, 4, 10, BATCH_WRONG},            /* a length below the header's */
		{8, 4, UINT32_MAX, BATCH_WRONG},    /* a negative one */
		{8, 4, 100000, BATCH_SHORT},        /* one behind the end */
		{16, 1, 1, BATCH_WRONG_MAGIC},      /* format 1 */
		{23, 4, 5, BATCH_WRONG},            /* a last delta that is not count - 1 */
		{57, 4, 0, BATCH_WRONG},            /* no record */
		{57, 4, 9, BATCH_WRONG},            /* more than there are */
		{21, 2, 7, BATCH_WRONG},            /* an unknown compression */
		{43, 8, (uint64_t)-9, BATCH_WRONG}, /* a producer id below none */
		{51, 2, 0xffff, BATCH_RIGHT},       /* no epoch without a producer */
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		size_t bytes = make(3);
		uint8_t value[8];

		put_be64(value, wrong[i].value);
		memcpy(data + wrong[i].at, value + 8 - wrong[i].bytes, wrong[i].bytes);
		batches_seal(data, bytes);
		assert_int_equal(look(bytes), wrong[i].verdict);
	}
}

static void records_are_counted_where_nothing_is_compressed(void **state)
{
	size_t bytes = make(3);

	(void)state;
	put_be32(data + 23, 3);
	put_be32(data + 57, 4);
	batches_seal(data, bytes);
	assert_int_equal(look(bytes), BATCH_WRONG);
	put_be16(data + 21, 1); /* said to be gzip: test_batch_contents.c */
	batches_seal(data, bytes);
	assert_int_equal(look(bytes), BATCH_RIGHT);
}

static void the_time_of_the_append_gets_a_right_crc(void **state)
{
	struct batch batch;
	size_t bytes = make(2);

	(void)state;
	assert_int_equal(batch_read(data, bytes, &batch), BATCH_RIGHT);
	batch_stamp(data, &batch, 5000);
	assert_int_equal(look(bytes), BATCH_RIGHT);
	assert_int_equal(batch_read(data, bytes, &batch), BATCH_RIGHT);
	assert_int_equal(batch.max_timestamp_ms, 5000);
}

static void sequences_begin_anew_behind_the_largest(void **state)
{
	(void)state;
	assert_int_equal(batch_sequence_after(INT32_MAX, 1), 0);
	assert_int_equal(batch_sequence_after(INT32_MAX - 1, 3), 1);
	assert_int_equal(batch_sequence_after(4, 3), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_right_batch_is_right),
		cmocka_unit_test(every_flipped_bit_under_the_crc_is_found),
		cmocka_unit_test(a_part_of_a_batch_is_short),
		cmocka_unit_test(contradictions_under_a_right_crc_are_found),
		cmocka_unit_test(records_are_counted_where_nothing_is_compressed),
		cmocka_unit_test(the_time_of_the_append_gets_a_right_crc),
		cmocka_unit_test(sequences_begin_anew_behind_the_largest),
	};

	return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
