#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include "kv/recovery.h"

static void run_one(struct recovery *recovery, uint64_t epoch, uint64_t from_ns)
{
	struct hf_kv_recovery_status how = {.healed = true, .records = 7};

	kv_recovery_admitted(recovery, epoch, from_ns);
	kv_recovery_asked(recovery, from_ns + 10);
	kv_recovery_answered(recovery, from_ns + 30);
	kv_recovery_answered(recovery, from_ns + 35);
	kv_recovery_ended(recovery, &how, from_ns + 100);
}

static void recovery_has_three_steps(void **state)
{
	struct recovery recovery = {0};
	struct hf_kv_recovery_status list[HF_KV_RECOVERIES_KEPT];

	(void)state;
	run_one(&recovery, 5, 1000);
	assert_int_equal(kv_recovery_list(&recovery, list), 1);
	assert_int_equal(list[0].epoch, 5);
	assert_int_equal(list[0].records, 7);
	assert_int_equal(list[0].start_to_ack_ns, 10);
	assert_int_equal(list[0].catch_up_to_resp_ns, 20);
	assert_int_equal(list[0].apply_to_end_ns, 70);
}

static void another_buddy_begins_the_second_step_anew(void **state)
{
	struct recovery recovery = {0};
	struct hf_kv_recovery_status how = {0}, list[HF_KV_RECOVERIES_KEPT];

	(void)state;
	kv_recovery_admitted(&recovery, 1, 0);
	kv_recovery_asked(&recovery, 10);
	kv_recovery_answered(&recovery, 20);
	kv_recovery_asked(&recovery, 50);
	kv_recovery_answered(&recovery, 55);
	kv_recovery_ended(&recovery, &how, 60);
	assert_int_equal(kv_recovery_list(&recovery, list), 1);
	assert_int_equal(list[0].start_to_ack_ns, 50);
	assert_int_equal(list[0].catch_up_to_resp_ns, 5);
	assert_int_equal(list[0].apply_to_end_ns, 5);
}

static void recovery_that_was_cut_short_is_not_listed(void **state)
{
	struct recovery recovery = {0};
	struct hf_kv_recovery_status how = {0}, list[HF_KV_RECOVERIES_KEPT];

	(void)state;
	kv_recovery_ended(&recovery, &how, 5); /* a founder */
	kv_recovery_admitted(&recovery, 1, 0);
	kv_recovery_asked(&recovery, 10);
	kv_recovery_answered(&recovery, 20);
	kv_recovery_stopped(&recovery);
	kv_recovery_ended(&recovery, &how, 60);
	assert_int_equal(kv_recovery_list(&recovery, list), 0);
}

static void last_ones_are_kept_and_the_last_is_first(void **state)
{
	struct recovery recovery = {0};
	struct hf_kv_recovery_status list[HF_KV_RECOVERIES_KEPT];

	(void)state;
	for (unsigned i = 1; i <= HF_KV_RECOVERIES_KEPT + 3; i++)
		run_one(&recovery, i, i * 1000);
	assert_int_equal(kv_recovery_list(&recovery, list), HF_KV_RECOVERIES_KEPT);
	assert_int_equal(list[0].epoch, HF_KV_RECOVERIES_KEPT + 3);
	assert_int_equal(list[HF_KV_RECOVERIES_KEPT - 1].epoch, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recovery_has_three_steps),
		cmocka_unit_test(another_buddy_begins_the_second_step_anew),
		cmocka_unit_test(recovery_that_was_cut_short_is_not_listed),
		cmocka_unit_test(last_ones_are_kept_and_the_last_is_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
