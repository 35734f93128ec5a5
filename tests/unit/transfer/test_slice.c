/* How a request is cut into slices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/list.h"
#include "transfer/slice.h"

#define BLOCK 65536u
#define MIB   (1ull << 20)

struct fixture {
	struct transport_job above;
	struct task_request request;
	struct ranges done;
	uint64_t longest, bytes;
	unsigned drained;
};

static void on_done(struct transport_job *job, const struct range *range)
{
	struct fixture *f = container_of(job, struct fixture, above);
	uint64_t bytes = range->end - range->begin;

	f->bytes += bytes;
	f->longest = bytes > f->longest ? bytes : f->longest;
}

static void on_drained(struct transport_job *job)
{
	container_of(job, struct fixture, above)->drained++;
}

/* Returns the number of slices. */
static unsigned cut(struct fixture *f, uint64_t length, uint64_t block)
{
	static const struct transport_job_events events = {.done = on_done, .drained = on_drained};
	struct slice_job *job;
	struct list queue;
	unsigned n = 0;

	*f = (struct fixture){.request = {.length = length}};
	f->above = (struct transport_job){.events = &events, .request = &f->request, .done = &f->done};
	list_init(&queue);
	job = slice_job_new(&f->above, &queue, block, 0);
	assert_non_null(job);
	for (; f->drained == 0; n++)
		slice_done(slice_job_take(job));
	assert_int_equal(f->bytes, length);
	assert_true(list_empty(&queue));
	assert_true(n <= slice_count_most(length, 1, block));
	return n;
}

static void a_request_has_slices_of_a_block_and_not_many(void **state)
{
	struct fixture f;

	(void)state;
	assert_int_equal(cut(&f, BLOCK + 1, BLOCK), 2);
	assert_int_equal(cut(&f, 64 * BLOCK, BLOCK), 64);
	assert_int_equal(cut(&f, 640 * BLOCK, BLOCK), 64);
	assert_int_equal(f.longest, 10 * BLOCK);
}

/* A slice has max_timeout_ns to cross a rail, however long its request is. */
static void a_long_request_has_more_slices_and_none_too_long_for_a_slow_rail(void **state)
{
	struct fixture f;

	(void)state;
	assert_int_equal(cut(&f, 8192 * MIB, BLOCK), 512);
	assert_int_equal(f.longest, 16 * MIB);
	assert_int_equal(cut(&f, 8192 * MIB, 64 * MIB), 128); /* configured so */
	assert_int_equal(f.longest, 64 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_has_slices_of_a_block_and_not_many),
		cmocka_unit_test(a_long_request_has_more_slices_and_none_too_long_for_a_slow_rail),
	};

	return cmocka_run_group_tests_name("slice", tests, NULL, NULL);
}
