#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <string.h>

#include "base/bytes.h"
#include "kv/wire.h"

static const struct wire_message inv = {.kind = WIRE_INV,
	.flags = RECORD_RMW,
	.epoch = 5,
	.write = 0x100000002ull,
	.ts = {.version = 9, .join = 4, .node = 2},
	.key = (const uint8_t *)"key",
	.key_bytes = 3,
	.value = (const uint8_t *)"value",
	.value_bytes = 5};

static void message_is_read_as_it_was_written(void **state)
{
	uint8_t at[128];
	struct wire_message read;
	size_t used;

	(void)state;
	kv_wire_write(&inv, at);
	assert_int_equal(kv_wire_read(at, sizeof(at), &read, &used), WIRE_WHOLE);
	assert_int_equal(used, kv_wire_bytes(&inv));
	assert_int_equal(read.kind, WIRE_INV);
	assert_int_equal(read.epoch, 5);
	assert_true(read.write == inv.write && read.flags == inv.flags);
	assert_int_equal(record_compare(read.ts, inv.ts), 0);
	assert_memory_equal(read.key, "key", 3);
	assert_memory_equal(read.value, "value", 5);
}

static void half_a_message_waits_for_the_rest(void **state)
{
	uint8_t at[128];
	struct wire_message read;
	size_t used;

	(void)state;
	kv_wire_write(&inv, at);
	for (size_t n = 0; n < kv_wire_bytes(&inv); n++)
		assert_int_equal(kv_wire_read(at, n, &read, &used), WIRE_MORE);
}

static void lengths_that_do_not_fit_are_refused(void **state)
{
	uint8_t at[128];
	struct wire_message read;
	size_t used;

	(void)state;
	kv_wire_write(&inv, at);
	put_le32(at + 28, 4); /* key_bytes */
	assert_int_equal(kv_wire_read(at, sizeof(at), &read, &used), WIRE_WRONG);
	kv_wire_write(&inv, at);
	put_le32(at + 28, 0);
	put_le32(at + 32, 8);
	assert_int_equal(kv_wire_read(at, sizeof(at), &read, &used), WIRE_WRONG); /* an INV has a key */
	kv_wire_write(&inv, at);
	put_le32(at, UINT32_MAX);
	put_le32(at + 32, UINT32_MAX - 48 - 3);
	assert_int_equal(kv_wire_read(at, sizeof(at), &read, &used), WIRE_WRONG);
}

static void unknown_kinds_flags_and_nodes_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint8_t byte;
	} wrong[] = {{4, WIRE_KINDS}, {5, 0x80}, {6, 200}, {36, 1}};
	uint8_t at[128];
	struct wire_message read;
	size_t used;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		kv_wire_write(&inv, at);
		at[wrong[i].at] = wrong[i].byte;
		assert_int_equal(kv_wire_read(at, sizeof(at), &read, &used), WIRE_WRONG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(message_is_read_as_it_was_written),
		cmocka_unit_test(half_a_message_waits_for_the_rest),
		cmocka_unit_test(lengths_that_do_not_fit_are_refused),
		cmocka_unit_test(unknown_kinds_flags_and_nodes_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
