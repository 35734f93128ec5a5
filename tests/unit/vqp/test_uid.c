/* Atomics by uid, step by step. All orders of the steps together: sim/scenario_uid_model.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "vqp/atomic/uid.h"

#define SLOTS  4u
#define TARGET 0x7f0000001000ull
#define SWAP   77u

static struct uid_op cas_of(uint64_t compare)
{
	return (struct uid_op){.kind = UID_CAS,
		.slots = SLOTS,
		.index = 2,
		.sequence = 40,
		.target = TARGET,
		.compare = compare,
		.argument = SWAP};
}

static void value(struct uid_op *op, uint64_t value, struct uid_plan *plan)
{
	struct uid_result result = {.value = value};

	uid_step(op, &result, plan);
}

static void slot(struct uid_op *op, uint64_t word, uint64_t swap, uint64_t target, struct uid_plan *plan)
{
	struct uid_result result = {.slot = {.word = word, .swap = swap, .target = target}};

	uid_step(op, &result, plan);
}

static void a_uid_names_its_slot_and_its_sequence(void **state)
{
	uint32_t index;
	uint64_t sequence;

	(void)state;
	assert_true(uid_decode(uid_make(0, 1), 1, &index, &sequence));
	assert_true(uid_decode(uid_make(0xffff, UID_SEQUENCE_MAX), 0x10000, &index, &sequence));
	assert_int_equal(index, 0xffff);
	assert_int_equal(sequence, UID_SEQUENCE_MAX);
}

static void values_that_no_slot_can_have_made_are_no_uids(void **state)
{
	uint32_t index;
	uint64_t sequence;

	(void)state;
	assert_false(uid_decode(0, SLOTS, &index, &sequence));
	assert_false(uid_decode(UINT64_MAX, SLOTS, &index, &sequence));
	assert_false(uid_decode(uid_make(SLOTS, 1), SLOTS, &index, &sequence)); /* an index out of bounds */
	assert_false(uid_decode(uid_make(0, 0), SLOTS, &index, &sequence));
	assert_false(uid_decode(uid_make(0, 1), 0, &index, &sequence)); /* a responder without slots */
}

static void the_slot_is_written_before_its_uid_can_be_seen(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;

	(void)state;
	uid_begin(&op, &plan);
	assert_int_equal(plan.count, 2);
	assert_int_equal(plan.access[0].kind, UID_WRITE_SLOT);
	assert_int_equal(plan.access[0].index, 2);
	assert_int_equal(plan.access[0].slot.word, uid_word(41, UID_PENDING));
	assert_int_equal(plan.access[0].slot.swap, SWAP);
	assert_int_equal(plan.access[0].slot.target, TARGET);
	assert_int_equal(plan.access[1].kind, UID_CAS_TARGET);
	assert_int_equal(plan.access[1].compare, 5);
	assert_int_equal(plan.access[1].swap, uid_make(2, 41));
}

static void a_cas_that_took_effect_is_confirmed_state_first(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;

	(void)state;
	uid_begin(&op, &plan);
	value(&op, 5, &plan);
	assert_int_equal(op.state, UID_OP_OVER);
	assert_true(op.installed);
	assert_int_equal(op.original, 5);
	uid_confirm(&op, &plan);
	assert_int_equal(plan.count, 2);
	assert_int_equal(plan.access[0].kind, UID_CAS_SLOT);
	assert_int_equal(plan.access[0].compare, uid_word(41, UID_PENDING));
	assert_int_equal(plan.access[0].swap, uid_word(41, UID_DONE));
	assert_int_equal(plan.access[1].kind, UID_CAS_TARGET);
	assert_int_equal(plan.access[1].compare, uid_make(2, 41));
	assert_int_equal(plan.access[1].swap, SWAP);
}

static void a_cas_that_finds_another_value_returns_it(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;

	(void)state;
	uid_begin(&op, &plan);
	value(&op, 6, &plan);
	assert_int_equal(op.state, UID_OP_OVER);
	assert_false(op.installed);
	assert_int_equal(op.original, 6);
}

static void a_cas_that_meets_a_uid_helps_and_tries_again(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;
	uint64_t other = uid_make(1, 9);

	(void)state;
	uid_begin(&op, &plan);
	value(&op, other, &plan);
	assert_int_equal(plan.access[0].kind, UID_READ_SLOT);
	assert_int_equal(plan.access[0].index, 1);
	slot(&op, uid_word(9, UID_PENDING), 5, TARGET, &plan);
	assert_int_equal(plan.access[0].kind, UID_CAS_SLOT);
	assert_int_equal(plan.access[1].compare, other);
	assert_int_equal(plan.access[1].swap, 5);
	value(&op, other, &plan); /* it was there: now there is 5 */
	assert_int_equal(op.state, UID_OP_TRY);
	assert_int_equal(plan.access[1].swap, uid_make(2, 42)); /* never the same twice */
}

