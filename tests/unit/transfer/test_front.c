/* Orders of several threads to one engine, whose loop is turned by another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <holdfast/transfer_front.h>

#include "../vqp/pair.h"

#define THREADS 4u
#define ORDERS  16u /* of a thread, one behind the other */
#define PIECES  8u  /* of an order */
#define PIECE   16384u
#define SHARE   (ORDERS * PIECES * PIECE)
#define BYTES   (THREADS * SHARE)
#define LIMIT   1000000u /* turns */

struct fixture {
	struct pair pair;
	struct hf_transfer *a, *b;
	struct hf_transfer_front *front;
	uint8_t *from, *to;
	struct hf_segment *segment; /* of b */
	uint64_t target;
	_Atomic unsigned threads_done, failures; /* what was not as it should be */
};

struct worker {
	struct fixture *f;
	unsigned number;
};

static void turn(struct fixture *f)
{
	(void)hf_loop_turn(f->pair.loop, 1000000);
}

static struct hf_transfer *open_engine(struct end *end, uint8_t *memory)
{
	struct hf_transfer_config config = {0};
	struct hf_transfer *engine;
	struct hf_error error = {0};

	assert_int_equal(hf_addr_parse("127.0.0.1", &config.listen), 0);
	if (hf_transfer_open(end->node, &config, NULL, NULL, &engine, &error) != 0)
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
	f->a = open_engine(&f->pair.a, f->from);
	f->b = open_engine(&f->pair.b, f->to);
	assert_int_equal(hf_transfer_front_open(f->a, &f->front, NULL), 0);
	assert_int_equal(hf_peer_connect(f->pair.a.node, &f->pair.control[1][0], 1, &f->pair.a.peer, NULL), 0);
	for (unsigned i = 0; i < LIMIT && f->segment == NULL; i++) {
		turn(f);
		f->segment = f->pair.a.peer == NULL ? NULL : hf_transfer_segment(f->a, f->pair.a.peer);
	}
	assert_non_null(f->segment);
	assert_true(hf_segment_buffer(f->segment, 0, &f->target, &bytes));
	*state = f;
	return 0;
}

static int close_fixture(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hf_transfer_front_close(f->front), 0);
	assert_int_equal(hf_transfer_close(f->a), 0);
	assert_int_equal(hf_transfer_close(f->b), 0);
	pair_close(&f->pair);
	free(f->from);
	free(f->to);
	free(f);
	pair_management = false;
	return 0;
}

static void fill(const struct fixture *f, struct hf_transfer_request *requests, uint64_t offset)
{
	for (unsigned i = 0; i < PIECES; i++, offset += PIECE)
		requests[i] = (struct hf_transfer_request){.opcode = HF_TRANSFER_WRITE,
			.source = &f->from[offset],
			.segment = f->segment,
			.target_offset = f->target + offset,
			.length = PIECE};
}

static bool order_completes(struct fixture *f, uint64_t offset)
{
	struct hf_transfer_request requests[PIECES];
	struct hf_transfer_order *order;
	bool good = true;
	uint64_t bytes;

	fill(f, requests, offset);
	if (hf_transfer_order(f->front, requests, PIECES, &order) != 0)
		return false;
	hf_transfer_order_wait(order);
	for (unsigned i = 0; i < PIECES; i++)
		good = good && hf_transfer_order_status(order, i, &bytes) == HF_TRANSFER_COMPLETED && bytes == PIECE;
	good = good && memcmp(&f->from[offset], &f->to[offset], (size_t)PIECES * PIECE) == 0;
	return hf_transfer_order_free(order) == 0 && good;
}

static void *work(void *context)
{
	struct worker *worker = context;
	struct fixture *f = worker->f;

	for (unsigned i = 0; i < ORDERS; i++)
		if (!order_completes(f, worker->number * (uint64_t)SHARE + i * (uint64_t)PIECES * PIECE))
			atomic_fetch_add(&f->failures, 1);
	atomic_fetch_add(&f->threads_done, 1);
	hf_loop_wake(f->pair.loop);
	return NULL;
}

static void threads_submit_and_see_their_bytes_in_place(void **state)
{
	struct fixture *f = *state;
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.f = f, .number = i};
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < LIMIT && atomic_load(&f->threads_done) < THREADS; i++)
		turn(f);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(atomic_load(&f->failures), 0);
	assert_memory_equal(f->from, f->to, BYTES);
}

static void turn_until_over(struct fixture *f, const struct hf_transfer_order *order)
{
	for (unsigned i = 0; i < LIMIT && hf_transfer_order_is_pending(order); i++)
		turn(f);
	assert_false(hf_transfer_order_is_pending(order));
}

static void a_refused_request_of_an_order_leaves_the_others_alone(void **state)
{
	struct fixture *f = *state;
	struct hf_transfer_request requests[PIECES];
	struct hf_transfer_order *order;

	fill(f, requests, 0);
	requests[3].length = 0;
	assert_int_equal(hf_transfer_order(f->front, requests, 0, &order), -EINVAL);
	assert_int_equal(hf_transfer_order(f->front, requests, PIECES, &order), 0);
	assert_int_equal(hf_transfer_order_free(order), -EBUSY);
	assert_int_equal(hf_transfer_front_close(f->front), -EBUSY);
	turn_until_over(f, order);
	for (unsigned i = 0; i < PIECES; i++)
		assert_int_equal(
			hf_transfer_order_status(order, i, NULL), i == 3 ? HF_TRANSFER_INVALID : HF_TRANSFER_COMPLETED);
	assert_int_equal(hf_transfer_order_free(order), 0);
}

static void a_cancelled_order_ends(void **state)
{
	struct fixture *f = *state;
	struct hf_transfer_request requests[PIECES];
	struct hf_transfer_order *order;

	fill(f, requests, 0);
	assert_int_equal(hf_transfer_order(f->front, requests, PIECES, &order), 0);
	hf_transfer_order_cancel(order);
	turn_until_over(f, order);
	for (unsigned i = 0; i < PIECES; i++) {
		enum hf_transfer_status status = hf_transfer_order_status(order, i, NULL);

		assert_true(status == HF_TRANSFER_CANCELED || status == HF_TRANSFER_COMPLETED);
	}
	assert_int_equal(hf_transfer_order_free(order), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(threads_submit_and_see_their_bytes_in_place),
		CASE(a_refused_request_of_an_order_leaves_the_others_alone),
		CASE(a_cancelled_order_ends),
	};

	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name(pair_kind, tests, NULL, NULL);
}
