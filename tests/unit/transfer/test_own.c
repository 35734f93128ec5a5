/* Copies within the own segment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "engines.h"

#define BYTES (4u << 20) /* several slices */
#define HALF  (BYTES / 2)
#define LIMIT 100000u /* turns */
#define MANY  10000u
#define PIECE 64u

static int submit(struct engines *engines, struct hf_transfer_batch *batch, enum hf_transfer_opcode opcode,
	uint64_t source, uint64_t target, struct hf_error *error)
{
	const struct hf_transfer_request request = {.opcode = opcode,
		.source = engines->from + source,
		.segment = hf_transfer_own_segment(engines->a),
		.target_offset = (uintptr_t)engines->from + target,
		.length = HALF};
	unsigned first;

	return hf_transfer_submit(batch, &request, 1, &first, error);
}

static void a_copy_whose_source_and_target_overlap_is_refused(void **state)
{
	static struct engines engines;
	struct hf_transfer_batch *batch;
	struct hf_error error = {0};

	(void)state;
	engines_open(&engines, BYTES, NULL, NULL);
	assert_int_equal(hf_transfer_batch_alloc(engines.a, 2, NULL, NULL, &batch), 0);
	assert_int_equal(hf_transfer_batch_status(batch), HF_TRANSFER_INITIAL);
	for (unsigned i = 0; i < 2; i++) {
		enum hf_transfer_opcode opcode = i == 0 ? HF_TRANSFER_WRITE : HF_TRANSFER_READ;

		assert_int_equal(submit(&engines, batch, opcode, 0, HALF - 1, &error), -EINVAL);
		assert_non_null(strstr(error.text, "request 0: its source and its target overlap"));
		assert_int_equal(submit(&engines, batch, opcode, HALF - 1, 0, &error), -EINVAL);
		assert_int_equal(submit(&engines, batch, opcode, 0, 0, &error), -EINVAL);
	}
	assert_int_equal(hf_transfer_batch_status(batch), HF_TRANSFER_INVALID);
	assert_int_equal(submit(&engines, batch, HF_TRANSFER_WRITE, 0, HALF, &error), 0);
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(batch) == HF_TRANSFER_PENDING; i++)
		engines_turn(&engines);
	assert_int_equal(submit(&engines, batch, HF_TRANSFER_READ, 0, HALF, &error), 0);
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(batch) == HF_TRANSFER_PENDING; i++)
		engines_turn(&engines);
	assert_int_equal(hf_transfer_batch_status(batch), HF_TRANSFER_COMPLETED);
	assert_memory_equal(engines.from, engines.from + HALF, HALF);
	assert_int_equal(hf_transfer_batch_free(batch), 0);
	engines_close(&engines);
}

static void memory_that_is_gone_fails_its_task_and_not_the_process(void **state)
{
	static struct engines engines;
	uint8_t *gone = mmap(NULL, HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const enum hf_transfer_opcode opcodes[] = {HF_TRANSFER_WRITE, HF_TRANSFER_READ};
	struct hf_transfer_request request = {.length = HALF};
	struct hf_transfer_batch *batch;
	unsigned first;

	(void)state;
	assert_true(gone != MAP_FAILED);
	engines_open(&engines, BYTES, NULL, NULL);
	assert_int_equal(
		hf_transfer_register(engines.a, gone, HALF, HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE, NULL),
		0);
	assert_int_equal(mprotect(gone, HALF, PROT_NONE), 0);
	for (unsigned i = 0; i < 2; i++) {
		request.opcode = opcodes[i];
		request.source = engines.from;
		request.segment = hf_transfer_own_segment(engines.a);
		request.target_offset = (uintptr_t)gone;
		assert_int_equal(hf_transfer_batch_alloc(engines.a, 1, NULL, NULL, &batch), 0);
		assert_int_equal(hf_transfer_submit(batch, &request, 1, &first, NULL), 0);
		for (unsigned n = 0; n < LIMIT && hf_transfer_batch_status(batch) == HF_TRANSFER_PENDING; n++)
			engines_turn(&engines);
		assert_int_equal(hf_transfer_batch_status(batch), HF_TRANSFER_FAILED);
		assert_int_equal(hf_transfer_batch_free(batch), 0);
	}
	engines_close(&engines);
	munmap(gone, HALF);
}

static void expect_completed(struct engines *engines, struct hf_transfer_batch *batch, unsigned task)
{
	enum hf_transfer_status status = HF_TRANSFER_PENDING;

	for (unsigned i = 0; i < LIMIT && status == HF_TRANSFER_PENDING; i++) {
		engines_turn(engines);
		assert_int_equal(hf_transfer_task_status(batch, task, &status, NULL), 0);
	}
	assert_int_equal(status, HF_TRANSFER_COMPLETED);
}

/* Each is registered by itself, and requests reach the first, the last, and one between. */
static void ten_thousand_buffers_are_registered_and_reached(void **state)
{
	static struct engines engines;
	struct hf_transfer_request request = {.opcode = HF_TRANSFER_WRITE, .length = PIECE};
	uint8_t *more = calloc(MANY, PIECE);
	struct hf_transfer_batch *batch;
	struct hf_error error = {0};
	uint64_t addr, bytes;
	unsigned first;

	(void)state;
	engines_open(&engines, BYTES, NULL, NULL);
	for (unsigned i = 1; i < MANY; i++) {
		unsigned at = i * 7919 % MANY; /* in no order of addresses */

		if (i % 100 == 0)
			engines_turn(&engines);
		if (hf_transfer_register(
			    engines.b, more + (size_t)at * PIECE, PIECE, HF_TRANSFER_REMOTE_WRITE, &error) != 0)
			fail_msg("%u: %s", i, error.text);
	}
	assert_int_equal(hf_transfer_register(engines.b, more, PIECE, 0, &error), -ENOSPC);
	assert_non_null(strstr(error.text, "10000 buffers are registered already"));
	for (unsigned i = 0; i < LIMIT && !hf_segment_buffer(engines.segment, MANY - 1, &addr, &bytes); i++)
		engines_turn(&engines);
	assert_int_equal(hf_transfer_batch_alloc(engines.a, 3, NULL, NULL, &batch), 0);
	for (unsigned i = 0; i < 3; i++) {
		request.source = engines.from + (size_t)i * PIECE;
		request.segment = engines.segment;
		request.target_offset = (uintptr_t)more + (1 + i * (MANY - 2) / 2) * PIECE;
		assert_int_equal(hf_transfer_submit(batch, &request, 1, &first, &error), 0);
	}
	request.target_offset = (uintptr_t)more + PIECE + PIECE / 2; /* the end of one and the begin of another */
	assert_int_equal(hf_transfer_submit(batch, &request, 1, &first, &error), -EINVAL);
	for (unsigned i = 0; i < 3; i++)
		expect_completed(&engines, batch, i);
	for (unsigned i = 0; i < 3; i++)
		assert_memory_equal(more + (1 + i * (MANY - 2) / 2) * PIECE, engines.from + (size_t)i * PIECE, PIECE);
	assert_int_equal(hf_transfer_batch_free(batch), 0);
	engines_close(&engines);
	free(more);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ten_thousand_buffers_are_registered_and_reached),
		cmocka_unit_test(memory_that_is_gone_fails_its_task_and_not_the_process),
		cmocka_unit_test(a_copy_whose_source_and_target_overlap_is_refused),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name(pair_kind, tests, NULL, NULL);
}
