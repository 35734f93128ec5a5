/* The store's log: what is read at the start, whatever became of its files. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "kv/log.h"
#include "marks.h"

#define FILE_BYTES_MAX  (64u << 10)
#define VALUES_MAX      64u
#define VALUE_BYTES_MAX (200u << 10)

struct fixture {
	char directory[64];
	struct hf_loop *loop;
	struct hf_kv_config config;
	struct log log;
	struct hf_error error;
	uint64_t incarnation; /* of the last process */
	/* what was read */
	unsigned lives, count;
	uint64_t versions[VALUES_MAX];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	if (f == NULL || hf_loop_create(hf_env_host(), &f->loop) != 0)
		return -1;
	/* Thousands of syncs: in memory, where that is possible. */
	snprintf(f->directory, sizeof(f->directory), "%s/test-kv-log-XXXXXX",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (mkdtemp(f->directory) == NULL)
		return -1;
	f->config.medium = HF_KV_MEMORY;
	f->config.segment_bytes = 1u << 20;
	snprintf(f->config.cluster, sizeof(f->config.cluster), "test");
	snprintf(f->config.log, sizeof(f->config.log), "%s/kv", f->directory);
	return 0;
}

static void forget(const char *name, void *context)
{
	const struct fixture *f = context;
	char path[HF_KV_PATH_BYTES + 64];

	snprintf(path, sizeof(path), "%s/%s", f->config.log, name);
	unlink(path);
}

/* As after a loss of power before the mark was synced: it proves nothing. */
static void lose_the_mark(const struct fixture *f)
{
	struct synced_proof proof;
	struct synced *synced;
	char path[LOG_PATH_BYTES];

	snprintf(path, sizeof(path), "%s/synced", f->config.log);
	assert_int_equal(synced_open(hf_env_host(), path, "test/a", &synced, &proof, NULL), 0);
	assert_true(proof.known);
	assert_int_equal(synced_write(synced, 0, 0, 0), 0);
	synced_close(synced, false);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	hf_loop_destroy(f->loop);
	(void)hf_dir_list(hf_env_host(), f->config.log, forget, f);
	rmdir(f->config.log);
	rmdir(f->directory);
	free(f);
	return 0;
}

static void read_entry(struct fixture *f, const struct log_entry *entry)
{
	f->lives += entry->kind == LOG_LIFE;
	if (entry->kind != LOG_WRITE)
		return;
	assert_int_equal(entry->key_bytes, 3);
	assert_memory_equal(entry->key, "key", 3);
	for (uint32_t i = 0; i < entry->value_bytes; i++)
		assert_int_equal(entry->value[i], (uint8_t)entry->ts.version);
	assert_true(f->count < VALUES_MAX);
	f->versions[f->count++] = entry->ts.version;
}

static int read_entries(void *context, const struct log_entry *entries, const uint64_t *positions, unsigned count,
	struct hf_error *error)
{
	(void)positions, (void)error;
	for (unsigned i = 0; i < count; i++)
		read_entry(context, &entries[i]);
	return 0;
}

static int open_log(struct fixture *f)
{
	f->lives = f->count = 0;
	return kv_log_open(&f->log, f->loop, &f->config, "a", ++f->incarnation, read_entries, f, &f->error);
}

static void wait_flushed(struct fixture *f)
{
	while (f->log.flushing)
		(void)hf_loop_turn(f->loop, 1000000000); /* a long one is the helper's */
	assert_int_equal(f->log.durable, f->log.end);
}

static void append(struct fixture *f, uint64_t version, uint32_t bytes)
{
	static uint8_t value[VALUE_BYTES_MAX];
	struct log_entry entry = {.kind = LOG_WRITE,
		.ts = {.version = version},
		.key = (const uint8_t *)"key",
		.key_bytes = 3,
		.value = value,
		.value_bytes = bytes};

	memset(value, (int)version, sizeof(value));
	(void)kv_log_append(&f->log, &entry);
	assert_true(kv_log_turn(&f->log));
	wait_flushed(f);
}

