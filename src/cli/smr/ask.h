/* ask.h - small clients for programs that wait: a command to Redis or memcached. Each call turns the loop until the
 * reply has arrived or its time is over. */
#ifndef HOLDFAST_CLI_SMR_ASK_H
#define HOLDFAST_CLI_SMR_ASK_H

#include <holdfast/loop.h>

#include "net/resp.h"
#include "net/resp_out.h"

struct ask { /* a connection; zeroed: none */
	struct hf_loop *loop;
	struct hf_io *io;
	struct resp_out in;
};

/* 0; -errno. The outcome of connecting comes with the first answer. */
int ask_open(struct ask *ask, struct hf_loop *loop, const struct hf_addr *to);
void ask_close(struct ask *ask);
/* Sends a line as redis-cli would ("INCR counter") and waits for the reply, which is good until the next call.
 * -ETIMEDOUT; -errno when the connection broke; -EPROTO. */
int ask_redis(struct ask *ask, const char *line, uint64_t wait_ns, struct resp_element *reply_out);

/* The same with memcached: a number is RESP_INTEGER, the first value RESP_BULK, no value RESP_NULL, a line
 * RESP_SIMPLE. */
int ask_memcached(struct ask *ask, const char *line, uint64_t wait_ns, struct resp_element *reply_out);

#endif
