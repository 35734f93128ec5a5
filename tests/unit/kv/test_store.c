#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "env/world.h"
#include "kv/store.h"

static int open_small(void **state)
{
	struct store *store = calloc(1, sizeof(*store));

	*state = store;
	return store == NULL ? -1 : kv_store_open(store, hf_env_host(), NULL, 1 << 20, NULL);
}

static int close_it(void **state)
{
	kv_store_close(*state);
	free(*state);
	return 0;
}

static uint32_t put(struct store *store, const char *key, const void *value, uint32_t bytes, uint64_t version)
{
	struct store_content content = {.key = key,
		.key_bytes = (uint32_t)strlen(key),
		.value = value,
		.value_bytes = bytes,
		.ts = {.version = version, .join = 3, .node = 2}};

	return kv_store_put(store, &content, RECORD_VALID);
}

static uint64_t digest_of(const struct store *store)
{
	uint64_t at = 0;

	return kv_store_digest(store, &at, UINT64_MAX);
}

static uint32_t crc_of(const struct record *record)
{
	uint64_t generation = record->word >> 8;
	uint32_t crc = crc32c(0, &generation, 8);

	crc = crc32c(crc, &record->version, 15); /* timestamp and flags */
	return crc32c(crc, record->key, (size_t)record->key_bytes + record->value_bytes);
}

static void record_is_found_by_its_key(void **state)
{
	uint32_t entry = put(*state, "one", "first", 5, 2);
	struct record *record = kv_store_at(*state, entry);

	assert_int_equal(kv_store_find(*state, "one", 3), entry);
	assert_int_equal(kv_store_find(*state, "on", 2), STORE_NO_ENTRY);
	assert_memory_equal(record_value(record), "first", 5);
	assert_int_equal(record->crc, crc_of(record));
}

static void entry_stays_when_the_record_moves(void **state)
{
	static char large[5000];
	uint32_t entry = put(*state, "one", "first", 5, 2);
	struct record *before = kv_store_at(*state, entry);
	uint64_t generation = before->word >> 8;

	before->log_position = 77;
	assert_int_equal(put(*state, "one", large, sizeof(large), 4), entry);
	assert_ptr_not_equal(kv_store_at(*state, entry), before);
	assert_int_equal(kv_store_at(*state, entry)->log_position, 77);
	assert_int_equal(record_state(before), RECORD_FREE);
	entry = put(*state, "two", "x", 1, 2);
	assert_int_equal(entry, kv_store_find(*state, "two", 3));
	assert_ptr_equal(kv_store_at(*state, kv_store_find(*state, "two", 3)), before); /* taken again */
	assert_true(before->word >> 8 > generation);
}

static void full_store_refuses_and_keeps_what_it_has(void **state)
{
	static char value[60000];
	char key[16];
	unsigned n = 0;
	uint32_t entry;

	do
		snprintf(key, sizeof(key), "%u", n++);
	while (put(*state, key, value, sizeof(value), 2) != STORE_NO_ENTRY && n < 1000);
	assert_in_range(n, 5, 20);
	entry = put(*state, "0", value, sizeof(value), 4); /* in its slot */
	assert_int_equal(entry, kv_store_find(*state, "0", 1));
	assert_int_equal(kv_store_find(*state, key, (uint32_t)strlen(key)), STORE_NO_ENTRY);
	assert_false(kv_store_has_room(*state, 1 << 17));
}

/* To write the index of a large store takes longer than a lease. */
static void a_store_without_a_record_is_cleared_at_once(void **state)
{
	struct store *store = *state;

	store->index[7] = 1;
	kv_store_clear(store);
	assert_int_equal(store->index[7], 1);
	store->index[7] = 0;
	(void)put(store, "one", "first", 5, 2);
	kv_store_remove(store, kv_store_find(store, "one", 3));
	(void)put(store, "two", "x", 1, 2);
	kv_store_clear(store);
	assert_int_equal(kv_store_find(store, "two", 3), STORE_NO_ENTRY);
	assert_int_equal(kv_store_find(store, "one", 3), STORE_NO_ENTRY);
	assert_int_equal(store->records + store->graves, 0);
}

