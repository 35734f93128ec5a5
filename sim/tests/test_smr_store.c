/* What a replica counts as durable when it starts with its files stays there, whatever was on its way when the process
 * before it ended. */
#include "sim/tests/fixture.h"

#include <errno.h>
#include <stdio.h>

#include "sim/disk.h"
#include "smr/store.h"

#define SEEDS     60u
#define SEED      77u /* of checksums */
#define DIRECTORY "log"

static const struct smr_store_identity identity = {
	.cluster = {1, 2}, .incarnation = 3, .slots = 16, .slot_bytes = 256, .seed = SEED, .id = 1};

static void open_store(struct fixture *f, struct smr_store *store)
{
	struct hf_error error = {0};

	if (smr_store_open(store, fixture_env(f, 0), DIRECTORY, &identity, &error) != 0)
		fail_msg("%s", error.text);
}

static size_t seal(const struct smr_store *store, uint8_t batch[512])
{
	struct smr_wal_batch head = {.sequence = store->sequence + 1, .number = 256};
	uint8_t data[200];

	memset(data, 1, sizeof(data));
	head.bytes = smr_wal_put(batch + SMR_WAL_BATCH_HEAD, 0, SMR_WAL_SLOT, data, sizeof(data));
	smr_wal_seal(SEED, &head, batch);
	return SMR_WAL_BATCH_HEAD + head.bytes;
}

/* A batch is written, and the process ends before the sync, or behind one that failed. */
static void leave_unsynced(struct fixture *f, bool fails)
{
	struct smr_store store;
	struct hf_error error;
	uint8_t batch[512];
	size_t bytes;

	assert_int_equal(hf_dir_make(fixture_env(f, 0), DIRECTORY), 0);
	assert_int_equal(hf_dir_sync(fixture_env(f, 0), "."), 0);
	open_store(f, &store);
	bytes = seal(&store, batch);
	assert_int_equal(smr_store_append(&store, batch, bytes, &error), 0);
	bytes = seal(&store, batch);
	assert_int_equal(hf_file_write_at(store.wal, batch, bytes, store.wal_bytes), bytes);
	if (fails) {
		f->hosts[0].disk->sync_fails_ppm = 1000000;
		assert_int_equal(hf_file_sync(store.wal), -EIO);
		f->hosts[0].disk->sync_fails_ppm = 0;
	}
	smr_store_close(&store);
	process_crash(f->processes[0]);
	process_start(f->processes[0]);
}

static void survives(bool fails)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct smr_store store;
		struct fixture f;

		fixture_open(&f, seed, NULL, NULL);
		leave_unsynced(&f, fails);
		open_store(&f, &store);
		assert_int_equal(store.sequence, 2);
		smr_store_close(&store);
		host_stop(&f.hosts[0]);
		host_start(&f.hosts[0]);
		open_store(&f, &store);
		assert_int_equal(store.sequence, 2);
		assert_int_equal(f.world.violations, 0);
		smr_store_close(&store);
		fixture_close(&f);
	}
}

static void a_batch_that_was_not_synced_is_before_it_counts(void **state)
{
	(void)state;
	survives(false);
}

static void a_batch_behind_a_failed_sync_is_written_again_before_it_counts(void **state)
{
	(void)state;
	survives(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_that_was_not_synced_is_before_it_counts),
		cmocka_unit_test(a_batch_behind_a_failed_sync_is_written_again_before_it_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
