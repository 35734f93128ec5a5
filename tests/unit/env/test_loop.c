/* The poll loop: order of a turn, timers, removal from inside callbacks, sleeping and waking. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <holdfast/work.h>

#include "base/list.h"
#include "env/group.h"
#include "env/timers.h"

#define LONG_NS 3600000000000ull /* an hour: a test that sleeps this long has failed */

struct fixture {
	struct hf_env *env;
	struct hf_loop *loop;
	char trace[64];
};

static struct fixture *fixture;

static int set_up(void **state)
{
	fixture = calloc(1, sizeof(*fixture));
	assert_non_null(fixture);
	fixture->env = hf_env_host();
	assert_int_equal(hf_loop_create(fixture->env, &fixture->loop), 0);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	hf_loop_destroy(fixture->loop);
	free(fixture);
	return 0;
}

static void note(char what)
{
	size_t length = strlen(fixture->trace);

	assert_true(length + 1 < sizeof(fixture->trace));
	fixture->trace[length] = what;
}

struct named_poller {
	struct hf_poller poller;
	char name;
	enum hf_poll answer;
	struct hf_poller *remove, *add; /* what its poll does */
};

static enum hf_poll poll_named(struct hf_poller *poller, uint64_t now_ns)
{
	struct named_poller *named = container_of(poller, struct named_poller, poller);

	(void)now_ns;
	note(named->name);
	if (named->remove != NULL)
		hf_loop_remove_poller(fixture->loop, named->remove);
	if (named->add != NULL)
		hf_loop_add_poller(fixture->loop, named->add);
	return named->answer;
}

static struct named_poller a_poller(char name)
{
	return (struct named_poller){.poller.poll = poll_named, .name = name, .answer = HF_BUSY};
}

static void pollers_run_in_the_order_in_which_they_were_added(void **state)
{
	static struct named_poller a, b;

	(void)state;
	a = a_poller('a'), b = a_poller('b');
	hf_loop_add_poller(fixture->loop, &a.poller);
	hf_loop_add_poller(fixture->loop, &b.poller);
	assert_int_equal(hf_loop_turn(fixture->loop, 0), HF_BUSY);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "abab");
}

static void a_poller_may_remove_itself_and_others_from_inside_its_poll(void **state)
{
	static struct named_poller a, b, c;

	(void)state;
	a = a_poller('a'), b = a_poller('b'), c = a_poller('c');
	a.remove = &b.poller; /* the next one */
	c.remove = &c.poller;
	hf_loop_add_poller(fixture->loop, &a.poller);
	hf_loop_add_poller(fixture->loop, &b.poller);
	hf_loop_add_poller(fixture->loop, &c.poller);
	hf_loop_turn(fixture->loop, 0);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "aca");
}

static void a_poller_added_in_a_turn_is_polled_from_the_next_turn_on(void **state)
{
	static struct named_poller a, b;

	(void)state;
	a = a_poller('a'), b = a_poller('b');
	a.add = &b.poller;
	hf_loop_add_poller(fixture->loop, &a.poller);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "a");
	a.add = NULL;
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "aab");
}

struct named_timer {
	struct hf_timer timer;
	char name;
	struct hf_timer *cancel;
	bool again; /* sets itself to a time in the past */
};

static void fire_named(struct hf_timer *timer, uint64_t now_ns)
{
	struct named_timer *named = container_of(timer, struct named_timer, timer);

	assert_int_equal(timer->heap_slot, 0);
	assert_true(now_ns >= timer->due_ns);
	note(named->name);
	if (named->cancel != NULL)
		hf_loop_cancel_timer(fixture->loop, named->cancel);
	if (named->again)
		hf_loop_set_timer(fixture->loop, timer, 0);
}

