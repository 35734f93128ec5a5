/* server.h - the one connection of the proxy to its server: commands go out and replies come back in the same order.
 *
 * Entries of the log and reads share it in order, so that a read sees every entry that was applied before it. The
 * server has no other client. Owned by the proxy's loop. */
#ifndef HOLDFAST_PROXY_SERVER_H
#define HOLDFAST_PROXY_SERVER_H

#include <holdfast/loop.h>

#include "net/resp.h"
#include "net/resp_out.h"
#include "proxy/entry.h"

#define SERVER_QUEUE_BYTES (256u << 20) /* of commands that wait for their replies: it has failed beyond that */
/* A request that can wait is not sent beyond this; a command, or an entry, may still add what it has. */
#define SERVER_UNSENT_MOST (SERVER_QUEUE_BYTES / 4)

/* Replies that belong together. done() is called when all that are counted in `left` are in `out`, in the order of
 * their commands; the owner's from there on. */
struct server_gather {
	unsigned left;
	struct resp_out out;
	void (*done)(struct server_gather *gather);
	void (*lost)(struct server_gather *gather); /* proxy_server_lose; may be NULL */
};

/* A pending command. */
struct server_question {
	enum entry_reply reply;
	uint64_t now_ms;
	const uint8_t *note; /* of the asker */
	size_t note_bytes;
};

/* What differs between servers. */
struct server_protocol {
	const char *name;  /* of the server, for people */
	const char *alive; /* a question that costs nothing; any answer will do */
	/* One reply, as resp_reply_read. */
	enum resp_outcome (*read)(struct resp_reply *reply, const uint8_t *data, size_t bytes, size_t *used_out);
	/* Appends what the client gets for this reply; with `out` NULL none is appended. False: no server answers
	 * so
	 * that has what it was given, and it is over. */
	bool (*take)(const struct server_question *question, const uint8_t *reply, size_t bytes, struct resp_out *out);
};

struct server_events {
	/* Over: closed by it, hung, or no such server. Nothing is called after it. */
	void (*broken)(void *context, const char *why);
	/* It does not answer for a tenth of the time after which it is broken, and again after each further one; or it
	 * answers again. */
	void (*unwell)(void *context, bool unwell);
	/* The deadline of a key, as the server has it; -1: none, -2: no such key. */
	void (*deadline)(void *context, const uint8_t *key, size_t key_bytes, int64_t shifted_ms);
};

struct proxy_server;

/* `path` is that of its socket. The server is broken when it does not answer for `silence_ns`, on a second connection
 * either: one that takes long for a command works. */
int proxy_server_open(struct hf_loop *loop, const char *path, uint64_t silence_ns,
	const struct server_protocol *protocol, const struct server_events *events, void *context,
	struct proxy_server **server_out, struct hf_error *error);
void proxy_server_close(struct proxy_server *server); /* drops what waits; NULL is legal */

/* Sends one command. `reply` determines how its reply goes to `gather`; without one it is dropped. Text is copied. */
void proxy_server_ask(struct proxy_server *server, const void *command, size_t bytes, enum entry_reply reply,
	uint64_t now_ms, struct server_gather *gather);
/* The same, with a note for protocol->take. */
void proxy_server_ask_noted(struct proxy_server *server, const struct resp_out *command,
	const struct server_question *question, struct server_gather *gather);
/* Redis: requests the deadline of a key: events.deadline has it. */
void proxy_server_ask_deadline(struct proxy_server *server, const uint8_t *key, size_t key_bytes);
/* Replies to those that were requested so far are dropped: the keys are others now. */
void proxy_server_forget_deadlines(struct proxy_server *server);
/* What follows is of the entry at this place of the log; 0: of none. */
void proxy_server_at(struct proxy_server *server, uint64_t place);
/* Of the first entry that is not answered; 0: there is none. */
uint64_t proxy_server_unanswered(const struct proxy_server *server);
/* The server is broken: calls lost() of the gathers that wait for it, each once. */
void proxy_server_lose(struct proxy_server *server);
/* How many commands wait for their replies. */
unsigned proxy_server_waiting(const struct proxy_server *server);
/* A place behind the commands so far, and whether all before it are answered. */
uint64_t proxy_server_mark(const struct proxy_server *server);
bool proxy_server_passed(const struct proxy_server *server, uint64_t mark);
/* Bytes of commands that the server has not taken yet. */
size_t proxy_server_unsent(const struct proxy_server *server);

#endif
