/* What a power loss leaves of files and of their names, how a sync may fail, and when a worker's call is durable. */
#include "sim/tests/fixture.h"

#include <errno.h>
#include <stdio.h>

#include <holdfast/work.h>

#include "sim/disk.h"

#define SEEDS     60u
#define ALL_BYTES 4096u

static struct hf_file *open_file(struct fixture *f, const char *path)
{
	struct hf_file *file;

	assert_int_equal(hf_file_open(fixture_env(f, 0), path, HF_FILE_WRITE | HF_FILE_CREATE, &file), 0);
	return file;
}

/* 0 when the file is not there or has no bytes. */
static uint8_t first_byte(struct fixture *f, const char *path)
{
	struct hf_file *file;
	uint8_t byte = 0;

	if (hf_file_open(fixture_env(f, 0), path, 0, &file) != 0)
		return 0;
	if (hf_file_bytes(file) > 0)
		assert_int_equal(hf_file_read_at(file, &byte, 1, 0), 1);
	hf_file_close(file);
	return byte;
}

static void write_byte(struct fixture *f, const char *path, uint8_t byte, bool sync)
{
	struct hf_file *file = open_file(f, path);

	assert_int_equal(hf_file_mode(file), 0600);
	assert_int_equal(hf_file_write_at(file, &byte, 1, 0), 1);
	if (sync)
		assert_int_equal(hf_file_sync(file), 0);
	hf_file_close(file);
}

static void sync_directory(struct fixture *f, const char *path)
{
	assert_int_equal(hf_dir_sync(fixture_env(f, 0), path), 0);
}

static void lose_power(struct fixture *f)
{
	host_stop(&f->hosts[0]);
	host_start(&f->hosts[0]);
}

/* Calls run(f) in a fresh world for each seed; returns how often it answered true. */
static unsigned count(bool (*run)(struct fixture *f))
{
	unsigned n = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct fixture f;

		fixture_open(&f, seed, NULL, NULL);
		n += run(&f);
		assert_int_equal(f.world.violations, 0);
		fixture_close(&f);
	}
	return n;
}

#define SOMETIMES(run) assert_in_range(count(run), SEEDS / 10, SEEDS - SEEDS / 10)
#define ALWAYS(run)    assert_int_equal(count(run), SEEDS)

/* ---- content ---- */

static bool unsynced_byte_survives(struct fixture *f)
{
	write_byte(f, "log", 1, true);
	sync_directory(f, ".");
	write_byte(f, "log", 2, false);
	assert_int_equal(first_byte(f, "log"), 2);
	lose_power(f);
	assert_in_range(first_byte(f, "log"), 1, 2);
	return first_byte(f, "log") == 2;
}

static void power_loss_spares_what_was_synced_and_takes_some_of_the_rest(void **state)
{
	(void)state;
	SOMETIMES(unsynced_byte_survives);
}

static void a_crash_of_the_process_alone_loses_nothing_of_a_file(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, 1, NULL, NULL);
	write_byte(&f, "log", 2, false);
	process_crash(f.processes[0]);
	process_start(f.processes[0]);
	assert_int_equal(first_byte(&f, "log"), 2);
	fixture_close(&f);
}

static bool unflushed_store_survives(struct fixture *f)
{
	struct hf_file *file = open_file(f, "pm");
	uint8_t *mapped, bytes[2];

	assert_int_equal(hf_file_resize(file, 8192), 0);
	assert_int_equal(hf_file_sync(file), 0);
	sync_directory(f, ".");
	assert_int_equal(hf_mem_map_file(fixture_env(f, 0), file, 0, 8192, HF_MAP_WRITE, (void **)&mapped, NULL), 0);
	mapped[0] = 1;
	assert_int_equal(hf_mem_flush(fixture_env(f, 0), mapped, 1), 0);
	mapped[4096] = 1;
	hf_file_close(file);
	lose_power(f);
	file = open_file(f, "pm");
	assert_int_equal(hf_file_read_at(file, &bytes[0], 1, 0), 1);
	assert_int_equal(hf_file_read_at(file, &bytes[1], 1, 4096), 1);
	assert_int_equal(bytes[0], 1);
	hf_file_close(file);
	return bytes[1] == 1;
}

static void mapped_stores_are_durable_once_flushed(void **state)
{
	(void)state;
	SOMETIMES(unflushed_store_survives);
}