static void timers_fire_by_time_and_then_by_order_of_setting(void **state)
{
	struct named_timer timers[4];
	uint64_t now = hf_loop_now_ns(fixture->loop);

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		timers[i] = (struct named_timer){.timer.fire = fire_named, .name = (char)('a' + i)};
	hf_loop_set_timer(fixture->loop, &timers[0].timer, now + 2);
	hf_loop_set_timer(fixture->loop, &timers[1].timer, now + 1);
	hf_loop_set_timer(fixture->loop, &timers[2].timer, now + 1);
	hf_loop_set_timer(fixture->loop, &timers[3].timer, now + LONG_NS);
	while (strlen(fixture->trace) < 3)
		hf_loop_turn(fixture->loop, LONG_NS);
	assert_string_equal(fixture->trace, "bca");
	hf_loop_cancel_timer(fixture->loop, &timers[3].timer);
	hf_loop_cancel_timer(fixture->loop, &timers[3].timer); /* harmless */
}

static void a_timer_can_be_moved_and_cancelled_by_another(void **state)
{
	struct named_timer a = {.timer.fire = fire_named, .name = 'a'};
	struct named_timer b = {.timer.fire = fire_named, .name = 'b'};
	uint64_t now = hf_loop_now_ns(fixture->loop);

	(void)state;
	a.cancel = &b.timer;
	hf_loop_set_timer(fixture->loop, &a.timer, now + LONG_NS);
	hf_loop_set_timer(fixture->loop, &b.timer, now + 2);
	hf_loop_set_timer(fixture->loop, &a.timer, now + 1);
	for (unsigned turn = 0; turn < 10; turn++)
		hf_loop_turn(fixture->loop, 1000);
	assert_string_equal(fixture->trace, "a");
}

static void a_timer_that_keeps_setting_itself_to_the_past_lets_others_fire(void **state)
{
	struct named_timer greedy = {.timer.fire = fire_named, .name = 'g', .again = true};
	struct named_timer other = {.timer.fire = fire_named, .name = 'o'};

	(void)state;
	hf_loop_set_timer(fixture->loop, &greedy.timer, 0);
	hf_loop_set_timer(fixture->loop, &other.timer, hf_loop_now_ns(fixture->loop));
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "go");
	hf_loop_cancel_timer(fixture->loop, &greedy.timer);
}

enum { TIMERS = 1000 };

static uint64_t last_due_ns;
static unsigned fired;

static void fire_in_order(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	assert_true(timer->due_ns >= last_due_ns);
	last_due_ns = timer->due_ns;
	fired++;
}

static void order_of_a_thousand_timers_holds_through_moves_and_cancels(void **state)
{
	static struct hf_timer list[TIMERS];
	struct timers timers = {0};
	uint64_t seed = 1;
	unsigned set = 0;

	(void)state;
	last_due_ns = fired = 0;
	for (unsigned i = 0; i < 8 * TIMERS; i++) {
		struct hf_timer *timer;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		timer = &list[(seed >> 33) % TIMERS];
		timer->fire = fire_in_order;
		if (i % 5 == 4)
			timers_cancel(&timers, timer);
		else
			timers_set(&timers, timer, seed >> 50, 0);
	}
	for (unsigned i = 0; i < TIMERS; i++)
		set += list[i].heap_slot != 0;
	assert_true(set > TIMERS / 2);
	timers_fire(&timers, 1 << 13); /* those of the first half */
	assert_true(fired > 0 && fired < set);
	timers_fire(&timers, UINT64_MAX - 1);
	assert_int_equal(fired, set);
	timers_destroy(&timers);
}

struct named_watch {
	struct hf_watch watch;
	char name;
	struct hf_watch *unwatch;
	struct hf_io *close;
};

static void ready_named(struct hf_watch *watch, unsigned ready)
{
	struct named_watch *named = container_of(watch, struct named_watch, watch);

	assert_int_equal(ready, HF_READABLE);
	note(named->name);
	if (named->unwatch != NULL)
		hf_loop_unwatch(named->unwatch);
	hf_io_close(named->close);
}

