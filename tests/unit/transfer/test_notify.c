/* Notifications between two engines: they arrive in order, and behind the bytes of their batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <holdfast/channel.h>
#include <holdfast/transfer.h>

#include "../vqp/pair.h"

#define BYTES (4u << 20)
#define LIMIT 100000u /* turns */

struct fixture {
	struct pair pair;
	struct hf_transfer *a, *b;
	uint8_t *from, *to;
	struct hf_segment *segment; /* of b */
	uint64_t target;
	struct hf_transfer_batch *batch;
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
	f->whole = memcmp(f->from, f->to, BYTES) == 0;
	f->heard++;
}

static void turn(struct fixture *f)
{
	(void)hf_loop_turn(f->pair.loop, 1000000);
}

static struct hf_transfer *open_engine(struct fixture *f, struct end *end, uint8_t *memory)
{
	const struct hf_transfer_events events = {.notified = on_notified};
	struct hf_transfer_config config = {0};
	struct hf_transfer *engine;
	struct hf_error error = {0};

	assert_int_equal(hf_addr_parse("127.0.0.1", &config.listen), 0);
	if (hf_transfer_open(end->node, &config, &events, f, &engine, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(
		hf_transfer_register(engine, memory, BYTES, HF_TRANSFER_REMOTE_READ | HF_TRANSFER_REMOTE_WRITE, &error),
		0);
	return engine;
}

static int open_fixture(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	uint64_t bytes;

	assert_non_null(f);
	f->from = malloc(BYTES);
	f->to = calloc(1, BYTES);
	assert_true(f->from != NULL && f->to != NULL);
	for (unsigned i = 0; i < BYTES; i++)
		f->from[i] = (uint8_t)(i * 131 + i / 257 + 1);
	pair_management = true;
	pair_open(&f->pair, HF_POLICY_VARUNA);
	f->a = open_engine(f, &f->pair.a, f->from);
	f->b = open_engine(f, &f->pair.b, f->to);
	assert_int_equal(hf_peer_connect(f->pair.a.node, &f->pair.control[1][0], 1, &f->pair.a.peer, NULL), 0);
	for (unsigned i = 0; i < LIMIT && f->segment == NULL; i++) {
		turn(f);
		f->segment = f->pair.a.peer == NULL ? NULL : hf_transfer_segment(f->a, f->pair.a.peer);
	}
	assert_non_null(f->segment);
	assert_true(hf_segment_buffer(f->segment, 0, &f->target, &bytes));
	assert_int_equal(hf_transfer_batch_alloc(f->a, 8, NULL, NULL, &f->batch), 0);
	*state = f;
	return 0;
}

static int close_fixture(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hf_transfer_batch_free(f->batch), 0);
	assert_int_equal(hf_transfer_close(f->a), 0);
	assert_int_equal(hf_transfer_close(f->b), 0);
	pair_close(&f->pair);
	free(f->from);
	free(f->to);
	free(f);
	pair_management = false;
	return 0;
}

static void write_all(struct fixture *f)
{
	const struct hf_transfer_request request = {.opcode = HF_TRANSFER_WRITE,
		.source = f->from,
		.segment = f->segment,
		.target_offset = f->target,
		.length = BYTES};
	unsigned first;

	assert_int_equal(hf_transfer_submit(f->batch, &request, 1, &first, NULL), 0);
}

static void turn_until_heard(struct fixture *f, unsigned n)
{
	for (unsigned i = 0; i < LIMIT && f->heard < n; i++)
		turn(f);
	assert_int_equal(f->heard, n);
}

static void a_notification_of_a_batch_arrives_behind_its_bytes(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hf_transfer_batch_notify(f->batch, f->segment, "x", 1), -EINVAL);
	write_all(f);
	assert_int_equal(hf_transfer_batch_notify(f->batch, f->segment, "early", 5), 0);
	assert_int_equal(hf_transfer_batch_notify(f->batch, f->segment, "4 MiB written", 13), 0);
	turn_until_heard(f, 1);
	assert_string_equal(f->last, "4 MiB written");
	assert_true(f->whole);
	assert_int_equal(hf_transfer_batch_status(f->batch), HF_TRANSFER_COMPLETED);
}

static void notifications_arrive_in_order(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hf_transfer_notify(f->a, f->segment, "one", 3), 0);
	assert_int_equal(hf_transfer_notify(f->a, f->segment, "two", 3), 0);
	turn_until_heard(f, 2);
	assert_string_equal(f->last, "two");
	assert_int_equal(
		hf_transfer_notify(f->a, f->segment, f->from, (size_t)HF_CHANNEL_MESSAGE_BYTES + 1), -EMSGSIZE);
}

static void a_batch_that_does_not_complete_notifies_nobody(void **state)
{
	struct fixture *f = *state;

	write_all(f);
	assert_int_equal(hf_transfer_batch_notify(f->batch, f->segment, "never", 5), 0);
	assert_int_equal(hf_transfer_cancel(f->batch, 0), 0);
	for (unsigned i = 0; i < LIMIT && hf_transfer_batch_status(f->batch) == HF_TRANSFER_PENDING; i++)
		turn(f);
	assert_int_equal(hf_transfer_notify(f->a, f->segment, "after", 5), 0);
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
