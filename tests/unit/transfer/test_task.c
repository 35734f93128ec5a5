/* One owner request, step by step: who carries it, when it moves, how it ends (rules R-T1, R-T2, R-T6, R-T9, R-T19). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "transfer/task.h"

#define LENGTH 100u
#define GRACE  1000u
#define RDMA   0u
#define SHM    1u
#define TCP    2u
#define ALL    7u

static struct task_config config;
static struct task task;
static uint64_t now_ns;

static int begin(void **state)
{
	(void)state;
	config = (struct task_config){.max_failover_attempts = 3, .cancel_grace_ns = GRACE};
	now_ns = 0;
	task_init(&task, &config, LENGTH);
	return ranges_reserve(&task.done, 8);
}

static int finish(void **state)
{
	(void)state;
	task_free(&task);
	return 0;
}

static unsigned step_reaching(enum task_event_type type, uint32_t reachable)
{
	return task_step(&task, &(struct task_event){.type = type, .reachable = reachable}, now_ns);
}

static unsigned step(enum task_event_type type)
{
	return step_reaching(type, ALL);
}

static void done(uint64_t from, uint64_t to)
{
	const struct task_event event = {.type = TASK_EVENT_DONE, .done = {.begin = from, .end = to}};

	assert_int_equal(task_step(&task, &event, now_ns), 0);
}

static void start(void)
{
	assert_int_equal(step(TASK_EVENT_BEGIN), TASK_SUBMIT);
	assert_int_equal(step(TASK_EVENT_ACCEPTED), 0);
	assert_int_equal(task.status, HF_TRANSFER_PENDING);
}

/* The transport gives the task up and no slice is out any more. */
static unsigned fail_over(void)
{
	assert_int_equal(step(TASK_EVENT_GIVEN_UP), TASK_WITHDRAW);
	return step(TASK_EVENT_DRAINED);
}

static void a_task_is_completed_when_every_byte_is_in_place(void **state)
{
	(void)state;
	start();
	done(40, LENGTH);
	done(0, 40);
	assert_int_equal(task.status, HF_TRANSFER_PENDING);
	assert_int_equal(step(TASK_EVENT_DRAINED), TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_COMPLETED);
}

/* R-T2: the caller reuses its buffers at a terminal status, so none is told while a slice may arrive. */
static void no_status_is_final_before_the_last_slice_has_ended(void **state)
{
	static const struct {
		enum task_event_type event;
		enum hf_transfer_status status;
	} ends[] = {{TASK_EVENT_CANCEL, HF_TRANSFER_CANCELED}, {TASK_EVENT_DEADLINE, HF_TRANSFER_TIMEOUT},
		{TASK_EVENT_PROGRAM_ERROR, HF_TRANSFER_FAILED}};

	for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		start();
		(void)step(ends[i].event);
		assert_int_equal(task.status, HF_TRANSFER_PENDING);
		assert_int_equal(step(TASK_EVENT_DRAINED), TASK_END);
		assert_int_equal(task.status, ends[i].status);
		task_free(&task);
		assert_int_equal(begin(state), 0);
	}
}

static void a_failover_submits_to_the_next_transport_that_reaches_the_peer(void **state)
{
	(void)state;
	start();
	assert_int_equal(step(TASK_EVENT_GIVEN_UP), TASK_WITHDRAW);
	assert_int_equal(step_reaching(TASK_EVENT_DRAINED, 1u << RDMA | 1u << TCP), TASK_SUBMIT);
	assert_int_equal(task.xport_priority, TCP);
	assert_int_equal(task.status, HF_TRANSFER_PENDING);
	assert_int_equal(step(TASK_EVENT_ACCEPTED), TASK_SWITCHED);
	assert_int_equal(task.from_priority, RDMA);
	assert_int_equal(task.failover_count, 1);
}

/* R-T9: a switch that the next transport refused is neither logged nor counted, but spends the budget. */
static void a_refused_submit_moves_on_and_is_no_switch(void **state)
{
	(void)state;
	start();
	assert_int_equal(fail_over(), TASK_SUBMIT);
	assert_int_equal(step(TASK_EVENT_REFUSED), TASK_SUBMIT);
	assert_int_equal(task.xport_priority, TCP);
	assert_int_equal(step(TASK_EVENT_ACCEPTED), TASK_SWITCHED);
	assert_int_equal(task.from_priority, RDMA);
	assert_int_equal(task.failover_count, 2);
}

static void a_first_submit_that_is_refused_fails_over(void **state)
{
	(void)state;
	assert_int_equal(step(TASK_EVENT_BEGIN), TASK_SUBMIT);
	assert_int_equal(step(TASK_EVENT_REFUSED), TASK_SUBMIT);
	assert_int_equal(step(TASK_EVENT_ACCEPTED), TASK_SWITCHED);
	assert_int_equal(task.from_priority, RDMA);
	assert_int_equal(task.xport_priority, SHM);
}

static void an_invalid_request_is_not_tried_elsewhere(void **state)
{
	(void)state;
	assert_int_equal(step(TASK_EVENT_BEGIN), TASK_SUBMIT);
	assert_int_equal(step(TASK_EVENT_INVALID), TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_INVALID);
}

