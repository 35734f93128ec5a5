/* client.h - a client's connection, shared by client.c (bytes, runs) and the files that answer the proxy's own
 * commands.
 *
 * A client whose replies wait to be taken begins nothing more, and is read from: it may write all of its requests
 * before it reads. When the buffers of all clients exceed clients_mb, the client with the largest ones is closed. */
#ifndef HOLDFAST_PROXY_CLIENT_H
#define HOLDFAST_PROXY_CLIENT_H

#include "proxy/objects.h"

#define CLIENT_NAME_BYTES 64u

struct client {
	struct list node;
	struct proxy *proxy;
	struct hf_io *io; /* NULL: the client is gone, and its run is not back yet */
	struct hf_watch watch;
	struct hf_addr remote;
	struct resp_out in, out;
	size_t buffered;             /* of its buffers, as counted for all clients */
	size_t read, sent;           /* of in, of out */
	size_t wanted;               /* bytes of `in` before which no request is whole */
	size_t skip;                 /* bytes that come next and are dropped */
	bool ended;                  /* it sends nothing more, and may wait for replies */
	bool closing;                /* once `out` is written */
	char refusal[COMMAND_WORDS]; /* of what cannot be read, when its turn comes; empty: none */
	uint64_t id;
	char name[CLIENT_NAME_BYTES];
	/* What is under way, or is gathered. */
	struct run run, open;
	size_t run_bytes; /* of the entry, at most */
	unsigned replies; /* that the client waits for */
	unsigned draws;
	bool running, submitting; /* submitting: the run may be over before that returns */
	uint64_t session;         /* 0: none yet */
	uint32_t sequence;
	/* MULTI */
	bool multi, multi_bad;
	struct resp_out queue;
	unsigned queued;
};

/* redis/own.c: the proxy answers. `request` is not in a transaction, or ends it. */
enum client_taken client_own(struct client *client, const struct command *command, const struct command_args *request);
void client_discard(struct client *client);
/* Starts EXEC's run. */
void client_exec(struct client *client);

#endif
