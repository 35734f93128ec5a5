#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fields.h"

struct pair {
	uint16_t key;
	uint64_t value;
};

struct sample {
	uint8_t small, flag;
	uint32_t wide;
	char name[8];
	uint8_t pair_count;
	struct pair pairs[3];
	uint16_t data_bytes;
	uint8_t data[5], raw[2];
	uint32_t keys[2];
	struct pair one;
};

static const struct field pair_fields[] = {FIELD_ANY(struct pair, key), FIELD_ANY(struct pair, value)};
static const struct fields pair_layout = FIELDS(pair_fields);
static const struct field sample_fields[] = {
	FIELD_RANGE(struct sample, small, 2, 9),
	FIELD_MAX(struct sample, flag, 1),
	FIELD_ANY(struct sample, wide),
	FIELD_NAME(struct sample, name),
	FIELD_MAX(struct sample, pair_count, 3),
	FIELD_LIST(struct sample, pairs, pair_count, &pair_layout),
	FIELD_ANY(struct sample, data_bytes),
	FIELD_COUNTED(struct sample, data, data_bytes),
	FIELD_BYTES(struct sample, raw),
	FIELD_ARRAY(struct sample, keys),
	FIELD_STRUCT(struct sample, one, &pair_layout),
};
static const struct fields sample_layout = FIELDS(sample_fields);

static struct sample sample_of(void)
{
	return (struct sample){.small = 9,
		.flag = 1,
		.wide = 0x01020304,
		.name = "rail",
		.pair_count = 2,
		.pairs = {{.key = 5, .value = 1ull << 63}, {.key = 6, .value = 7}},
		.data_bytes = 3,
		.data = {1, 2, 3},
		.raw = {8, 9},
		.keys = {10, 0xffffffff},
		.one = {.key = 11, .value = 12}};
}

#define SAMPLE_BYTES (1 + 1 + 4 + 8 + 1 + 2 * 10 + 2 + 3 + 2 + 8 + 10)

static void a_struct_is_read_as_it_was_written(void **state)
{
	struct sample in = sample_of(), out = {0};
	uint8_t at[128], again[128];

	(void)state;
	assert_int_equal(fields_write(&sample_layout, &in, at), SAMPLE_BYTES);
	assert_int_equal(at[2], 4); /* little-endian, without holes */
	assert_true(fields_read(&sample_layout, at, SAMPLE_BYTES, &out));
	assert_int_equal(out.wide, in.wide);
	assert_string_equal(out.name, "rail");
	assert_true(out.pairs[0].value == 1ull << 63 && out.pairs[1].key == 6);
	assert_true(out.keys[1] == 0xffffffff && out.one.value == 12);
	assert_int_equal(fields_write(&sample_layout, &out, again), SAMPLE_BYTES);
	assert_memory_equal(at, again, SAMPLE_BYTES);
	assert_int_equal(fields_bytes_max(&sample_layout), SAMPLE_BYTES + 10 + 2);
}

static void no_byte_may_be_missing_or_left_over(void **state)
{
	struct sample in = sample_of(), out;
	uint8_t at[128] = {0};

	(void)state;
	(void)fields_write(&sample_layout, &in, at);
	for (uint32_t bytes = 0; bytes < 128; bytes++)
		assert_int_equal(fields_read(&sample_layout, at, bytes, &out), bytes == SAMPLE_BYTES);
}

/* Each is one byte that breaks a rule of the table. */
static void what_the_table_does_not_allow_is_refused(void **state)
{
	static const struct {
		uint32_t offset;
		uint8_t value;
	} wrong[] = {
		{0, 1}, {0, 10},  /* below and above a range */
		{1, 2},           /* a flag */
		{6, 0},           /* a name of no letters */
		{14, 4},          /* more pairs than there may be */
		{35, 6}, {36, 1}, /* more data than there may be */
	};
	struct sample in = sample_of(), out;

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint8_t at[128] = {0};

		(void)fields_write(&sample_layout, &in, at);
		at[wrong[i].offset] = wrong[i].value;
		assert_false(fields_read(&sample_layout, at, SAMPLE_BYTES, &out));
	}
}

static void a_name_without_an_end_is_refused(void **state)
{
	struct sample in = sample_of(), out;
	uint8_t at[128];

	(void)state;
	(void)fields_write(&sample_layout, &in, at);
	memset(at + 6, 'x', sizeof(in.name));
	assert_false(fields_read(&sample_layout, at, SAMPLE_BYTES, &out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_struct_is_read_as_it_was_written),
		cmocka_unit_test(no_byte_may_be_missing_or_left_over),
		cmocka_unit_test(what_the_table_does_not_allow_is_refused),
		cmocka_unit_test(a_name_without_an_end_is_refused),
	};

	return cmocka_run_group_tests_name("fields", tests, NULL, NULL);
}
