/* tokens.h - access tokens of clients: 128 bits, valid once, for 10 s.
 *
 * A token carries the rights of its client's Kafka connection (R-B25). Pure but for memory. */
#ifndef HOLDFAST_BROKER_TOKENS_H
#define HOLDFAST_BROKER_TOKENS_H

#include "broker/codec/codec.h"
#include "broker/controller/controller.h"
#include "broker/rdma/rdma_wire.h"

#define TOKENS_MAX     1024u
#define TOKENS_LIFE_NS 10000000000ull

struct token {
	uint8_t bytes[RDMA_TOKEN_BYTES];
	enum access_kind kind;
	uint64_t end_ns; /* 0: free */
	/* PRODUCE */
	char topic[CONTROLLER_TOPIC_BYTES];
	int32_t partition, leader_epoch; /* good in this epoch alone */
	int64_t producer_id;
	int16_t producer_epoch;
	bool all; /* acks=all */
};

struct tokens {
	struct token at[TOKENS_MAX];
};

/* A free one, or NULL: too many were given and not used. The caller fills in all but end_ns. */
struct token *tokens_give(struct tokens *tokens, uint64_t now_ns);
/* Takes it out; false: unknown, used before, or too old. */
bool tokens_take(struct tokens *tokens, const void *bytes, size_t count, uint64_t now_ns, struct token *token_out);

#endif
