/* The files of a durable replica: what a torn write leaves, and what is damage. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "smr/store.h"

#define SEED       77u
#define BATCHES    5u
#define MARK_BYTES 512u

struct bed {
	char directory[64];
	struct smr_store store;
};

static const struct smr_store_identity identity = {
	.cluster = {1, 2}, .incarnation = 3, .slots = 16, .slot_bytes = 256, .seed = SEED, .id = 1, .alone = true};

static const struct smr_store_identity replacement = {
	.cluster = {1, 2}, .incarnation = 9, .slots = 16, .slot_bytes = 256, .seed = SEED, .id = 1, .replaces = true};

static void remove_name(const char *name, void *context)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", (const char *)context, name);
	assert_int_equal(hf_file_remove(hf_env_host(), path), 0);
}

static int try_open(struct bed *bed, struct hf_error *error)
{
	return smr_store_open(&bed->store, hf_env_host(), bed->directory, &identity, error);
}

static void open_store(struct bed *bed)
{
	struct hf_error error = {0};

	if (try_open(bed, &error) != 0)
		fail_msg("%s", error.text);
}

static void set_up(struct bed *bed)
{
	snprintf(bed->directory, sizeof(bed->directory), "/tmp/holdfast-store-XXXXXX");
	assert_non_null(mkdtemp(bed->directory));
	open_store(bed);
}

/* Not alone: nothing changes until it is renewed. */
static void open_damaged(struct bed *bed)
{
	struct smr_store_identity with_others = identity;
	struct hf_error error;

	with_others.alone = false;
	assert_int_equal(smr_store_open(&bed->store, hf_env_host(), bed->directory, &with_others, &error), -EBADMSG);
	assert_true(bed->store.damaged);
	assert_false(bed->store.has_state);
	for (unsigned step = 0; step < SMR_STORE_RENEW_STEPS; step++)
		assert_int_equal(smr_store_renew(&bed->store, &replacement, step, &error), 0);
	bed->store.damaged = false;
}

static void tear_down(struct bed *bed)
{
	char aside[128];

	smr_store_close(&bed->store);
	snprintf(aside, sizeof(aside), "%s/damaged.0", bed->directory);
	if (hf_dir_list(hf_env_host(), aside, remove_name, aside) == 0)
		assert_int_equal(hf_dir_remove(hf_env_host(), aside), 0);
	assert_int_equal(hf_dir_list(hf_env_host(), bed->directory, remove_name, bed->directory), 0);
	assert_int_equal(hf_dir_remove(hf_env_host(), bed->directory), 0);
}

/* A batch whose number and content tell which one it is. */
static size_t append(struct bed *bed, uint64_t number)
{
	uint8_t batch[512], data[100];
	struct smr_wal_batch head = {.sequence = bed->store.sequence + 1, .number = number};
	struct hf_error error;

	memset(data, (int)number, sizeof(data));
	for (unsigned i = 0; i < 1 + number % 3; i++)
		head.bytes = smr_wal_put(
			batch + SMR_WAL_BATCH_HEAD, head.bytes, SMR_WAL_SLOT, data, (uint32_t)(50 + number + i));
	smr_wal_seal(SEED, &head, batch);
	assert_int_equal(smr_store_append(&bed->store, batch, SMR_WAL_BATCH_HEAD + head.bytes, &error), 0);
	assert_int_equal(smr_store_mark(&bed->store, &error), 0);
	return SMR_WAL_BATCH_HEAD + head.bytes;
}

/* How many batches are there, from the first on; each is looked at. */
static unsigned count(struct bed *bed)
{
	struct smr_store_reader reader;
	struct smr_wal_batch batch;
	struct smr_wal_record record;
	struct hf_error error = {0};
	unsigned n = 0;
	uint32_t at = 0;
	int rc;

	assert_int_equal(smr_store_read_wal(&reader, &bed->store, bed->store.current, &error), 0);
	while ((rc = smr_store_next_batch(&reader, &batch, &error)) == 1) {
		assert_int_equal(batch.number, ++n);
		at = 0;
		for (unsigned i = 0; i < 1 + n % 3; i++) {
			assert_true(smr_wal_next(&batch, &at, &record));
			assert_int_equal(record.bytes, 50 + n + i);
			assert_int_equal(record.data[0], n);
		}
		assert_false(smr_wal_next(&batch, &at, &record));
	}
	assert_int_equal(rc, 0);
	smr_store_read_close(&reader);
	return n;
}

static void path_of(const struct bed *bed, const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", bed->directory, name);
}

