/* What absent members missed: positions of records, and the ring that has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv/missed.h"

#define ROOM 8u

struct fixture {
	struct store store;
	struct missed missed;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	if (f == NULL || kv_store_open(&f->store, hf_env_host(), NULL, 1 << 20, NULL) != 0)
		return -1;
	return kv_missed_open(&f->missed, ROOM);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	kv_missed_close(&f->missed);
	kv_store_close(&f->store);
	free(f);
	return 0;
}

static uint32_t write_key(struct fixture *f, unsigned key)
{
	char text[16];
	struct store_content content = {.key = text, .ts = {.version = 2, .join = 1}};
	uint32_t entry;

	content.key_bytes = (uint32_t)snprintf(text, sizeof(text), "%u", key);
	entry = kv_store_put(&f->store, &content, RECORD_VALID);
	assert_int_not_equal(entry, STORE_NO_ENTRY);
	kv_missed_note(&f->missed, kv_store_at(&f->store, entry), entry);
	return entry;
}

static void record_that_changes_again_is_found_once(void **state)
{
	struct fixture *f = *state;
	uint32_t first = write_key(f, 1), second = write_key(f, 2);

	write_key(f, 1);
	assert_int_equal(kv_missed_at(&f->missed, &f->store, 1), STORE_NO_ENTRY);
	assert_int_equal(kv_missed_at(&f->missed, &f->store, 2), second);
	assert_int_equal(kv_missed_at(&f->missed, &f->store, 3), first);
}

static void ring_that_is_full_covers_those_who_miss_little(void **state)
{
	struct fixture *f = *state;

	assert_false(kv_missed_covers(&f->missed, 0)); /* it never left */
	f->missed.from[0] = f->missed.position + 1;
	for (unsigned i = 0; i < ROOM - 1; i++)
		write_key(f, i);
	assert_true(kv_missed_covers(&f->missed, 0));
	f->missed.from[1] = f->missed.position + 1;
	write_key(f, ROOM);
	write_key(f, ROOM);
	assert_false(kv_missed_covers(&f->missed, 0));
	assert_true(kv_missed_covers(&f->missed, 1));
}

/* Deleted records go by these positions (R-K19). */
static void records_take_positions_although_nothing_is_kept(void **state)
{
	struct fixture *f = *state;
	uint32_t entry;

	kv_missed_close(&f->missed);
	write_key(f, 1);
	entry = write_key(f, 2);
	assert_int_equal(kv_store_at(&f->store, entry)->missed_position, 2);
	assert_int_equal(f->missed.position, 2);
	f->missed.from[0] = 1;
	assert_false(kv_missed_covers(&f->missed, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(record_that_changes_again_is_found_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ring_that_is_full_covers_those_who_miss_little, set_up, tear_down),
		cmocka_unit_test_setup_teardown(records_take_positions_although_nothing_is_kept, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("kv missed", tests, NULL, NULL);
}
