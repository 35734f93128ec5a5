/* When a loop sleeps, for how long, and what it does before: in a world that counts, whose time passes in turns and in
 * sleeps. What the kernel is asked for is looked at on the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/prctl.h>

#include "base/list.h"
#include "env/world.h"

#define US       1000ull
#define TURN_NS  100u
#define SPIN_NS  (20 * US)
#define PULSE_NS (30 * US)
#define LONG_NS  (3600 * 1000000000ull)

struct world_waiter {
	uint64_t slack_ns, slept_ns;
	unsigned looks, sleeps; /* waits that were not to sleep, and those that were */
};

static uint64_t time_ns, yield_ns, late_ns; /* that a yield takes; how late a sleep ends */
static struct world_waiter waiter;
static struct world_ops ops;
static struct hf_env world = {.ops = &ops};
static struct hf_loop *loop;

static uint64_t now_ns(struct hf_env *env)
{
	(void)env;
	return time_ns += TURN_NS;
}

static void relax(struct hf_env *env)
{
	(void)env;
	time_ns += yield_ns;
}

static int waiter_open(struct hf_env *env, struct hf_loop *of, struct world_waiter **waiter_out)
{
	(void)env, (void)of;
	waiter = (struct world_waiter){0};
	*waiter_out = &waiter;
	return 0;
}

static void waiter_close(struct world_waiter *closed)
{
	(void)closed;
}

static unsigned waiter_wait(struct world_waiter *waiting, uint64_t max_ns)
{
	if (max_ns == 0) {
		waiting->looks++;
		return 0;
	}
	waiting->sleeps++;
	waiting->slept_ns += max_ns;
	time_ns += max_ns + late_ns;
	return 0;
}

static void waiter_slack(struct world_waiter *of, uint64_t slack_ns)
{
	of->slack_ns = slack_ns;
}

static int set_up(void **state)
{
	(void)state;
	ops = (struct world_ops){
		.spin_ns = SPIN_NS,
		.relax = relax,
		.now_ns = now_ns,
		.waiter_open = waiter_open,
		.waiter_close = waiter_close,
		.waiter_wait = waiter_wait,
		.waiter_slack = waiter_slack,
	};
	time_ns = 1000000 * US;
	yield_ns = late_ns = 0;
	return hf_loop_create(&world, &loop);
}

static int tear_down(void **state)
{
	(void)state;
	hf_loop_destroy(loop);
	return 0;
}

struct counted_poller {
	struct hf_poller poller;
	unsigned polls, work; /* polls so far; how many of those to come find something */
};

static enum hf_poll poll_counted(struct hf_poller *poller, uint64_t at_ns)
{
	struct counted_poller *counted = container_of(poller, struct counted_poller, poller);

	(void)at_ns;
	counted->polls++;
	if (counted->work == 0)
		return HF_IDLE;
	counted->work--;
	return HF_BUSY;
}

/* Turns until the loop sleeps, that one included. */
static unsigned turns_until_sleep_of(uint64_t max_ns)
{
	unsigned turns = 0;

	for (unsigned before = waiter.sleeps; waiter.sleeps == before; turns++)
		hf_loop_turn(loop, max_ns);
	return turns;
}

static unsigned turns_until_sleep(void)
{
	return turns_until_sleep_of(LONG_NS);
}

struct pulse {
	struct hf_timer timer;
	struct counted_poller *gives_work;
	unsigned fired;
	bool once;
};

static void fire_pulse(struct hf_timer *timer, uint64_t at_ns)
{
	struct pulse *pulse = container_of(timer, struct pulse, timer);

	pulse->fired++;
	if (pulse->gives_work != NULL)
		pulse->gives_work->work++;
	if (!pulse->once)
		hf_loop_set_timer(loop, timer, at_ns + PULSE_NS);
}