static uint32_t put_tombstone(struct store *store, unsigned key)
{
	char text[16];
	struct store_content gone = {.key = text, .ts = {.version = 4}, .flags = RECORD_TOMBSTONE};

	gone.key_bytes = (uint32_t)snprintf(text, sizeof(text), "%u", key);
	return kv_store_put(store, &gone, RECORD_VALID);
}

static unsigned fill(struct store *store, uint32_t bytes)
{
	static char value[60000];
	char key[16];
	unsigned n = 0;

	do
		snprintf(key, sizeof(key), "%u", n);
	while (put(store, key, value, bytes, 2) != STORE_NO_ENTRY && ++n < 4000);
	return n;
}

/* A tombstone that found no room at one member would stop the writes of its key at all of them (R-K10). */
static void deletion_needs_no_memory(void **state)
{
	struct store *store = *state;
	unsigned n = fill(store, 1700);
	size_t used = store->used;

	assert_in_range(n, 400, 600);
	for (unsigned i = 0; i < n; i++)
		assert_int_not_equal(put_tombstone(store, i), STORE_NO_ENTRY);
	assert_int_equal(store->used, used);
	assert_int_equal(store->tombstones, n);
	for (unsigned i = 0; i < n; i++)
		kv_store_remove(store, put_tombstone(store, i));
	assert_int_equal(fill(store, 1700), n); /* each in a slot of its size, as before */
	assert_int_equal(store->used, used);
}

static void deletions_leave_room_for_the_writes_of_others(void **state)
{
	static const char value[80]; /* makes its slot another class than that of a tombstone */
	struct store *store = *state;
	unsigned n = 0;
	char key[16];

	for (; store->made - store->used >= store->bytes / 8; n++) {
		snprintf(key, sizeof(key), "%u", n);
		put(store, key, value, sizeof(value), 2);
	}
	for (unsigned i = 0; i < n; i++)
		assert_int_not_equal(put_tombstone(store, i), STORE_NO_ENTRY);
	assert_true(store->made - store->used >= store->bytes / 16 - 256);
}

/* Memory of records of one size serves others when all of a piece are gone. */
static void memory_of_removed_records_comes_back(void **state)
{
	enum { BYTES = 12 << 20 };
	static const uint32_t sizes[] = {1500, 40000, 100, 58000, 5000};
	struct store store;
	uint64_t empty;

	(void)state;
	assert_int_equal(kv_store_open(&store, hf_env_host(), NULL, BYTES, NULL), 0);
	empty = digest_of(&store);
	for (unsigned round = 0; round < 20; round++) {
		uint32_t bytes = sizes[round % 5];
		unsigned n = fill(&store, bytes);
		char key[16];

		assert_true(n == 4000 || (uint64_t)n * bytes > BYTES / 5 * 2);
		for (unsigned i = 0; i < n; i++) {
			struct record *record;

			snprintf(key, sizeof(key), "%u", i);
			record = kv_store_at(&store, kv_store_find(&store, key, (uint32_t)strlen(key)));
			assert_int_equal(record->value_bytes, bytes);
			assert_int_equal(record->crc, crc_of(record));
		}
		for (unsigned i = 0; i < n; i++) /* in another order than they came */
			kv_store_remove(&store, put_tombstone(&store, (i * 7919u) % n));
		if (n % 7919u != 0)
			assert_true(digest_of(&store) == empty);
		assert_int_equal(store.records, 0);
		assert_int_equal(store_undivided(&store), store.made);
		assert_true(kv_store_has_room(&store, BYTES / 8));
	}
	kv_store_close(&store);
}

/* A piece whose records stay keeps theirs. */
static void records_stay_when_those_of_other_pieces_go(void **state)
{
	enum { BYTES = 12 << 20 };
	struct store store;
	unsigned n, kept = 0;
	char key[16];

	(void)state;
	assert_int_equal(kv_store_open(&store, hf_env_host(), NULL, BYTES, NULL), 0);
	n = fill(&store, 30000);
	for (unsigned i = 0; i < n; i++)
		if (i % 200 != 0)
			kv_store_remove(&store, put_tombstone(&store, i));
		else
			kept++;
	assert_true(store_undivided(&store) > 0);
	for (unsigned i = 0; i < n; i += 200) {
		struct record *record;

		snprintf(key, sizeof(key), "%u", i);
		record = kv_store_at(&store, kv_store_find(&store, key, (uint32_t)strlen(key)));
		assert_int_equal(record->value_bytes, 30000);
		assert_int_equal(record->crc, crc_of(record));
	}
	assert_int_equal(store.records, kept);
	kv_store_close(&store);
}

