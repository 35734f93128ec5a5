/* The walk over the index that removes deleted records, and sweeps the graves that they leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "kv/engine.h"

#define STORE_BYTES (4u << 20) /* an index of several turns */
#define EPOCH       5u
#define FLOOR       10u
#define TURNS_MAX   100u

static struct hf_error error;

/* A cluster of one, which never says its next round: whatever is removed was due before. */
static int set_up(void **state)
{
	struct hf_kv *kv = calloc(1, sizeof(*kv));

	*state = kv;
	if (kv == NULL)
		return -1;
	kv->member = true;
	kv->epoch = EPOCH;
	kv->config.member_count = 1;
	kv->installed.nodes[0] = (struct cm_node){.state = CM_MEMBER, .join = EPOCH};
	kv->view.floor = FLOOR;
	kv->purge.round = 1;
	list_init(&kv->flights);
	return kv_store_open(&kv->store, hf_env_host(), NULL, STORE_BYTES, &error) != 0 || kv_busy_open(kv) != 0;
}

static int tear_down(void **state)
{
	struct hf_kv *kv = *state;

	kv_busy_free_all(kv);
	kv_store_close(&kv->store);
	free(kv);
	return 0;
}

/* Of the index. */
static unsigned keys(const struct hf_kv *kv)
{
	return (unsigned)(kv->store.mask / 4 * 3);
}

/* Three quarters of the records: behind them others remain, so graves do too. */
static unsigned put_records(struct hf_kv *kv)
{
	unsigned deleted = 0;
	char key[16];

	for (unsigned i = 0; i < keys(kv); i++) {
		struct store_content content = {.key = key, .ts = {.version = FLOOR}};

		content.flags = i % 4 == 0 ? 0 : RECORD_TOMBSTONE;
		content.key_bytes = (uint32_t)snprintf(key, sizeof(key), "%u", i);
		assert_int_not_equal(kv_store_put(&kv->store, &content, RECORD_VALID), STORE_NO_ENTRY);
		deleted += content.flags != 0;
	}
	return deleted;
}

static void begin_to_remove(struct hf_kv *kv)
{
	kv->purge.walk = PURGE_REMOVES;
	kv->purge.cursor = 0;
	kv->purge.until = UINT64_MAX;
}

static void turn_to_the_end(struct hf_kv *kv)
{
	unsigned turns = 0;

	while (kv_purge_turn(kv))
		assert_true(turns++ < TURNS_MAX);
}

/* The number of graves that a sweep leaves. */
static uint32_t graves_after_sweep(struct hf_kv *kv)
{
	for (uint64_t at = 0; !kv_store_sweep(&kv->store, &at, 1000);)
		;
	return kv->store.graves;
}

static void graves_of_removed_records_are_swept(void **state)
{
	struct hf_kv *kv = *state;
	unsigned deleted = put_records(kv);
	uint32_t graves;

	begin_to_remove(kv);
	turn_to_the_end(kv);
	assert_int_equal(kv->counters.purged, deleted);
	graves = kv->store.graves;
	assert_int_equal(graves, graves_after_sweep(kv));
}

/* The epoch begins when a part of the tombstones is removed. Those that remain wait for later rounds. */
static void another_epoch_ends_the_removal_and_begins_the_sweep(void **state)
{
	struct hf_kv *kv = *state;
	unsigned deleted = put_records(kv);
	uint64_t purged;
	uint32_t graves;

	begin_to_remove(kv);
	assert_true(kv_purge_turn(kv));
	purged = kv->counters.purged;
	assert_in_range(purged, 1, deleted - 1);
	kv_purge_installed(kv);
	turn_to_the_end(kv);
	assert_int_equal(kv->counters.purged, purged);
	assert_int_equal(kv->store.tombstones, deleted - purged);
	graves = kv->store.graves;
	assert_int_equal(graves, graves_after_sweep(kv));
}

static void another_epoch_begins_the_sweep_anew(void **state)
{
	struct hf_kv *kv = *state;
	uint32_t graves;

	(void)put_records(kv);
	begin_to_remove(kv);
	while (kv->purge.walk == PURGE_REMOVES)
		assert_true(kv_purge_turn(kv));
	assert_true(kv_purge_turn(kv));
	kv_purge_installed(kv);
	turn_to_the_end(kv);
	graves = kv->store.graves;
	assert_int_equal(graves, graves_after_sweep(kv));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(graves_of_removed_records_are_swept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_epoch_ends_the_removal_and_begins_the_sweep, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_epoch_begins_the_sweep_anew, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