/* The bytes that survive together: of a run of 1s in a file of 0s. */
static size_t piece_bytes(struct fixture *f)
{
	struct hf_file *file = open_file(f, "log");
	uint8_t data[ALL_BYTES] = {0};
	size_t least = ALL_BYTES;

	assert_int_equal(hf_file_write_at(file, data, ALL_BYTES, 0), ALL_BYTES);
	assert_int_equal(hf_file_sync(file), 0);
	sync_directory(f, ".");
	memset(data, 1, ALL_BYTES);
	assert_int_equal(hf_file_write_at(file, data, ALL_BYTES, 0), ALL_BYTES);
	hf_file_close(file);
	lose_power(f);
	file = open_file(f, "log");
	assert_int_equal(hf_file_read_at(file, data, ALL_BYTES, 0), ALL_BYTES);
	hf_file_close(file);
	for (size_t at = 1, begin = 0; at < ALL_BYTES; at++) {
		if (data[at] == data[at - 1])
			continue;
		least = at - begin < least ? at - begin : least;
		begin = at;
	}
	return least;
}

static bool loses_8(struct fixture *f)
{
	return piece_bytes(f) == 8;
}

static bool loses_64(struct fixture *f)
{
	return piece_bytes(f) == 64;
}

static bool loses_512(struct fixture *f)
{
	return piece_bytes(f) >= 512;
}

static void a_power_loss_tears_at_8_at_64_or_at_512_bytes(void **state)
{
	unsigned n;

	(void)state;
	SOMETIMES(loses_8);
	SOMETIMES(loses_64);
	SOMETIMES(loses_512);
	n = count(loses_8) + count(loses_64) + count(loses_512);
	assert_int_equal(n, SEEDS);
}

static bool survives_a_sync_that_follows_a_failed_one(struct fixture *f)
{
	struct hf_file *file = open_file(f, "log");

	sync_directory(f, ".");
	assert_int_equal(hf_file_write_at(file, "\1", 1, 0), 1);
	f->hosts[0].disk->sync_fails_ppm = 1000000;
	assert_int_equal(hf_file_sync(file), -EIO);
	assert_int_equal(hf_dir_sync(fixture_env(f, 0), "."), -EIO);
	f->hosts[0].disk->sync_fails_ppm = 0;
	assert_int_equal(hf_file_sync(file), 0);
	assert_int_equal(hf_file_write_at(file, "\2", 1, 512), 1);
	assert_int_equal(hf_file_sync(file), 0);
	hf_file_close(file);
	lose_power(f);
	file = open_file(f, "log");
	assert_int_equal(hf_file_bytes(file), 513);
	hf_file_close(file);
	return first_byte(f, "log") == 1;
}

static void after_a_failed_sync_the_next_one_succeeds_and_the_data_may_be_gone(void **state)
{
	(void)state;
	SOMETIMES(survives_a_sync_that_follows_a_failed_one);
}

static bool survives_when_it_is_written_again(struct fixture *f)
{
	struct hf_file *file = open_file(f, "log");

	sync_directory(f, ".");
	assert_int_equal(hf_file_write_at(file, "\1", 1, 0), 1);
	f->hosts[0].disk->sync_fails_ppm = 1000000;
	assert_int_equal(hf_file_sync(file), -EIO);
	f->hosts[0].disk->sync_fails_ppm = 0;
	assert_int_equal(hf_file_write_at(file, "\1", 1, 0), 1);
	assert_int_equal(hf_file_sync(file), 0);
	hf_file_close(file);
	lose_power(f);
	return first_byte(f, "log") == 1;
}

static void what_is_written_again_after_a_failed_sync_is_synced(void **state)
{
	(void)state;
	ALWAYS(survives_when_it_is_written_again);
}

static bool survives_a_sync_that_lies(struct fixture *f)
{
	write_byte(f, "log", 1, true);
	sync_directory(f, ".");
	f->hosts[0].disk->sync_lies = true;
	write_byte(f, "log", 2, true);
	sync_directory(f, ".");
	lose_power(f);
	return first_byte(f, "log") == 2;
}

static void a_disk_that_lies_loses_what_was_synced(void **state)
{
	(void)state;
	SOMETIMES(survives_a_sync_that_lies);
}