static void memory_is_made_ahead_of_what_is_used(void **state)
{
	enum { BYTES = 20 << 20, RECORD = 300000 };
	static char value[RECORD];
	struct store store;
	unsigned n = 0;
	char key[16];

	(void)state;
	assert_int_equal(kv_store_open(&store, hf_env_host(), NULL, BYTES, NULL), 0);
	assert_true(store.made >= BYTES / 8 && store.made < BYTES / 4);
	while (kv_store_grow(&store))
		;
	assert_true(store.made >= BYTES / 4 && store.made < BYTES / 2);
	for (;; n++) {
		size_t before = store.used;

		if (n % 8 == 0)
			while (kv_store_grow(&store))
				;
		snprintf(key, sizeof(key), "%u", n);
		memset(value, (int)n, sizeof(value));
		if (put(&store, key, value, sizeof(value), 2) == STORE_NO_ENTRY)
			break;
		assert_true(store.used > before);
		assert_true(store.made - store.used >= BYTES / 8 || store.made == BYTES);
	}
	assert_true(n > 40);
	assert_int_equal(store.made, BYTES);
	for (unsigned i = 0; i < n; i++) {
		struct record *record;

		snprintf(key, sizeof(key), "%u", i);
		record = kv_store_at(&store, kv_store_find(&store, key, (uint32_t)strlen(key)));
		memset(value, (int)i, sizeof(value));
		assert_int_equal(record->value_bytes, sizeof(value));
		assert_memory_equal(record_value(record), value, sizeof(value));
	}
	kv_store_clear(&store);
	assert_int_equal(kv_store_find(&store, "0", 1), STORE_NO_ENTRY);
	assert_int_not_equal(put(&store, "0", value, sizeof(value), 2), STORE_NO_ENTRY);
	kv_store_close(&store);
}

static void removed_record_leaves_no_key_and_no_room_behind(void **state)
{
	struct store *store = *state;
	size_t used;
	char key[16];

	for (unsigned n = 0; n < 900; n++) {
		snprintf(key, sizeof(key), "%u", n);
		assert_int_not_equal(put(store, key, "x", 1, 2), STORE_NO_ENTRY);
	}
	used = store->used;
	for (unsigned n = 0; n < 900; n += 2) {
		snprintf(key, sizeof(key), "%u", n);
		kv_store_remove(store, kv_store_find(store, key, (uint32_t)strlen(key)));
	}
	for (unsigned n = 0; n < 900; n++) {
		snprintf(key, sizeof(key), "%u", n);
		assert_true((kv_store_find(store, key, (uint32_t)strlen(key)) == STORE_NO_ENTRY) == (n % 2 == 0));
	}
	for (unsigned n = 0; n < 450; n++) { /* other keys, where those lay */
		snprintf(key, sizeof(key), "other%u", n);
		assert_int_not_equal(put(store, key, "x", 1, 2), STORE_NO_ENTRY);
	}
	assert_int_equal(store->used, used);
	assert_int_equal(store->records, 900);
}

static void graves_go_when_nothing_lies_behind_them(void **state)
{
	struct store *store = *state;
	char key[16];

	for (unsigned round = 0; round < 10; round++) {
		for (unsigned n = 0; n < 800; n++) {
			snprintf(key, sizeof(key), "%u-%u", round, n);
			assert_int_not_equal(put(store, key, "x", 1, 2), STORE_NO_ENTRY);
		}
		for (unsigned n = 0; n < 800; n++) {
			snprintf(key, sizeof(key), "%u-%u", round, n);
			kv_store_remove(store, kv_store_find(store, key, (uint32_t)strlen(key)));
		}
		assert_int_equal(store->records + store->graves, 0);
	}
}

static uint32_t entry_of(struct store *store, unsigned number)
{
	char key[16];

	snprintf(key, sizeof(key), "%u", number);
	return kv_store_find(store, key, (uint32_t)strlen(key));
}

static void sweep(struct store *store)
{
	uint64_t at = 0;

	while (!kv_store_sweep(store, &at, 1000))
		;
}

