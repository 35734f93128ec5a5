/* Leases across the restart of a machine, whose boot clock begins anew; and members across a turn that is late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kv/council_parts.h"
#include "kv/engine.h"

#define COLD_WAIT_NS 50u
#define OTHER        1u
#define LEASE_NS     100000000ull
#define ASKED_NS     1000000000000ull

/* The bytes of its report do not matter. */
static void hear_ask(struct hf_kv *kv, uint64_t incarnation, uint64_t asked_ns)
{
	static const uint8_t report[32 + TOLD_BYTES + TOLD_BYTES * HF_KV_MEMBERS_MAX];
	struct wire_message message = {.kind = WIRE_ASK,
		.write = asked_ns,
		.ts = {.version = incarnation, .node = OTHER},
		.value = report,
		.value_bytes = sizeof(report)};

	assert_true(kv_council_hear(kv, OTHER, &message));
}

static void hear_grant(struct hf_kv *kv, uint64_t asked_ns)
{
	assert_true(kv_council_hear(kv, OTHER, &(struct wire_message){.kind = WIRE_GRANT, .write = asked_ns}));
}

static int set_up(void **state)
{
	struct hf_kv *kv = calloc(1, sizeof(*kv));

	*state = kv;
	if (kv == NULL || hf_loop_create(hf_env_host(), &kv->loop) != 0)
		return -1;
	kv->env = hf_env_host();
	kv->config.member_count = 2;
	kv->council.lease_ns = LEASE_NS;
	list_init(&kv->unleased);
	return 0;
}

static int tear_down(void **state)
{
	struct hf_kv *kv = *state;

	hf_loop_destroy(kv->loop);
	free(kv);
	return 0;
}

/* The first process asked a leader that was one no longer when it could have granted, and is one again. */
static void no_process_gets_what_the_one_before_it_asked_for(void **state)
{
	struct hf_kv *kv = *state;

	kv->council.leads = true;
	hear_ask(kv, 7, ASKED_NS);
	assert_int_equal(kv->council.asked_ns[OTHER], ASKED_NS);
	kv->council.granting_ns[OTHER] = ASKED_NS;
	kv->council.leads = false;
	hear_ask(kv, 8, 1);
	assert_int_equal(kv->council.asked_ns[OTHER], 0);
	assert_int_equal(kv->council.granting_ns[OTHER], 0);
}

static void a_lease_is_not_longer_than_it_can_be(void **state)
{
	struct hf_kv *kv = *state;
	uint64_t now_ns = hf_env_boot_ns(kv->env);

	hear_grant(kv, now_ns + 1000 * LEASE_NS);
	assert_false(kv_council_has_lease(kv));
	hear_grant(kv, now_ns);
	assert_true(kv_council_lease_left_ns(kv) <= LEASE_NS);
	assert_int_equal(kv->council.lease_until_ns, now_ns + LEASE_NS);
}

/* A member is not silent for the time in which nobody listened; nor is it heard by that. */
static void time_that_nobody_attended_to_counts_against_no_member(void **state)
{
	struct hf_kv *kv = *state;
	struct council_report *report = &kv->council.reports[OTHER];

	kv->council.suspect_ns = LEASE_NS / 2;
	hf_loop_turn(kv->loop, 0);
	hear_ask(kv, 1, ASKED_NS);
	for (uint64_t until_ns = hf_env_now_ns(kv->env) + LEASE_NS; hf_env_now_ns(kv->env) < until_ns;)
		sched_yield();
	hf_loop_turn(kv->loop, 0);
	assert_true(hf_loop_gaps_ns(kv->loop) > LEASE_NS / 2);
	assert_true(kv_council_hears(kv, OTHER));
	report->heard_ns -= LEASE_NS / 2;
	assert_false(kv_council_hears(kv, OTHER));
}

static char logged[2048];

static void collect(enum log_level level, const char *line, void *context)
{
	size_t used = strlen(logged);

	(void)context;
	if (level >= LOG_WARN)
		snprintf(logged + used, sizeof(logged) - used, "%s\n", line);
}

/* It cannot name the last process of its member yet, whose part of the store's log may be all there. */
static void a_membership_log_that_lags_is_no_older_copy_of_a_store(void **state)
{
	struct hf_kv *kv = *state;
	struct council_report *report = &kv->council.reports[OTHER];
	uint64_t now_ns = hf_loop_now_ns(kv->loop);

	kv->council.cold_wait_ns = COLD_WAIT_NS;
	kv->council.decided_ns = now_ns;
	kv->council.suspect_ns = UINT64_MAX - now_ns;
	kv->council.leads = true;
	kv->council.smr = (void *)kv; /* nothing is proposed */
	kv->cm.epoch = 3;
	for (unsigned i = 0; i < kv->config.member_count; i++)
		kv->cm.nodes[i] = (struct cm_node){.state = CM_MEMBER, .incarnation = 7, .member_join = 2};
	*report = (struct council_report){.heard = true,
		.heard_ns = now_ns,
		.incarnation = 8,
		.epoch = 2,
		.complete = 2,
		.kept = {.incarnation = 6, .durable = 100}};
	log_set_sink(collect, NULL);
	assert_false(kv_council_propose(kv, now_ns + COLD_WAIT_NS));
	assert_null(strstr(logged, "lags"));
	assert_false(kv_council_propose(kv, now_ns + COLD_WAIT_NS + 1));
	assert_false(kv_council_propose(kv, now_ns + COLD_WAIT_NS + 1));
	log_set_sink(NULL, NULL);
	kv->council.smr = NULL;
	assert_non_null(strstr(logged, "lags: it has epoch 2 of 3"));
	assert_null(strstr(strstr(logged, "lags") + 1, "lags"));
	assert_null(strstr(logged, "older copy"));
	assert_null(strstr(logged, "no connected member has all records"));
}

/* Its next process holds the lock of a copy, whose list of members names a process before: that one has ended. */
static void a_lock_ends_no_other_process_than_the_one_that_it_names(void **state)
{
	struct hf_kv *kv = *state;
	uint64_t now_ns = hf_loop_now_ns(kv->loop);

	kv->council.suspect_ns = UINT64_MAX - now_ns;
	kv->council.leads = kv->council.silent = true;
	kv->council.led_ns = hf_env_boot_ns(kv->env);
	kv->council.lease_ns = 1000 * LEASE_NS;
	kv->council.smr = (void *)kv; /* nothing is proposed */
	kv->cm.epoch = 3;
	for (unsigned i = 0; i < kv->config.member_count; i++) {
		kv->cm.nodes[i] = (struct cm_node){.state = CM_MEMBER, .incarnation = 7, .member_join = 2};
		kv->council.reports[i] = (struct council_report){
			.heard = true, .heard_ns = now_ns, .incarnation = 7, .epoch = 3, .note = WIRE_NOTE_ENDED};
	}
	kv->cm.nodes[OTHER].suspicion = kv->cm.suspicions = 1;
	kv->council.reports[OTHER].incarnation = 8;
	kv->council.reports[OTHER].kept.incarnation = 6;
	assert_false(kv_council_propose(kv, now_ns));
	assert_true(kv->council.look_ns > now_ns && kv->council.look_ns != UINT64_MAX); /* when the lease is over */
	kv->council.smr = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(no_process_gets_what_the_one_before_it_asked_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_lease_is_not_longer_than_it_can_be, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			time_that_nobody_attended_to_counts_against_no_member, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_membership_log_that_lags_is_no_older_copy_of_a_store, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_lock_ends_no_other_process_than_the_one_that_it_names, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
