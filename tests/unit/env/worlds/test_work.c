/* Works on helper threads: each is done once, on the loop. */
#include "bed.h"

#include <errno.h>
#include <string.h>

#include <holdfast/work.h>

#include "base/list.h"

enum { WORKS = 200 };

struct counted {
	struct hf_work work;
	unsigned number, again; /* done() submits it so often again */
	struct counted *awaits; /* by done() */
	unsigned runs;          /* the helper's until done() */
	unsigned dones, cancels;
	int result;
};

static struct hf_workers *workers;
static struct counted works[WORKS];
static unsigned dones, order_broken;

static int run(struct hf_work *work)
{
	struct counted *counted = container_of(work, struct counted, work);

	counted->runs++;
	return (int)counted->number + 1000;
}

static void done(struct hf_work *work, int result)
{
	struct counted *counted = container_of(work, struct counted, work);

	order_broken += dones > 0 && counted->number != dones;
	dones++;
	counted->dones++;
	counted->result = result;
	if (counted->awaits != NULL)
		counted->awaits->result = hf_work_wait(workers, &counted->awaits->work);
	if (counted->again == 0)
		return;
	counted->again--;
	assert_int_equal(hf_work_submit(workers, work), 0);
}

static void open_workers(unsigned threads, unsigned works_max)
{
	struct hf_error error = {0};

	dones = order_broken = 0;
	for (unsigned i = 0; i < WORKS; i++)
		works[i] = (struct counted){.work = {.run = run, .done = done}, .number = i};
	if (hf_workers_open(bed.loop, "workers", threads, works_max, &workers, &error) != 0)
		fail_msg("%s", error.text);
}

static void submit(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(hf_work_submit(workers, &works[i].work), 0);
}

static bool all_done(void)
{
	return dones == WORKS;
}

static bool one_done(void)
{
	return dones >= 1;
}

static void each_work_runs_once_and_its_result_comes_to_the_loop(void **state)
{
	(void)state;
	open_workers(3, WORKS);
	submit(WORKS);
	assert_int_equal(dones, 0); /* not before a turn */
	bed_until(all_done);
	for (unsigned i = 0; i < WORKS; i++) {
		assert_int_equal(works[i].runs, 1);
		assert_int_equal(works[i].dones, 1);
		assert_int_equal(works[i].result, i + 1000);
	}
	hf_workers_close(workers);
	assert_int_equal(dones, WORKS);
}

static void one_thread_ends_works_in_the_order_in_which_they_were_submitted(void **state)
{
	(void)state;
	open_workers(1, WORKS);
	submit(WORKS);
	bed_until(all_done);
	assert_int_equal(order_broken, 0);
	hf_workers_close(workers);
}

static void no_more_works_are_taken_than_was_said(void **state)
{
	(void)state;
	open_workers(2, 3);
	submit(3);
	assert_int_equal(hf_work_submit(workers, &works[3].work), -EAGAIN);
	bed_until(one_done);
	assert_int_equal(hf_work_submit(workers, &works[3].work), 0);
	hf_workers_close(workers);
	assert_int_equal(dones, 4);
}

static void done_may_submit_again(void **state)
{
	(void)state;
	open_workers(1, 1);
	works[0].again = WORKS - 1;
	submit(1);
	bed_until(all_done);
	assert_int_equal(works[0].runs, WORKS);
	hf_workers_close(workers);
}

/* How many had begun is chance on a host: each is either cancelled or done, and only what is done has run. */
static void a_cancelled_work_does_not_run_and_is_not_done(void **state)
{
	unsigned cancelled = 0;

	(void)state;
	open_workers(1, WORKS);
	submit(WORKS);
	for (unsigned i = WORKS; i-- > 0;) {
		works[i].cancels = hf_work_cancel(workers, &works[i].work);
		cancelled += works[i].cancels;
	}
	assert_false(hf_work_cancel(workers, &works[WORKS - 1].work));
	hf_workers_close(workers);
	assert_int_equal(dones + cancelled, WORKS);
	for (unsigned i = 0; i < WORKS; i++) {
		assert_int_equal(works[i].dones, 1 - works[i].cancels);
		assert_int_equal(works[i].runs, works[i].dones);
	}
}

