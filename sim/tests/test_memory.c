/* The bus, and the checkers that judge by them. */
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
			uint64_t found, others;
			bool first, second;

			bus_open(&b, seed, global == 1);
			bus_init(&other, NULL, &b.world, global == 1);
			bus_grant(&other, b.memory, sizeof(b.memory));
			first = b.bus.base.ops->cas(&b.bus.base, &b.memory[0], 0, 1, &found) && found == 0;
			second = other.base.ops->cas(&other.base, &b.memory[0], 0, 2, &others) && others == 0;
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

static void a_value_that_was_read_after_the_next_had_taken_its_place_is_found(void **state)
{
	struct linear linear = {.initial = 0};
	size_t a, read;

	(void)state;
	a = linear_post(&linear, false, 5, 0, 10);
	read = linear_post(&linear, true, 99, 98, 30); /* a CAS that fails */
	linear_complete(&linear, a, 0, 20);
	linear_complete(&linear, read, 0, 40);
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
		cmocka_unit_test(a_chain_of_additions_is_linearizable),
		cmocka_unit_test(an_addition_that_happened_twice_is_found),
		cmocka_unit_test(an_unknown_outcome_may_explain_a_value),
		cmocka_unit_test(a_value_from_the_future_is_found),
		cmocka_unit_test(a_value_that_was_read_after_the_next_had_taken_its_place_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