static void a_loop_spins_after_a_timer_unless_it_is_quiet(void **state)
{
	struct counted_poller poller = {.poller.poll = poll_counted};
	struct pulse pulse = {.timer = {.fire = fire_pulse}, .once = true};

	(void)state;
	hf_loop_add_poller(loop, &poller.poller);
	turns_until_sleep();
	hf_loop_set_timer(loop, &pulse.timer, time_ns);
	assert_in_range(turns_until_sleep(), SPIN_NS / TURN_NS / 2, SPIN_NS / TURN_NS + 2);
	pulse.timer.quiet = true;
	hf_loop_set_timer(loop, &pulse.timer, time_ns);
	assert_int_equal(turns_until_sleep(), 2);
	assert_int_equal(pulse.fired, 2);
	hf_loop_remove_poller(loop, &poller.poller);
}

static void a_pulse_leaves_the_core_to_others(void **state)
{
	struct counted_poller poller = {.poller.poll = poll_counted};
	struct pulse pulse = {.timer = {.fire = fire_pulse, .quiet = true}};
	uint64_t begin_ns;

	(void)state;
	hf_loop_add_poller(loop, &poller.poller);
	turns_until_sleep();
	begin_ns = time_ns;
	waiter.slept_ns = 0;
	poller.polls = 0;
	hf_loop_set_timer(loop, &pulse.timer, time_ns);
	while (pulse.fired < 1000)
		hf_loop_turn(loop, LONG_NS);
	assert_in_range(poller.polls, 1999, 2001); /* where it fires, and what it may have given to do */
	assert_true(waiter.slept_ns > (time_ns - begin_ns) / 10 * 9);
	hf_loop_cancel_timer(loop, &pulse.timer);
	hf_loop_remove_poller(loop, &poller.poller);
}

static void what_a_quiet_timer_gives_to_do_is_done_before_the_loop_sleeps(void **state)
{
	struct counted_poller poller = {.poller.poll = poll_counted};
	struct pulse pulse = {.timer = {.fire = fire_pulse, .quiet = true}, .gives_work = &poller, .once = true};

	(void)state;
	hf_loop_add_poller(loop, &poller.poller);
	turns_until_sleep();
	hf_loop_set_timer(loop, &pulse.timer, time_ns);
	assert_true(turns_until_sleep() > SPIN_NS / TURN_NS / 2); /* that was work */
	assert_int_equal(poller.work, 0);
	hf_loop_remove_poller(loop, &poller.poller);
}

static void a_turn_before_a_sleep_outside_of_turns_follows_a_quiet_timer_too(void **state)
{
	struct pulse pulse = {.timer = {.fire = fire_pulse, .quiet = true}, .once = true};

	(void)state;
	turns_until_sleep();
	hf_loop_set_timer(loop, &pulse.timer, time_ns);
	hf_loop_turn(loop, 0);
	assert_int_equal(pulse.fired, 1);
	assert_int_equal(hf_loop_prepare(loop, LONG_NS), 0);
	hf_loop_turn(loop, 0);
	assert_int_equal(hf_loop_prepare(loop, LONG_NS), LONG_NS);
}

static void a_loop_spins_for_as_long_as_it_was_told(void **state)
{
	struct counted_poller poller = {.poller.poll = poll_counted, .work = 1};

	(void)state;
	hf_loop_add_poller(loop, &poller.poller);
	hf_loop_set_spin(loop, 0);
	assert_int_equal(turns_until_sleep(), 2);
	poller.work = 1;
	hf_loop_set_spin(loop, 100 * US);
	assert_in_range(turns_until_sleep(), 100 * US / TURN_NS / 2, 100 * US / TURN_NS + 2);
	hf_loop_set_spin(loop, UINT64_MAX);
	waiter.sleeps = 0;
	for (unsigned turn = 0; turn < 100000; turn++)
		hf_loop_turn(loop, LONG_NS);
	assert_int_equal(waiter.sleeps, 0);
	hf_loop_remove_poller(loop, &poller.poller);
}

static void work_once(struct counted_poller *poller)
{
	poller->work = 1;
	hf_loop_turn(loop, LONG_NS);
}

