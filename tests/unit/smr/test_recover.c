/* Recovery of what is undecided, from the answers of another member (R-S8): what an attempt leaves, and who counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "one.h"

#define ENTRY  10u
#define FORMER 0x301u /* numbers: of a former leader, and of this one */
#define OURS   0x900u

static uint8_t read_slots[SLOTS * SLOT_BYTES];

/* Member 0 recovers from `ENTRY` on; member 1 has answered with what is in read_slots, and member 2 is away. */
static void begin_recovery(void)
{
	one_begin();
	memset(read_slots, 0, sizeof(read_slots));
	smr.role = HF_SMR_ACQUIRING;
	smr.phase = SMR_PHASE_RECOVER;
	smr.number = OURS;
	smr.chunk = SLOTS;
	smr.commit = smr.applied = smr.oldest = smr.recover_at = smr.recover_last = ENTRY;
	smr.links[1].stage = SMR_STAGE_PROMISED;
	smr.links[1].scratch = read_slots;
	smr.links[1].fetched = ENTRY;
	smr.links[1].fetched_end = SLOTS; /* of the lap */
}

static uint8_t *read_slot(uint64_t index)
{
	return read_slots + (index - ENTRY) * SLOT_BYTES;
}

static void assert_accepted(uint64_t index, uint64_t number)
{
	struct smr_slot slot;

	assert_int_equal(smr_own_slot(&smr, index, &slot), SMR_SLOT_VALID);
	assert_int_equal(smr_slot_number(&slot), number);
}

/* It would outrank what a majority decides, or has decided, under a number between. */
static void an_attempt_that_ends_accepts_nothing_under_its_number(void **state)
{
	(void)state;
	begin_recovery();
	one_put_slot(read_slot(ENTRY), ENTRY, FORMER);
	one_put_slot(read_slot(ENTRY + 2), ENTRY + 2, FORMER); /* it has lost the one between */
	smr_recover_turn(&smr);
	assert_non_null(smr.abort_why);
	assert_int_equal(smr.phase, SMR_PHASE_RECOVER);
	assert_accepted(ENTRY, FORMER);
	one_end();
}

static void a_recovery_that_has_all_accepts_it_under_its_number(void **state)
{
	(void)state;
	begin_recovery();
	one_put_slot(read_slot(ENTRY), ENTRY, FORMER);
	put_le64(read_slot(ENTRY + 1) + SMR_SLOT_INDEX, ENTRY + 1); /* torn */
	one_put_slot(read_slot(ENTRY + 2), ENTRY + 2, FORMER);
	smr_recover_turn(&smr);
	assert_null(smr.abort_why);
	assert_int_equal(smr.phase, SMR_PHASE_NOOP);
	assert_int_equal(smr.tail, ENTRY + 3);
	for (uint64_t i = ENTRY; i < ENTRY + 3; i++)
		assert_accepted(i, OURS);
	one_end();
}

/* Entries come in order: who has one and lacks the one before has lost memory. Not by a recovery that ends. */
static void a_gap_that_a_recovery_makes_is_no_loss_of_memory(void **state)
{
	(void)state;
	begin_recovery();
	smr.chunk = 4; /* more is to be read */
	smr.links[1].fetched_end = ENTRY + smr.chunk;
	put_le64(read_slot(ENTRY) + SMR_SLOT_INDEX, ENTRY); /* torn */
	one_put_slot(read_slot(ENTRY + 1), ENTRY + 1, FORMER);
	smr_recover_turn(&smr);
	assert_int_equal(smr.recover_at, ENTRY + smr.chunk);
	smr.phase = SMR_PHASE_CATCH_UP; /* another attempt */
	smr_recover_begin(&smr);
	smr.links[1].fetched = ENTRY;
	smr.links[1].fetched_end = ENTRY + smr.chunk;
	smr_recover_turn(&smr);
	assert_int_equal(smr.recover_at, ENTRY + smr.chunk);
	assert_null(smr.failed);
	one_end();
}

/* It was promised late: a snapshot has what its ring lacks there. */
static void who_was_told_of_more_does_not_count_below_it(void **state)
{
	(void)state;
	begin_recovery();
	one_put_slot(smr_slot_at(&smr, ENTRY), ENTRY, FORMER); /* it lost to another value */
	smr.links[1].commit = ENTRY + 1;
	smr_recover_turn(&smr);
	assert_non_null(smr.abort_why);
	assert_int_equal(smr.recover_at, ENTRY);
	assert_accepted(ENTRY, FORMER);
	one_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_attempt_that_ends_accepts_nothing_under_its_number),
		cmocka_unit_test(a_recovery_that_has_all_accepts_it_under_its_number),
		cmocka_unit_test(a_gap_that_a_recovery_makes_is_no_loss_of_memory),
		cmocka_unit_test(who_was_told_of_more_does_not_count_below_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