static void a_signalled_notifier_is_readable_until_it_is_cleared(void **state)
{
	struct named_watch watch = {.watch.ready = ready_named, .name = 'n'};
	struct hf_io *io;

	(void)state;
	assert_int_equal(hf_notifier_open(fixture->env, &io), 0);
	assert_int_equal(hf_loop_watch(fixture->loop, &watch.watch, io, HF_READABLE), 0);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "");
	hf_notifier_signal(io);
	hf_notifier_signal(io);
	assert_int_equal(hf_loop_turn(fixture->loop, 0), HF_BUSY);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "nn");
	hf_notifier_clear(io);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "nn");
	hf_io_close(io);
	assert_null(watch.watch.io);
}

static enum hf_poll hurry_once(struct hf_poller *poller, uint64_t now_ns)
{
	struct named_poller *named = container_of(poller, struct named_poller, poller);

	(void)now_ns;
	note(named->name);
	if (named->answer == HF_BUSY)
		hf_loop_hurry(fixture->loop);
	named->answer = HF_IDLE;
	return HF_BUSY;
}

/* A loop that never looked at its descriptors does so in its first turn, unless a poller is in a hurry. */
static void a_hurried_turn_leaves_descriptors_to_a_later_one(void **state)
{
	struct named_poller poller = a_poller('p');
	struct named_watch watch = {.watch.ready = ready_named, .name = 'n'};
	struct hf_io *io;

	(void)state;
	if (sysconf(_SC_NPROCESSORS_ONLN) == 1)
		skip(); /* a loop asks in every turn there */
	poller.poller.poll = hurry_once;
	assert_int_equal(hf_notifier_open(fixture->env, &io), 0);
	hf_notifier_signal(io);
	assert_int_equal(hf_loop_watch(fixture->loop, &watch.watch, io, HF_READABLE), 0);
	hf_loop_add_poller(fixture->loop, &poller.poller);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "p");
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "ppn");
	hf_loop_remove_poller(fixture->loop, &poller.poller);
	hf_io_close(io);
}

static void a_silenced_watch_is_not_called_until_it_wants_again(void **state)
{
	struct named_watch watch = {.watch.ready = ready_named, .name = 'n'};
	struct hf_io *io;

	(void)state;
	assert_int_equal(hf_notifier_open(fixture->env, &io), 0);
	hf_notifier_signal(io);
	assert_int_equal(hf_loop_watch(fixture->loop, &watch.watch, io, HF_READABLE), 0);
	assert_int_equal(hf_loop_watch(fixture->loop, &watch.watch, io, 0), 0);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "");
	assert_int_equal(hf_loop_watch(fixture->loop, &watch.watch, io, HF_READABLE), 0);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "n");
	hf_io_close(io);
}

/* Whichever is reported first unwatches the other and closes its io: the other must not be called any more. */
static void an_io_closed_in_a_ready_of_the_same_turn_is_never_reported(void **state)
{
	struct named_watch a = {.watch.ready = ready_named, .name = 'x'};
	struct named_watch b = {.watch.ready = ready_named, .name = 'x'};
	struct hf_io *a_io, *b_io;

	(void)state;
	assert_int_equal(hf_notifier_open(fixture->env, &a_io), 0);
	assert_int_equal(hf_notifier_open(fixture->env, &b_io), 0);
	hf_loop_watch(fixture->loop, &a.watch, a_io, HF_READABLE);
	hf_loop_watch(fixture->loop, &b.watch, b_io, HF_READABLE);
	a.close = b_io;
	b.close = a_io;
	hf_notifier_signal(a_io);
	hf_notifier_signal(b_io);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "x");
	assert_true((a.watch.io == NULL) != (b.watch.io == NULL));
	hf_io_close(a.watch.io != NULL ? a_io : b_io);
}

