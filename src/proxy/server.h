/* server.h - the one connection of the proxy to its Redis: commands go out and replies come back in the same order.
 *
 * Entries of the log and reads take turns on it, so that a read sees every entry that was applied before it, and nobody
 * else is at that server. Owned by the proxy's loop. */
#ifndef HOLDFAST_PROXY_SERVER_H
#define HOLDFAST_PROXY_SERVER_H

#include <holdfast/loop.h>

#include "net/resp.h"
#include "net/resp_out.h"
#include "proxy/entry.h"

#define SERVER_QUEUE_BYTES (256u << 20) /* of commands that wait for their replies: it has failed beyond that */

/* Replies that belong together. done() is called when all that are counted in `left` are in `out`, in the order of
 * their commands; the owner's from there on. */
struct server_gather {
	unsigned left;
	struct resp_out out;
	void (*done)(struct server_gather *gather);
};

struct server_events {
	/* Over: closed by it, hung, or no Redis. Nothing is called after it. */
	void (*broken)(void *context, const char *why);
	/* The deadline of a key, as the server has it; -1: none, -2: no such key. */
	void (*deadline)(void *context, const uint8_t *key, size_t key_bytes, int64_t shifted_ms);
};

struct proxy_server;

/* `path` is that of its socket. The server is broken when it does not answer for `silence_ns`. */
int proxy_server_open(struct hf_loop *loop, const char *path, uint64_t silence_ns, const struct server_events *events,
	void *context, struct proxy_server **server_out, struct hf_error *error);
void proxy_server_close(struct proxy_server *server); /* drops what waits; NULL is legal */

/* Sends one command. Its reply goes to `gather` as `reply` says; without one it is dropped. Text is copied. */
void proxy_server_ask(struct proxy_server *server, const void *command, size_t bytes, enum entry_reply reply,
	uint64_t now_ms, struct server_gather *gather);
/* Asks for the deadline of a key: events.deadline has it. */
void proxy_server_ask_deadline(struct proxy_server *server, const uint8_t *key, size_t key_bytes);
/* How many commands wait for their replies. */
unsigned proxy_server_waiting(const struct proxy_server *server);

#endif
