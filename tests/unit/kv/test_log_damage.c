/* Damage of a store's log, which is never taken for a torn end (R-D1, R-D2, R-D5). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "kv/log.h"
#include "marks.h"

#define SECOND 1000000000ull

struct fixture {
	struct hf_loop *loop;
	struct hf_kv_config config;
	struct log log;
	struct hf_error error;
	uint64_t incarnation, newest;
	unsigned records, wipes;
	const char *member;
	char directory[64];
};

static int set_up(void **state)
{
	struct fixture *f = *state = calloc(1, sizeof(*f));

	if (f == NULL || hf_loop_create(hf_env_host(), &f->loop) != 0)
		return -1;
	/* Thousands of syncs: in memory, where that is possible. */
	snprintf(f->directory, sizeof(f->directory), "%s/test-kv-damage-XXXXXX",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (mkdtemp(f->directory) == NULL)
		return -1;
	f->config.medium = HF_KV_FILE;
	f->config.segment_bytes = 2000;
	f->config.member_count = 1;
	f->member = "a";
	snprintf(f->config.cluster, sizeof(f->config.cluster), "test");
	snprintf(f->config.log, sizeof(f->config.log), "%s/kv", f->directory);
	return 0;
}

static void remove_file(const char *name, void *context)
{
	const struct fixture *f = context;
	char path[HF_KV_PATH_BYTES + 64];

	snprintf(path, sizeof(path), "%s/%s", f->config.log, name);
	unlink(path);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	hf_loop_destroy(f->loop);
	(void)hf_dir_list(hf_env_host(), f->config.log, remove_file, f);
	rmdir(f->config.log);
	rmdir(f->directory);
	free(f);
	return 0;
}

static int read_entries(void *context, const struct log_entry *entries, const uint64_t *positions, unsigned count,
	struct hf_error *error)
{
	struct fixture *f = context;

	(void)positions, (void)error;
	for (unsigned i = 0; i < count; i++) {
		f->records += entries[i].kind == LOG_WRITE;
		f->wipes += entries[i].kind == LOG_WIPE;
		if (entries[i].kind == LOG_WRITE)
			f->newest = entries[i].ts.version;
	}
	return 0;
}

static int open_log(struct fixture *f)
{
	f->records = f->wipes = 0;
	return kv_log_open(&f->log, f->loop, &f->config, f->member, ++f->incarnation, read_entries, f, &f->error);
}

static void append(struct fixture *f, unsigned count)
{
	uint8_t value[200];

	memset(value, 0xa5, sizeof(value));
	for (unsigned i = 1; i <= count; i++) {
		struct log_entry entry = {.kind = LOG_WRITE,
			.ts = {.version = i},
			.key = (const uint8_t *)"key",
			.key_bytes = 3,
			.value = value,
			.value_bytes = sizeof(value)};

		(void)kv_log_append(&f->log, &entry);
		assert_true(kv_log_turn(&f->log));
		while (f->log.flushing)
			(void)hf_loop_turn(f->loop, SECOND);
	}
}

/* As a kill does: the mark is not closed, no flush is under way. */
static void kill_log(struct fixture *f)
{
	f->log.failed = -ECANCELED;
	kv_log_close(&f->log);
}

struct names {
	char list[64][40];
	unsigned count;
};