static void a_full_disk_takes_what_fits(void **state)
{
	static const uint8_t data[ALL_BYTES];
	uint64_t free_bytes, bytes;
	struct hf_file *file;
	struct fixture f;

	(void)state;
	fixture_open(&f, 1, NULL, NULL);
	f.hosts[0].disk->bytes = 1000;
	write_byte(&f, "other", 1, false);
	file = open_file(&f, "log");
	assert_int_equal(hf_file_write_at(file, data, ALL_BYTES, 100), 899);
	assert_int_equal(hf_file_bytes(file), 999);
	assert_int_equal(hf_file_write_at(file, data, 1, 999), -ENOSPC);
	assert_int_equal(hf_file_write_at(file, data, 10, 0), 10);
	assert_int_equal(hf_file_resize(file, 1001), -ENOSPC);
	assert_int_equal(hf_dir_space(fixture_env(&f, 0), ".", &free_bytes, &bytes), 0);
	assert_int_equal(free_bytes, 0);
	assert_int_equal(bytes, 1000);
	assert_int_equal(hf_file_remove(fixture_env(&f, 0), "other"), 0);
	assert_int_equal(hf_file_write_at(file, data, 10, 999), -ENOSPC); /* a power loss may bring it back */
	sync_directory(&f, ".");
	assert_int_equal(hf_file_write_at(file, data, 10, 999), 1);
	hf_file_close(file);
	fixture_close(&f);
}

/* ---- names ---- */

static bool new_name_survives(struct fixture *f)
{
	write_byte(f, "log", 1, true);
	lose_power(f);
	return first_byte(f, "log") == 1;
}

static bool synced_name_survives(struct fixture *f)
{
	assert_int_equal(hf_dir_make(fixture_env(f, 0), "d"), 0);
	sync_directory(f, ".");
	write_byte(f, "d/log", 1, true);
	sync_directory(f, "d");
	lose_power(f);
	return first_byte(f, "d/log") == 1;
}

static bool name_in_a_new_directory_survives(struct fixture *f)
{
	assert_int_equal(hf_dir_make(fixture_env(f, 0), "d"), 0);
	write_byte(f, "d/log", 1, true);
	sync_directory(f, "d");
	lose_power(f);
	return first_byte(f, "d/log") == 1;
}

static bool removed_name_is_gone(struct fixture *f)
{
	write_byte(f, "log", 1, true);
	sync_directory(f, ".");
	assert_int_equal(hf_file_remove(fixture_env(f, 0), "log"), 0);
	lose_power(f);
	return first_byte(f, "log") == 0;
}

static bool removed_name_is_gone_after_a_sync(struct fixture *f)
{
	write_byte(f, "log", 1, true);
	assert_int_equal(hf_file_remove(fixture_env(f, 0), "log"), 0);
	sync_directory(f, ".");
	lose_power(f);
	return first_byte(f, "log") == 0;
}

static void names_are_durable_when_their_directory_was_synced(void **state)
{
	(void)state;
	SOMETIMES(new_name_survives);
	ALWAYS(synced_name_survives);
	SOMETIMES(name_in_a_new_directory_survives);
	SOMETIMES(removed_name_is_gone);
	ALWAYS(removed_name_is_gone_after_a_sync);
}

static bool earlier_of_a_directory_survive(struct fixture *f)
{
	bool later_survived;

	write_byte(f, "a", 1, true);
	write_byte(f, "b", 1, true);
	write_byte(f, "c", 1, true);
	lose_power(f);
	later_survived = first_byte(f, "c") == 1;
	assert_true(!later_survived || first_byte(f, "b") == 1);
	assert_true(first_byte(f, "b") == 0 || first_byte(f, "a") == 1);
	return first_byte(f, "a") == 1;
}

static bool later_of_another_directory_survives_alone(struct fixture *f)
{
	assert_int_equal(hf_dir_make(fixture_env(f, 0), "d"), 0);
	assert_int_equal(hf_dir_make(fixture_env(f, 0), "e"), 0);
	sync_directory(f, ".");
	write_byte(f, "d/a", 1, true);
	write_byte(f, "e/b", 1, true);
	sync_directory(f, "e");
	lose_power(f);
	assert_int_equal(first_byte(f, "e/b"), 1);
	return first_byte(f, "d/a") == 0;
}

static void changes_of_a_directory_keep_their_order_and_those_of_several_do_not(void **state)
{
	(void)state;
	SOMETIMES(earlier_of_a_directory_survive);
	SOMETIMES(later_of_another_directory_survives_alone);
}

static bool renamed_file_is_the_new_one(struct fixture *f)
{
	write_byte(f, "log", 1, true);
	write_byte(f, "new", 2, true);
	assert_int_equal(hf_file_rename(fixture_env(f, 0), "new", "log"), 0);
	lose_power(f);
	assert_int_equal(first_byte(f, "new"), 0);
	return first_byte(f, "log") == 2;
}

