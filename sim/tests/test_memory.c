/* The bus, the disk, and the checkers that judge by them. */
#include "sim/tests/fixture.h"

#include "sim/bus.h"
#include "sim/checkers/linear.h"

struct lone_bus {
	struct world world;
	struct nic_bus bus;
	uint64_t memory[64];
};

static void bus_open(struct lone_bus *b, uint64_t seed, bool global)
{
	memset(b, 0, sizeof(*b));
	world_init(&b->world, seed, false);
	bus_init(&b->bus, NULL, &b->world, global);
	b->bus.lag_ns = 20 * NS_US;
	bus_grant(&b->bus, b->memory, sizeof(b->memory));
}

static void bus_close(struct lone_bus *b)
{
	bus_free(&b->bus);
	world_free(&b->world);
}

static void bus_write(struct lone_bus *b, unsigned at, uint64_t value)
{
	b->bus.base.ops->write(&b->bus.base, &b->memory[at], &value, sizeof(value));
}

static void a_posted_write_is_visible_later_and_its_own_nic_reads_it(void **state)
{
	unsigned late = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct lone_bus b;
		uint64_t read;

		bus_open(&b, seed, true);
		bus_write(&b, 0, 7);
		late += b.memory[0] != 7;
		bus_write(&b, 1, 8);
		b.bus.base.ops->read(&b.bus.base, &read, &b.memory[0], sizeof(read));
		assert_int_equal(read, 7);
		world_run_until(&b.world, NS_MS);
		assert_int_equal(b.memory[1], 8);
		bus_close(&b);
	}
	assert_in_range(late, 30, 100);
}

static void deliver_checks_memory(void *cq, const struct ibv_wc *wc)
{
	struct lone_bus *b = cq;

	assert_int_equal(wc->wr_id, 5);
	assert_int_equal(b->memory[3], 9);
	b->memory[63] = 1;
}

static void a_completion_is_seen_after_the_writes_before_it(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct ibv_wc wc = {.wr_id = 5};
		struct lone_bus b;

		bus_open(&b, seed, true);
		bus_write(&b, 3, 9);
		b.bus.base.ops->complete(&b.bus.base, deliver_checks_memory, &b, &wc);
		world_run_until(&b.world, NS_MS);
		assert_int_equal(b.memory[63], 1);
		bus_close(&b);
	}
}

static void a_long_write_is_visible_piece_by_piece(void **state)
{
	unsigned torn = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		uint64_t data[48];
		struct lone_bus b;

		bus_open(&b, seed, true);
		memset(data, 0xff, sizeof(data));
		b.bus.base.ops->write(&b.bus.base, b.memory, data, sizeof(data));
		for (uint64_t t = 0; t < 100 * NS_US && b.memory[47] == 0; t += 100) {
			torn += b.memory[0] != 0 && b.memory[47] == 0;
			world_run_until(&b.world, t);
		}
		bus_close(&b);
	}
	assert_true(torn > 100);
}

static void what_is_posted_dies_with_the_nic(void **state)
{
	unsigned lost = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct lone_bus b;

		bus_open(&b, seed, true);
		bus_write(&b, 0, 7);
		bus_kill(&b.bus);
		world_run_until(&b.world, NS_MS);
		lost += b.memory[0] == 0;
		bus_close(&b);
	}
	assert_in_range(lost, 30, 99);
}

/* R12: within an HCA's domain two NICs both find the lock free; with a global domain one does. */
static void two_nics_take_the_same_lock_unless_atomics_are_global(void **state)
{
	unsigned both = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++)
		for (unsigned global = 0; global < 2; global++) {
			struct nic_bus other;
			struct lone_bus b;
			bool first, second;

			bus_open(&b, seed, global == 1);
			bus_init(&other, NULL, &b.world, global == 1);
			bus_grant(&other, b.memory, sizeof(b.memory));
			first = b.bus.base.ops->cas(&b.bus.base, &b.memory[0], 0, 1) == 0;
			second = other.base.ops->cas(&other.base, &b.memory[0], 0, 2) == 0;
			assert_true(first);
			assert_true(global == 0 || !second);
			both += second;
			bus_free(&other);
			bus_close(&b);
		}
	assert_int_equal(both, 100);
}

static void writing_what_is_not_registered_is_a_violation(void **state)
{
	struct lone_bus b;

	(void)state;
	bus_open(&b, 1, true);
	bus_write(&b, 63, 1);
	assert_int_equal(b.world.violations, 0);
	bus_write(&b, 64, 1);
	assert_int_equal(b.world.violations, 1);
	bus_revoke(&b.bus, b.memory, sizeof(b.memory)); /* with a write still posted */
	bus_write(&b, 0, 1);
	assert_int_equal(b.world.violations, 2);
	bus_close(&b);
}

/* ---- disk ---- */

static uint8_t first_byte(struct fixture *f, const char *path)
{
	struct hf_file *file;
	uint8_t byte = 0;

	assert_int_equal(hf_file_open(fixture_env(f, 0), path, 0, &file), 0);
	if (hf_file_bytes(file) > 0)
		assert_int_equal(hf_file_read_at(file, &byte, 1, 0), 1);
	hf_file_close(file);
	return byte;
}