/* R-T6 */
static void ranges_that_are_done_stay_done_across_a_failover(void **state)
{
	struct range hole;

	(void)state;
	start();
	done(0, 60);
	assert_int_equal(fail_over(), TASK_SUBMIT);
	assert_true(ranges_next_hole(&task.done, 0, LENGTH, &hole));
	assert_int_equal(hole.begin, 60);
	assert_int_equal(step(TASK_EVENT_ACCEPTED), TASK_SWITCHED);
	done(60, LENGTH);
	assert_int_equal(step(TASK_EVENT_DRAINED), TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_COMPLETED);
}

static void the_last_slice_may_complete_a_task_that_was_given_up(void **state)
{
	(void)state;
	start();
	assert_int_equal(step(TASK_EVENT_GIVEN_UP), TASK_WITHDRAW);
	done(0, LENGTH);
	assert_int_equal(step(TASK_EVENT_DRAINED), TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_COMPLETED);
	assert_int_equal(task.failover_count, 0);
}

static void max_failover_attempts_one_allows_a_single_failover(void **state)
{
	(void)state;
	config.max_failover_attempts = 1;
	start();
	assert_int_equal(fail_over(), TASK_SUBMIT);
	assert_int_equal(step(TASK_EVENT_ACCEPTED), TASK_SWITCHED);
	assert_int_equal(fail_over(), TASK_LIMIT | TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_FAILED);
}

static void max_failover_attempts_zero_disables_failover(void **state)
{
	(void)state;
	config.max_failover_attempts = 0;
	start();
	assert_int_equal(fail_over(), TASK_LIMIT | TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_FAILED);
}

static void a_task_without_a_further_transport_fails(void **state)
{
	(void)state;
	start();
	assert_int_equal(step(TASK_EVENT_GIVEN_UP), TASK_WITHDRAW);
	assert_int_equal(step_reaching(TASK_EVENT_DRAINED, 1u << RDMA), TASK_NO_MORE | TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_FAILED);
}

static void a_peer_that_no_transport_reaches_fails_the_task_at_once(void **state)
{
	(void)state;
	assert_int_equal(step_reaching(TASK_EVENT_BEGIN, 0), TASK_NO_MORE | TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_FAILED);
}

/* R-T19 */
static void a_cancel_withdraws_what_is_out_after_the_grace(void **state)
{
	(void)state;
	start();
	assert_int_equal(step(TASK_EVENT_CANCEL), 0);
	assert_int_equal(task_wake_ns(&task), GRACE);
	now_ns = GRACE;
	assert_int_equal(step(TASK_EVENT_TICK), TASK_WITHDRAW);
	assert_int_equal(task_wake_ns(&task), UINT64_MAX);
	assert_int_equal(step(TASK_EVENT_TICK), 0);
}

static void a_deadline_withdraws_at_once_also_within_the_grace(void **state)
{
	(void)state;
	start();
	assert_int_equal(step(TASK_EVENT_CANCEL), 0);
	assert_int_equal(step(TASK_EVENT_DEADLINE), TASK_WITHDRAW);
	assert_int_equal(step(TASK_EVENT_DRAINED), TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_CANCELED); /* the first reason */
}

static void a_cancel_ends_a_failover_under_way(void **state)
{
	(void)state;
	start();
	assert_int_equal(step(TASK_EVENT_GIVEN_UP), TASK_WITHDRAW);
	assert_int_equal(step(TASK_EVENT_CANCEL), 0);
	assert_int_equal(step(TASK_EVENT_DRAINED), TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_CANCELED);
}

static void cancel_deadline_and_completion_at_one_moment_end_once(void **state)
{
	(void)state;
	start();
	done(0, LENGTH);
	assert_int_equal(step(TASK_EVENT_CANCEL), 0);
	assert_int_equal(step(TASK_EVENT_DEADLINE), TASK_WITHDRAW);
	assert_int_equal(step(TASK_EVENT_DRAINED), TASK_END);
	assert_int_equal(task.status, HF_TRANSFER_COMPLETED);
	assert_int_equal(step(TASK_EVENT_CANCEL), 0);
	assert_int_equal(step(TASK_EVENT_DEADLINE), 0);
	assert_int_equal(task.status, HF_TRANSFER_COMPLETED);
}

#define TASK_TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TASK_TEST(a_task_is_completed_when_every_byte_is_in_place),
		TASK_TEST(no_status_is_final_before_the_last_slice_has_ended),
		TASK_TEST(a_failover_submits_to_the_next_transport_that_reaches_the_peer),
		TASK_TEST(a_refused_submit_moves_on_and_is_no_switch),
		TASK_TEST(a_first_submit_that_is_refused_fails_over),
		TASK_TEST(an_invalid_request_is_not_tried_elsewhere),
		TASK_TEST(ranges_that_are_done_stay_done_across_a_failover),
		TASK_TEST(the_last_slice_may_complete_a_task_that_was_given_up),
		TASK_TEST(max_failover_attempts_one_allows_a_single_failover),
		TASK_TEST(max_failover_attempts_zero_disables_failover),
		TASK_TEST(a_task_without_a_further_transport_fails),
		TASK_TEST(a_peer_that_no_transport_reaches_fails_the_task_at_once),
		TASK_TEST(a_cancel_withdraws_what_is_out_after_the_grace),
		TASK_TEST(a_deadline_withdraws_at_once_also_within_the_grace),
		TASK_TEST(a_cancel_ends_a_failover_under_way),
		TASK_TEST(cancel_deadline_and_completion_at_one_moment_end_once),
	};

	return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