/* Keys come and go while the index is less than half full: without a sweep graves take the rest for good. */
static void graves_that_no_look_up_needs_are_swept(void **state)
{
	struct store *store = *state;
	unsigned live = store->mask / 16 * 7, *keys = calloc(live, sizeof(*keys));
	uint32_t drawn = 1;
	char key[16];

	assert_non_null(keys);
	for (unsigned n = 0; n < 40 * live; n++) {
		unsigned place = n < live ? n : (drawn = drawn * 1664525 + 1013904223) / 4 % live;

		if (!kv_store_has_room(store, 0))
			fail_msg("no room at key %u: %u records, %u graves", n, store->records, store->graves);
		if (n >= live)
			kv_store_remove(store, entry_of(store, keys[place]));
		snprintf(key, sizeof(key), "%u", keys[place] = n);
		assert_int_not_equal(put(store, key, "", 0, 2), STORE_NO_ENTRY);
		if (n % (live / 8) == 0)
			sweep(store);
	}
	for (unsigned i = 0; i < live; i++)
		assert_int_not_equal(entry_of(store, keys[i]), STORE_NO_ENTRY);
	for (unsigned i = 0; i < live; i++)
		kv_store_remove(store, entry_of(store, keys[i]));
	sweep(store);
	assert_int_equal(store->records + store->graves, 0);
	free(keys);
}

static void highest_version_of_a_deleted_record_is_kept(void **state)
{
	struct store_content gone = {.key = "one", .key_bytes = 3, .ts = {.version = 9}, .flags = RECORD_TOMBSTONE};
	struct store *store = *state;
	uint64_t empty = digest_of(store);

	put(store, "one", "x", 1, 20);
	assert_int_equal(store->highest, 0);
	kv_store_remove(store, kv_store_put(store, &gone, RECORD_VALID));
	assert_int_equal(store->highest, 9);
	assert_int_equal(store->tombstones, 0);
	(void)kv_store_put(store, &gone, RECORD_VALID);
	assert_true(digest_of(store) == empty); /* others have removed it already */
}

static void digest_of_the_parts_is_that_of_all(void **state)
{
	enum { PART = 4096, VALUE = 1000 };
	static char value[VALUE];
	struct store *store = *state;
	uint64_t at = 0, before, sum = 0;
	char key[16];

	for (unsigned i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "%u", i);
		(void)put(store, key, value, sizeof(value), 2 + i);
	}
	while (at <= store->mask) {
		before = at;
		sum += kv_store_digest(store, &at, PART);
		assert_in_range(at - before, 1, PART / sizeof(*store->index));
	}
	assert_true(sum == digest_of(store));
}

static void digest_does_not_depend_on_order_or_place(void **state)
{
	struct store other = {0};
	static char large[3000];

	assert_int_equal(kv_store_open(&other, hf_env_host(), NULL, 1 << 20, NULL), 0);
	put(*state, "a", large, sizeof(large), 2);
	put(*state, "a", "1", 1, 4);
	put(*state, "b", "2", 1, 2);
	put(&other, "b", "2", 1, 2);
	put(&other, "a", "1", 1, 4);
	assert_true(digest_of(*state) == digest_of(&other));
	put(&other, "a", "3", 1, 4);
	assert_true(digest_of(*state) != digest_of(&other));
	kv_store_close(&other);
}

/* Records wait for a piece that the helper makes, and grow into all of the memory. */
static void a_store_fills_while_a_helper_makes_its_memory(void **state)
{
	enum { BYTES = 40 << 20, RECORD = 300000 };
	static char value[RECORD];
	struct hf_loop *loop;
	struct store store;
	unsigned n = 0;
	char key[16];

	(void)state;
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	assert_int_equal(kv_store_open(&store, hf_env_host(), loop, BYTES, NULL), 0);
	for (;; n++) {
		if (n % 16 == 0)
			(void)hf_loop_turn(loop, 0);
		snprintf(key, sizeof(key), "%u", n);
		if (put(&store, key, value, sizeof(value), 2) == STORE_NO_ENTRY)
			break;
		assert_true(store.made >= store.used);
		assert_true(store.made + store.coming - store.used >= BYTES / 8 || store.made + store.coming == BYTES);
	}
	assert_true(n > 80);
	assert_int_equal(store.made, BYTES);
	kv_store_clear(&store);
	kv_store_close(&store);
	/* One that is closed while its memory is being made. */
	assert_int_equal(kv_store_open(&store, hf_env_host(), loop, BYTES, NULL), 0);
	while (kv_store_grow(&store))
		continue;
	kv_store_close(&store);
	hf_loop_destroy(loop);
}

