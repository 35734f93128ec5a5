/* Copies within the own segment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "engines.h"

#define BYTES (4u << 20) /* several slices */
#define HALF  (BYTES / 2)
#define LIMIT 100000u /* turns */

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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_whose_source_and_target_overlap_is_refused),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name(pair_kind, tests, NULL, NULL);
}
