/* Leases (lease.h), and those that a peer wishes for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../vqp/pair.h"
#include "node/lease.h"
#include "node/listeners.h"
#include "vqp/objects.h"

#define LEASE_NS 1000000000ull

/* Only what comes back counts: that the other side is heard does not say that it hears us. */
static void a_lease_lasts_from_the_newest_stamp_that_came_back(void **state)
{
	struct lease lease;

	(void)state;
	lease_init(&lease, LEASE_NS, 100);
	assert_true(lease_must_send(&lease, 1000));
	lease_sent(&lease, 1000);
	assert_false(lease_must_send(&lease, 1001));
	lease_hear(&lease, 5, 1000, LEASE_NS, 500000000);
	assert_false(lease_expired(&lease, 1000 + LEASE_NS - 1));
	lease_hear(&lease, 6, 1000, LEASE_NS, 900000000); /* heard again, with nothing new of ours */
	assert_true(lease_expired(&lease, 1000 + LEASE_NS));
	lease_hear(&lease, 7, 5000, LEASE_NS, 900000000); /* of a stamp that was never sent */
	assert_true(lease_expired(&lease, 1000 + LEASE_NS));
}

static void stamps_that_are_missing_are_noticed(void **state)
{
	const uint64_t interval_ns = LEASE_NS / 8;
	struct lease lease;

	(void)state;
	lease_init(&lease, LEASE_NS, 1);
	assert_false(lease_was_silent(&lease, 10 * LEASE_NS)); /* it has not said a word yet */
	lease_hear(&lease, 5, 0, LEASE_NS, LEASE_NS);
	assert_false(lease_was_silent(&lease, LEASE_NS + 2 * interval_ns));
	assert_true(lease_was_silent(&lease, LEASE_NS + 2 * interval_ns + 1));
}

/* Whatever messages are lost or late: when one side is sure that the other has fenced, it has. */
static void nobody_counts_on_a_lease_that_still_runs(void **state)
{
	struct lease holder, user;
	uint64_t sent = 0, told = LEASE_NS, executes_until;

	(void)state;
	lease_init(&holder, LEASE_NS, 1);
	lease_init(&user, LEASE_NS, 1);
	executes_until = lease_extended(&holder);
	for (uint64_t now = 1, random = 1; now < 100 * LEASE_NS; now += LEASE_NS / 16) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		if (lease_is_over(&user, now) && user.theirs_ns != 0)
			assert_true(lease_expired(&holder, now) && now >= executes_until);
		if (random >> 40 & 1) /* layers come and go */
			lease_want(&holder, LEASE_NS >> (random >> 41 & 3));
		if (lease_must_send(&holder, now)) {
			lease_sent(&holder, sent = now);
			told = lease_promise(&holder, now);
		}
		if (lease_must_send(&user, now))
			lease_sent(&user, now);
		if (random >> 60 < 3) /* late by anything: what is delivered was sent before */
			lease_hear(&user, sent, holder.stamp, told, now);
		if (random >> 58 < 9)
			lease_hear(&holder, user.sent_ns, user.stamp, LEASE_NS, now);
		if (!lease_expired(&holder, now) && lease_extended(&holder) > executes_until)
			executes_until = lease_extended(&holder);
	}
	assert_true(sent > 0);
}

/* Stamps of the longer lease are rarer than the shorter one lasts: it would be over without a fault. */
static void a_shorter_lease_holds_when_the_other_side_has_heard_of_it(void **state)
{
	struct lease lease;

	(void)state;
	lease_init(&lease, LEASE_NS, 100);
	assert_int_equal(lease_extended(&lease), 100 + LEASE_NS);
	lease_sent(&lease, 1000);
	assert_false(lease_must_send(&lease, 1001));
	lease_want(&lease, LEASE_NS / 4);
	assert_true(lease_must_send(&lease, 2000)); /* it is told now */
	lease_sent(&lease, 2000);
	assert_int_equal(lease_promise(&lease, 2000), LEASE_NS);
	lease_hear(&lease, 7, 1000, LEASE_NS, 3000); /* a stamp from before */
	assert_false(lease_expired(&lease, 1000 + LEASE_NS / 4));
	lease_hear(&lease, 8, 2000, LEASE_NS, 4000);
	assert_true(lease_expired(&lease, 2000 + LEASE_NS / 4));
	assert_true(lease_must_send(&lease, 4000)); /* a promise of less */
	/* But a device executes until then, whatever this side knows. */
	assert_int_equal(lease_promise(&lease, 4000), 100 + LEASE_NS - 4000);
	assert_int_equal(lease_promise(&lease, 100 + LEASE_NS), LEASE_NS / 4);
}

