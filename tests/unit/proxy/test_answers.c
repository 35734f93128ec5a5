/* The memory of replies: the latest of a session, told to whoever waits, within its bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "proxy/answers.h"

static struct answers answers;
static unsigned told;

static void on_told(struct answer_waiter *waiter, const struct answer *answer)
{
	(void)waiter;
	assert_int_equal(answer->gather.out.bytes, 5);
	told++;
}

static void reply(struct answer *answer)
{
	resp_out_simple(&answer->gather.out, "OK");
	if (--answer->gather.left == 0)
		answer->gather.done(&answer->gather);
}

static void latest_reply_of_a_session_is_kept(void **state)
{
	struct answer *first, *second;

	(void)state;
	proxy_answers_init(&answers);
	first = proxy_answers_begin(&answers, 7, 1, 1);
	assert_ptr_equal(proxy_answers_find(&answers, 7, 1), first);
	assert_false(first->whole);
	reply(first);
	assert_true(first->whole);
	second = proxy_answers_begin(&answers, 7, 2, 1);
	assert_null(proxy_answers_find(&answers, 7, 1));
	assert_ptr_equal(proxy_answers_find(&answers, 7, 2), second);
	assert_null(proxy_answers_find(&answers, 8, 2));
	proxy_answers_free(&answers);
}

/* A follower's server may lag: the session goes on before the reply is there. */
static void waiters_are_told_though_the_session_went_on(void **state)
{
	struct answer_waiter waiters[2] = {{.told = on_told}, {.told = on_told}};
	struct answer *first;

	(void)state;
	proxy_answers_init(&answers);
	told = 0;
	first = proxy_answers_begin(&answers, 7, 1, 1);
	list_push_back(&first->waiters, &waiters[0].node);
	list_push_back(&first->waiters, &waiters[1].node);
	assert_non_null(proxy_answers_begin(&answers, 7, 2, 1));
	assert_int_equal(told, 0);
	reply(first);
	assert_int_equal(told, 2);
	proxy_answers_free(&answers); /* also of what is not whole */
}

static void memory_of_replies_is_bounded(void **state)
{
	(void)state;
	proxy_answers_init(&answers);
	for (uint64_t session = 1; session <= 3 * ANSWERS_SESSIONS; session++)
		reply(proxy_answers_begin(&answers, session, 1, 1));
	assert_true(answers.count <= ANSWERS_SESSIONS);
	assert_null(proxy_answers_find(&answers, 1, 1));
	assert_non_null(proxy_answers_find(&answers, 3 * ANSWERS_SESSIONS, 1));
	for (uint64_t session = 1; session <= 200; session++) {
		struct answer *answer = proxy_answers_begin(&answers, session, 2, 1);

		assert_non_null(resp_out_reserve(&answer->gather.out, ANSWERS_BYTES / 128));
		reply(answer);
		assert_true(answers.bytes <= ANSWERS_BYTES);
	}
	assert_null(proxy_answers_find(&answers, 1, 2));
	proxy_answers_free(&answers);
	assert_int_equal(answers.bytes, 0);
	assert_int_equal(answers.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(latest_reply_of_a_session_is_kept),
		cmocka_unit_test(waiters_are_told_though_the_session_went_on),
		cmocka_unit_test(memory_of_replies_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
