/* The ring of 8-byte entries: its layout, its newest entry, and what wraps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "vqp/data/completion_log.h"

#define ENTRIES 8u

static void an_entry_is_pointer_stamp_and_finished(void **state)
{
	struct log_writer writer = {.entries = ENTRIES, .turn = ENTRIES * 0x5a5aull + 3};
	const void *pointer = (const void *)(uintptr_t)0x7fff12345678;
	uint64_t entry;

	(void)state;
	assert_int_equal(completion_log_take(&writer, pointer, &entry), 3);
	assert_int_equal(entry & 0xffffffffffff, 0x7fff12345678);
	assert_int_equal(entry >> 48 & 0x7fff, 0x5a5a);
	assert_int_equal(entry >> 63, 1);
	assert_int_equal(completion_log_take(&writer, pointer, &entry), 4);
}

static void a_ring_has_room_for_every_wr_in_flight(void **state)
{
	(void)state;
	assert_int_equal(completion_log_entries_for(1), 1);
	assert_int_equal(completion_log_entries_for(128), 128);
	assert_int_equal(completion_log_entries_for(129), 256);
}

static void an_empty_ring_has_no_newest_entry(void **state)
{
	uint64_t ring[ENTRIES] = {0}, entry;
	uint32_t number;

	(void)state;
	assert_false(completion_log_newest(ring, ENTRIES, &number, &entry));
}

/* From before the stamps wrap until after it, with every third write lost on the way. */
static void the_newest_entry_is_found_across_the_wrap_of_ring_and_stamp(void **state)
{
	struct log_writer writer = {.entries = ENTRIES, .turn = (uint64_t)ENTRIES * (LOG_STAMP_MASK - 3)};
	uint64_t ring[ENTRIES] = {0};
	int copies[ENTRIES];

	(void)state;
	for (unsigned i = 0; i < 8 * ENTRIES; i++) {
		uint64_t entry, found;
		uint32_t number = completion_log_take(&writer, &copies[i % ENTRIES], &entry), where;

		if (i % 3 == 2)
			continue;
		ring[number] = htole64(entry);
		assert_true(completion_log_newest(ring, ENTRIES, &where, &found));
		assert_int_equal(where, number);
		assert_true(found == entry);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_entry_is_pointer_stamp_and_finished),
		cmocka_unit_test(a_ring_has_room_for_every_wr_in_flight),
		cmocka_unit_test(an_empty_ring_has_no_newest_entry),
		cmocka_unit_test(the_newest_entry_is_found_across_the_wrap_of_ring_and_stamp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