static void a_longer_lease_holds_when_the_other_side_has_heard_of_it(void **state)
{
	struct lease lease;

	(void)state;
	lease_init(&lease, LEASE_NS / 4, 100);
	lease_sent(&lease, 1000);
	lease_want(&lease, LEASE_NS);
	assert_true(lease_must_send(&lease, 2000));
	lease_sent(&lease, 2000);
	assert_int_equal(lease_promise(&lease, 2000), LEASE_NS);
	lease_hear(&lease, 7, 1000, LEASE_NS, 3000); /* a stamp from before */
	assert_true(lease_expired(&lease, 1000 + LEASE_NS / 4));
	lease_hear(&lease, 8, 2000, LEASE_NS, 4000);
	assert_false(lease_expired(&lease, 2000 + LEASE_NS / 4));
	assert_true(lease_expired(&lease, 2000 + LEASE_NS));
}

/* Time in which this side did not run does not count: what was said meanwhile is yet to be read. */
static void silence_counts_only_while_this_side_runs(void **state)
{
	const uint64_t tick_ns = 20000000, all_ns = lease_with_margin(LEASE_NS);
	struct lease lease;
	uint64_t now_ns;

	(void)state;
	lease_init(&lease, LEASE_NS, 0);
	lease_hear(&lease, 7, 0, LEASE_NS, 0);
	assert_false(lease_is_silent(&lease, 10 * LEASE_NS)); /* it stood still */
	lease_hear(&lease, 8, 0, LEASE_NS, 10 * LEASE_NS);
	for (now_ns = 10 * LEASE_NS; now_ns < 10 * LEASE_NS + all_ns; now_ns += tick_ns)
		assert_false(lease_is_silent(&lease, now_ns));
	assert_true(lease_is_silent(&lease, now_ns));
}

/* A faulty peer costs a message now and then. */
static void no_promise_makes_a_side_send_all_the_time(void **state)
{
	struct lease lease;

	(void)state;
	lease_init(&lease, LEASE_NS, 0);
	lease_hear(&lease, 7, 0, 1, 0);
	lease_sent(&lease, LEASE_NS);
	assert_false(lease_must_send(&lease, LEASE_NS + 500000));
}

static void a_peer_may_wish_for_a_lease_that_heartbeats_fit_into(void **state)
{
	struct pair pair;
	uint64_t least_ns;

	(void)state;
	pair_open(&pair, HF_POLICY_VARUNA);
	pair_connect(&pair);
	least_ns = listeners_least_lease_ns(pair.a.node);
	pair.a.peer->wish_ns = least_ns + 1;
	peer_refresh_lease(pair.a.peer);
	assert_int_equal(pair.a.peer->lease.told_ns, least_ns + 1);
	pair.a.peer->wish_ns = 1;
	peer_refresh_lease(pair.a.peer);
	assert_int_equal(pair.a.peer->lease.told_ns, least_ns);
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lease_lasts_from_the_newest_stamp_that_came_back),
		cmocka_unit_test(stamps_that_are_missing_are_noticed),
		cmocka_unit_test(nobody_counts_on_a_lease_that_still_runs),
		cmocka_unit_test(a_shorter_lease_holds_when_the_other_side_has_heard_of_it),
		cmocka_unit_test(a_longer_lease_holds_when_the_other_side_has_heard_of_it),
		cmocka_unit_test(silence_counts_only_while_this_side_runs),
		cmocka_unit_test(no_promise_makes_a_side_send_all_the_time),
		cmocka_unit_test(a_peer_may_wish_for_a_lease_that_heartbeats_fit_into),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