static size_t load(const struct fixture *f, uint64_t position, uint8_t data[FILE_BYTES_MAX])
{
	char path[LOG_PATH_BYTES];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "%s/log-%016llx", f->config.log, (unsigned long long)position);
	file = fopen(path, "r");
	assert_non_null(file);
	n = fread(data, 1, FILE_BYTES_MAX, file);
	fclose(file);
	return n;
}

static void store(const struct fixture *f, uint64_t position, const uint8_t *data, size_t bytes)
{
	char path[LOG_PATH_BYTES];
	FILE *file;

	snprintf(path, sizeof(path), "%s/log-%016llx", f->config.log, (unsigned long long)position);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

static void all_that_was_flushed_is_read(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->count, 0);
	for (uint64_t i = 1; i <= 20; i++)
		append(f, i, (uint32_t)(50 * i));
	kv_log_close(&f->log);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->count, 20);
	assert_int_equal(f->lives, 1);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(f->versions[i], i + 1);
	append(f, 21, 10);
	kv_log_close(&f->log);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->count, 21);
	assert_int_equal(f->lives, 2);
	kv_log_close(&f->log);
}

/* It is neither read nor removed. */
static void a_log_of_another_layout_is_refused(void **state)
{
	static uint8_t data[FILE_BYTES_MAX];
	struct fixture *f = *state;
	size_t bytes;

	assert_int_equal(open_log(f), 0);
	append(f, 1, 100);
	kv_log_close(&f->log);
	bytes = load(f, 0, data);
	data[7]--;
	store(f, 0, data, bytes);
	assert_int_equal(open_log(f), -EPROTO);
	assert_non_null(strstr(f->error.text, "another version"));
	kv_log_close(&f->log);
	data[7]++;
	store(f, 0, data, bytes);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->count, 1);
	kv_log_close(&f->log);
}

static void segments_follow_each_other_and_can_be_dropped(void **state)
{
	struct fixture *f = *state;

	f->config.segment_bytes = 200;
	assert_int_equal(open_log(f), 0);
	for (uint64_t i = 1; i <= 20; i++)
		append(f, i, 100);
	assert_true(f->log.segment_count > 5);
	kv_log_drop(&f->log, f->log.segments[3].position);
	for (uint64_t i = 21; f->log.segments[0].position < f->log.drop_before; i++) {
		assert_true(i < 30); /* the mark beside it comes first */
		append(f, i, 100);
	}
	assert_int_equal(f->log.segments[0].position, f->log.drop_before);
	kv_log_close(&f->log);
	assert_int_equal(open_log(f), 0);
	assert_true(f->versions[f->count - 1] > 21);
	assert_true(f->count < 21 && f->versions[0] > 1);
	assert_false(f->log.damaged);
	kv_log_close(&f->log);
}

static char warned[512];

static void keep_error(enum log_level level, const char *line, void *context)
{
	(void)context;
	if (level == LOG_ERROR)
		snprintf(warned, sizeof(warned), "%s", line);
}

/* Clients get -OOM, which by itself names no disk. */
static void a_disk_that_is_nearly_full_is_logged_with_its_directory(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_log(f), 0);
	log_set_sink(keep_error, NULL);
	f->config.segment_bytes = 1ull << 60;
	append(f, 1, 100);
	log_set_sink(NULL, NULL);
	assert_true(f->log.low);
	assert_non_null(strstr(warned, f->config.log));
	assert_non_null(strstr(warned, "nearly full"));
	kv_log_close(&f->log);
}

