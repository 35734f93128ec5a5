/* Virtual time and its actors. */
#include "sim/tests/fixture.h"

#include "sim/device.h"
#include "sim/runner.h"

struct noted {
	struct world_event event;
	unsigned *order, *count, number;
};

static void note(struct world_event *event)
{
	struct noted *noted = container_of(event, struct noted, event);

	noted->order[(*noted->count)++] = noted->number;
}

static void events_fire_by_time_and_then_in_the_order_they_were_scheduled(void **state)
{
	static const uint64_t times[6] = {30, 10, 20, 10, 30, 10};
	static const unsigned expected[6] = {1, 3, 5, 2, 0, 4};
	struct noted events[6] = {0};
	unsigned order[6], count = 0;
	struct world world;

	(void)state;
	world_init(&world, 1, false);
	for (unsigned i = 0; i < 6; i++) {
		events[i] = (struct noted){.order = order, .count = &count, .number = i};
		events[i].event.what = "note";
		events[i].event.fire = note;
		world_schedule(&world, &events[i].event, times[i]);
	}
	world_run_until(&world, 100);
	assert_int_equal(count, 6);
	assert_memory_equal(order, expected, sizeof(order));
	assert_int_equal(world.now_ns, 100);
	world_free(&world);
}

static void cancelled_events_do_not_fire_and_moved_ones_fire_once(void **state)
{
	struct noted events[64] = {0};
	unsigned order[64], count = 0;
	struct world world;

	(void)state;
	world_init(&world, 1, false);
	for (unsigned i = 0; i < 64; i++) {
		events[i] = (struct noted){.order = order, .count = &count, .number = i};
		events[i].event.what = "note";
		events[i].event.fire = note;
		world_schedule(&world, &events[i].event, (i * 37) % 64);
	}
	for (unsigned i = 0; i < 64; i += 2)
		world_cancel(&world, &events[i].event);
	for (unsigned i = 1; i < 64; i += 2)
		world_schedule(&world, &events[i].event, 200 - i);
	world_run_until(&world, 1000);
	assert_int_equal(count, 32);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(order[i], 63 - 2 * i);
	world_free(&world);
}

static void the_same_seed_does_the_same_and_another_does_not(void **state)
{
	struct run_result first, again, other;

	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		run_seed(seed, NULL, false, &first);
		run_seed(seed, NULL, false, &again);
		run_seed(seed + 1000, NULL, false, &other);
		assert_true(first.events > 100);
		assert_true(first.hash == again.hash);
		assert_int_equal(first.events, again.events);
		assert_true(first.hash != other.hash);
	}
}

/* ---- actors ---- */

struct ticker {
	struct hf_timer timer;
	struct hf_loop *loop;
	uint64_t period_ns;
	unsigned ticks;
};

static void tick(struct hf_timer *timer, uint64_t now_ns)
{
	struct ticker *ticker = container_of(timer, struct ticker, timer);

	ticker->ticks++;
	hf_loop_set_timer(ticker->loop, timer, now_ns + ticker->period_ns);
}

static void begin(struct hf_loop *loop, void *context)
{
	struct ticker *ticker = context;

	ticker->loop = loop;
	ticker->timer.fire = tick;
	hf_loop_set_timer(loop, &ticker->timer, hf_loop_now_ns(loop) + ticker->period_ns);
}

static void nic_threads_run_on_while_their_process_is_paused(void **state)
{
	struct ticker nic = {.period_ns = NS_MS}, helper = {.period_ns = NS_MS};
	struct hf_thread *threads[2];
	struct fixture f;
	struct hf_env *env;
	unsigned nic_before, helper_before;

	(void)state;
	fixture_open(&f, 3, NULL, NULL);
	env = fixture_env(&f, 0);
	assert_int_equal(hf_thread_start(env, "nic", HF_THREAD_NIC, begin, &nic, &threads[0]), 0);
	assert_int_equal(hf_thread_start(env, "helper", HF_THREAD_HELPER, begin, &helper, &threads[1]), 0);
	fixture_run(&f, 20 * NS_MS);
	assert_in_range(nic.ticks, 18, 20);
	assert_in_range(helper.ticks, 18, 20);
	process_pause(f.processes[0], false);
	nic_before = nic.ticks;
	helper_before = helper.ticks;
	fixture_run(&f, 20 * NS_MS);
	assert_in_range(nic.ticks - nic_before, 18, 20);
	assert_int_equal(helper.ticks, helper_before);
	process_resume(f.processes[0]);
	fixture_run(&f, 5 * NS_MS);
	assert_in_range(helper.ticks - helper_before, 4, 6);
	hf_thread_stop(threads[0]);
	hf_thread_stop(threads[1]);
	fixture_close(&f);
}

/* ---- torn turns ---- */

#define READS 50u

struct torn {
	struct fixture f;
	struct hf_timer timer;
	struct ticker own, other; /* of threads: one of the same process, one of another host's */
	unsigned own_ran, other_ran;
	uint64_t most_ns; /* between two readings of the clock */
	bool in_turn, outermost, fired, fired_within;
	struct world_event event;
};

