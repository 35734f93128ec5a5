/* Records in doubt, and the answers of the buddy that was asked for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <stdlib.h>

#include "kv/engine.h"

#define STORE_BYTES (1u << 20)

static struct hf_error error;

static int set_up(void **state)
{
	struct hf_kv *kv = calloc(1, sizeof(*kv));

	*state = kv;
	if (kv == NULL || hf_loop_create(hf_env_host(), &kv->loop) != 0)
		return -1;
	list_init(&kv->invalid);
	list_init(&kv->unsettled);
	return kv_store_open(&kv->store, hf_env_host(), NULL, STORE_BYTES, &error) != 0 || kv_busy_open(kv) != 0;
}

static int tear_down(void **state)
{
	struct hf_kv *kv = *state;

	kv_busy_free_all(kv);
	kv_store_close(&kv->store);
	hf_loop_destroy(kv->loop);
	free(kv->doubts);
	free(kv);
	return 0;
}

static struct record *put(struct hf_kv *kv, uint64_t version, enum record_state state)
{
	struct store_content content = {.key = "key", .key_bytes = 3, .ts = {.version = version}};
	uint32_t entry = kv_store_put(&kv->store, &content, state);

	assert_int_not_equal(entry, STORE_NO_ENTRY);
	return kv_store_at(&kv->store, entry);
}

static struct record *put_in_doubt(struct hf_kv *kv, uint64_t version)
{
	struct record *record = put(kv, version, RECORD_INVALID);

	assert_true(kv_doubts_add(kv, kv_store_find(&kv->store, "key", 3)));
	assert_true((record->flags & RECORD_DOUBTFUL) != 0);
	return record;
}

static const struct record *take(struct hf_kv *kv, uint64_t version, enum record_state state)
{
	struct wire_message message = {
		.kind = WIRE_COPY_RECORD, .key = (const uint8_t *)"key", .key_bytes = 3, .ts = {.version = version}};

	assert_true(kv_doubts_take(kv, &message, state));
	return kv_store_at(&kv->store, kv_store_find(&kv->store, "key", 3));
}

/* This member did not know whether 3 was everywhere, and an INV of 2 ended the doubt (R-K13). The buddy has 3: it was
 * acknowledged, and no other message brings it back (R-K14). */
static void the_answer_counts_when_an_older_inv_has_ended_the_doubt(void **state)
{
	struct hf_kv *kv = *state;
	const struct record *record;

	(void)put_in_doubt(kv, 3);
	(void)put(kv, 2, RECORD_INVALID);
	record = take(kv, 3, RECORD_VALID);
	assert_int_equal(record->version, 3);
	assert_int_equal(record_state(record), RECORD_VALID);
}

static void the_answer_is_nothing_to_a_newer_inv(void **state)
{
	struct hf_kv *kv = *state;
	const struct record *record;

	(void)put_in_doubt(kv, 3);
	(void)put(kv, 4, RECORD_INVALID);
	record = take(kv, 3, RECORD_VALID);
	assert_int_equal(record->version, 4);
	assert_int_equal(record_state(record), RECORD_INVALID);
}

/* What reached no other member is not there any more. */
static void a_record_in_doubt_yields_to_an_older_answer(void **state)
{
	struct hf_kv *kv = *state;
	const struct record *record;

	(void)put_in_doubt(kv, 3);
	record = take(kv, 2, RECORD_VALID);
	assert_int_equal(record->version, 2);
	assert_int_equal(record->flags & RECORD_DOUBTFUL, 0);
}

/* A match is VALID only if the buddy's record is (R-K12). */
static void an_answer_that_is_invalid_is_replayed(void **state)
{
	struct hf_kv *kv = *state;
	const struct record *record;

	(void)put_in_doubt(kv, 3);
	record = take(kv, 3, RECORD_INVALID);
	assert_int_equal(record_state(record), RECORD_INVALID);
	assert_false(list_empty(&kv->invalid));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_answer_counts_when_an_older_inv_has_ended_the_doubt, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_answer_is_nothing_to_a_newer_inv, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_record_in_doubt_yields_to_an_older_answer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_answer_that_is_invalid_is_replayed, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
