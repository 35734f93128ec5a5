/* Directories, locks, space, syncs and mapped memory, as every world has them. */
#include "bed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static char path[128];

static const char *in_bed(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", bed.directory, name);
	return path;
}

static struct hf_file *open_file(const char *name)
{
	struct hf_file *file;

	assert_int_equal(hf_file_open(bed.env, in_bed(name), HF_FILE_WRITE | HF_FILE_CREATE, &file), 0);
	return file;
}

static void make_file(const char *name)
{
	hf_file_close(open_file(name));
}

/* Names of one letter each, sorted. */
static char listed[64];

static void note_name(const char *name, void *context)
{
	size_t at = strlen(listed);

	assert_ptr_equal(context, &listed);
	assert_int_equal(strlen(name), 1);
	assert_true(at + 1 < sizeof(listed));
	for (; at > 0 && listed[at - 1] > name[0]; at--)
		listed[at] = listed[at - 1];
	listed[at] = name[0];
}

static const char *list(const char *name)
{
	memset(listed, 0, sizeof(listed));
	assert_int_equal(hf_dir_list(bed.env, in_bed(name), note_name, &listed), 0);
	return listed;
}

static void a_directory_lists_what_is_in_it_and_nothing_else(void **state)
{
	(void)state;
	assert_int_equal(hf_dir_make(bed.env, in_bed("d")), 0);
	assert_string_equal(list("d"), "");
	make_file("d/b");
	make_file("d/a");
	assert_int_equal(hf_dir_make(bed.env, in_bed("d/c")), 0);
	make_file("d/c/x");
	make_file("e");
	assert_string_equal(list("d"), "abc");
	assert_string_equal(list("d/"), "abc");
	assert_string_equal(list("d/c"), "x");
	assert_string_equal(list("."), "de");
}

static void a_directory_is_removed_when_it_is_empty(void **state)
{
	(void)state;
	assert_int_equal(hf_dir_make(bed.env, in_bed("d")), 0);
	make_file("d/a");
	assert_int_equal(hf_dir_remove(bed.env, in_bed("d")), -ENOTEMPTY);
	assert_int_equal(hf_file_remove(bed.env, in_bed("d/a")), 0);
	assert_int_equal(hf_dir_remove(bed.env, in_bed("d")), 0);
	assert_int_equal(hf_dir_remove(bed.env, in_bed("d")), -ENOENT);
	assert_int_equal(hf_dir_list(bed.env, in_bed("d"), note_name, &listed), -ENOENT);
}

static void names_that_do_not_fit_are_refused(void **state)
{
	struct hf_file *file;
	char to[128];

	(void)state;
	make_file("f");
	assert_int_equal(hf_dir_make(bed.env, in_bed("d")), 0);
	assert_int_equal(hf_dir_make(bed.env, in_bed("d")), -EEXIST);
	assert_int_equal(hf_dir_make(bed.env, in_bed("f")), -EEXIST);
	assert_int_equal(hf_dir_make(bed.env, in_bed("none/d")), -ENOENT);
	assert_int_equal(hf_file_open(bed.env, in_bed("none/f"), HF_FILE_WRITE | HF_FILE_CREATE, &file), -ENOENT);
	assert_int_equal(hf_file_open(bed.env, in_bed("d"), HF_FILE_WRITE, &file), -EISDIR);
	assert_null(file);
	assert_int_equal(hf_file_remove(bed.env, in_bed("d")), -EISDIR);
	assert_int_equal(hf_dir_remove(bed.env, in_bed("f")), -ENOTDIR);
	assert_int_equal(hf_dir_list(bed.env, in_bed("f"), note_name, &listed), -ENOTDIR);
	assert_int_equal(hf_dir_sync(bed.env, in_bed("f")), -ENOTDIR);
	assert_int_equal(hf_dir_sync(bed.env, in_bed("none")), -ENOENT);
	snprintf(to, sizeof(to), "%s", in_bed("d"));
	assert_int_equal(hf_file_rename(bed.env, in_bed("f"), to), -EISDIR);
}