/* A disk that was nearly full has room again, and nothing is appended: a flush without entries notes it. */
static void room_is_noted_though_nothing_is_appended(void **state)
{
	struct fixture *f = *state;
	uint64_t segment_bytes = 200;

	f->config.segment_bytes = segment_bytes;
	assert_int_equal(open_log(f), 0);
	for (uint64_t i = 1; i <= 6; i++)
		append(f, i, 100);
	log_look(&f->log);
	assert_false(kv_log_turn(&f->log));
	f->config.segment_bytes = 1ull << 60;
	append(f, 7, 100);
	assert_true(f->log.low);
	assert_false(kv_log_turn(&f->log));
	f->config.segment_bytes = segment_bytes;
	kv_log_drop(&f->log, f->log.segments[3].position);
	log_look(&f->log);
	assert_true(kv_log_turn(&f->log));
	wait_flushed(f);
	assert_false(f->log.low);
	assert_false(kv_log_turn(&f->log));
	kv_log_close(&f->log);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->versions[f->count - 1], 7);
	kv_log_close(&f->log);
}

/* More than what is in memory at a time: entries lie across the end of a piece. */
static void a_long_segment_is_read_piece_by_piece(void **state)
{
	struct fixture *f = *state;

	f->config.segment_bytes = 64u << 20;
	assert_int_equal(open_log(f), 0);
	for (uint64_t i = 1; i <= 50; i++)
		append(f, i, VALUE_BYTES_MAX - (uint32_t)i * 1001);
	assert_int_equal(f->log.segment_count, 1);
	assert_true(f->log.end > 4u << 20);
	kv_log_close(&f->log);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->count, 50);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(f->versions[i], i + 1);
	assert_int_equal(f->lives, 1);
	kv_log_close(&f->log);
}

/* Cut at every byte, and with every byte changed: what is read is what was there, up to some entry. */
static void a_torn_end_ends_the_log(void **state)
{
	static uint8_t whole[FILE_BYTES_MAX], torn[FILE_BYTES_MAX];
	struct fixture *f = *state;
	unsigned seen = 0;
	size_t bytes;

	assert_int_equal(open_log(f), 0);
	for (uint64_t i = 1; i <= 3; i++)
		append(f, i, (uint32_t)(40 * i));
	kv_log_close(&f->log);
	bytes = load(f, 0, whole);
	for (size_t n = 0; n < 2 * bytes; n++) {
		bool cut = n < bytes;

		memcpy(torn, whole, bytes);
		if (!cut)
			torn[n - bytes] ^= 0x40;
		store(f, 0, torn, cut ? n : bytes);
		lose_the_mark(f);
		assert_int_equal(open_log(f), 0);
		assert_true(f->count <= 3);
		for (unsigned i = 0; i < f->count; i++)
			assert_int_equal(f->versions[i], i + 1);
		assert_false(f->log.damaged);
		append(f, 4, 10);
		kv_log_close(&f->log);
		assert_int_equal(open_log(f), 0);
		assert_int_equal(f->versions[f->count - 1], 4);
		seen |= 1u << (f->count - 1);
		kv_log_close(&f->log);
	}
	assert_int_equal(seen, 0x7);
}

/* Entry 2 of a process is torn, 3 is not; the LIFE of the next process has the place and the length of 2. */
static void replace_torn_entry(struct fixture *f, uint8_t torn[FILE_BYTES_MAX])
{
	size_t bytes;

	assert_int_equal(open_log(f), 0);
	for (uint64_t i = 1; i <= 3; i++)
		append(f, i, 4);
	kv_log_close(&f->log);
	bytes = load(f, 0, torn);
	assert_int_equal(bytes, LOG_HEAD_BYTES + 4 * LOG_UNIT);
	torn[LOG_HEAD_BYTES + 2 * LOG_UNIT + 5] ^= 1;
	store(f, 0, torn, bytes);
	lose_the_mark(f);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->count, 1);
	kv_log_close(&f->log);
}

/* R-K27. */
static void what_lies_behind_a_torn_entry_never_comes_back(void **state)
{
	static uint8_t torn[FILE_BYTES_MAX];
	struct fixture *f = *state;

	replace_torn_entry(f, torn);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->count, 1);
	assert_int_equal(f->lives, 2);
	kv_log_close(&f->log);
}

