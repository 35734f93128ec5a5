#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <holdfast/kv.h>

#include <stdlib.h>
#include <string.h>

#include "kv/store.h"

#define KEYS_MAX 600u
#define STEPS    40000u

struct model_key {
	uint8_t *at;
	uint32_t bytes;
};

/* What the index must hold, sorted. */
struct bed {
	struct store store;
	struct model_key keys[KEYS_MAX];
	unsigned count;
	uint64_t random;
};

static int bed_open(void **state)
{
	struct bed *bed = calloc(1, sizeof(*bed));

	*state = bed;
	if (bed == NULL)
		return -1;
	bed->random = 88172645463325252ull;
	if (kv_store_open(&bed->store, hf_env_host(), NULL, 8 << 20, NULL) != 0)
		return -1;
	return kv_store_keep_order(&bed->store, NULL);
}

static int bed_close(void **state)
{
	struct bed *bed = *state;

	for (unsigned i = 0; i < bed->count; i++)
		free(bed->keys[i].at);
	kv_store_close(&bed->store);
	free(bed);
	return 0;
}

static unsigned draw(struct bed *bed, unsigned below)
{
	bed->random ^= bed->random << 13;
	bed->random ^= bed->random >> 7;
	bed->random ^= bed->random << 17;
	return (unsigned)(bed->random % below);
}

static int compare(const uint8_t *a, uint32_t a_bytes, const uint8_t *b, uint32_t b_bytes)
{
	int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

	return order != 0 ? order : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static unsigned first_not_less(const struct bed *bed, const uint8_t *key, uint32_t bytes)
{
	unsigned i = 0;

	while (i < bed->count && compare(bed->keys[i].at, bed->keys[i].bytes, key, bytes) < 0)
		i++;
	return i;
}

static bool is_there(const struct bed *bed, unsigned i, const uint8_t *key, uint32_t bytes)
{
	return i < bed->count && compare(bed->keys[i].at, bed->keys[i].bytes, key, bytes) == 0;
}

static void add(struct bed *bed, const uint8_t *key, uint32_t bytes)
{
	struct store_content content = {.key = key, .key_bytes = bytes, .value = "v", .value_bytes = 1};
	unsigned i = first_not_less(bed, key, bytes);

	assert_int_not_equal(kv_store_put(&bed->store, &content, RECORD_VALID), STORE_NO_ENTRY);
	if (is_there(bed, i, key, bytes))
		return;
	memmove(&bed->keys[i + 1], &bed->keys[i], (bed->count - i) * sizeof(*bed->keys));
	bed->keys[i] = (struct model_key){.at = malloc(bytes), .bytes = bytes};
	assert_non_null(bed->keys[i].at);
	memcpy(bed->keys[i].at, key, bytes);
	bed->count++;
}

static void remove_at(struct bed *bed, unsigned i)
{
	kv_store_remove(&bed->store, kv_store_find(&bed->store, bed->keys[i].at, bed->keys[i].bytes));
	free(bed->keys[i].at);
	bed->count--;
	memmove(&bed->keys[i], &bed->keys[i + 1], (bed->count - i) * sizeof(*bed->keys));
}

static void check_seek(const struct bed *bed, const uint8_t *key, uint32_t bytes, bool after)
{
	uint32_t entry = kv_ordered_index_seek(&bed->store.ordered, &bed->store, key, bytes, after);
	unsigned i = first_not_less(bed, key, bytes);
	const struct record *record;

	i += after && is_there(bed, i, key, bytes);
	if (i == bed->count) {
		assert_int_equal(entry, STORE_NO_ENTRY);
		return;
	}
	record = kv_store_at(&bed->store, entry);
	assert_int_equal(compare(record->key, record->key_bytes, bed->keys[i].at, bed->keys[i].bytes), 0);
}

/* Few letters, zeros and high bits among them: many keys begin others. */
static uint32_t make_key(struct bed *bed, uint8_t key[8], uint32_t least)
{
	static const uint8_t letters[] = {0, 1, 'a', 0x7f, 0x80, 0xff};
	uint32_t bytes = least + draw(bed, 8 - least);

	for (uint32_t i = 0; i < bytes; i++)
		key[i] = letters[draw(bed, sizeof(letters))];
	return bytes;
}

static void keys_are_found_in_the_order_of_their_bytes(void **state)
{
	struct bed *bed = *state;
	uint8_t key[8];

	for (unsigned step = 0; step < STEPS; step++) {
		unsigned grows = step / (STEPS / 4) % 2 == 0 ? 6 : 2; /* of ten; then it shrinks */
		uint32_t bytes = make_key(bed, key, 1);

		if (draw(bed, 10) < grows && bed->count < KEYS_MAX - 1)
			add(bed, key, bytes);
		else if (bed->count > 0)
			remove_at(bed, draw(bed, bed->count));
		bytes = make_key(bed, key, 0);
		check_seek(bed, key, bytes, step % 2 == 0);
	}
	while (bed->count > 0)
		remove_at(bed, draw(bed, bed->count));
	check_seek(bed, key, 0, false);
}

static void longest_keys_that_differ_at_their_ends_are_ordered(void **state)
{
	struct bed *bed = *state;
	uint8_t *key = calloc(1, HF_KV_KEY_BYTES_MAX + 1);

	assert_non_null(key);
	for (unsigned n = 0; n < 16; n++) {
		key[HF_KV_KEY_BYTES_MAX - 1] = (uint8_t)(n * 7 % 16);
		add(bed, key, HF_KV_KEY_BYTES_MAX);
		add(bed, key, HF_KV_KEY_BYTES_MAX - n);
	}
	for (unsigned n = 0; n < 18; n++) {
		key[HF_KV_KEY_BYTES_MAX - 1] = (uint8_t)n;
		check_seek(bed, key, HF_KV_KEY_BYTES_MAX, n % 2 == 0);
		check_seek(bed, key, HF_KV_KEY_BYTES_MAX + 1, false);
		check_seek(bed, key, HF_KV_KEY_BYTES_MAX - n, true);
	}
	check_seek(bed, key, 0, false);
	free(key);
}

static void cleared_store_has_no_keys_and_takes_others(void **state)
{
	struct bed *bed = *state;
	uint8_t key[8];

	for (unsigned n = 0; n < 300; n++)
		add(bed, key, make_key(bed, key, 1));
	kv_store_clear(&bed->store);
	while (bed->count > 0)
		free(bed->keys[--bed->count].at);
	check_seek(bed, key, 0, false);
	for (unsigned n = 0; n < 300; n++)
		add(bed, key, make_key(bed, key, 1));
	for (unsigned n = 0; n < 300; n++)
		check_seek(bed, key, make_key(bed, key, 0), n % 2 == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(keys_are_found_in_the_order_of_their_bytes, bed_open, bed_close),
		cmocka_unit_test_setup_teardown(
			longest_keys_that_differ_at_their_ends_are_ordered, bed_open, bed_close),
		cmocka_unit_test_setup_teardown(cleared_store_has_no_keys_and_takes_others, bed_open, bed_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