static void a_loop_that_lost_the_core_by_a_yield_sleeps_for_some_time(void **state)
{
	struct counted_poller poller = {.poller.poll = poll_counted};
	uint64_t lost_ns = 0;

	(void)state;
	hf_loop_add_poller(loop, &poller.poller);
	yield_ns = 3000 * US;
	work_once(&poller);
	turns_until_sleep_of(US);
	yield_ns = 0;
	work_once(&poller);
	assert_int_equal(turns_until_sleep_of(US), 1);
	time_ns += 20000 * US;
	work_once(&poller);
	assert_true(turns_until_sleep_of(US) > SPIN_NS / TURN_NS / 2);

	/* where every yield is lost, little of a second is */
	yield_ns = 3000 * US;
	for (uint64_t end_ns = time_ns + 10000000 * US; time_ns < end_ns; time_ns += 100 * US) {
		uint64_t before_ns = time_ns;

		work_once(&poller);
		turns_until_sleep_of(1);
		lost_ns += time_ns - before_ns >= yield_ns ? yield_ns : 0;
	}
	assert_in_range(lost_ns, 1, 200000 * US);
	hf_loop_set_spin(loop, UINT64_MAX);
	waiter.sleeps = 0;
	for (unsigned turn = 0; turn < 1000; turn++)
		hf_loop_turn(loop, LONG_NS);
	assert_int_equal(waiter.sleeps, 0);
	hf_loop_remove_poller(loop, &poller.poller);
}

/* While pollers find work, descriptors are looked at now and then, also by a loop that does not spin. */
static void a_busy_loop_that_does_not_spin_looks_at_descriptors_now_and_then(void **state)
{
	struct counted_poller poller = {.poller.poll = poll_counted, .work = 10000};

	(void)state;
	hf_loop_add_poller(loop, &poller.poller);
	hf_loop_set_spin(loop, 0);
	while (poller.work > 0)
		hf_loop_turn(loop, LONG_NS);
	assert_in_range(waiter.looks, 10, 1000);
	hf_loop_remove_poller(loop, &poller.poller);
}

/* As on one core, where whoever the loop waits for can run only while it sleeps. */
static void where_no_loop_spins_none_does(void **state)
{
	struct counted_poller poller = {.poller.poll = poll_counted, .work = 1};

	(void)state;
	hf_loop_destroy(loop);
	ops.spin_ns = 0;
	assert_int_equal(hf_loop_create(&world, &loop), 0);
	hf_loop_add_poller(loop, &poller.poller);
	hf_loop_set_spin(loop, UINT64_MAX);
	assert_int_equal(turns_until_sleep(), 2);
	hf_loop_remove_poller(loop, &poller.poller);
}

static enum hf_poll poll_long(struct hf_poller *poller, uint64_t at_ns)
{
	(void)poller, (void)at_ns;
	time_ns += 50000 * US;
	return HF_IDLE;
}

static uint64_t unattended_ns(void)
{
	return hf_loop_now_ns(loop) - hf_loop_attended_ns(loop);
}

static void nobody_attends_to_a_long_turn_a_late_wake_or_the_time_between_turns(void **state)
{
	struct hf_poller poller = {.poll = poll_long};

	(void)state;
	turns_until_sleep();
	assert_int_equal(unattended_ns(), 0); /* a sleep of an hour, and short turns */
	late_ns = 900 * US;
	turns_until_sleep();
	assert_int_equal(unattended_ns(), 0);
	late_ns = 300000 * US;
	turns_until_sleep();
	assert_in_range(unattended_ns(), 298000 * US, 300000 * US);
	late_ns = 0;
	hf_loop_turn(loop, 0);
	time_ns += 70000 * US;
	hf_loop_turn(loop, 0);
	assert_in_range(unattended_ns(), 367000 * US, 370000 * US);
	hf_loop_add_poller(loop, &poller);
	hf_loop_turn(loop, 0);
	hf_loop_remove_poller(loop, &poller);
	hf_loop_turn(loop, 0);
	assert_in_range(unattended_ns(), 415000 * US, 420000 * US);
	assert_int_equal(hf_loop_gaps_ns(loop), unattended_ns());
}