static void read_the_clock_often(struct hf_timer *timer, uint64_t now_ns)
{
	struct torn *torn = container_of(timer, struct torn, timer);
	unsigned own = torn->own.ticks, other = torn->other.ticks;

	torn->in_turn = true;
	for (unsigned i = 0; i < READS; i++) {
		uint64_t before_ns = now_ns;

		if (torn->outermost)
			world_schedule(&torn->f.world, &torn->event, torn->f.world.now_ns + 7 * NS_US);
		else
			process_tear(torn->f.processes[0], 100 * NS_US);
		now_ns = hf_env_now_ns(fixture_env(&torn->f, 0));
		torn->most_ns = now_ns - before_ns > torn->most_ns ? now_ns - before_ns : torn->most_ns;
	}
	torn->own_ran = torn->own.ticks - own;
	torn->other_ran = torn->other.ticks - other;
	torn->in_turn = false;
}

static void note_fired(struct world_event *event)
{
	struct torn *torn = container_of(event, struct torn, event);

	torn->fired = true;
	torn->fired_within |= torn->in_turn;
}

static void start_reader(struct hf_loop *loop, void *context)
{
	struct torn *torn = context;

	torn->timer.fire = read_the_clock_often;
	hf_loop_set_timer(loop, &torn->timer, hf_loop_now_ns(loop) + NS_MS);
}

/* Runs a turn in which the clock is read, and that is torn: in a world that tears turns at every step, or by hand. */
static void run_torn(struct torn *torn, bool outermost)
{
	struct hf_thread *threads[3];

	*torn = (struct torn){.own.period_ns = 10 * NS_US, .other.period_ns = 10 * NS_US, .outermost = outermost};
	torn->event = (struct world_event){.what = "outermost", .fire = note_fired, .outermost = true};
	fixture_open(&torn->f, 3, NULL, NULL);
	assert_int_equal(
		hf_thread_start(fixture_env(&torn->f, 0), "nic", HF_THREAD_NIC, begin, &torn->own, &threads[0]), 0);
	assert_int_equal(
		hf_thread_start(fixture_env(&torn->f, 1), "other", HF_THREAD_HELPER, begin, &torn->other, &threads[1]),
		0);
	assert_int_equal(
		hf_thread_start(fixture_env(&torn->f, 0), "reader", HF_THREAD_HELPER, start_reader, torn, &threads[2]),
		0);
	fixture_run(&torn->f, NS_MS / 2);
	torn->f.world.tears_ppm = outermost ? 1000000 : 0;
	torn->f.world.tear_ns_max = 500 * NS_US;
	fixture_run(&torn->f, 100 * NS_MS);
	torn->own.ticks = 0;
	fixture_run(&torn->f, 5 * NS_MS);
	assert_true(torn->own.ticks > 0); /* it goes on behind */
	for (unsigned i = 0; i < 3; i++)
		hf_thread_stop(threads[i]);
	fixture_close(&torn->f);
}

static void while_a_turn_is_torn_others_go_on_and_its_process_stands_still(void **state)
{
	struct torn torn;

	(void)state;
	run_torn(&torn, false);
	assert_in_range(torn.most_ns, 99 * NS_US, 101 * NS_US);
	assert_int_equal(torn.own_ran, 0);
	assert_true(torn.other_ran > 0);
}

/* A fault could end the process whose turn it is. */
static void nothing_that_calls_programs_from_outside_happens_within_a_turn(void **state)
{
	struct torn torn;

	(void)state;
	run_torn(&torn, true);
	assert_true(torn.fired);
	assert_false(torn.fired_within);
	assert_in_range(torn.most_ns, NS_US, 8 * NS_US); /* it cuts tears short */
}

/* ---- clocks ---- */

static void clocks_of_hosts_drift_by_a_rate_of_their_own_within_the_bound(void **state)
{
	unsigned differ = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		uint64_t begin_ns[2], second_ns[2], third_ns[2];
		struct fixture f;

		fixture_open(&f, seed, NULL, NULL);
		for (unsigned i = 0; i < 2; i++)
			begin_ns[i] = hf_env_now_ns(fixture_env(&f, i));
		fixture_run(&f, NS_S);
		for (unsigned i = 0; i < 2; i++)
			second_ns[i] = hf_env_now_ns(fixture_env(&f, i)) - begin_ns[i];
		fixture_run(&f, 999 * NS_S);
		for (unsigned i = 0; i < 2; i++) {
			third_ns[i] = hf_env_now_ns(fixture_env(&f, i)) - begin_ns[i];
			assert_in_range(second_ns[i], 999500 * NS_US, 1000500 * NS_US);
			assert_in_range(third_ns[i], 1000 * (second_ns[i] - 2), 1000 * (second_ns[i] + 2));
		}
		assert_true(third_ns[0] < third_ns[1] + NS_S && third_ns[1] < third_ns[0] + NS_S); /* 1 in 1000 */
		differ += second_ns[0] != second_ns[1];
		fixture_close(&f);
	}
	assert_true(differ > 90);
}

