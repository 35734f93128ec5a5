/* How a write of a record goes, step by step. Node 0 of three is this one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "kv/kv_step.h"

#define EPOCH 7

struct bed {
	struct kv_view view;
	struct kv_known known;
	struct kv_write write;
	struct kv_actions actions;
};

static struct bed bed(void)
{
	return (struct bed){.view = {.live = 7, .join = EPOCH, .self = 0}, .known = {.state = RECORD_VALID}};
}

static struct record_ts ts(uint64_t version, uint16_t node)
{
	return (struct record_ts){.version = version, .join = EPOCH, .node = node};
}

static void step(struct bed *bed, enum kv_event_kind kind, unsigned from, struct record_ts at, uint8_t flags)
{
	struct kv_event event = {.kind = kind, .from = from, .ts = at, .flags = flags};

	kv_step(&bed->view, &bed->known, &bed->write, &event, &bed->actions);
}

static void ack(struct bed *bed, unsigned from)
{
	step(bed, KV_EVENT_ACK, from, bed->write.ts, 0);
}

static void write_is_committed_by_every_live_node_and_the_own_log(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), 0);
	assert_true(b.actions.apply && b.actions.send_inv);
	assert_int_equal(b.known.state, RECORD_WRITE);
	assert_int_equal(record_compare(b.known.ts, ts(2, 0)), 0);
	ack(&b, 1);
	ack(&b, 1); /* counts once (R-K3) */
	assert_false(b.actions.committed);
	ack(&b, 2);
	assert_false(b.actions.committed);
	step(&b, KV_EVENT_DURABLE, 0, ts(0, 0), 0);
	assert_true(b.actions.committed && b.actions.send_val && b.actions.readable);
	assert_int_equal(b.known.state, RECORD_VALID);
}

/* R-K19: others may have removed a tombstone of any version up to those. */
static void key_without_a_record_begins_above_what_was_deleted(void **state)
{
	struct bed b = bed();

	(void)state;
	b.view.floor = 10;
	b.view.highest = 12;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), RECORD_RMW);
	assert_int_equal(record_compare(b.known.ts, ts(11, 0)), 0);
	b = (struct bed){.view = b.view, .known = {.state = RECORD_VALID, .ts = ts(4, 2), .flags = RECORD_TOMBSTONE}};
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), 0);
	assert_int_equal(record_compare(b.known.ts, ts(14, 0)), 0);
	b = (struct bed){.view = b.view, .known = {.state = RECORD_VALID, .ts = ts(4, 2)}};
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), 0);
	assert_int_equal(record_compare(b.known.ts, ts(6, 0)), 0);
}

static void superseded_write_is_answered_and_its_record_stays_invalid(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), 0);
	step(&b, KV_EVENT_DURABLE, 0, ts(0, 0), 0);
	step(&b, KV_EVENT_INV, 2, ts(2, 2), 0);
	assert_true(b.actions.apply && b.actions.ack);
	ack(&b, 1);
	ack(&b, 2);
	assert_true(b.actions.committed);
	assert_false(b.actions.readable || b.actions.send_val); /* nobody may read it, nor base an RMW on it (R-K30) */
	assert_int_equal(b.known.state, RECORD_INVALID);
}

static void older_inv_is_acknowledged_unless_it_is_an_rmw(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_INV, 2, ts(4, 2), 0);
	step(&b, KV_EVENT_INV, 1, ts(2, 1), 0);
	assert_true(b.actions.ack && !b.actions.apply);
	step(&b, KV_EVENT_INV, 1, ts(3, 1), RECORD_RMW);
	assert_true(b.actions.nack && !b.actions.ack && !b.actions.apply);
}

/* R-K13: what was kept over an exclusion may be known nowhere else. */
/* Another member replays it: what this one has overtakes it there (R-K30). */
static void replay_of_an_obsolete_write_is_not_answered(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_INV, 2, ts(2, 2), 0);
	step(&b, KV_EVENT_INV, 2, ts(2, 1), 0);
	assert_false(b.actions.ack || b.actions.nack || b.actions.apply);
	step(&b, KV_EVENT_VAL, 2, ts(2, 2), 0);
	step(&b, KV_EVENT_INV, 2, ts(2, 1), 0);
	assert_true(b.actions.ack);
}

static void record_in_doubt_yields_to_any_inv(void **state)
{
	struct bed b = bed();

	(void)state;
	b.known = (struct kv_known){.state = RECORD_INVALID, .ts = ts(8, 0), .flags = RECORD_DOUBTFUL};
	step(&b, KV_EVENT_INV, 2, ts(6, 2), RECORD_RMW);
	assert_true(b.actions.apply && b.actions.ack && !b.actions.nack);
	assert_int_equal(record_compare(b.known.ts, ts(6, 2)), 0);
	assert_false(b.known.flags & RECORD_DOUBTFUL);
	step(&b, KV_EVENT_INV, 1, ts(4, 1), 0); /* the doubt has ended */
	assert_true(b.actions.ack && !b.actions.apply);
}

static void rmw_waits_for_a_valid_base(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_INV, 2, ts(4, 2), 0);
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), RECORD_RMW);
	assert_true(b.actions.wait);
	assert_int_equal(b.write.state, KV_WRITE_NONE);
	step(&b, KV_EVENT_VAL, 2, ts(4, 2), 0);
	assert_true(b.actions.readable);
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), RECORD_RMW);
	assert_int_equal(record_compare(b.known.ts, ts(5, 0)), 0);
}