static void a_file_moves_between_directories_over_another_one(void **state)
{
	char to[128];
	struct hf_file *file;

	(void)state;
	assert_int_equal(hf_dir_make(bed.env, in_bed("d")), 0);
	make_file("d/x");
	file = open_file("f");
	assert_int_equal(hf_file_write_at(file, "new", 3, 0), 3);
	snprintf(to, sizeof(to), "%s", in_bed("d/x"));
	assert_int_equal(hf_file_rename(bed.env, in_bed("f"), to), 0);
	assert_int_equal(hf_file_sync_data(file), 0); /* it is the same file */
	assert_int_equal(hf_file_sync(file), 0);
	hf_file_close(file);
	assert_string_equal(list("."), "d");
	assert_string_equal(list("d"), "x");
	assert_int_equal(hf_dir_sync(bed.env, in_bed("d")), 0);
	file = open_file("d/x");
	assert_int_equal(hf_file_bytes(file), 3);
	hf_file_close(file);
}

static void remove_listed(const char *name, void *context)
{
	char one[160];

	snprintf(one, sizeof(one), "%s/%s", (const char *)context, name);
	assert_int_equal(hf_file_remove(bed.env, one), 0);
}

static void what_is_listed_may_be_removed(void **state)
{
	char directory[128];

	(void)state;
	assert_int_equal(hf_dir_make(bed.env, in_bed("d")), 0);
	for (char name[] = "d/a"; name[2] <= 'z'; name[2]++)
		make_file(name);
	snprintf(directory, sizeof(directory), "%s", in_bed("d"));
	assert_int_equal(hf_dir_list(bed.env, directory, remove_listed, directory), 0);
	assert_int_equal(hf_dir_remove(bed.env, directory), 0);
}

static void a_lock_excludes_others_until_its_opening_is_closed(void **state)
{
	struct hf_file *first = open_file("f"), *second = open_file("f"), *other = open_file("g");
	void *mapped;

	(void)state;
	assert_int_equal(hf_file_resize(first, 4096), 0);
	assert_int_equal(hf_mem_map_file(bed.env, first, 0, 4096, HF_MAP_WRITE, &mapped, NULL), 0);
	assert_int_equal(hf_file_lock(first), 0);
	assert_int_equal(hf_file_lock(first), 0);
	assert_int_equal(hf_file_lock(second), -EAGAIN);
	assert_int_equal(hf_file_lock(other), 0);
	assert_int_equal(hf_file_write_at(second, "x", 1, 0), 1); /* who does not ask is not kept out */
	hf_file_close(first);
	assert_int_equal(hf_file_lock(second), 0);
	hf_mem_free(bed.env, mapped);
	hf_file_close(second);
	hf_file_close(other);
}

static void space_is_told_for_files_and_directories(void **state)
{
	uint64_t free_bytes = UINT64_MAX, bytes = 0;

	(void)state;
	make_file("f");
	assert_int_equal(hf_dir_space(bed.env, bed.directory, &free_bytes, &bytes), 0);
	assert_true(bytes > 0 && free_bytes > 0 && free_bytes <= bytes);
	assert_int_equal(hf_dir_space(bed.env, in_bed("f"), &free_bytes, &bytes), 0);
	assert_true(free_bytes <= bytes);
}

static void memory_is_populated_as_it_is(void **state)
{
	struct hf_file *file = open_file("f");
	char *memory, *mapped, *readable;

	(void)state;
	assert_int_equal(hf_mem_alloc(bed.env, 1 << 20, (void **)&memory, NULL), 0);
	memory[5000] = 'm';
	assert_int_equal(hf_mem_populate(bed.env, memory, 1 << 20), 0);
	assert_int_equal(memory[5000], 'm');
	assert_int_equal(hf_file_resize(file, 1 << 16), 0);
	assert_int_equal(hf_file_write_at(file, "f", 1, 5000), 1);
	assert_int_equal(hf_mem_map_file(bed.env, file, 0, 1 << 16, HF_MAP_WRITE, (void **)&mapped, NULL), 0);
	assert_int_equal(hf_mem_map_file(bed.env, file, 0, 1 << 16, HF_MAP_READ, (void **)&readable, NULL), 0);
	assert_int_equal(hf_mem_populate(bed.env, mapped, 1 << 16), 0);
	assert_int_equal(hf_mem_populate(bed.env, readable + 4096, 4096), 0);
	assert_int_equal(mapped[5000], 'f');
	assert_int_equal(readable[5000], 'f');
	assert_int_equal(hf_mem_populate(bed.env, (void *)4096, 4096), -ENOMEM);
	hf_mem_free(bed.env, memory);
	hf_mem_free(bed.env, mapped);
	hf_mem_free(bed.env, readable);
	hf_file_close(file);
}

