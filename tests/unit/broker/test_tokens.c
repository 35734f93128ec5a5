/* Tokens: good once, for a while, and for nobody who guesses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "broker/rdma/tokens.h"

static struct tokens tokens;

static struct token *give(uint8_t fill, uint64_t now_ns)
{
	struct token *token = tokens_give(&tokens, now_ns);

	assert_non_null(token);
	memset(token->bytes, fill, sizeof(token->bytes));
	token->partition = fill;
	return token;
}

static bool take(uint8_t fill, size_t count, uint64_t now_ns, struct token *out)
{
	uint8_t bytes[RDMA_TOKEN_BYTES];

	memset(bytes, fill, sizeof(bytes));
	return tokens_take(&tokens, bytes, count, now_ns, out);
}

static void a_token_works_once(void **state)
{
	struct token token;

	(void)state;
	memset(&tokens, 0, sizeof(tokens));
	give(1, 1000);
	give(2, 1000);
	assert_false(take(3, RDMA_TOKEN_BYTES, 1001, &token));
	assert_false(take(2, RDMA_TOKEN_BYTES - 1, 1001, &token));
	assert_true(take(2, RDMA_TOKEN_BYTES, 1001, &token));
	assert_int_equal(token.partition, 2);
	assert_false(take(2, RDMA_TOKEN_BYTES, 1001, &token));
	assert_true(take(1, RDMA_TOKEN_BYTES, 1001, &token));
	assert_false(take(0, RDMA_TOKEN_BYTES, 1001, &token)); /* what a free entry has */
}

static void a_token_that_is_too_old_is_none_and_gives_its_room_back(void **state)
{
	struct token token;

	(void)state;
	memset(&tokens, 0, sizeof(tokens));
	for (unsigned i = 0; i < TOKENS_MAX; i++)
		give(5, 1000);
	assert_null(tokens_give(&tokens, 1000));
	assert_false(take(5, RDMA_TOKEN_BYTES, 1000 + TOKENS_LIFE_NS, &token));
	assert_non_null(tokens_give(&tokens, 1000 + TOKENS_LIFE_NS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_works_once),
		cmocka_unit_test(a_token_that_is_too_old_is_none_and_gives_its_room_back),
	};

	return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