static void refused_rmw_takes_the_newer_record_and_begins_again(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), RECORD_RMW);
	ack(&b, 1);
	step(&b, KV_EVENT_NACK, 2, ts(2, 2), 0);
	assert_true(b.actions.refused && b.actions.apply && b.actions.unreadable);
	assert_int_equal(b.known.state, RECORD_INVALID);
	assert_int_equal(b.write.state, KV_WRITE_NONE);
}

static void rmw_whose_record_is_newer_here_is_refused_though_all_that_live_acknowledge(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), RECORD_RMW);
	step(&b, KV_EVENT_DURABLE, 0, ts(0, 0), 0);
	step(&b, KV_EVENT_INV, 2, ts(1, 2), RECORD_RMW);
	assert_true(b.actions.apply && b.actions.ack);
	b.view.live = 1; /* node 2 is excluded before its NACK comes */
	step(&b, KV_EVENT_INSTALL, 0, ts(0, 0), 0);
	assert_true(b.actions.refused);
	assert_false(b.actions.committed || b.actions.send_val || b.actions.readable);
	assert_int_equal(b.known.state, RECORD_INVALID);
}

static void nack_that_names_nothing_newer_refuses_nothing(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), RECORD_RMW);
	step(&b, KV_EVENT_NACK, 2, b.write.ts, 0);
	assert_int_equal(b.write.state, KV_WRITE_RMW);
}

/* Were it acknowledged, the replay could commit the RMW, and a NACK that is on its way would make it begin again. */
static void coordinator_acknowledges_no_replay_of_its_own_write(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), RECORD_RMW);
	step(&b, KV_EVENT_INV, 2, b.write.ts, RECORD_RMW);
	assert_false(b.actions.ack || b.actions.nack || b.actions.apply);
	ack(&b, 1);
	ack(&b, 2);
	step(&b, KV_EVENT_DURABLE, 0, ts(0, 0), 0);
	assert_true(b.actions.committed);
	step(&b, KV_EVENT_INV, 2, ts(1, 0), RECORD_RMW);
	assert_true(b.actions.ack);
}

static void another_epoch_drops_all_acks(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), 0);
	step(&b, KV_EVENT_DURABLE, 0, ts(0, 0), 0);
	ack(&b, 1);
	b.view.live = 3; /* node 2 is gone */
	step(&b, KV_EVENT_INSTALL, 0, ts(0, 0), 0);
	assert_true(b.actions.send_inv && !b.actions.committed);
	ack(&b, 1);
	assert_true(b.actions.committed);
}

static void last_live_node_commits_at_the_install(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_WRITE, 0, ts(0, 0), 0);
	step(&b, KV_EVENT_DURABLE, 0, ts(0, 0), 0);
	b.view.live = 1;
	step(&b, KV_EVENT_INSTALL, 0, ts(0, 0), 0);
	assert_true(b.actions.committed && b.actions.readable);
}

static void replay_keeps_the_timestamp_and_yields_to_its_end(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_INV, 2, ts(4, 2), 0);
	step(&b, KV_EVENT_REPLAY, 0, ts(0, 0), 0);
	assert_true(b.actions.send_inv && !b.actions.apply);
	assert_int_equal(record_compare(b.write.ts, ts(4, 2)), 0);
	step(&b, KV_EVENT_INV, 1, ts(4, 2), 0); /* another one replays it too */
	assert_true(b.actions.ack);
	step(&b, KV_EVENT_VAL, 1, ts(4, 2), 0);
	assert_true(b.actions.overtaken && b.actions.readable);
	assert_int_equal(b.write.state, KV_WRITE_NONE);
}

static void replay_yields_to_a_newer_write(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_INV, 2, ts(4, 2), 0);
	step(&b, KV_EVENT_REPLAY, 0, ts(0, 0), 0);
	step(&b, KV_EVENT_INV, 1, ts(6, 1), 0);
	assert_true(b.actions.overtaken && b.actions.apply && b.actions.ack);
	assert_int_equal(b.known.state, RECORD_INVALID);
}

static void val_of_another_write_validates_nothing(void **state)
{
	struct bed b = bed();

	(void)state;
	step(&b, KV_EVENT_INV, 2, ts(4, 2), 0);
	step(&b, KV_EVENT_VAL, 1, ts(2, 1), 0);
	assert_false(b.actions.readable);
	assert_int_equal(b.known.state, RECORD_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_is_committed_by_every_live_node_and_the_own_log),
		cmocka_unit_test(key_without_a_record_begins_above_what_was_deleted),
		cmocka_unit_test(superseded_write_is_answered_and_its_record_stays_invalid),
		cmocka_unit_test(older_inv_is_acknowledged_unless_it_is_an_rmw),
		cmocka_unit_test(replay_of_an_obsolete_write_is_not_answered),
		cmocka_unit_test(record_in_doubt_yields_to_any_inv),
		cmocka_unit_test(rmw_waits_for_a_valid_base),
		cmocka_unit_test(refused_rmw_takes_the_newer_record_and_begins_again),
		cmocka_unit_test(rmw_whose_record_is_newer_here_is_refused_though_all_that_live_acknowledge),
		cmocka_unit_test(nack_that_names_nothing_newer_refuses_nothing),
		cmocka_unit_test(coordinator_acknowledges_no_replay_of_its_own_write),
		cmocka_unit_test(another_epoch_drops_all_acks),
		cmocka_unit_test(last_live_node_commits_at_the_install),
		cmocka_unit_test(replay_keeps_the_timestamp_and_yields_to_its_end),
		cmocka_unit_test(replay_yields_to_a_newer_write),
		cmocka_unit_test(val_of_another_write_validates_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