/* Changes a byte, or sets the size if `at` is negative. */
static void change(const struct bed *bed, const char *name, int64_t at, uint64_t bytes)
{
	char path[128];
	struct hf_file *file;
	uint8_t byte;

	path_of(bed, name, path);
	assert_int_equal(hf_file_open(hf_env_host(), path, HF_FILE_WRITE, &file), 0);
	if (at < 0) {
		assert_int_equal(hf_file_resize(file, bytes), 0);
	} else {
		assert_int_equal(hf_file_read_at(file, &byte, 1, (uint64_t)at), 1);
		byte ^= 0x10;
		assert_int_equal(hf_file_write_at(file, &byte, 1, (uint64_t)at), 1);
	}
	hf_file_close(file);
}

/* A restart reads far ahead, so that small batches do not cost a look at the file each. */
static void batches_are_read_many_at_a_time(void **state)
{
	struct smr_store_reader reader;
	struct smr_wal_batch batch;
	struct hf_error error = {0};
	struct bed bed;

	(void)state;
	set_up(&bed);
	for (uint64_t n = 1; n <= 1000; n++)
		append(&bed, n % 50);
	assert_int_equal(smr_store_read_wal(&reader, &bed.store, bed.store.current, &error), 0);
	assert_int_equal(smr_store_next_batch(&reader, &batch, &error), 1);
	change(&bed, "wal.0", -1, 0);
	for (uint64_t n = 2; n <= 1000; n++) {
		assert_true(smr_store_near_batch(&reader, &batch));
		assert_int_equal(batch.sequence, n);
		assert_int_equal(batch.number, n % 50);
	}
	assert_false(smr_store_near_batch(&reader, &batch));
	smr_store_read_close(&reader);
	tear_down(&bed);
}

/* As it was before: a loss of power may leave an older mark than the log. */
static void keep_mark(const struct bed *bed, uint8_t bytes[MARK_BYTES], bool restore)
{
	char path[128];
	struct hf_file *file;

	path_of(bed, "synced", path);
	assert_int_equal(hf_file_open(hf_env_host(), path, HF_FILE_WRITE, &file), 0);
	assert_true((restore ? hf_file_write_at(file, bytes, MARK_BYTES, 0)
			     : hf_file_read_at(file, bytes, MARK_BYTES, 0)) > 0);
	hf_file_close(file);
}

/* Of what was cut off (R-D2). */
static int64_t kept_bytes(const struct bed *bed)
{
	char path[160];
	struct stat seen;

	snprintf(path, sizeof(path), "%s/cut.0", bed->directory);
	return stat(path, &seen) == 0 ? (int64_t)seen.st_size : -1;
}

static void a_batch_that_is_torn_at_any_byte_was_never_there(void **state)
{
	struct bed bed;
	uint8_t mark[MARK_BYTES] = {0};
	uint64_t before = 0, all;

	(void)state;
	set_up(&bed);
	for (unsigned i = 1; i <= BATCHES; i++) {
		before = bed.store.wal_bytes;
		keep_mark(&bed, mark, false);
		append(&bed, i);
	}
	all = bed.store.wal_bytes;
	for (uint64_t cut = before; cut < all; cut++) {
		smr_store_close(&bed.store);
		keep_mark(&bed, mark, true);
		change(&bed, "wal.0", -1, cut);
		open_store(&bed);
		assert_int_equal(kept_bytes(&bed), cut == before ? -1 : (int64_t)(cut - before));
		assert_int_equal(bed.store.wal_bytes, before);
		assert_int_equal(count(&bed), BATCHES - 1);
		append(&bed, BATCHES); /* where the torn one was */
		assert_int_equal(count(&bed), BATCHES);
	}
	for (uint64_t at = before; at < all; at++) { /* lost pieces within it */
		smr_store_close(&bed.store);
		keep_mark(&bed, mark, true);
		change(&bed, "wal.0", (int64_t)at, 0);
		open_store(&bed);
		assert_int_equal(kept_bytes(&bed), all - before);
		assert_int_equal(count(&bed), BATCHES - 1);
		append(&bed, BATCHES);
	}
	tear_down(&bed);
}

static void a_changed_byte_before_the_last_batch_is_damage_with_its_place(void **state)
{
	struct bed bed;
	struct hf_error error;
	uint64_t begins[BATCHES + 1];
	char words[200];

	(void)state;
	set_up(&bed);
	for (unsigned i = 0; i < BATCHES; i++) {
		begins[i] = bed.store.wal_bytes;
		append(&bed, i + 1);
	}
	for (unsigned i = 0; i + 1 < BATCHES; i++)
		for (uint64_t at = begins[i]; at < begins[i + 1]; at += 3) {
			smr_store_close(&bed.store);
			change(&bed, "wal.0", (int64_t)at, 0);
			assert_int_equal(try_open(&bed, &error), -EBADMSG);
			snprintf(words, sizeof(words), "%s/wal.0 is damaged at offset %llu: ", bed.directory,
				(unsigned long long)begins[i]);
			assert_non_null(strstr(error.text, words));
			assert_non_null(strstr(error.text, "restore it from a copy, or empty the directory"));
			change(&bed, "wal.0", (int64_t)at, 0);
			open_store(&bed);
		}
	tear_down(&bed);
}