/* The power went before the disk had noted that what was torn is cut (R-K27). */
static void what_an_earlier_process_wrote_behind_it_does_not_follow(void **state)
{
	static uint8_t torn[FILE_BYTES_MAX], cut[FILE_BYTES_MAX];
	const size_t last = LOG_HEAD_BYTES + 3 * LOG_UNIT;
	struct fixture *f = *state;

	replace_torn_entry(f, torn);
	assert_int_equal(load(f, 0, cut), last);
	memcpy(cut + last, torn + last, LOG_UNIT);
	store(f, 0, cut, last + LOG_UNIT);
	lose_the_mark(f);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->count, 1);
	kv_log_close(&f->log);
}

static void damage_before_the_last_segment_is_told(void **state)
{
	static uint8_t data[FILE_BYTES_MAX];
	struct fixture *f = *state;
	size_t bytes;

	f->config.segment_bytes = 200;
	assert_int_equal(open_log(f), 0);
	for (uint64_t i = 1; i <= 9; i++)
		append(f, i, 100);
	kv_log_close(&f->log);
	bytes = load(f, 0, data);
	data[bytes - 1] ^= 1;
	store(f, 0, data, bytes);
	lose_the_mark(f);
	f->config.member_count = 3;
	assert_int_equal(open_log(f), 0);
	assert_true(f->log.damaged);
	assert_int_equal(kv_log_begin_anew(&f->log, &f->error), 0);
	kv_log_close(&f->log);
	assert_int_equal(open_log(f), 0); /* what lay behind is gone */
	assert_false(f->log.damaged);
	kv_log_close(&f->log);
}

/* The end of each process's part, also when its LIFE is in a segment that is gone. */
static void the_end_of_each_process_is_known(void **state)
{
	struct fixture *f = *state;
	uint64_t ends[4] = {0};

	f->config.segment_bytes = 200;
	for (unsigned life = 1; life < 4; life++) {
		assert_int_equal(open_log(f), 0);
		assert_int_equal(f->incarnation, life);
		for (uint64_t i = 1; i <= 9; i++)
			append(f, i, 100);
		for (unsigned i = 1; i < life; i++)
			assert_int_equal(kv_log_end_of(&f->log, i), i == 1 && life == 3 ? 0 : ends[i]);
		ends[life] = f->log.end;
		assert_int_equal(kv_log_end_of(&f->log, life), ends[life]);
		assert_int_equal(kv_log_end_of(&f->log, life + 1), 0);
		if (life == 2) { /* from within this life on */
			kv_log_drop(&f->log, f->log.segments[f->log.segment_count - 1].position);
			for (uint64_t i = 10; i < 14; i++)
				append(f, i, 100);
			assert_true(f->log.segments[0].position > ends[1]);
			ends[life] = f->log.end;
		}
		kv_log_close(&f->log);
	}
}

/* Each process writes something of its own, so the part that another one had does not grow. */
static void a_process_that_an_older_log_lacks_has_no_end(void **state)
{
	static uint8_t older[FILE_BYTES_MAX];
	struct fixture *f = *state;
	size_t bytes;

	assert_int_equal(open_log(f), 0);
	append(f, 1, 4);
	bytes = load(f, 0, older);
	append(f, 2, 4);
	assert_int_equal(kv_log_end_of(&f->log, 1), 3 * LOG_UNIT);
	kv_log_close(&f->log);
	assert_int_equal(open_log(f), 0);
	kv_log_close(&f->log);
	store(f, 0, older, bytes);
	lose_the_mark(f); /* it is older too */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(open_log(f), 0);
		assert_int_equal(kv_log_end_of(&f->log, 1), 2 * LOG_UNIT);
		assert_int_equal(kv_log_end_of(&f->log, 2), 0);
		kv_log_close(&f->log);
	}
}

static void a_log_of_others_is_refused(void **state)
{
	struct fixture *f = *state;
	struct log other = {0};

	assert_int_equal(open_log(f), 0);
	assert_int_equal(kv_log_open(&other, f->loop, &f->config, "a", 1, read_entries, f, &f->error), -EAGAIN);
	assert_non_null(strstr(f->error.text, "another process uses the log"));
	kv_log_close(&other);
	kv_log_close(&f->log);
	assert_int_equal(kv_log_open(&other, f->loop, &f->config, "b", 1, read_entries, f, &f->error), -EINVAL);
	assert_non_null(strstr(f->error.text, "is that of member a of cluster test"));
	kv_log_close(&other);
	snprintf(f->config.cluster, sizeof(f->config.cluster), "other");
	assert_int_equal(open_log(f), -EINVAL);
	assert_non_null(strstr(f->error.text, "this is a of other"));
	kv_log_close(&f->log);
}