static void a_rename_is_durable_when_it_returns(void **state)
{
	(void)state;
	ALWAYS(renamed_file_is_the_new_one);
}

/* ---- locks ---- */

static void a_dead_process_has_nothing_locked(void **state)
{
	struct hf_file *held, *wanted;
	struct process *other;
	struct fixture f;

	(void)state;
	fixture_open(&f, 1, NULL, NULL);
	other = process_create(&f.hosts[0], "c", &idle_program, NULL);
	process_start(other);
	held = open_file(&f, "lock");
	assert_int_equal(hf_file_open(&other->env, "lock", HF_FILE_WRITE, &wanted), 0);
	assert_int_equal(hf_file_lock(held), 0);
	assert_int_equal(hf_file_lock(wanted), -EAGAIN);
	process_crash(f.processes[0]);
	assert_int_equal(hf_file_lock(wanted), 0);
	hf_file_close(held); /* what the dead one leaves behind takes nothing from its successor */
	process_start(f.processes[0]);
	held = open_file(&f, "lock");
	assert_int_equal(hf_file_lock(held), -EAGAIN);
	hf_file_close(held);
	hf_file_close(wanted);
	fixture_close(&f);
}

/* ---- what a worker calls ---- */

struct call {
	struct hf_work work;
	struct fixture *f;
	struct hf_file *file;
	bool renames, called, ended;
	int result;
	uint64_t called_ns, ended_ns;
};

static int run_call(struct hf_work *work)
{
	struct call *call = container_of(work, struct call, work);

	call->called = true;
	call->called_ns = call->f->world.now_ns;
	return call->renames ? hf_file_rename(fixture_env(call->f, 0), "new", "log") : hf_file_sync(call->file);
}

static void end_call(struct hf_work *work, int result)
{
	struct call *call = container_of(work, struct call, work);

	call->ended = true;
	call->ended_ns = call->f->world.now_ns;
	call->result = result;
}

static struct hf_loop *loop;
static struct hf_workers *workers;

static int start_workers(struct process *process, void *context)
{
	(void)context;
	if (process->name[0] != 'a')
		return 0;
	assert_int_equal(hf_loop_create(&process->env, &loop), 0);
	return hf_workers_open(loop, "disk", 1, 8, &workers, NULL);
}

static void stop_workers(struct process *process, void *context)
{
	(void)context;
	if (process->name[0] != 'a')
		return;
	hf_workers_close(workers);
	hf_loop_destroy(loop);
	workers = NULL;
	loop = NULL;
}

static const struct program worker_program = {.name = "workers", .start = start_workers, .stop = stop_workers};

/* A world in which the file "log" holds a durable 1, and a worker has begun to sync a 2, or to rename the file "new",
 * which holds a 2, over it. */
static void begin_call(struct fixture *f, uint64_t seed, struct call *call, bool renames)
{
	fixture_open(f, seed, &worker_program, NULL);
	write_byte(f, "log", 1, true);
	sync_directory(f, ".");
	write_byte(f, renames ? "new" : "log", 2, renames);
	*call = (struct call){.work = {.run = run_call, .done = end_call}, .f = f, .renames = renames};
	call->file = open_file(f, "log");
	assert_int_equal(hf_work_submit(workers, &call->work), 0);
	while (!call->called)
		fixture_run(f, 100);
}

static unsigned survivors(bool renames, bool ended)
{
	unsigned n = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct fixture f;
		struct call call;

		begin_call(&f, seed, &call, renames);
		while (ended && !call.ended)
			fixture_run(&f, NS_US);
		assert_int_equal(call.ended, ended);
		hf_file_close(call.file);
		lose_power(&f);
		assert_in_range(first_byte(&f, "log"), 1, 2);
		n += first_byte(&f, "log") == 2;
		assert_int_equal(f.world.violations, 0);
		fixture_close(&f);
	}
	return n;
}

static void a_sync_takes_time_and_a_power_loss_cuts_it_short(void **state)
{
	(void)state;
	assert_in_range(survivors(false, false), SEEDS / 10, SEEDS - SEEDS / 10);
	assert_int_equal(survivors(false, true), SEEDS);
}

static void so_does_a_rename(void **state)
{
	(void)state;
	assert_in_range(survivors(true, false), SEEDS / 10, SEEDS - SEEDS / 10);
	assert_int_equal(survivors(true, true), SEEDS);
}