static void the_clock_that_counts_suspends_runs_forward(void **state)
{
	uint64_t before = hf_env_boot_ns(bed.env);

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t now = hf_env_boot_ns(bed.env);

		assert_true(now >= before);
		before = now;
	}
	assert_true(before >= hf_env_now_ns(bed.env) - 1000000000u);
}

static void a_boot_and_a_file_are_told_from_others(void **state)
{
	uint8_t id[HF_BOOT_ID_BYTES], again[HF_BOOT_ID_BYTES];
	uint64_t device, inode, other_device, other_inode;
	char one[sizeof(path)];
	struct hf_file *file, *other;

	(void)state;
	assert_true(hf_env_boot_id(bed.env, id));
	assert_true(hf_env_boot_id(bed.env, again));
	assert_memory_equal(id, again, sizeof(id));
	assert_int_equal(hf_file_open(bed.env, in_bed("one"), HF_FILE_WRITE | HF_FILE_CREATE, &file), 0);
	assert_int_equal(hf_file_open(bed.env, in_bed("other"), HF_FILE_WRITE | HF_FILE_CREATE, &other), 0);
	assert_int_equal(hf_file_identity(file, &device, &inode), 0);
	assert_int_equal(hf_file_identity(other, &other_device, &other_inode), 0);
	assert_true(device == other_device && inode != other_inode);
	hf_file_close(other);
	snprintf(one, sizeof(one), "%s", in_bed("one"));
	assert_int_equal(hf_file_rename(bed.env, one, in_bed("other")), 0);
	assert_int_equal(hf_file_open(bed.env, in_bed("other"), 0, &other), 0);
	assert_int_equal(hf_file_identity(other, &other_device, &other_inode), 0);
	assert_true(device == other_device && inode == other_inode);
	hf_file_close(other);
	hf_file_close(file);
}

/* A world without holes has the whole file as one part. */
static void what_a_file_has_is_found_behind_its_holes(void **state)
{
	uint64_t begin, end;
	struct hf_file *file;

	(void)state;
	assert_int_equal(hf_file_open(bed.env, in_bed("holes"), HF_FILE_WRITE | HF_FILE_CREATE, &file), 0);
	assert_int_equal(hf_file_next_data(file, 0, &begin, &end), -ENXIO);
	assert_int_equal(hf_file_resize(file, 1 << 24), 0);
	assert_int_equal(hf_file_write_at(file, "x", 1, 5 << 20), 1);
	assert_int_equal(hf_file_next_data(file, 0, &begin, &end), 0);
	assert_true(begin <= 5 << 20 && end > 5 << 20 && end < 1 << 24);
	assert_int_equal(hf_file_next_data(file, end, &begin, &end), -ENXIO);
	hf_file_close(file);
}

static void all_of_a_file_system_is_synced_or_refused(void **state)
{
	struct hf_file *file;
	int expected;

	(void)state;
	assert_int_equal(hf_file_open(bed.env, in_bed("all"), HF_FILE_WRITE | HF_FILE_CREATE, &file), 0);
	expected = hf_file_can_sync_all(file) ? 0 : -EOPNOTSUPP;
	assert_int_equal(hf_file_write_at(file, "x", 1, 0), 1);
	assert_int_equal(hf_file_sync_all(file), expected);
	hf_file_close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_BED(a_boot_and_a_file_are_told_from_others),
		IN_BED(what_a_file_has_is_found_behind_its_holes),
		IN_BED(all_of_a_file_system_is_synced_or_refused),
		IN_BED(a_directory_lists_what_is_in_it_and_nothing_else),
		IN_BED(a_directory_is_removed_when_it_is_empty),
		IN_BED(names_that_do_not_fit_are_refused),
		IN_BED(a_file_moves_between_directories_over_another_one),
		IN_BED(what_is_listed_may_be_removed),
		IN_BED(a_lock_excludes_others_until_its_opening_is_closed),
		IN_BED(space_is_told_for_files_and_directories),
		IN_BED(memory_is_populated_as_it_is),
		IN_BED(the_clock_that_counts_suspends_runs_forward),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