/* ---- what the lock proves (R-D10) ---- */

static void copy_file(const char *name, void *context)
{
	static uint8_t data[FILE_BYTES_MAX];
	const struct fixture *f = context;
	char from[HF_KV_PATH_BYTES + 64], to[HF_KV_PATH_BYTES + 64];
	FILE *file;
	size_t n;

	snprintf(from, sizeof(from), "%s/kv/%s", f->directory, name);
	snprintf(to, sizeof(to), "%s/copy/%s", f->directory, name);
	file = fopen(from, "r");
	assert_non_null(file);
	n = fread(data, 1, sizeof(data), file);
	fclose(file);
	file = fopen(to, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, n, file), n);
	fclose(file);
}

static void use_log(struct fixture *f, const char *name)
{
	snprintf(f->config.log, sizeof(f->config.log), "%s/%s", f->directory, name);
	assert_int_equal(open_log(f), 0);
}

static void a_lock_proves_the_end_of_a_process_in_its_own_files_only(void **state)
{
	struct fixture *f = *state;
	char copy[HF_KV_PATH_BYTES];

	use_log(f, "kv"); /* 1, which may run on another host from here on */
	assert_false(kv_log_has_ended(&f->log, 1));
	kv_log_close(&f->log);
	snprintf(copy, sizeof(copy), "%s/copy", f->directory);
	assert_int_equal(mkdir(copy, 0700), 0);
	assert_int_equal(hf_dir_list(hf_env_host(), f->config.log, copy_file, f), 0);
	use_log(f, "copy");
	assert_false(kv_log_has_ended(&f->log, 1));
	kv_log_close(&f->log);
	use_log(f, "copy"); /* now these are the files of the one before, and not of the first one */
	assert_true(kv_log_has_ended(&f->log, 2));
	assert_false(kv_log_has_ended(&f->log, 1));
	kv_log_close(&f->log);
	(void)hf_dir_list(hf_env_host(), f->config.log, forget, f);
	rmdir(copy);
	use_log(f, "kv");
	assert_true(kv_log_has_ended(&f->log, 1));
	assert_false(kv_log_has_ended(&f->log, 2));
	kv_log_close(&f->log);
}

static void a_lock_proves_the_end_of_a_process_in_its_own_boot_only(void **state)
{
	struct fixture *f = *state;

	use_log(f, "kv");
	kv_log_close(&f->log);
	marks_end_boot(f->config.log);
	use_log(f, "kv");
	assert_false(kv_log_has_ended(&f->log, 1));
	kv_log_close(&f->log);
	use_log(f, "kv");
	assert_false(kv_log_has_ended(&f->log, 1));
	assert_true(kv_log_has_ended(&f->log, 2));
	kv_log_close(&f->log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_that_was_flushed_is_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_log_of_another_layout_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(segments_follow_each_other_and_can_be_dropped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_disk_that_is_nearly_full_is_logged_with_its_directory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(room_is_noted_though_nothing_is_appended, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_long_segment_is_read_piece_by_piece, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_torn_end_ends_the_log, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_lies_behind_a_torn_entry_never_comes_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_an_earlier_process_wrote_behind_it_does_not_follow, set_up, tear_down),
		cmocka_unit_test_setup_teardown(damage_before_the_last_segment_is_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_end_of_each_process_is_known, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_process_that_an_older_log_lacks_has_no_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_log_of_others_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_lock_proves_the_end_of_a_process_in_its_own_files_only, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_lock_proves_the_end_of_a_process_in_its_own_boot_only, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("the log of a store", tests, NULL, NULL);
}
