/* What the checker of effects makes of a wr that a NIC acknowledged and died with, and of what READs return. */
#include "sim/tests/fixture.h"

#include "sim/checkers/execution.h"

#define SLOTS      16u
#define SLOT_BYTES 256u
#define WINDOW     (SLOTS * SLOT_BYTES)
#define TRIES      40u

struct bed {
	struct world world;
	struct nic_bus buses[2]; /* the NIC that dies, and the other */
	struct execution execution;
	struct flow *flow;
	uint8_t memory[3 * WINDOW]; /* target, receives, landing */
	uint64_t words[1];
};

static void open_bed(struct bed *bed, uint64_t seed, bool unlogged)
{
	memset(bed, 0, sizeof(*bed));
	world_init(&bed->world, seed, false);
	execution_init(&bed->execution, &bed->world);
	for (unsigned i = 0; i < 2; i++) {
		bus_init(&bed->buses[i], NULL, &bed->world, true);
		bed->buses[i].lag_ns = 20 * NS_US;
		bus_grant(&bed->buses[i], bed->memory, sizeof(bed->memory));
		execution_watch(&bed->execution, &bed->buses[i]);
	}
	bed->flow = execution_add_flow(&bed->execution, execution_add_area(&bed->execution, bed->memory, WINDOW),
		execution_add_area(&bed->execution, bed->words, sizeof(bed->words)), bed->memory + WINDOW,
		bed->memory + 2 * WINDOW, SLOTS, SLOT_BYTES, SLOT_BYTES);
	bed->flow->exactly_once = true;
	bed->flow->unlogged = unlogged;
}

static void close_bed(struct bed *bed)
{
	bus_free(&bed->buses[0]);
	bus_free(&bed->buses[1]);
	execution_free(&bed->execution);
	world_free(&bed->world);
}

static void post_and_execute(struct bed *bed, enum op_kind kind, struct nic_bus *bus)
{
	struct op op = {.kind = kind, .bytes = SLOT_BYTES};
	uint8_t payload[SLOT_BYTES];
	void *to;

	op.target = (uintptr_t)bed->memory + bed->flow->count * SLOT_BYTES;
	op = *flow_post(bed->flow, &op);
	to = kind == OP_SEND ? bed->memory + WINDOW + op.message * SLOT_BYTES : (void *)(uintptr_t)op.target;
	flow_payload(bed->flow, op.number, 0, SLOT_BYTES, payload);
	bus->base.ops->write(&bus->base, to, payload, SLOT_BYTES);
}

/* One wr executes and is lost with its NIC; false: with this seed it had become visible. */
static bool lose_one(struct bed *bed, enum op_kind kind)
{
	post_and_execute(bed, kind, &bed->buses[0]);
	bus_kill(&bed->buses[0]);
	assert_int_equal(bed->world.violations, 0);
	return bed->flow->ops[0].lost;
}

static void complete(struct bed *bed, uint32_t number, enum ibv_wc_status status)
{
	flow_completed(bed->flow, &(struct ibv_wc){.wr_id = number, .status = status});
}

struct story {
	bool unlogged, idempotent;
	enum op_kind kind;
	enum ibv_wc_status status; /* that the lost wr completes with in the end */
};

/* How many of the runs in which the wr was lost, and another took effect behind it, are violations of V2. */
static unsigned violations_of(const struct story *story, unsigned *runs)
{
	unsigned violations = 0;

	*runs = 0;
	for (uint64_t seed = 1; seed <= TRIES; seed++) {
		struct bed bed;

		open_bed(&bed, seed, story->unlogged);
		if (lose_one(&bed, story->kind)) {
			++*runs;
			bed.flow->ops[0].idempotent = story->idempotent;
			post_and_execute(&bed, OP_WRITE, &bed.buses[1]);
			complete(&bed, 0, story->status);
			violations += bed.world.violations > 0;
		}
		close_bed(&bed);
	}
	assert_true(*runs > TRIES / 4);
	return violations;
}

static void nothing_takes_effect_behind_a_wr_that_a_nic_died_with(void **state)
{
	const struct story story = {.kind = OP_WRITE};
	unsigned runs, violations = violations_of(&story, &runs);

	(void)state;
	assert_int_equal(violations, runs);
}

static void but_who_was_told_of_success_and_keeps_no_log_may_go_on(void **state)
{
	const struct story story = {.kind = OP_WRITE, .unlogged = true};
	unsigned runs, violations = violations_of(&story, &runs);

	(void)state;
	assert_int_equal(violations, 0);
}