static void watches_left_behind_are_forgotten_with_their_loop(void **state)
{
	struct named_watch watch = {.watch.ready = ready_named, .name = 'n'};
	struct hf_loop *other;
	struct hf_io *io;

	(void)state;
	assert_int_equal(hf_loop_create(fixture->env, &other), 0);
	assert_int_equal(hf_notifier_open(fixture->env, &io), 0);
	assert_int_equal(hf_loop_watch(other, &watch.watch, io, HF_READABLE), 0);
	hf_loop_destroy(other);
	assert_null(watch.watch.io);
	assert_int_equal(hf_loop_watch(fixture->loop, &watch.watch, io, HF_READABLE), 0);
	hf_io_close(io);
}

static void a_group_is_readable_while_a_member_is(void **state)
{
	struct named_watch watch = {.watch.ready = ready_named, .name = 'g'};
	struct hf_io *members[2], *group;

	(void)state;
	assert_int_equal(hf_notifier_open(fixture->env, &members[0]), 0);
	assert_int_equal(hf_notifier_open(fixture->env, &members[1]), 0);
	assert_int_equal(env_io_group_open(fixture->env, members, 2, &group), 0);
	assert_int_equal(hf_loop_watch(fixture->loop, &watch.watch, group, HF_READABLE), 0);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "");
	hf_notifier_signal(members[1]);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "g");
	hf_notifier_clear(members[1]);
	hf_loop_turn(fixture->loop, 0);
	assert_string_equal(fixture->trace, "g");
	hf_io_close(group);
	hf_io_close(members[0]);
	hf_io_close(members[1]);
}

/* ---- sleeping ---- */

struct armed_poller {
	struct hf_poller poller;
	unsigned armed, polls;
};

static enum hf_poll poll_nothing(struct hf_poller *poller, uint64_t now_ns)
{
	(void)poller, (void)now_ns;
	return HF_IDLE;
}

/* The first time there is work again; the second time the wake-up is already on its way. */
static bool arm_second_time(struct hf_poller *poller)
{
	struct armed_poller *armed = container_of(poller, struct armed_poller, poller);

	if (armed->armed++ == 0)
		return false;
	hf_loop_wake(fixture->loop);
	return true;
}

static void a_poller_that_refuses_to_be_armed_keeps_the_loop_awake(void **state)
{
	struct armed_poller armed = {.poller = {.poll = poll_nothing, .arm = arm_second_time}};

	(void)state;
	hf_loop_add_poller(fixture->loop, &armed.poller);
	while (armed.armed == 0)
		hf_loop_turn(fixture->loop, LONG_NS);
	assert_int_equal(armed.armed, 1); /* that turn did not sleep: nothing was there to end it */
	while (armed.armed < 2)
		hf_loop_turn(fixture->loop, LONG_NS);
	hf_loop_remove_poller(fixture->loop, &armed.poller);
}

static enum hf_poll wake_from_poll(struct hf_poller *poller, uint64_t now_ns)
{
	(void)poller, (void)now_ns;
	hf_loop_wake(fixture->loop);
	return HF_IDLE;
}

static void a_wake_before_the_sleep_ends_it(void **state)
{
	struct hf_poller poller = {.poll = wake_from_poll};

	(void)state;
	hf_loop_add_poller(fixture->loop, &poller);
	for (unsigned turn = 0; turn < 1000; turn++)
		hf_loop_turn(fixture->loop, LONG_NS);
	hf_loop_remove_poller(fixture->loop, &poller);
}

struct thread_context {
	struct hf_loop *waker; /* the loop of the test */
	struct hf_timer stop;
	struct hf_poller poller;
	struct hf_loop *own;
	_Atomic unsigned polls;
};

static enum hf_poll poll_in_thread(struct hf_poller *poller, uint64_t now_ns)
{
	struct thread_context *context = container_of(poller, struct thread_context, poller);

	(void)now_ns;
	context->polls++;
	hf_loop_stop(context->waker);
	hf_loop_wake(context->waker);
	return HF_IDLE;
}

static void start_in_thread(struct hf_loop *loop, void *argument)
{
	struct thread_context *context = argument;

	context->own = loop;
	context->poller.poll = poll_in_thread;
	hf_loop_add_poller(loop, &context->poller);
}

