/* Tokens. */
#include "broker/rdma/tokens.h"

#include <string.h>

struct token *tokens_give(struct tokens *tokens, uint64_t now_ns)
{
	for (unsigned i = 0; i < TOKENS_MAX; i++) {
		struct token *token = &tokens->at[i];

		if (token->end_ns > now_ns)
			continue;
		*token = (struct token){.end_ns = now_ns + TOKENS_LIFE_NS};
		return token;
	}
	return NULL;
}

/* Every byte is looked at, whatever it is: how long this takes tells nothing. */
static bool is_same(const uint8_t *a, const uint8_t *b)
{
	unsigned difference = 0;

	for (unsigned i = 0; i < RDMA_TOKEN_BYTES; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}

bool tokens_take(struct tokens *tokens, const void *bytes, size_t count, uint64_t now_ns, struct token *token_out)
{
	for (unsigned i = 0; count == RDMA_TOKEN_BYTES && i < TOKENS_MAX; i++) {
		struct token *token = &tokens->at[i];

		if (token->end_ns <= now_ns || !is_same(token->bytes, bytes))
			continue;
		*token_out = *token;
		token->end_ns = 0;
		return true;
	}
	return false;
}