static void add_name(const char *name, void *context)
{
	struct names *names = context;

	if (strncmp(name, "log-", 4) == 0 && names->count < 64)
		snprintf(names->list[names->count++], 40, "%.39s", name);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static struct names segments_of(const struct fixture *f)
{
	struct names names = {.count = 0};

	assert_int_equal(hf_dir_list(hf_env_host(), f->config.log, add_name, &names), 0);
	qsort(names.list, names.count, sizeof(names.list[0]), by_name);
	return names;
}

enum how { FLIP, ZEROED, TRUNCATED, MISSING, HOWS };
enum where { HEAD, MIDDLE, TAIL, PLACES };

static long place_of(enum where where, long bytes)
{
	return where == HEAD ? 70 : where == MIDDLE ? bytes / 2 : bytes - 20;
}

static void damage(const struct fixture *f, const char *name, enum how how, enum where where)
{
	static const char zeros[512];
	char path[HF_KV_PATH_BYTES + 64];
	struct stat status;
	FILE *file;
	long at;
	int c;

	snprintf(path, sizeof(path), "%s/%s", f->config.log, name);
	assert_int_equal(stat(path, &status), 0);
	at = place_of(where, (long)status.st_size);
	if (how == MISSING) {
		assert_int_equal(unlink(path), 0);
		return;
	}
	if (how == TRUNCATED) {
		assert_int_equal(truncate(path, at), 0);
		return;
	}
	file = fopen(path, "r+");
	assert_non_null(file);
	fseek(file, at, SEEK_SET);
	if (how == ZEROED) {
		fwrite(zeros, 1, where == TAIL ? 20 : sizeof(zeros), file);
	} else {
		c = fgetc(file);
		fseek(file, at, SEEK_SET);
		fputc(c ^ 0x10, file);
	}
	fclose(file);
}

/* All bytes of the directory, by name, but for the mark, whose process has written there. */
static void add_bytes(const char *name, void *context)
{
	struct fixture *f = context;
	char path[HF_KV_PATH_BYTES + 64];
	FILE *file;
	int c;

	if (strcmp(name, "synced") == 0 || strcmp(name, "lock") == 0)
		return;
	snprintf(path, sizeof(path), "%s/%s", f->config.log, name);
	file = fopen(path, "r");
	while ((c = fgetc(file)) != EOF)
		f->newest = f->newest * 31 + (uint64_t)c;
	fclose(file);
}

static uint64_t digest(struct fixture *f)
{
	f->newest = 0;
	assert_int_equal(hf_dir_list(hf_env_host(), f->config.log, add_bytes, f), 0);
	return f->newest;
}

static void make_log(struct fixture *f, bool in_order)
{
	assert_int_equal(open_log(f), 0);
	append(f, 20);
	if (in_order)
		kv_log_close(&f->log);
	else
		kill_log(f);
}

static void clear(struct fixture *f)
{
	(void)hf_dir_list(hf_env_host(), f->config.log, remove_file, f);
}

/* Each file, in each way, at each place, after a kill and after an orderly stop. */
static void a_member_alone_does_not_open_a_damaged_log_and_changes_no_byte(void **state)
{
	struct fixture *f = *state;
	unsigned tried = 0;

	for (unsigned in_order = 0; in_order < 2; in_order++)
		for (unsigned file = 0; file < 3; file++)
			for (enum how how = 0; how < HOWS; how++)
				for (enum where where = 0; where < PLACES; where++, tried++) {
					struct names names;
					const char *name;
					uint64_t before;

					make_log(f, in_order != 0);
					names = segments_of(f);
					assert_true(names.count >= 3);
					name = names.list[file == 2 ? names.count - 1 : file];
					damage(f, name, how, where);
					before = digest(f);
					assert_int_equal(open_log(f), -EBADMSG);
					assert_non_null(strstr(f->error.text, name));
					assert_non_null(strstr(f->error.text, "No file was changed"));
					kv_log_close(&f->log);
					assert_int_equal(digest(f), before);
					assert_int_equal(open_log(f), -EBADMSG); /* and again */
					kv_log_close(&f->log);
					clear(f);
				}
	assert_int_equal(tried, 72);
}

/* ---- copies ---- */

#define COPIED_FILES 16u
#define COPIED_BYTES 4096u

/* What a backup has. */
struct copy {
	const struct fixture *fixture;
	char names[COPIED_FILES][40];
	uint8_t data[COPIED_FILES][COPIED_BYTES];
	size_t bytes[COPIED_FILES];
	unsigned count;
};

static FILE *open_file(const struct fixture *f, const char *name, const char *mode)
{
	char path[HF_KV_PATH_BYTES + 64];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", f->config.log, name);
	file = fopen(path, mode);
	assert_non_null(file);
	return file;
}

static void copy_file(const char *name, void *context)
{
	struct copy *copy = context;
	FILE *file;

	if (strcmp(name, "lock") == 0 || name[0] == '.')
		return;
	assert_true(copy->count < COPIED_FILES);
	file = open_file(copy->fixture, name, "r");
	snprintf(copy->names[copy->count], sizeof(copy->names[0]), "%.39s", name);
	copy->bytes[copy->count] = fread(copy->data[copy->count], 1, COPIED_BYTES, file);
	assert_true(copy->bytes[copy->count++] < COPIED_BYTES);
	fclose(file);
}

static struct copy *copy_of(const struct fixture *f)
{
	struct copy *copy = calloc(1, sizeof(*copy));

	assert_non_null(copy);
	copy->fixture = f;
	assert_int_equal(hf_dir_list(hf_env_host(), f->config.log, copy_file, copy), 0);
	return copy;
}

/* Into the same file, if it is there. */
static void put(const struct copy *copy, unsigned i)
{
	FILE *file = open_file(copy->fixture, copy->names[i], "w");

	assert_int_equal(fwrite(copy->data[i], 1, copy->bytes[i], file), copy->bytes[i]);
	fclose(file);
}

static void put_all(struct fixture *f, const struct copy *copy)
{
	clear(f);
	for (unsigned i = 0; i < copy->count; i++)
		put(copy, i);
}

static bool is_there(const struct copy *copy, const struct copy *in, unsigned i)
{
	for (unsigned k = 0; k < in->count; k++)
		if (strcmp(in->names[k], copy->names[i]) == 0 && in->bytes[k] == copy->bytes[i] &&
			memcmp(in->data[k], copy->data[i], copy->bytes[i]) == 0)
			return true;
	return false;
}

static void open_damaged(struct fixture *f, const char *words)
{
	assert_int_equal(open_log(f), f->config.member_count == 1 ? -EBADMSG : 0);
	assert_true(f->log.damaged);
	if (f->config.member_count == 1)
		assert_non_null(strstr(f->error.text, words));
	kill_log(f);
}

/* A segment of before lacks entries below the mark; a mark of before lags, as it may. */
static void an_older_segment_is_damage_and_an_older_mark_is_none(void **state)
{
	struct fixture *f = *state;
	struct copy *older, *newer;
	unsigned tried = 0;

	for (f->config.member_count = 1; f->config.member_count <= 3; f->config.member_count += 2) {
		assert_int_equal(open_log(f), 0);
		append(f, 20);
		older = copy_of(f);
		append(f, 12);
		kill_log(f);
		newer = copy_of(f);
		for (unsigned i = 0; i < older->count; i++) {
			if (is_there(older, newer, i))
				continue;
			put_all(f, newer);
			put(older, i);
			tried++;
			if (strcmp(older->names[i], "synced") != 0) {
				open_damaged(f, older->names[i]);
				continue;
			}
			assert_int_equal(open_log(f), 0);
			assert_false(f->log.damaged);
			assert_int_equal(f->records, 32);
			kill_log(f);
		}
		clear(f);
		free(older);
		free(newer);
	}
	assert_int_equal(tried, 4);
}

/* It is whole in itself. Where its process ends tells those who have heard of more (R-K25). */
static void an_older_copy_of_all_files_ends_before_what_was_reported(void **state)
{
	struct fixture *f = *state;
	struct copy *older;
	uint64_t reported, process;

	assert_int_equal(open_log(f), 0);
	process = f->incarnation;
	append(f, 20);
	older = copy_of(f);
	append(f, 12);
	reported = f->log.durable;
	kill_log(f);
	for (unsigned n = 1; n <= 3; n++) { /* and later processes make it longer */
		if (n == 1)
			put_all(f, older);
		assert_int_equal(open_log(f), 0);
		assert_false(f->log.damaged);
		assert_int_equal(f->records, 20 * n);
		append(f, 20);
		assert_true(kv_log_end_of(&f->log, process) < reported);
		kill_log(f);
	}
	free(older);
}

static void a_file_of_another_member_is_not_believed(void **state)
{
	struct fixture *f = *state;
	struct copy *another, *own;

	f->member = "b";
	make_log(f, false);
	another = copy_of(f);
	clear(f);
	f->member = "a";
	make_log(f, false);
	own = copy_of(f);
	for (unsigned i = 0; i < another->count; i++) {
		put_all(f, own);
		put(another, i);
		if (strcmp(another->names[i], "synced") == 0) {
			open_damaged(f, "/synced is missing, or cannot be read");
			continue;
		}
		assert_int_equal(open_log(f), -EINVAL);
		assert_non_null(strstr(f->error.text, "is that of member b"));
		kill_log(f);
	}
	put_all(f, another);
	assert_int_equal(open_log(f), -EINVAL);
	kill_log(f);
	free(another);
	free(own);
}

/* R-D5: what is lost is WIPEd, so it is no new member, also when the process ends at once. */
static void a_member_with_peers_sets_a_damaged_log_aside_and_is_not_new(void **state)
{
	struct fixture *f = *state;
	struct names names;
	uint64_t end;

	f->config.member_count = 3;
	make_log(f, false);
	end = f->log.end;
	names = segments_of(f);
	damage(f, names.list[names.count - 1], FLIP, TAIL);
	assert_int_equal(open_log(f), 0);
	assert_true(f->log.damaged && f->log.held);
	assert_int_equal(kv_log_begin_anew(&f->log, &f->error), 0);
	assert_true(f->log.segments[0].position >= end);
	kill_log(f);
	assert_int_equal(open_log(f), 0);
	assert_false(f->log.damaged);
	assert_int_equal(f->records, 0);
	assert_int_equal(f->wipes, 1);
	kv_log_close(&f->log);
}

/* R-D2: the other copy is not there as long as the others do not serve. */
static void a_damaged_log_changes_no_byte_until_the_others_serve(void **state)
{
	struct fixture *f = *state;
	struct names names;
	uint64_t before;

	f->config.member_count = 3;
	make_log(f, false);
	names = segments_of(f);
	damage(f, names.list[0], ZEROED, MIDDLE);
	before = digest(f);
	for (unsigned n = 0; n < 3; n++) {
		struct log_entry entry = {.kind = LOG_WIPE};

		assert_int_equal(open_log(f), 0);
		assert_true(f->log.damaged && f->log.held);
		(void)kv_log_append(&f->log, &entry);
		assert_false(kv_log_turn(&f->log));
		if (n == 0)
			kill_log(f);
		else
			kv_log_close(&f->log);
		assert_int_equal(digest(f), before);
	}
}

/* R-D5: written in a boot that has ended since, and damaged before that. */
static void a_verdict_of_damage_outlives_the_boot_that_proved_it(void **state)
{
	struct fixture *f = *state;
	struct names names;

	for (f->config.member_count = 1; f->config.member_count <= 3; f->config.member_count += 2) {
		f->config.medium = HF_KV_MEMORY; /* nothing is synced */
		make_log(f, false);
		names = segments_of(f);
		damage(f, names.list[names.count - 1], FLIP, TAIL);
		assert_int_equal(open_log(f), f->config.member_count == 1 ? -EBADMSG : 0);
		kill_log(f);
		marks_end_boot(f->config.log);
		assert_int_equal(open_log(f), f->config.member_count == 1 ? -EBADMSG : 0);
		assert_true(f->log.damaged);
		kill_log(f);
		clear(f);
	}
}

/* As after a loss of power: nothing of this log is known to be durable by its mark. */
static void lag_mark(const struct fixture *f)
{
	char path[HF_KV_PATH_BYTES + 64];
	struct synced_proof proof;
	struct synced *synced;

	snprintf(path, sizeof(path), "%s/synced", f->config.log);
	assert_int_equal(synced_open(hf_env_host(), path, "test/a", &synced, &proof, NULL), 0);
	assert_int_equal(synced_write(synced, 0, 0, 0), 0);
	synced_close(synced, false);
}

/* Entries of versions 1 to `count`, in one flush. */
static void append_together(struct fixture *f, unsigned count)
{
	for (unsigned i = 1; i <= count; i++) {
		struct log_entry entry = {
			.kind = LOG_WRITE, .ts = {.version = i}, .key = (const uint8_t *)"key", .key_bytes = 3};

		(void)kv_log_append(&f->log, &entry);
	}
	assert_true(kv_log_turn(&f->log));
	while (f->log.flushing)
		(void)hf_loop_turn(f->loop, SECOND);
}

static void flip(const struct fixture *f, uint64_t offset)
{
	char path[HF_KV_PATH_BYTES + 64];
	FILE *file;
	int c;

	snprintf(path, sizeof(path), "%s/log-%016x", f->config.log, 0);
	file = fopen(path, "r+");
	assert_non_null(file);
	fseek(file, (long)offset, SEEK_SET);
	c = fgetc(file);
	fseek(file, (long)offset, SEEK_SET);
	fputc(c ^ 0x10, file);
	fclose(file);
}

/* The file has a LIFE, and two flushes of three entries of 64 bytes each. Where the last flush begins is known by any
 * whole entry of it. */
static void an_entry_of_a_later_flush_proves_damage_without_the_mark(void **state)
{
	struct fixture *f = *state;

	for (unsigned broken = 0; broken < 7; broken++) {
		bool torn = broken >= 4;

		assert_int_equal(open_log(f), 0);
		append_together(f, 3);
		append_together(f, 3);
		kill_log(f);
		lag_mark(f);
		flip(f, LOG_HEAD_BYTES + broken * LOG_UNIT + 9);
		assert_int_equal(open_log(f), torn ? 0 : -EBADMSG);
		if (torn)
			assert_int_equal(f->records, broken - 1);
		kill_log(f);
		clear(f);
	}
}

static void a_head_that_is_gone_before_later_flushes_is_damage(void **state)
{
	struct fixture *f = *state;

	for (unsigned flushes = 0; flushes < 2; flushes++) { /* the LIFE is one */
		assert_int_equal(open_log(f), 0);
		if (flushes > 0)
			append_together(f, 3);
		kill_log(f);
		lag_mark(f);
		flip(f, 70);
		assert_int_equal(open_log(f), flushes > 0 ? -EBADMSG : 0);
		kill_log(f);
		clear(f);
	}
}

/* What a torn end left behind the entries of the next life. */
static void entries_of_lives_before_prove_nothing(void **state)
{
	static uint8_t tail[3 * LOG_UNIT];
	struct fixture *f = *state;
	char path[HF_KV_PATH_BYTES + 64];
	FILE *file;

	assert_int_equal(open_log(f), 0);
	append_together(f, 1);
	append_together(f, 3);
	append_together(f, 3);
	kill_log(f);
	snprintf(path, sizeof(path), "%s/log-%016x", f->config.log, 0);
	file = fopen(path, "r+");
	fseek(file, LOG_HEAD_BYTES + 5 * LOG_UNIT, SEEK_SET);
	assert_int_equal(fread(tail, 1, sizeof(tail), file), sizeof(tail));
	fclose(file);
	assert_int_equal(truncate(path, LOG_HEAD_BYTES + 2 * LOG_UNIT), 0);
	lag_mark(f);
	assert_int_equal(open_log(f), 0);
	kill_log(f);
	file = fopen(path, "r+");
	fseek(file, LOG_HEAD_BYTES + 5 * LOG_UNIT, SEEK_SET);
	assert_int_equal(fwrite(tail, 1, sizeof(tail), file), sizeof(tail));
	fclose(file);
	lag_mark(f);
	assert_int_equal(open_log(f), 0);
	assert_int_equal(f->records, 1);
	kill_log(f);
}

/* Its entries do not say where their flush begins. */
static void a_log_of_a_version_before_is_read(void **state)
{
	struct fixture *f = *state;
	uint8_t entry[LOG_UNIT];
	char path[HF_KV_PATH_BYTES + 64];
	FILE *file;

	for (unsigned broken = 0; broken < 2; broken++) {
		assert_int_equal(open_log(f), 0);
		append_together(f, 3);
		append_together(f, 3);
		kill_log(f);
		snprintf(path, sizeof(path), "%s/log-%016x", f->config.log, 0);
		file = fopen(path, "r+");
		for (unsigned i = 0; i < 7; i++) {
			fseek(file, LOG_HEAD_BYTES + i * LOG_UNIT, SEEK_SET);
			assert_int_equal(fread(entry, 1, sizeof(entry), file), sizeof(entry));
			put_le32(entry + 44, 0);
			put_le32(entry, crc32c(0, entry + 4, LOG_UNIT - 4));
			fseek(file, LOG_HEAD_BYTES + i * LOG_UNIT, SEEK_SET);
			assert_int_equal(fwrite(entry, 1, sizeof(entry), file), sizeof(entry));
		}
		fclose(file);
		lag_mark(f);
		if (broken > 0)
			flip(f, LOG_HEAD_BYTES + 3 * LOG_UNIT + 9);
		assert_int_equal(open_log(f), 0);
		assert_int_equal(f->records, broken > 0 ? 2 : 6);
		kill_log(f);
		clear(f);
	}
}

/* Without it a changed byte would be a torn end. */
static void a_log_whose_mark_is_gone_is_damaged(void **state)
{
	struct fixture *f = *state;

	make_log(f, false);
	remove_file("synced", f);
	assert_int_equal(open_log(f), -EBADMSG);
	assert_non_null(strstr(f->error.text, "/synced is missing"));
	kv_log_close(&f->log);
	f->config.member_count = 3;
	assert_int_equal(open_log(f), 0);
	assert_true(f->log.damaged);
	kv_log_close(&f->log);
}

/* Behind the mark: a flush that was under way. */
static void a_torn_end_is_cut_and_kept_beside(void **state)
{
	static const char torn[] = "half an entry";
	struct fixture *f = *state;
	char path[HF_KV_PATH_BYTES + 64];
	struct names names;
	struct stat status;
	FILE *file;

	make_log(f, false);
	names = segments_of(f);
	snprintf(path, sizeof(path), "%s/%s", f->config.log, names.list[names.count - 1]);
	file = fopen(path, "a");
	fwrite(torn, 1, sizeof(torn), file);
	fclose(file);
	assert_int_equal(open_log(f), 0);
	assert_false(f->log.damaged);
	assert_int_equal(f->records, 20);
	kv_log_close(&f->log);
	snprintf(path, sizeof(path), "%s/cut-%s", f->config.log, names.list[names.count - 1] + strlen("log-"));
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_size, sizeof(torn));
}