static void a_thread_runs_its_own_loop_and_can_wake_another(void **state)
{
	struct thread_context context = {.waker = fixture->loop};
	struct hf_thread *thread;

	(void)state;
	assert_int_equal(
		hf_thread_start(fixture->env, "test", HF_THREAD_HELPER, start_in_thread, &context, &thread), 0);
	hf_loop_run(fixture->loop); /* sleeps until the thread wakes it */
	assert_true(context.polls > 0);
	hf_thread_stop(thread);
	assert_null(context.poller.next); /* its loop let go of it */
	hf_thread_stop(NULL);
}

static uint64_t seen_at_ready_ns;

static void note_time(struct hf_watch *watch, unsigned ready)
{
	(void)ready;
	seen_at_ready_ns = hf_loop_now_ns(fixture->loop);
	hf_notifier_clear(watch->io);
}

static struct hf_io *signalled_in_arm;
static uint64_t armed_at_ns;

static bool arm_late(struct hf_poller *poller)
{
	(void)poller;
	do /* arming takes its time, as a sleep does */
		armed_at_ns = hf_env_now_ns(fixture->env);
	while (armed_at_ns < hf_loop_now_ns(fixture->loop) + 1000);
	hf_notifier_signal(signalled_in_arm);
	return true;
}

/* Else a timer set by a ready() after a long sleep would be due at once. */
static void the_time_that_a_ready_sees_is_from_after_the_sleep(void **state)
{
	struct hf_poller poller = {.poll = poll_nothing, .arm = arm_late};
	struct hf_watch watch = {.ready = note_time};

	(void)state;
	assert_int_equal(hf_notifier_open(fixture->env, &signalled_in_arm), 0);
	assert_int_equal(hf_loop_watch(fixture->loop, &watch, signalled_in_arm, HF_READABLE), 0);
	hf_loop_add_poller(fixture->loop, &poller);
	for (seen_at_ready_ns = 0; seen_at_ready_ns == 0;)
		hf_loop_turn(fixture->loop, LONG_NS);
	assert_true(seen_at_ready_ns >= armed_at_ns);
	hf_loop_remove_poller(fixture->loop, &poller);
	hf_io_close(signalled_in_arm);
}

static void start_nothing(struct hf_loop *loop, void *context)
{
	(void)loop, (void)context;
}

/* Descriptors run out at every point once: an error each time, nothing leaks, and then it works. */
static void loops_and_threads_survive_a_lack_of_descriptors(void **state)
{
	struct rlimit before, tight;
	int lowest = dup(0), code = -1;
	unsigned failed = 0;

	(void)state;
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	tight = before;
	for (tight.rlim_cur = (rlim_t)lowest; code != 0; tight.rlim_cur++) {
		struct hf_loop *loop = NULL;
		struct hf_thread *thread = NULL;

		assert_true(failed < 16);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
		code = hf_loop_create(fixture->env, &loop);
		if (code == 0)
			code = hf_thread_start(fixture->env, "test", HF_THREAD_NIC, start_nothing, NULL, &thread);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		assert_true(code == 0 || code == -EMFILE);
		failed += code != 0;
		hf_thread_stop(thread);
		hf_loop_destroy(loop);
	}
	assert_int_equal(failed, 4); /* two descriptors each */
	code = dup(0);
	assert_int_equal(code, lowest);
	close(code);
}

/* The same for helper threads: some were started when the next one could not be. */
static void workers_survive_a_lack_of_descriptors(void **state)
{
	struct hf_workers *workers = NULL;
	struct rlimit before, tight;
	int lowest = dup(0), code = -1;
	unsigned failed = 0;

	(void)state;
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	tight = before;
	for (tight.rlim_cur = (rlim_t)lowest; code != 0; tight.rlim_cur++) {
		struct hf_error error = {0};

		assert_true(failed < 16);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
		code = hf_workers_open(fixture->loop, "test", 3, 1, &workers, &error);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		if (code != 0) {
			assert_int_equal(code, -EMFILE);
			assert_non_null(strstr(error.text, "ulimit -n"));
			assert_null(workers);
			failed++;
		}
	}
	assert_true(failed >= 7); /* a notifier, and two descriptors a thread */
	hf_workers_close(workers);
	code = dup(0);
	assert_int_equal(code, lowest);
	close(code);
}