static void nor_has_an_idempotent_write_an_entry(void **state)
{
	const struct story story = {.kind = OP_WRITE, .idempotent = true};
	unsigned runs, violations = violations_of(&story, &runs);

	(void)state;
	assert_int_equal(violations, 0);
}

static void who_was_told_of_failure_may_not(void **state)
{
	const struct story story = {.kind = OP_WRITE, .unlogged = true, .status = IBV_WC_RETRY_EXC_ERR};
	unsigned runs, violations = violations_of(&story, &runs);

	(void)state;
	assert_int_equal(violations, runs);
}

static void nor_behind_a_message_since_the_receives_count(void **state)
{
	const struct story story = {.kind = OP_SEND, .unlogged = true};
	unsigned runs, violations = violations_of(&story, &runs);

	(void)state;
	assert_int_equal(violations, runs);
}

static void what_a_nic_died_with_executes_once_when_it_is_sent_again(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= TRIES; seed++) {
		struct bed bed;
		uint8_t payload[SLOT_BYTES];
		struct nic_bus *other = &bed.buses[1];
		uint32_t done;

		open_bed(&bed, seed, true);
		if (lose_one(&bed, OP_WRITE)) {
			done = bed.flow->ops[0].done_bytes;
			flow_payload(bed.flow, 0, done, SLOT_BYTES - done, payload);
			other->base.ops->write(&other->base, bed.memory + done, payload, SLOT_BYTES - done);
			complete(&bed, 0, IBV_WC_SUCCESS);
			assert_int_equal(bed.world.violations, 0);
			other->base.ops->write(&other->base, bed.memory + done, payload, SLOT_BYTES - done);
			assert_true(bed.world.violations > 0);
		}
		close_bed(&bed);
	}
}

static void post_reads_until(struct bed *bed, uint32_t number)
{
	while (bed->flow->count < number) {
		const struct op op = {
			.kind = OP_READ, .bytes = 8, .target = (uintptr_t)bed->memory + SLOT_BYTES, .unsignaled = true};

		(void)flow_post(bed->flow, &op);
	}
}

static void execute_at_0(struct bed *bed, uint32_t bytes)
{
	struct op op = {.kind = OP_WRITE, .bytes = bytes, .target = (uintptr_t)bed->memory, .unsignaled = true};
	uint8_t payload[SLOT_BYTES];

	op = *flow_post(bed->flow, &op);
	flow_payload(bed->flow, op.number, 0, bytes, payload);
	bed->buses[1].base.ops->write(&bed->buses[1].base, bed->memory, payload, bytes);
	bus_drain(&bed->buses[1]);
}

/* 300 is 0x12c: with the upper half of the older one the word says 0x2c. */
static void a_read_may_return_the_half_of_a_word_that_was_written_behind_it(void **state)
{
	struct op read = {.kind = OP_READ, .bytes = 64};
	struct bed bed;

	(void)state;
	for (uint32_t written = 12; written <= 20; written += 8) {
		open_bed(&bed, 1, false);
		post_reads_until(&bed, 224);
		execute_at_0(&bed, SLOT_BYTES);
		read.target = (uintptr_t)bed.memory;
		(void)flow_post(bed.flow, &read);
		post_reads_until(&bed, 300);
		execute_at_0(&bed, written);
		memcpy(bed.memory + 2 * WINDOW + (225 % SLOTS) * SLOT_BYTES, bed.memory, read.bytes);
		if (written == 20) /* and here of one that was overwritten long before */
			bed.memory[2 * WINDOW + (225 % SLOTS) * SLOT_BYTES + 24 + 3] = 7;
		complete(&bed, 225, IBV_WC_SUCCESS);
		assert_int_equal(bed.world.violations > 0, written == 20);
		close_bed(&bed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_takes_effect_behind_a_wr_that_a_nic_died_with),
		cmocka_unit_test(but_who_was_told_of_success_and_keeps_no_log_may_go_on),
		cmocka_unit_test(nor_has_an_idempotent_write_an_entry),
		cmocka_unit_test(who_was_told_of_failure_may_not),
		cmocka_unit_test(nor_behind_a_message_since_the_receives_count),
		cmocka_unit_test(a_read_may_return_the_half_of_a_word_that_was_written_behind_it),
		cmocka_unit_test(what_a_nic_died_with_executes_once_when_it_is_sent_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