static void a_clock_never_goes_back_whatever_its_drift(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, 1, NULL, NULL);
	for (int32_t drift = -HOST_DRIFT_PPM; drift <= HOST_DRIFT_PPM; drift += HOST_DRIFT_PPM) {
		uint64_t before_ns;

		f.hosts[0].drift_ppm = drift;
		before_ns = hf_env_now_ns(fixture_env(&f, 0));
		for (unsigned i = 0; i < 10000; i++) {
			fixture_run(&f, 1);
			assert_true(hf_env_now_ns(fixture_env(&f, 0)) >= before_ns);
			before_ns = hf_env_now_ns(fixture_env(&f, 0));
		}
	}
	fixture_close(&f);
}

/* A loop sleeps by its host's clock. */
static void a_timer_fires_when_its_host_shows_the_time(void **state)
{
	(void)state;
	for (int32_t drift = -HOST_DRIFT_PPM; drift <= HOST_DRIFT_PPM; drift += HOST_DRIFT_PPM) {
		struct ticker ticker = {.period_ns = NS_S};
		struct hf_loop *loop;
		struct fixture f;

		fixture_open(&f, 1, NULL, NULL);
		f.hosts[0].drift_ppm = drift;
		assert_int_equal(hf_loop_create(fixture_env(&f, 0), &loop), 0);
		begin(loop, &ticker);
		fixture_run(&f, NS_S - (uint64_t)((int64_t)NS_MS * drift / 1000) - 10 * NS_US);
		assert_int_equal(ticker.ticks, 0);
		fixture_run(&f, 250 * NS_US);
		assert_int_equal(ticker.ticks, 1);
		hf_loop_destroy(loop);
		fixture_close(&f);
	}
}

static void a_suspended_host_stands_still_and_one_of_its_clocks_goes_on(void **state)
{
	struct ticker nic = {.period_ns = NS_MS}, helper = {.period_ns = NS_MS};
	uint64_t now_ns, boot_ns, passed_ns;
	struct hf_thread *threads[2];
	unsigned ticks;
	struct fixture f;
	struct hf_env *env;

	(void)state;
	fixture_open(&f, 3, NULL, NULL);
	env = fixture_env(&f, 0);
	assert_int_equal(hf_thread_start(env, "nic", HF_THREAD_NIC, begin, &nic, &threads[0]), 0);
	assert_int_equal(hf_thread_start(env, "helper", HF_THREAD_HELPER, begin, &helper, &threads[1]), 0);
	fixture_run(&f, 20 * NS_MS);
	assert_int_equal(hf_env_now_ns(env), hf_env_boot_ns(env));
	host_suspend(&f.hosts[0]);
	assert_false(network_open(&f.network, f.ports[0], f.ports[1]));
	ticks = nic.ticks + helper.ticks;
	now_ns = hf_env_now_ns(env);
	boot_ns = hf_env_boot_ns(env);
	fixture_run(&f, NS_S);
	assert_int_equal(nic.ticks + helper.ticks, ticks);
	assert_int_equal(hf_env_now_ns(env), now_ns);
	passed_ns = hf_env_boot_ns(env) - boot_ns;
	assert_in_range(passed_ns, 999 * NS_MS, 1001 * NS_MS);
	host_resume(&f.hosts[0]);
	assert_true(network_open(&f.network, f.ports[0], f.ports[1]));
	fixture_run(&f, 20 * NS_MS); /* timers go by the clock that stood */
	assert_in_range(nic.ticks + helper.ticks - ticks, 36, 42);
	assert_in_range(hf_env_now_ns(env) - now_ns, 19 * NS_MS, 21 * NS_MS);
	assert_in_range(hf_env_boot_ns(env) - boot_ns, 1018 * NS_MS, 1022 * NS_MS);
	hf_thread_stop(threads[0]);
	hf_thread_stop(threads[1]);
	fixture_close(&f);
}

static void what_a_program_leaves_behind_is_a_violation(void **state)
{
	struct fixture f;
	struct hf_io *io;

	(void)state;
	fixture_open(&f, 3, NULL, NULL);
	assert_int_equal(hf_notifier_open(fixture_env(&f, 0), &io), 0);
	process_crash(f.processes[0]);
	assert_int_equal(f.world.violations, 1);
	hf_io_close(io);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_fire_by_time_and_then_in_the_order_they_were_scheduled),
		cmocka_unit_test(cancelled_events_do_not_fire_and_moved_ones_fire_once),
		cmocka_unit_test(the_same_seed_does_the_same_and_another_does_not),
		cmocka_unit_test(nic_threads_run_on_while_their_process_is_paused),
		cmocka_unit_test(while_a_turn_is_torn_others_go_on_and_its_process_stands_still),
		cmocka_unit_test(nothing_that_calls_programs_from_outside_happens_within_a_turn),
		cmocka_unit_test(clocks_of_hosts_drift_by_a_rate_of_their_own_within_the_bound),
		cmocka_unit_test(a_clock_never_goes_back_whatever_its_drift),
		cmocka_unit_test(a_timer_fires_when_its_host_shows_the_time),
		cmocka_unit_test(a_suspended_host_stands_still_and_one_of_its_clocks_goes_on),
		cmocka_unit_test(what_a_program_leaves_behind_is_a_violation),
	};

	device_register();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
