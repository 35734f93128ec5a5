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

#include "engines.h"

#define THREADS 4u
#define ORDERS  16u /* of a thread, one behind the other */
#define PIECES  8u  /* of an order */
#define PIECE   16384u
#define SHARE   (ORDERS * PIECES * PIECE)
#define BYTES   (THREADS * SHARE)
#define LIMIT   1000000u /* turns */

struct fixture {
	struct engines engines;
	struct hf_transfer_front *front;         /* of a */
	_Atomic unsigned threads_done, failures; /* what was not as it should be */
};

struct worker {
	struct fixture *f;
	unsigned number;
};

static int open_fixture(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	engines_open(&f->engines, BYTES, NULL, NULL);
	assert_int_equal(hf_transfer_front_open(f->engines.a, &f->front, NULL), 0);
	*state = f;
	return 0;
}

static int close_fixture(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(hf_transfer_front_close(f->front), 0);
	engines_close(&f->engines);
	free(f);
	return 0;
}

static void fill(const struct fixture *f, struct hf_transfer_request *requests, uint64_t offset)
{
	for (unsigned i = 0; i < PIECES; i++, offset += PIECE)
		requests[i] = (struct hf_transfer_request){.opcode = HF_TRANSFER_WRITE,
			.source = &f->engines.from[offset],
			.segment = f->engines.segment,
			.target_offset = f->engines.target + offset,
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
	good = good && memcmp(&f->engines.from[offset], &f->engines.to[offset], (size_t)PIECES * PIECE) == 0;
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
	hf_loop_wake(f->engines.pair.loop);
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
		engines_turn(&f->engines);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(atomic_load(&f->failures), 0);
	assert_memory_equal(f->engines.from, f->engines.to, BYTES);
}

static void turn_until_over(struct fixture *f, const struct hf_transfer_order *order)
{
	for (unsigned i = 0; i < LIMIT && hf_transfer_order_is_pending(order); i++)
		engines_turn(&f->engines);
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
