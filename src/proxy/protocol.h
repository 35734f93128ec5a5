/* protocol.h - the differences between the kinds of server of a proxy: redis/ and memcached/ fill one table each.
 *
 *   bytes of a client -> read -> find, check -> a run, as arrays of bulk strings -> the leader: rewrite -> entry
 *   -> every replica: inject -> the server -> take -> the client's reply
 *
 * Everything else (clients, runs, the way to the leader, answers, deadlines, snapshots and their stream) is common. */
#ifndef HOLDFAST_PROXY_PROTOCOL_H
#define HOLDFAST_PROXY_PROTOCOL_H

#include "proxy/command.h"
#include "proxy/entry.h"
#include "proxy/server.h"

struct client;
struct proxy;
struct proxy_snapshot;
struct stream_key;

enum client_taken {
	CLIENT_TAKEN,
	CLIENT_LATER, /* what came before is to be answered first: not taken */
};

struct protocol {
	struct server_protocol replies;
	enum entry_server server; /* in entries */

	/* ---- of a client ---- */
	/* As resp_request_read. With RESP_WHOLE and an error the request is answered with that, and *skip_out bytes
	 * behind
	 * it are dropped. */
	enum resp_outcome (*read)(
		struct resp_request *request, uint8_t *data, size_t bytes, size_t *used_out, size_t *skip_out);
	bool read_changes; /* what it reads, so that it cannot be read again */
	const struct command *(*find)(const uint8_t *name, size_t bytes);
	/* Whether the proxy takes the request; `words` if not. The command may be NULL. */
	bool (*check)(const struct proxy *proxy, const struct command *command, const struct command_args *request,
		char words[COMMAND_WORDS]);
	bool (*wants_reply)(const struct command *command, const struct command_args *request);
	void (*put_error)(struct resp_out *out, const char *words); /* "CODE words" */
	enum client_taken (*own)(
		struct client *client, const struct command *command, const struct command_args *request);

	/* Bytes of an entry that its records take, at most. */
	size_t (*entry_bytes)(const struct command *command, const struct command_args *request);

	/* ---- at the leader ---- */
	/* The records of a write, and of a key that is due. */
	void (*rewrite)(const struct command *command, const struct command_args *request, uint64_t now_ms,
		struct resp_out *entry);
	void (*rewrite_due)(struct resp_out *entry, const uint8_t *key, size_t key_bytes, int64_t shifted_ms);
	/* Sends a read to the server: one reply. */
	void (*ask)(struct proxy *proxy, const struct command *command, const struct command_args *request,
		uint64_t now_ms, struct server_gather *gather);

	/* ---- at every replica ---- */
	/* A record goes to the server: one reply to `gather`. `unique` grows from one record to the next. */
	void (*inject)(struct proxy *proxy, const struct entry_record *record, uint64_t time_ms, uint64_t unique,
		struct server_gather *gather);
	/* Queries the kind and version of the server, and checks the reply. NULL: it is good; else what the server
	 * is. */
	const char *hello;
	const char *(*hear_hello)(struct proxy *proxy, const uint8_t *reply, size_t bytes);

	/* ---- snapshots ---- */
	/* Requests the next keys, or stores them: snapshot.h. */
	void (*snapshot_more)(struct proxy_snapshot *snapshot);
	const char *flush; /* empties the server */
	/* The command that stores a key of a snapshot; false: it is damaged, or memory is short. */
	bool (*restore)(struct proxy *proxy, const struct stream_key *key, struct resp_out *command);
	bool (*restored)(const uint8_t *replies, size_t bytes); /* whether these replies to it are good */
};

extern const struct protocol proxy_redis, proxy_memcached;

#endif