/* Two members that decided it count on this one (R-D4); a process that was killed, or stopped, has lost no power. */
static void a_last_batch_that_was_on_the_disk_is_no_torn_one(void **state)
{
	struct bed bed;
	struct hf_error error;
	uint64_t last = 0, all;

	(void)state;
	set_up(&bed);
	for (unsigned i = 1; i <= BATCHES; i++) {
		last = bed.store.wal_bytes;
		append(&bed, i);
	}
	all = bed.store.wal_bytes;
	for (uint64_t at = last; at < all; at += 3) {
		smr_store_close(&bed.store);
		change(&bed, "wal.0", (int64_t)at, 0);
		assert_int_equal(try_open(&bed, &error), -EBADMSG);
		assert_non_null(strstr(error.text, "wal.0 is damaged at offset "));
		assert_non_null(strstr(error.text, "batch 5 was on the disk, and the last whole one is batch 4"));
		assert_int_equal(try_open(&bed, &error), -EBADMSG); /* again */
		change(&bed, "wal.0", (int64_t)at, 0);              /* no byte has changed */
		open_store(&bed);
		assert_int_equal(count(&bed), BATCHES);
	}
	smr_store_close(&bed.store);
	change(&bed, "wal.0", -1, last); /* whole batches are gone */
	assert_int_equal(try_open(&bed, &error), -EBADMSG);
	change(&bed, "wal.0", -1, all); /* zeros */
	assert_int_equal(try_open(&bed, &error), -EBADMSG);
	open_damaged(&bed);
	tear_down(&bed);
}

static void a_mark_without_the_other_files_is_no_new_directory(void **state)
{
	static const char *const gone[] = {"identity", "wal.0"};
	struct bed bed;
	struct hf_error error = {0};
	char path[128];

	(void)state;
	set_up(&bed);
	smr_store_close(&bed.store);
	for (unsigned i = 0; i < 2; i++) {
		path_of(&bed, gone[i], path);
		assert_int_equal(hf_file_remove(hf_env_host(), path), 0);
	}
	assert_int_equal(try_open(&bed, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "/identity is damaged at offset 0: it is missing"));
	open_damaged(&bed);
	tear_down(&bed);
}

/* What others have seen is as good as the own mark; the replica that begins in its place founds nothing (R-D5). */
static void an_older_copy_is_damage_and_is_replaced(void **state)
{
	struct bed bed;
	struct hf_error error = {0};
	char path[128];

	(void)state;
	set_up(&bed);
	append(&bed, 1);
	smr_store_prove(&bed.store, 7);
	smr_store_close(&bed.store);
	assert_int_equal(try_open(&bed, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "batch 7 was on the disk, and the last whole one is batch 1"));
	open_damaged(&bed);
	assert_int_equal(bed.store.incarnation, replacement.incarnation);
	assert_true(bed.store.replaces);
	append(&bed, 1);
	smr_store_close(&bed.store);
	open_store(&bed);
	assert_true(bed.store.replaces);
	assert_int_equal(bed.store.incarnation, replacement.incarnation);
	assert_int_equal(count(&bed), 1);
	path_of(&bed, "damaged.0/wal.0", path);
	assert_int_equal(hf_file_remove(hf_env_host(), path), 0); /* it is there */
	tear_down(&bed);
}

static void write_snapshot(struct bed *bed, uint64_t generation)
{
	struct hf_error error = {0};

	assert_int_equal(smr_store_snapshot_begin(&bed->store, &error), 0);
	assert_int_equal(smr_store_snapshot_piece(&bed->store, 0, false, "log", 3, &error), 0);
	assert_int_equal(smr_store_snapshot_piece(&bed->store, 2, false, "state of the program", 20, &error), 0);
	assert_int_equal(smr_store_snapshot_piece(&bed->store, 2, true, "\1", 1, &error), 0);
	assert_int_equal(smr_store_snapshot_sync(&bed->store, generation, &error), 0);
	assert_int_equal(smr_store_snapshot_name(&bed->store, generation, &error), 0);
}

static void rotate(struct bed *bed)
{
	struct hf_error error = {0};

	assert_int_equal(smr_store_rotate(&bed->store, &error), 0);
	assert_int_equal(smr_store_rotate_name(&bed->store, &error), 0);
}

