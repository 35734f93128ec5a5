/* Which requests become one transfer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "transfer/merge.h"

#define N 4u

static uint8_t memory[4096];

static struct task_request request(uint64_t offset, uint64_t length)
{
	return (struct task_request){.opcode = HF_TRANSFER_WRITE,
		.source = &memory[offset],
		.offset = offset,
		.length = length,
		.deadline_ns = UINT64_MAX};
}

static unsigned merge(const struct task_request *requests, struct task_request *owners, unsigned *owner_of)
{
	const struct task_request *order[N];

	return merge_requests(requests, N, owners, owner_of, order);
}

static void requests_that_follow_each_other_become_one_in_any_order(void **state)
{
	const struct task_request requests[N] = {
		request(300, 100), request(0, 100), request(200, 100), request(100, 100)};
	struct task_request owners[N];
	unsigned owner_of[N];

	(void)state;
	assert_int_equal(merge(requests, owners, owner_of), 1);
	assert_int_equal(owners[0].offset, 0);
	assert_int_equal(owners[0].length, 400);
	assert_ptr_equal(owners[0].source, memory);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(owner_of[i], 0);
}

static void a_gap_on_either_side_keeps_requests_apart(void **state)
{
	struct task_request requests[N] = {request(0, 100), request(101, 99), request(200, 100), request(300, 100)};
	struct task_request owners[N];
	unsigned owner_of[N];

	(void)state;
	requests[3].source++;
	assert_int_equal(merge(requests, owners, owner_of), 3);
	assert_int_equal(owner_of[1], owner_of[2]);
}

static void requests_that_differ_in_kind_are_kept_apart(void **state)
{
	for (unsigned field = 0; field < 6; field++) {
		struct task_request requests[N] = {
			request(0, 100), request(100, 100), request(200, 100), request(300, 100)};
		struct task_request owners[N], *other = &requests[3];
		unsigned owner_of[N];

		(void)state;
		other->opcode = field == 0 ? HF_TRANSFER_READ : other->opcode;
		other->hint = field == 1 ? 1 : 0;
		other->segment = field == 2 ? (struct hf_segment *)(void *)memory : NULL;
		other->deadline_ns = field == 3 ? 1 : UINT64_MAX;
		other->local = field == 4 ? (struct buffer *)(void *)memory : NULL;
		other->remote = field == 5 ? 1 : 0;
		assert_int_equal(merge(requests, owners, owner_of), 2);
		assert_int_not_equal(owner_of[3], owner_of[2]);
	}
}

/* The same bytes twice: two transfers, whose order nobody promises. */
static void overlapping_requests_are_kept_apart(void **state)
{
	const struct task_request requests[N] = {request(0, 100), request(0, 100), request(50, 100), request(50, 50)};
	struct task_request owners[N];
	unsigned owner_of[N];

	(void)state;
	assert_int_equal(merge(requests, owners, owner_of), N);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_that_follow_each_other_become_one_in_any_order),
		cmocka_unit_test(a_gap_on_either_side_keeps_requests_apart),
		cmocka_unit_test(requests_that_differ_in_kind_are_kept_apart),
		cmocka_unit_test(overlapping_requests_are_kept_apart),
	};

	return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