/* Segments that were dropped in order are not missing. */
static void a_log_whose_first_segments_were_dropped_is_whole(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_log(f), 0);
	append(f, 20);
	kv_log_drop(&f->log, f->log.segments[2].position);
	append(f, 8);
	assert_int_equal(f->log.segments[0].position, f->log.drop_before);
	kill_log(f);
	assert_int_equal(open_log(f), 0);
	assert_false(f->log.damaged);
	kv_log_close(&f->log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_member_alone_does_not_open_a_damaged_log_and_changes_no_byte, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_older_segment_is_damage_and_an_older_mark_is_none, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_older_copy_of_all_files_ends_before_what_was_reported, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_of_another_member_is_not_believed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_member_with_peers_sets_a_damaged_log_aside_and_is_not_new, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_damaged_log_changes_no_byte_until_the_others_serve, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_verdict_of_damage_outlives_the_boot_that_proved_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			an_entry_of_a_later_flush_proves_damage_without_the_mark, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_head_that_is_gone_before_later_flushes_is_damage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(entries_of_lives_before_prove_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_log_of_a_version_before_is_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_log_whose_mark_is_gone_is_damaged, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_torn_end_is_cut_and_kept_beside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_log_whose_first_segments_were_dropped_is_whole, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("log-damage", tests, NULL, NULL);
}