static unsigned larges, refused_large; /* allocations of 4 MiB */

static int refuse_one_piece(struct hf_env *env, size_t bytes, void **addr_out, struct hf_error *error)
{
	(void)env;
	if (bytes == 4 << 20 && ++larges == refused_large)
		return hf_error_set(error, -ENOMEM, "no memory");
	return hf_env_host()->ops->mem_alloc(hf_env_host(), bytes, addr_out, error);
}

/* The last piece is a short one. It takes no other piece's place, though that one is refused. */
static void no_record_is_lost_when_memory_is_refused_for_a_while(void **state)
{
	enum { BYTES = 33 << 20, LARGES = 9, RECORD = 60000 }; /* LARGES: the index, and eight pieces */
	static char value[RECORD];
	struct world_ops ops = *hf_env_host()->ops;
	struct hf_env env = {.ops = &ops};
	struct hf_loop *loop;
	struct store store;
	unsigned n = 0;
	char key[16];

	(void)state;
	ops.mem_alloc = refuse_one_piece;
	larges = 0;
	refused_large = LARGES;
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	assert_int_equal(kv_store_open(&store, &env, loop, BYTES, NULL), 0);
	for (;; n++) {
		snprintf(key, sizeof(key), "%u", n);
		memset(value, (int)(n % 251), sizeof(value));
		if (put(&store, key, value, sizeof(value), 2) == STORE_NO_ENTRY)
			break;
		if (larges < LARGES && store.used > BYTES - BYTES / 4 - (1 << 20))
			while (kv_store_grow(&store))
				continue;
		while (larges >= LARGES && store.making_count > 0)
			(void)hf_loop_turn(loop, 1000000);
	}
	assert_int_equal(store.made, BYTES);
	while (n-- > 0) {
		snprintf(key, sizeof(key), "%u", n);
		memset(value, (int)(n % 251), sizeof(value));
		assert_memory_equal(
			record_value(kv_store_at(&store, kv_store_find(&store, key, (uint32_t)strlen(key)))), value,
			sizeof(value));
	}
	kv_store_close(&store);
	hf_loop_destroy(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(record_is_found_by_its_key, open_small, close_it),
		cmocka_unit_test_setup_teardown(entry_stays_when_the_record_moves, open_small, close_it),
		cmocka_unit_test_setup_teardown(a_store_without_a_record_is_cleared_at_once, open_small, close_it),
		cmocka_unit_test_setup_teardown(full_store_refuses_and_keeps_what_it_has, open_small, close_it),
		cmocka_unit_test_setup_teardown(deletion_needs_no_memory, open_small, close_it),
		cmocka_unit_test_setup_teardown(deletions_leave_room_for_the_writes_of_others, open_small, close_it),
		cmocka_unit_test(memory_of_removed_records_comes_back),
		cmocka_unit_test(records_stay_when_those_of_other_pieces_go),
		cmocka_unit_test(memory_is_made_ahead_of_what_is_used),
		cmocka_unit_test(a_store_fills_while_a_helper_makes_its_memory),
		cmocka_unit_test(no_record_is_lost_when_memory_is_refused_for_a_while),
		cmocka_unit_test_setup_teardown(removed_record_leaves_no_key_and_no_room_behind, open_small, close_it),
		cmocka_unit_test_setup_teardown(graves_that_no_look_up_needs_are_swept, open_small, close_it),
		cmocka_unit_test_setup_teardown(graves_go_when_nothing_lies_behind_them, open_small, close_it),
		cmocka_unit_test_setup_teardown(highest_version_of_a_deleted_record_is_kept, open_small, close_it),
		cmocka_unit_test_setup_teardown(digest_of_the_parts_is_that_of_all, open_small, close_it),
		cmocka_unit_test_setup_teardown(digest_does_not_depend_on_order_or_place, open_small, close_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
