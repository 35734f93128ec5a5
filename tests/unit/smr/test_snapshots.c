/* Members that lack an entry that is decided, and the snapshots that they take. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "smr/smr.h"
#include "smr/steps.h"
#include "trio.h"

#define PROPOSALS 200u

/* Decided entries reach a member whose loop stands still, and the first of them is lost, as when its NIC died with it
 * and nobody was told. */
static void lose_a_decided_entry_of(struct trio *trio, uint32_t set)
{
	uint64_t at = trio_leader(trio)->smr->applied;

	for (unsigned id = 0; id < TRIO_MEMBERS; id++)
		if ((set & 1u << id) != 0)
			hf_loop_remove_poller(trio->loop, &trio->members[id].smr->poller);
	trio_propose_many(trio, 3, 5000);
	for (unsigned id = 0; id < TRIO_MEMBERS; id++) {
		struct hf_smr *smr = trio->members[id].smr;

		if ((set & 1u << id) == 0)
			continue;
		assert_int_equal(smr->applied, at);
		memset(smr_slot_at(smr, at), 0, smr->geometry.slot_bytes);
		hf_loop_add_poller(trio->loop, &smr->poller);
	}
}

static void lose_a_decided_entry(struct trio *trio, unsigned id)
{
	lose_a_decided_entry_of(trio, 1u << id);
}

static void who_has_lost_a_decided_entry_takes_a_snapshot(void **state)
{
	static struct trio trio;
	unsigned lost;

	(void)state;
	trio_open(&trio);
	trio.config.patience_ns = 200000000;
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	assert_true(trio_until(&trio, trio_all_have_applied));
	lost = (trio_leader(&trio)->id + 1) % TRIO_MEMBERS;
	lose_a_decided_entry(&trio, lost);
	trio_propose_many(&trio, PROPOSALS, 2000);
	assert_true(trio_until(&trio, trio_all_have_applied));
	assert_int_equal(trio.members[lost].events[HF_SMR_RESTORED], 1);
	trio_close(&trio);
}

static const struct trio_member *taker;

static bool none_gives(struct trio *trio)
{
	return trio->members[0].open + trio->members[1].open + trio->members[2].open == 0;
}

static bool one_gives(struct trio *trio)
{
	return !none_gives(trio);
}

static bool taker_has_it(struct trio *trio)
{
	(void)trio;
	return taker->events[HF_SMR_RESTORED] == 1;
}

/* S7: its snapshot would be of no use. The one that leads, which has other tasks, gives it. */
static void a_member_that_is_behind_as_well_is_not_asked(void **state)
{
	static struct trio trio;
	struct trio_member *other;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	assert_true(trio_until(&trio, trio_all_have_applied));
	taker = &trio.members[(trio_leader(&trio)->id + 1) % TRIO_MEMBERS];
	other = &trio.members[(trio_leader(&trio)->id + 2) % TRIO_MEMBERS];
	other->smr->config.patience_ns = 1000000000000; /* it waits for the entry */
	taker->smr->config.patience_ns = 200000000;
	lose_a_decided_entry_of(&trio, 1u << taker->id | 1u << other->id);
	assert_true(trio_until(&trio, taker_has_it));
	assert_int_equal(other->snapshots, 0);
	other->smr->config.patience_ns = 200000000;
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio_close(&trio);
}

static bool is_ready_to_give(struct trio *trio)
{
	for (unsigned id = 0; id < TRIO_MEMBERS; id++)
		if (trio->members[id].open > 0)
			return hf_env_now_ns(hf_env_host()) - trio->members[id].opened_ns > trio->slow_ns;
	return false;
}

static uint64_t tail_bytes; /* 0: the default */

/* A member has lost an entry, and takes a snapshot from one that is not ready to give it. */
static struct trio_member *begin_slow_snapshot(struct trio *trio, uint64_t slow_ns)
{
	trio_open(trio);
	trio->config.patience_ns = 200000000;
	trio->config.tail_bytes = tail_bytes;
	trio->slow_ns = slow_ns;
	trio_start_all(trio);
	trio_propose_many(trio, PROPOSALS, 1000);
	assert_true(trio_until(trio, trio_all_have_applied));
	taker = &trio->members[(trio_leader(trio)->id + 1) % TRIO_MEMBERS];
	lose_a_decided_entry(trio, taker->id);
	assert_true(trio_until(trio, one_gives));
	for (unsigned id = 0; id < TRIO_MEMBERS; id++)
		if (trio->members[id].open > 0)
			return &trio->members[id];
	return NULL;
}

