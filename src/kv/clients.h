/* clients.h - connections of Redis clients: requests in, replies out in their order, everything bounded.
 *
 * A connection is a flow. Its requests are begun while fewer than CLIENT_PENDING_MAX of its operations are pending,
 * with fewer than CLIENT_REQUEST_BYTES, and fewer than CLIENT_OUT_BYTES of replies are unsent or wait behind
 * operations. With more of them unsent its flow is held, and no pending operation begins or completes: one reply more
 * is the most that accumulates. It is read from meanwhile, because a client may write all of its requests before it
 * reads: what accumulates are requests, which are smaller than what they ask for (R-K46). When the buffers of all
 * clients exceed clients_mb, the client with the largest ones is closed. A client that takes no reply for
 * CLIENT_STUCK_NS is closed, and so is a client with a write whose outcome is unknown.
 *
 * Of each client a turn takes CLIENT_TURN_BYTES of requests and one request, and of all clients it takes
 * CLIENTS_TURN_NS: what is left is due in the next turn, and leases go on. Clients whose last request was costly come
 * last (R-K47). Owned by the kv's loop. */
#ifndef HOLDFAST_KV_CLIENTS_H
#define HOLDFAST_KV_CLIENTS_H

#include "kv/engine.h"
#include "net/resp.h"
#include "net/resp_out.h"

#define CLIENTS_MB           256u
#define CLIENTS_TURN_NS      2000000ull
#define CLIENT_TURN_BYTES    16384u
#define CLIENT_ARGS_MAX      2048u
#define CLIENT_REQUEST_BYTES (8u << 20)
#define CLIENT_PENDING_MAX   1024u
#define CLIENT_OUT_BYTES     (1u << 20)
#define CLIENT_STUCK_NS      60000000000ull
#define CLIENT_NAME_BYTES    64u

struct client;

/* One key of a request, or a reply that waits for those before it. */
struct pending {
	struct hf_kv_op op;
	struct client *client;
	struct list node;
	void (*reply)(struct pending *pending, struct resp_out *out);
	unsigned index, count; /* of the keys of the request */
	struct resp_out after; /* replies to requests that need no record, behind this one */
	uint8_t bytes[];       /* key, value */
};

struct client {
	struct clients *clients;
	struct hf_io *io;
	struct hf_addr remote;
	struct hf_watch watch;
	struct hf_timer timer;
	struct list node, dirty;
	struct hf_kv_flow *flow;
	struct list pendings;
	unsigned pending_count;
	size_t pending_bytes; /* of their keys and values */
	size_t behind_bytes;  /* of replies behind them, but for those behind the last one */
	struct resp_request request;
	struct resp_arg args[CLIENT_ARGS_MAX];
	uint8_t *in;                       /* NULL: nothing is read and not begun */
	size_t in_from, in_bytes, in_room; /* from its first request on; up to its end */
	struct resp_out out;
	int64_t sum;              /* of the keys of a request so far */
	struct resp_out rows;     /* likewise: keys and values */
	enum hf_kv_result failed; /* likewise: the first error */
	/* Bytes of a request that is read, and waits until nothing is under way, or goes on in the next turn; 0: none.
	 */
	size_t held;
	uint64_t digest,
		digest_at;         /* of the records so far; the next entry of the index, 0: there is no such request */
	struct resp_out scan_from; /* the key at which a held HFSCAN goes on; empty: there is none */
	uint64_t id;
	uint64_t turn;   /* the last in which it was settled */
	size_t buffered; /* of its buffers, as counted for all clients */
	char name[CLIENT_NAME_BYTES];
	bool resp3, quitting, broken;
	bool due;     /* requests wait for a turn */
	bool costly;  /* its last request was: the next one waits for the next turn, */
	bool slow;    /* and for the clients whose last one was not */
	bool refuses; /* MULTI was refused: nothing is executed until EXEC or DISCARD (R-K48) */
};

int kv_clients_open(
	struct hf_kv *kv, const struct hf_addr *address, struct clients **clients_out, struct hf_error *error);
void kv_clients_close(struct clients *clients); /* NULL is legal */
/* Sends what was answered since. True: something was. */
bool kv_clients_turn(struct clients *clients);
int kv_clients_address(const struct clients *clients, struct hf_addr *address_out);
/* Totals since opened_ns, but for `now` and `buffered`. */
struct clients_counts {
	unsigned now;
	uint64_t received, refused, evicted, commands;
	size_t buffered;    /* now */
	uint64_t opened_ns; /* by hf_env_boot_ns */
};
struct clients_counts kv_clients_count(const struct clients *clients);
struct hf_kv *kv_clients_kv(const struct clients *clients);

void kv_clients_set_dirty(struct client *client); /* it has something to be sent, or to be closed for */
/* The client sends HTTP: a page in a browser may have made it do so. Nothing of what follows is read (R-K49). */
void kv_clients_refuse_http(struct client *client);
void kv_clients_add(struct client *client, struct pending *pending);
/* And frees it; holds the flow, if the client has not taken enough. */
void kv_clients_remove(struct client *client, struct pending *pending);

/* ---- commands.c ---- */
/* Answers a request, or begins its operations. False: it waits until all that is under way has ended, or goes on in
 * the next turn. */
bool kv_commands_run(struct client *client, const uint8_t *data);
/* A reply that needs no record: at once, or behind those that are under way. */
struct resp_out *kv_commands_out(struct client *client);

/* A request: its arguments, the command's name first. */
struct request {
	struct client *client;
	const uint8_t *data;
	unsigned count;
};
const uint8_t *kv_commands_arg(const struct request *request, unsigned i, uint32_t *bytes_out);
bool kv_commands_arg_is(const struct request *request, unsigned i, const char *word); /* in any case */
/* Begins a GET of one of the keys of a request, of which there are `count`. Without memory the client is broken. */
void kv_commands_get(struct client *client, const void *key, uint32_t key_bytes, unsigned index, unsigned count,
	void (*reply)(struct pending *pending, struct resp_out *out));

const char *kv_commands_refusal(const struct hf_kv *kv); /* "CODE words"; NULL: this member serves reads */

/* ---- session.c: commands about the connection ---- */
void kv_session_hello(const struct request *request);
void kv_session_auth(const struct request *request);
void kv_session_client(const struct request *request);
void kv_session_multi(const struct request *request);
void kv_session_no_multi(const struct request *request); /* EXEC or DISCARD */
void kv_session_refuse(const struct request *request);   /* anything behind a MULTI that was refused */

/* ---- info.c: about the store as a whole; scan.c; ordered_scan.c ---- */
void kv_info(const struct request *request);
void kv_info_config(const struct request *request);
void kv_info_command(const struct request *request);
void kv_scan(const struct request *request);
void kv_ordered_scan(const struct request *request);

#endif
