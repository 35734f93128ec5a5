/* Notifications between two engines: they arrive in order, and behind the bytes of their batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <holdfast/channel.h>

#include "engines.h"

#define BYTES (4u << 20)
#define LIMIT 100000u /* turns */

struct fixture {
	struct engines engines;
	struct hf_transfer_batch *batch; /* of a */
	unsigned heard;
	char last[64];
	bool whole; /* every byte was in place when it was heard */
};

static void on_notified(struct hf_transfer *engine, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct fixture *f = context;

	(void)engine;
	assert_string_equal(hf_peer_name(peer), "a");
	assert_true(bytes < sizeof(f->last));
	memcpy(f->last, data, bytes);
	f->last[bytes] = '\0';
	f->whole = memcmp(f->engines.from, f->engines.to, BYTES) == 0;
	f->heard++;
}

static int open_fixture(void **state)
{
	const struct hf_transfer_events events = {.notified = on_notified};
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	engines_open(&f->engines, BYTES, &events, f);
	assert_int_equal(hf_transfer_batch_alloc(f->engines.a, 8, NULL, NULL, &f->batch), 0);
	*state = f;
	return 0;
}

static int close_fixture(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hf_transfer_batch_free(f->batch), 0);
	engines_close(&f->engines);
	free(f);
	return 0;
}

static void write_all(struct fixture *f)
{
	const struct hf_transfer_request request = {.opcode = HF_TRANSFER_WRITE,
		.source = f->engines.from,
		.segment = f->engines.segment,
		.target_offset = f->engines.target,
		.length = BYTES};
	unsigned first;

	assert_int_equal(hf_transfer_submit(f->batch, &request, 1, &first, NULL), 0);
}

static void turn_until_heard(struct fixture *f, unsigned n)
{
	for (unsigned i = 0; i < LIMIT && f->heard < n; i++)
		engines_turn(&f->engines);
	assert_int_equal(f->heard, n);
}

static void a_notification_of_a_batch_arrives_behind_its_bytes(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hf_transfer_batch_notify(f->batch, f->engines.segment, "x", 1), -EINVAL);
	write_all(f);
	assert_int_equal(hf_transfer_batch_notify(f->batch, f->engines.segment, "early", 5), 0);
	assert_int_equal(hf_transfer_batch_notify(f->batch, f->engines.segment, "4 MiB written", 13), 0);
	turn_until_heard(f, 1);
	assert_string_equal(f->last, "4 MiB written");
	assert_true(f->whole);
	assert_int_equal(hf_transfer_batch_status(f->batch), HF_TRANSFER_COMPLETED);
}

static void notifications_arrive_in_order(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hf_transfer_notify(f->engines.a, f->engines.segment, "one", 3), 0);
	assert_int_equal(hf_transfer_notify(f->engines.a, f->engines.segment, "two", 3), 0);
	turn_until_heard(f, 2);
	assert_string_equal(f->last, "two");
	assert_int_equal(hf_transfer_notify(f->engines.a, f->engines.segment, f->engines.from,
				 (size_t)HF_CHANNEL_MESSAGE_BYTES + 1),
		-EMSGSIZE);
}

static void a_batch_that_does_not_complete_notifies_nobody(void **state)
{
	struct fixture *f = *state;

	write_all(f);
	assert_int_equal(hf_transfer_batch_notify(f->batch, f->engines.segment, "never", 5), 0);
	assert_int_equal(hf_transfer_cancel(f->batch, 0), 0);
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(f->batch) == HF_TRANSFER_PENDING; i++)
		engines_turn(&f->engines);
	assert_int_equal(hf_transfer_notify(f->engines.a, f->engines.segment, "after", 5), 0);
	turn_until_heard(f, hf_transfer_batch_status(f->batch) == HF_TRANSFER_COMPLETED ? 2 : 1);
	assert_string_equal(f->last, "after");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(a_notification_of_a_batch_arrives_behind_its_bytes),
		CASE(notifications_arrive_in_order),
		CASE(a_batch_that_does_not_complete_notifies_nobody),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name(pair_kind, tests, NULL, NULL);
}