/* Else the taker abandons it, and each one that it asks then. */
static void who_is_slow_to_give_a_snapshot_is_awaited(void **state)
{
	static struct trio trio;
	const struct trio_member *giver;

	(void)state;
	giver = begin_slow_snapshot(&trio, 700000000);
	assert_true(trio_until(&trio, taker_has_it));
	assert_int_equal(giver->snapshots, 1);
	assert_true(trio_until(&trio, none_gives));
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio_close(&trio);
}

/* A snapshot that stays open holds what the program applies. */
static void who_gives_a_snapshot_is_told_that_another_one_gives_it(void **state)
{
	static struct trio trio;
	struct trio_member *giver;

	(void)state;
	giver = begin_slow_snapshot(&trio, 100000000);
	hf_loop_remove_poller(trio.loop, &giver->smr->poller);
	assert_true(trio_until(&trio, taker_has_it));
	hf_loop_add_poller(trio.loop, &giver->smr->poller);
	assert_int_equal(giver->snapshots, 1);
	assert_true(trio_until(&trio, none_gives));
	trio_close(&trio);
}

/* As one that has asked elsewhere, and could not say so. */
static void who_gives_a_snapshot_that_nobody_takes_closes_it(void **state)
{
	static struct trio trio;
	struct trio_member *giver;

	(void)state;
	giver = begin_slow_snapshot(&trio, 1000000000);
	hf_loop_remove_poller(trio.loop, &taker->smr->poller);
	assert_true(trio_until(&trio, is_ready_to_give));
	giver->smr->now_ns += 20000000000;
	(void)smr_snapshot_turn(giver->smr);
	assert_int_equal(giver->open, 1);
	giver->smr->now_ns += 20000000000;
	(void)smr_snapshot_turn(giver->smr);
	assert_int_equal(giver->open, 0);
	hf_loop_add_poller(trio.loop, &taker->smr->poller);
	assert_true(trio_until(&trio, taker_has_it));
	trio_close(&trio);
}

/* While two members acquire the logs, the one that leads first may be deposed by the other. */
static void propose_until_decided(struct trio *trio, uint32_t value)
{
	struct hf_smr_call call = {0};

	do
		assert_true(trio_until(trio, trio_another_one_leads));
	while (trio_propose(trio, value, &call) != HF_SMR_DECIDED);
}

/* It cannot lead without the entry, and would be elected for ever. */
static void who_would_lead_and_has_lost_a_decided_entry_lets_another_one(void **state)
{
	static struct trio trio;
	struct hf_smr *smr;
	unsigned lost;

	(void)state;
	trio_open(&trio);
	trio_start_all(&trio);
	trio_propose_many(&trio, PROPOSALS, 1000);
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio.unwell = trio_leader(&trio)->id;
	lost = trio.unwell == 0 ? 1 : 0; /* the lowest one that is well is elected */
	lose_a_decided_entry(&trio, lost);
	smr = trio.members[lost].smr;
	smr->config.patience_ns = 1000000000000; /* it does not wait for that */
	hf_smr_set_well(trio.members[trio.unwell].smr, false);
	for (uint32_t i = 0; i < PROPOSALS; i++)
		propose_until_decided(&trio, 2000 + i);
	assert_true(trio_until(&trio, trio_all_have_applied));
	trio_close(&trio);
}

static unsigned given(const struct trio *trio)
{
	return trio->members[0].snapshots + trio->members[1].snapshots + trio->members[2].snapshots;
}

/* More is written in the time of one snapshot than is kept for the member that takes it: without a limit that one
 * would begin again, for ever. */
static void writers_slow_down_for_a_member_that_returns(void **state)
{
	static struct trio trio;
	uint32_t value = 6000;

	(void)state;
	tail_bytes = 1u << 20;
	begin_slow_snapshot(&trio, 2000000000);
	while (!taker_has_it(&trio)) {
		struct hf_smr_call call = {0};

		assert_int_equal(trio_propose(&trio, value++, &call), HF_SMR_DECIDED);
		assert_int_equal(given(&trio), 1);
	}
	assert_true(trio_until(&trio, trio_all_have_applied));
	tail_bytes = 0;
	trio_close(&trio);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_lost_a_decided_entry_takes_a_snapshot),
		cmocka_unit_test(a_member_that_is_behind_as_well_is_not_asked),
		cmocka_unit_test(who_is_slow_to_give_a_snapshot_is_awaited),
		cmocka_unit_test(who_gives_a_snapshot_is_told_that_another_one_gives_it),
		cmocka_unit_test(who_gives_a_snapshot_that_nobody_takes_closes_it),
		cmocka_unit_test(writers_slow_down_for_a_member_that_returns),
		cmocka_unit_test(who_would_lead_and_has_lost_a_decided_entry_lets_another_one),
	};

	if (argc > 1)
		trio_kind = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