static void write_byte(struct fixture *f, const char *path, uint8_t byte, bool sync)
{
	struct hf_file *file;

	assert_int_equal(hf_file_open(fixture_env(f, 0), path, HF_FILE_WRITE | HF_FILE_CREATE, &file), 0);
	assert_int_equal(hf_file_mode(file), 0600);
	assert_int_equal(hf_file_write_at(file, &byte, 1, 0), 1);
	if (sync)
		assert_int_equal(hf_file_sync(file), 0);
	hf_file_close(file);
}

static void power_loss_spares_what_was_synced_and_takes_some_of_the_rest(void **state)
{
	unsigned kept = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct fixture f;
		uint8_t byte;

		fixture_open(&f, seed, NULL, NULL);
		write_byte(&f, "log", 1, true);
		write_byte(&f, "log", 2, false);
		assert_int_equal(first_byte(&f, "log"), 2);
		host_stop(&f.hosts[0]);
		host_start(&f.hosts[0]);
		byte = first_byte(&f, "log");
		assert_in_range(byte, 1, 2);
		kept += byte == 2;
		fixture_close(&f);
	}
	assert_in_range(kept, 10, 50);
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

static void mapped_stores_are_durable_once_flushed(void **state)
{
	unsigned kept = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct fixture f;
		struct hf_file *file;
		uint8_t *mapped, bytes[2];

		fixture_open(&f, seed, NULL, NULL);
		assert_int_equal(hf_file_open(fixture_env(&f, 0), "pm", HF_FILE_WRITE | HF_FILE_CREATE, &file), 0);
		assert_int_equal(hf_file_resize(file, 8192), 0);
		assert_int_equal(hf_file_sync(file), 0);
		assert_int_equal(hf_mem_map_file(fixture_env(&f, 0), file, 0, 8192, true, (void **)&mapped, NULL), 0);
		mapped[0] = 1;
		assert_int_equal(hf_mem_flush(fixture_env(&f, 0), mapped, 1), 0);
		mapped[4096] = 1;
		hf_file_close(file);
		host_stop(&f.hosts[0]);
		host_start(&f.hosts[0]);
		assert_int_equal(hf_file_open(fixture_env(&f, 0), "pm", 0, &file), 0);
		assert_int_equal(hf_file_read_at(file, &bytes[0], 1, 0), 1);
		assert_int_equal(hf_file_read_at(file, &bytes[1], 1, 4096), 1);
		assert_int_equal(bytes[0], 1);
		kept += bytes[1];
		hf_file_close(file);
		fixture_close(&f);
	}
	assert_in_range(kept, 10, 50);
}

/* ---- linearizability ---- */

static void a_chain_of_additions_is_linearizable(void **state)
{
	struct linear linear = {.initial = 10};
	size_t a, b, c;

	(void)state;
	a = linear_post(&linear, false, 5, 0, 0);
	b = linear_post(&linear, false, 7, 0, 0);
	c = linear_post(&linear, true, 99, 22, 30);
	linear_complete(&linear, b, 10, 20);
	linear_complete(&linear, a, 17, 25);
	linear_complete(&linear, c, 22, 40);
	assert_null(linear_check(&linear));
	linear_free(&linear);
}

static void an_addition_that_happened_twice_is_found(void **state)
{
	struct linear linear = {.initial = 0};
	size_t a, b;

	(void)state;
	a = linear_post(&linear, false, 5, 0, 0);
	b = linear_post(&linear, false, 7, 0, 30);
	linear_complete(&linear, a, 0, 20);
	linear_complete(&linear, b, 10, 40); /* 5 was added twice */
	assert_non_null(linear_check(&linear));
	linear_free(&linear);
}

static void an_unknown_outcome_may_explain_a_value(void **state)
{
	struct linear linear = {.initial = 0};
	size_t b;

	(void)state;
	linear_post(&linear, false, 5, 0, 0);
	b = linear_post(&linear, false, 7, 0, 30);
	linear_complete(&linear, b, 5, 40);
	assert_null(linear_check(&linear));
	linear_free(&linear);
}

static void a_value_from_the_future_is_found(void **state)
{
	struct linear linear = {.initial = 0};
	size_t a, b;

	(void)state;
	a = linear_post(&linear, false, 5, 0, 50);
	b = linear_post(&linear, false, 7, 0, 10);
	linear_complete(&linear, a, 0, 60);
	linear_complete(&linear, b, 5, 20); /* before the addition of 5 was posted */
	assert_non_null(linear_check(&linear));
	linear_free(&linear);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_posted_write_is_visible_later_and_its_own_nic_reads_it),
		cmocka_unit_test(a_completion_is_seen_after_the_writes_before_it),
		cmocka_unit_test(a_long_write_is_visible_piece_by_piece),
		cmocka_unit_test(what_is_posted_dies_with_the_nic),
		cmocka_unit_test(two_nics_take_the_same_lock_unless_atomics_are_global),
		cmocka_unit_test(writing_what_is_not_registered_is_a_violation),
		cmocka_unit_test(power_loss_spares_what_was_synced_and_takes_some_of_the_rest),
		cmocka_unit_test(a_crash_of_the_process_alone_loses_nothing_of_a_file),
		cmocka_unit_test(mapped_stores_are_durable_once_flushed),
		cmocka_unit_test(a_chain_of_additions_is_linearizable),
		cmocka_unit_test(an_addition_that_happened_twice_is_found),
		cmocka_unit_test(an_unknown_outcome_may_explain_a_value),
		cmocka_unit_test(a_value_from_the_future_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
