/* What is inside a batch: records that contradict it, and records of a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/bytes.h"
#include "batches.h"
#include "broker/codec/compression.h"
#include "broker/log/batch_contents.h"

#define RECORDS     300
#define VALUE_BYTES 1000u /* the records are several pieces */
#define T0          1000

static uint8_t data[RECORDS * (VALUE_BYTES + 20) + 400];
static struct batch_contents contents;

static size_t make(unsigned codec)
{
	const struct batch_wish wish = {
		.records = RECORDS, .value_bytes = VALUE_BYTES, .producer_id = -1, .timestamp_ms = T0};
	size_t bytes = batches_make(&wish, data);

	return codec == HF_CODEC_NONE ? bytes : batches_pack(data, bytes, codec);
}

static enum batch_contents_result look(size_t bytes, size_t most)
{
	struct batch batch;

	assert_int_equal(batch_read(data, bytes, &batch), BATCH_RIGHT);
	batch_contents_check(data, &batch, most, &contents);
	return contents.result;
}

static void right_records_are_right(void **state)
{
	(void)state;
	for (unsigned codec = HF_CODEC_NONE; codec < HF_CODECS; codec++) {
		assert_int_equal(look(make(codec), BATCH_CONTENTS_MOST), BATCH_CONTENTS_RIGHT);
		assert_int_equal(contents.latest_ms, T0 + RECORDS - 1);
		assert_in_range(contents.bytes, RECORDS * VALUE_BYTES, RECORDS * (VALUE_BYTES + 20));
	}
}

static void no_more_comes_out_than_is_allowed(void **state)
{
	(void)state;
	for (unsigned codec = HF_CODEC_NONE; codec < HF_CODECS; codec++) {
		size_t bytes = make(codec), all;

		(void)look(bytes, BATCH_CONTENTS_MOST);
		all = contents.bytes;
		assert_int_equal(look(bytes, all), BATCH_CONTENTS_RIGHT);
		assert_int_equal(look(bytes, all - 1), BATCH_CONTENTS_LARGE);
		assert_int_equal(look(bytes, 0), BATCH_CONTENTS_LARGE);
	}
}

static void a_count_that_is_wrong_is_found(void **state)
{
	(void)state;
	for (unsigned codec = HF_CODEC_NONE; codec < HF_CODECS; codec++)
		for (int32_t count = RECORDS - 1; count <= RECORDS + 1; count += 2) {
			size_t bytes = make(codec);

			put_be32(data + 23, (uint32_t)(count - 1));
			put_be32(data + 57, (uint32_t)count);
			assert_int_equal(look(bytes, BATCH_CONTENTS_MOST), BATCH_CONTENTS_WRONG);
		}
}

/* A record of 12 bytes: length, attributes, two deltas, no key, value length, value, no headers. */
static size_t make_small(unsigned codec, unsigned at, uint8_t byte)
{
	const struct batch_wish wish = {.records = 40, .value_bytes = 5, .producer_id = -1, .timestamp_ms = T0};
	size_t bytes = batches_make(&wish, data);

	data[61 + 12 + at] = byte; /* of the second record */
	return codec == HF_CODEC_NONE ? bytes : batches_pack(data, bytes, codec);
}

static void lengths_and_deltas_that_are_wrong_are_found(void **state)
{
	static const struct {
		unsigned at;
		uint8_t byte;
	} wrong[] = {
		{0, 20},   /* the record is shorter */
		{0, 24},   /* longer */
		{0, 1},    /* less than nothing */
		{3, 4},    /* another offset delta */
		{4, 3},    /* a key of -2 bytes */
		{4, 40},   /* one that ends in the next record */
		{5, 12},   /* a value that ends behind its record */
		{11, 1},   /* less than no header */
		{11, 2},   /* a header that is not there */
		{11, 254}, /* many */
	};

	(void)state;
	for (unsigned codec = HF_CODEC_NONE; codec < HF_CODECS; codec++) {
		assert_int_equal(look(make_small(codec, 0, 22), BATCH_CONTENTS_MOST), BATCH_CONTENTS_RIGHT);
		for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
			assert_int_equal(look(make_small(codec, wrong[i].at, wrong[i].byte), BATCH_CONTENTS_MOST),
				BATCH_CONTENTS_WRONG);
	}
}

static void what_does_not_unpack_is_found(void **state)
{
	(void)state;
	for (unsigned codec = HF_CODEC_GZIP; codec < HF_CODECS; codec++) {
		size_t bytes = make(codec);

		for (size_t cut = 1; cut < bytes - 61; cut += cut < 10 ? 1 : (bytes - 61) / 7) {
			put_be32(data + 8, (uint32_t)(bytes - cut - 12));
			assert_int_equal(look(bytes - cut, BATCH_CONTENTS_MOST), BATCH_CONTENTS_WRONG);
		}
		bytes = make(codec);
		memset(data + bytes, 0x5a, 3); /* behind the records */
		put_be32(data + 8, (uint32_t)(bytes + 3 - 12));
		assert_int_equal(look(bytes + 3, BATCH_CONTENTS_MOST), BATCH_CONTENTS_WRONG);
		bytes = make(HF_CODEC_NONE);
		data[22] = (uint8_t)codec;
		assert_int_equal(look(bytes, BATCH_CONTENTS_MOST), BATCH_CONTENTS_WRONG);
	}
}

static void the_first_record_of_a_time_is_found(void **state)
{
	(void)state;
	for (unsigned codec = HF_CODEC_NONE; codec < HF_CODECS; codec++) {
		size_t bytes = make(codec);
		struct batch_contents_place place;
		struct batch batch;

		batch_commit(data, 100, 0);
		assert_int_equal(batch_read(data, bytes, &batch), BATCH_RIGHT);
		for (int64_t i = 0; i < RECORDS; i += 13) {
			assert_int_equal(batch_contents_find_time(data, &batch, T0 + i, 0, BATCH_CONTENTS_MOST, &place),
				BATCH_CONTENTS_RIGHT);
			assert_int_equal(place.offset, 100 + i);
			assert_int_equal(place.timestamp_ms, T0 + i);
		}
		(void)batch_contents_find_time(data, &batch, 0, 207, BATCH_CONTENTS_MOST, &place);
		assert_int_equal(place.offset, 207);
		assert_int_equal(place.timestamp_ms, T0 + 107);
		(void)batch_contents_find_time(data, &batch, T0 + RECORDS, 0, BATCH_CONTENTS_MOST, &place);
		assert_int_equal(place.offset, -1);
	}
}

static void at_a_time_of_the_append_all_records_have_it(void **state)
{
	struct batch_contents_place place;
	struct batch batch;
	size_t bytes = make(HF_CODEC_LZ4);

	(void)state;
	assert_int_equal(batch_read(data, bytes, &batch), BATCH_RIGHT);
	batch_stamp(data, &batch, 9000);
	(void)batch_contents_find_time(data, &batch, T0 + 50, 0, BATCH_CONTENTS_MOST, &place);
	assert_int_equal(place.offset, 0);
	assert_int_equal(place.timestamp_ms, 9000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_records_are_right),
		cmocka_unit_test(no_more_comes_out_than_is_allowed),
		cmocka_unit_test(a_count_that_is_wrong_is_found),
		cmocka_unit_test(lengths_and_deltas_that_are_wrong_are_found),
		cmocka_unit_test(what_does_not_unpack_is_found),
		cmocka_unit_test(the_first_record_of_a_time_is_found),
		cmocka_unit_test(at_a_time_of_the_append_all_records_have_it),
	};

	return cmocka_run_group_tests_name("batch contents", tests, NULL, NULL);
}