static enum hf_poll count_polls(struct hf_poller *poller, uint64_t now_ns)
{
	(void)now_ns;
	container_of(poller, struct armed_poller, poller)->polls++;
	return HF_IDLE;
}

static bool arm_counting(struct hf_poller *poller)
{
	container_of(poller, struct armed_poller, poller)->armed++;
	return true;
}

/* As a program's threads drive a loop: who waits holds no lock, and others may turn the loop meanwhile. */
static void a_wait_outside_of_a_turn_ends_by_a_wake_and_allows_turns(void **state)
{
	struct armed_poller counting = {.poller = {.poll = count_polls, .arm = arm_counting}};

	(void)state;
	hf_loop_add_poller(fixture->loop, &counting.poller);
	while (hf_loop_prepare(fixture->loop, LONG_NS) == 0)
		hf_loop_turn(fixture->loop, 0);
	assert_true(counting.armed > 0);
	hf_loop_turn(fixture->loop, 0);
	assert_true(counting.polls > 0);
	hf_loop_wake(fixture->loop);
	hf_loop_wait(fixture->loop, LONG_NS); /* nothing else would end it */
	hf_loop_remove_poller(fixture->loop, &counting.poller);
}

/* As who has a core of its own, which changes nothing. */
static void stay_on_this_core(void)
{
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET((unsigned)sched_getcpu(), &cores);
	if (sched_setaffinity(0, sizeof(cores), &cores) != 0)
		perror("sched_setaffinity"), exit(1);
}

int main(int argc, char **argv)
{
#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		WITH_LOOP(pollers_run_in_the_order_in_which_they_were_added),
		WITH_LOOP(a_poller_may_remove_itself_and_others_from_inside_its_poll),
		WITH_LOOP(a_poller_added_in_a_turn_is_polled_from_the_next_turn_on),
		WITH_LOOP(timers_fire_by_time_and_then_by_order_of_setting),
		WITH_LOOP(a_timer_can_be_moved_and_cancelled_by_another),
		WITH_LOOP(a_timer_that_keeps_setting_itself_to_the_past_lets_others_fire),
		WITH_LOOP(order_of_a_thousand_timers_holds_through_moves_and_cancels),
		WITH_LOOP(a_signalled_notifier_is_readable_until_it_is_cleared),
		WITH_LOOP(a_hurried_turn_leaves_descriptors_to_a_later_one),
		WITH_LOOP(a_silenced_watch_is_not_called_until_it_wants_again),
		WITH_LOOP(an_io_closed_in_a_ready_of_the_same_turn_is_never_reported),
		WITH_LOOP(watches_left_behind_are_forgotten_with_their_loop),
		WITH_LOOP(a_group_is_readable_while_a_member_is),
		WITH_LOOP(a_poller_that_refuses_to_be_armed_keeps_the_loop_awake),
		WITH_LOOP(a_wake_before_the_sleep_ends_it),
		WITH_LOOP(a_wait_outside_of_a_turn_ends_by_a_wake_and_allows_turns),
		WITH_LOOP(a_thread_runs_its_own_loop_and_can_wake_another),
		WITH_LOOP(loops_and_threads_survive_a_lack_of_descriptors),
		WITH_LOOP(workers_survive_a_lack_of_descriptors),
		WITH_LOOP(the_time_that_a_ready_sees_is_from_after_the_sleep),
	};

	if (argc > 1 && strcmp(argv[1], "--bound") == 0)
		stay_on_this_core();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