static void files_are_read_on_from_the_newest_snapshot(void **state)
{
	struct smr_store_reader reader;
	struct smr_store_piece piece = {0};
	struct bed bed;
	struct hf_error error = {0};

	(void)state;
	set_up(&bed);
	append(&bed, 1);
	rotate(&bed);
	append(&bed, 2); /* before the snapshot is whole, both files count */
	smr_store_close(&bed.store);
	open_store(&bed);
	assert_int_equal(count(&bed), 2);
	assert_int_equal(bed.store.base, 0);
	assert_int_equal(bed.store.current, 1);
	write_snapshot(&bed, 1);
	smr_store_close(&bed.store);
	open_store(&bed); /* not trimmed yet: that is done now */
	assert_int_equal(bed.store.base, 1);
	assert_int_equal(smr_store_read_snapshot(&reader, &bed.store, &error), 0);
	for (unsigned n = 0; !piece.end; n++) {
		assert_int_equal(smr_store_next_piece(&reader, &piece, &error), 1);
		assert_int_equal(piece.part, n == 0 ? 0 : 2);
	}
	smr_store_read_close(&reader);
	smr_store_close(&bed.store);
	change(&bed, "snapshot.1", 90, 0);
	assert_int_equal(try_open(&bed, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "/snapshot.1 is damaged at offset 79"));
	change(&bed, "snapshot.1", 90, 0);
	open_store(&bed);
	tear_down(&bed);
}

static void a_file_that_is_missing_is_damage(void **state)
{
	struct bed bed;
	struct hf_error error = {0};
	char path[128];

	(void)state;
	set_up(&bed);
	append(&bed, 1);
	smr_store_close(&bed.store);
	path_of(&bed, "identity", path);
	assert_int_equal(hf_file_remove(hf_env_host(), path), 0);
	assert_int_equal(try_open(&bed, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "/identity is damaged at offset 0: it is missing"));
	tear_down(&bed);
}

/* An identity that begins with another magic, and is whole. */
static void files_of_another_version_are_refused(void **state)
{
	struct bed bed;
	struct hf_error error = {0};
	struct hf_file *file;
	uint8_t bytes[48];
	char path[128];

	(void)state;
	set_up(&bed);
	append(&bed, 1);
	smr_store_close(&bed.store);
	path_of(&bed, "identity", path);
	assert_int_equal(hf_file_open(hf_env_host(), path, HF_FILE_WRITE, &file), 0);
	assert_int_equal(hf_file_read_at(file, bytes, sizeof(bytes), 0), sizeof(bytes));
	bytes[7]--;
	put_le32(bytes + 44, crc32c(0, bytes, 44));
	assert_int_equal(hf_file_write_at(file, bytes, sizeof(bytes), 0), sizeof(bytes));
	hf_file_close(file);
	assert_int_equal(try_open(&bed, &error), -EINVAL);
	assert_non_null(strstr(error.text, "/identity is of another version"));
	tear_down(&bed);
}

static void a_directory_has_one_replica_and_one_process(void **state)
{
	struct smr_store_identity other = identity;
	struct smr_store second;
	struct bed bed;
	struct hf_error error = {0};

	(void)state;
	set_up(&bed);
	assert_int_equal(smr_store_open(&second, hf_env_host(), bed.directory, &identity, &error), -EBUSY);
	smr_store_close(&bed.store);
	other.id = 2;
	assert_int_equal(smr_store_open(&second, hf_env_host(), bed.directory, &other, &error), -EINVAL);
	other.id = identity.id;
	other.slots = 32;
	assert_int_equal(smr_store_open(&second, hf_env_host(), bed.directory, &other, &error), -EINVAL);
	other.slots = identity.slots;
	other.sessions = 4;
	assert_int_equal(smr_store_open(&second, hf_env_host(), bed.directory, &other, &error), -EINVAL);
	assert_non_null(strstr(error.text, "16 slots of 256 bytes and 0 sessions"));
	other.sessions = identity.sessions;
	other.incarnation = 99; /* a new process has another one in mind */
	assert_int_equal(smr_store_open(&bed.store, hf_env_host(), bed.directory, &other, &error), 0);
	assert_int_equal(bed.store.incarnation, identity.incarnation);
	tear_down(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_are_read_many_at_a_time),
		cmocka_unit_test(a_batch_that_is_torn_at_any_byte_was_never_there),
		cmocka_unit_test(a_changed_byte_before_the_last_batch_is_damage_with_its_place),
		cmocka_unit_test(a_last_batch_that_was_on_the_disk_is_no_torn_one),
		cmocka_unit_test(a_mark_without_the_other_files_is_no_new_directory),
		cmocka_unit_test(an_older_copy_is_damage_and_is_replaced),
		cmocka_unit_test(files_are_read_on_from_the_newest_snapshot),
		cmocka_unit_test(a_file_that_is_missing_is_damage),
		cmocka_unit_test(files_of_another_version_are_refused),
		cmocka_unit_test(a_directory_has_one_replica_and_one_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