static void a_value_that_looks_like_a_uid_is_a_value(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;
	uint64_t hostile = uid_make(1, 9);

	(void)state;
	uid_begin(&op, &plan);
	value(&op, hostile, &plan);
	slot(&op, uid_word(9, UID_PENDING), 5, TARGET + 8, &plan); /* of another target */
	assert_int_equal(plan.count, 1);
	assert_int_equal(plan.access[0].kind, UID_READ_TARGET);
	value(&op, hostile, &plan);
	assert_int_equal(op.state, UID_OP_OVER);
	assert_false(op.installed);
	assert_int_equal(op.original, hostile);
}

static void a_swap_that_equals_the_next_uid_passes_it_over(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;

	(void)state;
	op.argument = uid_make(2, 41);
	uid_begin(&op, &plan);
	assert_int_equal(plan.access[1].swap, uid_make(2, 42));
}

static void a_lost_cas_whose_uid_is_there_took_effect(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;

	(void)state;
	uid_begin(&op, &plan);
	uid_lost(&op, &plan);
	assert_int_equal(plan.count, 1);
	assert_int_equal(plan.access[0].kind, UID_READ_TARGET);
	value(&op, uid_make(2, 41), &plan);
	assert_int_equal(op.state, UID_OP_OVER);
	assert_true(op.installed);
	assert_int_equal(op.original, 5);
}

static void a_lost_cas_whose_uid_somebody_removed_took_effect(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;

	(void)state;
	uid_begin(&op, &plan);
	uid_lost(&op, &plan);
	value(&op, SWAP, &plan);
	assert_int_equal(plan.access[0].kind, UID_READ_SLOT); /* after the target */
	slot(&op, uid_word(41, UID_DONE), SWAP, TARGET, &plan);
	assert_int_equal(op.state, UID_OP_OVER);
	assert_true(op.installed);
}

static void a_lost_cas_without_a_trace_is_tried_again(void **state)
{
	struct uid_op op = cas_of(5);
	struct uid_plan plan;

	(void)state;
	uid_begin(&op, &plan);
	uid_lost(&op, &plan);
	value(&op, 5, &plan);
	uid_lost(&op, &plan); /* and once more, in the middle of it */
	assert_int_equal(plan.access[0].kind, UID_READ_TARGET);
	value(&op, 5, &plan);
	slot(&op, uid_word(41, UID_PENDING), SWAP, TARGET, &plan);
	assert_int_equal(op.state, UID_OP_TRY);
	assert_int_equal(plan.access[1].swap, uid_make(2, 42));
}

static void an_addition_reads_and_swaps_until_nobody_was_quicker(void **state)
{
	struct uid_op op = cas_of(0);
	struct uid_plan plan;

	(void)state;
	op.kind = UID_FAA;
	op.argument = 10;
	uid_begin(&op, &plan);
	assert_int_equal(plan.access[0].kind, UID_READ_TARGET);
	value(&op, 3, &plan);
	assert_int_equal(plan.access[1].compare, 3);
	value(&op, 4, &plan); /* somebody was */
	assert_int_equal(plan.access[0].slot.swap, 14);
	value(&op, 4, &plan);
	assert_int_equal(op.state, UID_OP_OVER);
	assert_int_equal(op.original, 4);
}

static void a_reader_believes_a_slot_only_if_the_uid_is_still_there(void **state)
{
	struct uid_op op = cas_of(0);
	struct uid_plan plan;

	(void)state;
	op.kind = UID_READ;
	uid_begin(&op, &plan);
	value(&op, uid_make(1, 9), &plan);
	slot(&op, uid_word(9, UID_DONE), 30, TARGET, &plan);
	value(&op, 31, &plan); /* it is gone: what the slot said may have been of its next use */
	assert_int_equal(op.state, UID_OP_OVER);
	assert_int_equal(op.original, 31);
}

static void a_slot_that_was_never_used_has_nothing_to_resolve(void **state)
{
	struct uid_op op = {.kind = UID_RESOLVE, .slots = SLOTS, .index = 3};
	struct uid_plan plan;

	(void)state;
	uid_begin(&op, &plan);
	slot(&op, 0, 0, 0, &plan);
	assert_int_equal(op.state, UID_OP_OVER);
	assert_int_equal(plan.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_uid_names_its_slot_and_its_sequence),
		cmocka_unit_test(values_that_no_slot_can_have_made_are_no_uids),
		cmocka_unit_test(the_slot_is_written_before_its_uid_can_be_seen),
		cmocka_unit_test(a_cas_that_took_effect_is_confirmed_state_first),
		cmocka_unit_test(a_cas_that_finds_another_value_returns_it),
		cmocka_unit_test(a_cas_that_meets_a_uid_helps_and_tries_again),
		cmocka_unit_test(a_value_that_looks_like_a_uid_is_a_value),
		cmocka_unit_test(a_swap_that_equals_the_next_uid_passes_it_over),
		cmocka_unit_test(a_lost_cas_whose_uid_is_there_took_effect),
		cmocka_unit_test(a_lost_cas_whose_uid_somebody_removed_took_effect),
		cmocka_unit_test(a_lost_cas_without_a_trace_is_tried_again),
		cmocka_unit_test(an_addition_reads_and_swaps_until_nobody_was_quicker),
		cmocka_unit_test(a_reader_believes_a_slot_only_if_the_uid_is_still_there),
		cmocka_unit_test(a_slot_that_was_never_used_has_nothing_to_resolve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