struct judge {
	struct hf_timer timer;
	unsigned looks; /* before it judged */
};

static void judge_now(struct hf_timer *timer, uint64_t at_ns)
{
	(void)at_ns;
	container_of(timer, struct judge, timer)->looks = waiter.looks;
}

static void after_a_gap_descriptors_are_read_before_timers_judge(void **state)
{
	struct judge judge = {.timer.fire = judge_now};

	(void)state;
	hf_loop_turn(loop, 0);
	hf_loop_set_timer(loop, &judge.timer, time_ns + 100 * US);
	time_ns += 20000 * US;
	waiter.looks = 0;
	hf_loop_turn(loop, 0);
	assert_int_equal(judge.looks, 1);
}

static void a_world_is_told_the_slack_and_may_have_none(void **state)
{
	(void)state;
	assert_int_equal(waiter.slack_ns, 0);
	hf_loop_set_slack(loop, US);
	assert_int_equal(waiter.slack_ns, US);
	ops.waiter_slack = NULL;
	hf_loop_set_slack(loop, 2 * US);
	assert_int_equal(waiter.slack_ns, US);
}

static void sleep_on_the_host(struct hf_loop *host_loop)
{
	hf_loop_set_spin(host_loop, 0);
	while (hf_loop_prepare(host_loop, 1) == 0)
		hf_loop_turn(host_loop, 0);
	hf_loop_turn(host_loop, 1);
}

static void a_thread_sleeps_with_the_slack_of_its_loop(void **state)
{
	int own_ns = prctl(PR_GET_TIMERSLACK);
	struct hf_loop *fine, *other;

	(void)state;
	assert_true(own_ns > 2000);
	assert_int_equal(hf_loop_create(hf_env_host(), &fine), 0);
	assert_int_equal(hf_loop_create(hf_env_host(), &other), 0);
	hf_loop_set_slack(fine, US);
	assert_int_equal(prctl(PR_GET_TIMERSLACK), own_ns);
	sleep_on_the_host(fine);
	assert_int_equal(prctl(PR_GET_TIMERSLACK), US);
	sleep_on_the_host(other);
	assert_int_equal(prctl(PR_GET_TIMERSLACK), own_ns);
	hf_loop_wait(fine, 1);
	assert_int_equal(prctl(PR_GET_TIMERSLACK), US);
	hf_loop_set_slack(fine, 0);
	hf_loop_wait(fine, 1);
	assert_int_equal(prctl(PR_GET_TIMERSLACK), own_ns);
	hf_loop_destroy(fine);
	hf_loop_destroy(other);
}

int main(void)
{
#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_LOOP(a_loop_spins_after_a_timer_unless_it_is_quiet),
		WITH_LOOP(a_pulse_leaves_the_core_to_others),
		WITH_LOOP(what_a_quiet_timer_gives_to_do_is_done_before_the_loop_sleeps),
		WITH_LOOP(a_turn_before_a_sleep_outside_of_turns_follows_a_quiet_timer_too),
		WITH_LOOP(a_loop_spins_for_as_long_as_it_was_told),
		WITH_LOOP(a_loop_that_lost_the_core_by_a_yield_sleeps_for_some_time),
		WITH_LOOP(a_busy_loop_that_does_not_spin_looks_at_descriptors_now_and_then),
		WITH_LOOP(where_no_loop_spins_none_does),
		WITH_LOOP(nobody_attends_to_a_long_turn_a_late_wake_or_the_time_between_turns),
		WITH_LOOP(after_a_gap_descriptors_are_read_before_timers_judge),
		WITH_LOOP(a_world_is_told_the_slack_and_may_have_none),
		cmocka_unit_test(a_thread_sleeps_with_the_slack_of_its_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
