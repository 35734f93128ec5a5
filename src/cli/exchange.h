/* exchange.h - one request over a stream, and the bytes of its answer. */
#ifndef HOLDFAST_CLI_EXCHANGE_H
#define HOLDFAST_CLI_EXCHANGE_H

#include <holdfast/loop.h>

enum exchange_until {
	EXCHANGE_END,   /* of the stream: the whole answer */
	EXCHANGE_FIRST, /* bytes that arrive: what listens there */
};

/* Turns the loop until the answer is there, or `wait_ns` are over. The answer, to be freed, has a NUL behind its end;
 * it may be empty. -ETIMEDOUT; -ENOMEM: it is too long; -errno of the stream. */
int exchange(struct hf_loop *loop, const struct hf_addr *to, const void *request, size_t request_bytes,
	enum exchange_until until, uint64_t wait_ns, char **answer_out, size_t *bytes_out);

#endif