static void a_call_takes_as_long_as_the_disk_needs(void **state)
{
	struct fixture f;
	struct call call;

	(void)state;
	fixture_open(&f, 1, &worker_program, NULL);
	f.hosts[0].disk->call_ns_min = f.hosts[0].disk->call_ns_max = 500 * NS_MS;
	call = (struct call){.work = {.run = run_call, .done = end_call}, .f = &f, .file = open_file(&f, "log")};
	assert_int_equal(hf_work_submit(workers, &call.work), 0);
	fixture_run(&f, 499 * NS_MS);
	assert_true(call.called);
	assert_false(call.ended);
	fixture_run(&f, 10 * NS_MS);
	assert_true(call.ended);
	assert_int_equal(call.result, 0);
	assert_in_range(call.ended_ns - call.called_ns, 500 * NS_MS, 502 * NS_MS);
	hf_file_close(call.file);
	fixture_close(&f);
}

static void a_sync_covers_what_was_written_before_it_began(void **state)
{
	unsigned late = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct fixture f;
		struct call call;

		begin_call(&f, seed, &call, false);
		write_byte(&f, "log", 3, false);
		while (!call.ended)
			fixture_run(&f, NS_US);
		hf_file_close(call.file);
		lose_power(&f);
		assert_in_range(first_byte(&f, "log"), 2, 3);
		late += first_byte(&f, "log") == 3;
		fixture_close(&f);
	}
	assert_in_range(late, SEEDS / 10, SEEDS - SEEDS / 10);
}

/* A sync on a thread that waits for it does not overtake the one that was begun before. */
static void a_later_sync_is_of_later_content(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct fixture f;
		struct call call;

		begin_call(&f, seed, &call, false);
		write_byte(&f, "log", 3, true);
		fixture_run(&f, 10 * NS_MS);
		assert_true(call.ended);
		hf_file_close(call.file);
		lose_power(&f);
		assert_int_equal(first_byte(&f, "log"), 3);
		fixture_close(&f);
	}
}

static void closing_workers_waits_for_their_calls(void **state)
{
	struct fixture f;
	struct call call;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		begin_call(&f, seed, &call, false);
		hf_workers_close(workers);
		workers = NULL;
		assert_true(call.ended);
		assert_int_equal(call.result, 0);
		hf_file_close(call.file);
		lose_power(&f);
		assert_int_equal(first_byte(&f, "log"), 2);
		fixture_close(&f);
	}
}

/* The kernel goes on with what a process had asked for. */
static void a_call_of_a_process_that_dies_ends_nevertheless(void **state)
{
	struct fixture f;
	struct call call;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		begin_call(&f, seed, &call, false);
		hf_file_close(call.file);
		process_crash(f.processes[0]);
		fixture_run(&f, 10 * NS_MS);
		process_start(f.processes[0]);
		lose_power(&f);
		assert_int_equal(first_byte(&f, "log"), 2);
		fixture_close(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(power_loss_spares_what_was_synced_and_takes_some_of_the_rest),
		cmocka_unit_test(a_crash_of_the_process_alone_loses_nothing_of_a_file),
		cmocka_unit_test(mapped_stores_are_durable_once_flushed),
		cmocka_unit_test(a_power_loss_tears_at_8_at_64_or_at_512_bytes),
		cmocka_unit_test(after_a_failed_sync_the_next_one_succeeds_and_the_data_may_be_gone),
		cmocka_unit_test(what_is_written_again_after_a_failed_sync_is_synced),
		cmocka_unit_test(a_disk_that_lies_loses_what_was_synced),
		cmocka_unit_test(a_full_disk_takes_what_fits),
		cmocka_unit_test(names_are_durable_when_their_directory_was_synced),
		cmocka_unit_test(changes_of_a_directory_keep_their_order_and_those_of_several_do_not),
		cmocka_unit_test(a_rename_is_durable_when_it_returns),
		cmocka_unit_test(a_dead_process_has_nothing_locked),
		cmocka_unit_test(a_sync_takes_time_and_a_power_loss_cuts_it_short),
		cmocka_unit_test(so_does_a_rename),
		cmocka_unit_test(a_call_takes_as_long_as_the_disk_needs),
		cmocka_unit_test(a_sync_covers_what_was_written_before_it_began),
		cmocka_unit_test(a_later_sync_is_of_later_content),
		cmocka_unit_test(closing_workers_waits_for_their_calls),
		cmocka_unit_test(a_call_of_a_process_that_dies_ends_nevertheless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