static void cancelled_works_make_room(void **state)
{
	(void)state;
	open_workers(1, 1);
	submit(1);
	if (hf_work_cancel(workers, &works[0].work)) {
		submit(1);
		assert_int_equal(hf_work_submit(workers, &works[1].work), -EAGAIN);
	}
	hf_workers_close(workers);
	assert_int_equal(works[0].dones, 1);
}

/* Works that wait, that run and that have run: each gives its result here, and to done() never. */
static void a_work_that_is_waited_for_runs_once_and_is_not_done(void **state)
{
	(void)state;
	open_workers(2, WORKS);
	submit(WORKS);
	for (unsigned i = WORKS; i-- > WORKS / 2;)
		assert_int_equal(hf_work_wait(workers, &works[i].work), i + 1000);
	for (unsigned i = 0; i < WORKS / 2; i++)
		assert_int_equal(hf_work_wait(workers, &works[i].work), i + 1000);
	submit(WORKS); /* all of them have left */
	for (unsigned i = 0; i < WORKS; i++)
		assert_int_equal(hf_work_wait(workers, &works[i].work), i + 1000);
	hf_workers_close(workers);
	assert_int_equal(dones, 0);
	for (unsigned i = 0; i < WORKS; i++)
		assert_int_equal(works[i].runs, 2);
}

/* Also when both have finished before either is told: the helper begins the third one behind them. The simulator's
 * helpers stand still here. */
static void a_done_may_wait_for_another_work(void **state)
{
	(void)state;
	open_workers(1, WORKS);
	works[0].awaits = &works[1];
	submit(3);
	for (unsigned tries = 0; tries < 1000000 && hf_work_cancel(workers, &works[2].work); tries++)
		assert_int_equal(hf_work_submit(workers, &works[2].work), 0);
	bed_until(one_done);
	assert_int_equal(works[1].result, 1001);
	assert_int_equal(works[1].dones, 0);
	hf_workers_close(workers);
}

static void closing_ends_what_runs_and_cancels_what_waits(void **state)
{
	(void)state;
	open_workers(2, WORKS);
	submit(WORKS);
	hf_workers_close(workers);
	assert_int_equal(dones, WORKS);
	for (unsigned i = 0; i < WORKS; i++) {
		assert_int_equal(works[i].dones, 1);
		assert_int_equal(works[i].result, works[i].runs == 1 ? (int)i + 1000 : -ECANCELED);
	}
	hf_workers_close(NULL);
}

static void numbers_that_make_no_sense_are_refused_in_words(void **state)
{
	struct hf_error error = {0};

	(void)state;
	assert_int_equal(hf_workers_open(bed.loop, "disk", 0, 1, &workers, &error), -EINVAL);
	assert_null(workers);
	assert_non_null(strstr(error.text, "disk: 0 helper threads"));
	assert_int_equal(hf_workers_open(bed.loop, "disk", HF_WORKERS_THREADS_MAX + 1, 1, &workers, &error), -EINVAL);
	assert_int_equal(hf_workers_open(bed.loop, "disk", 1, 0, &workers, &error), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_BED(each_work_runs_once_and_its_result_comes_to_the_loop),
		IN_BED(one_thread_ends_works_in_the_order_in_which_they_were_submitted),
		IN_BED(no_more_works_are_taken_than_was_said),
		IN_BED(done_may_submit_again),
		IN_BED(a_cancelled_work_does_not_run_and_is_not_done),
		IN_BED(cancelled_works_make_room),
		IN_BED(a_work_that_is_waited_for_runs_once_and_is_not_done),
		IN_BED(a_done_may_wait_for_another_work),
		IN_BED(closing_ends_what_runs_and_cancels_what_waits),
		IN_BED(numbers_that_make_no_sense_are_refused_in_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
