/* objects.h - the objects of the proxy, for its own files. */
#ifndef HOLDFAST_PROXY_OBJECTS_H
#define HOLDFAST_PROXY_OBJECTS_H

#include <holdfast/channel.h>

#include "base/log.h"
#include "net/http.h"
#include "node/service_metrics.h"
#include "proxy/deadlines.h"
#include "proxy/protocol.h"
#include "proxy/proxy.h"
#include "proxy/redis/commands.h"
#include "proxy/run.h"
#include "proxy/stream.h"

#define PROXY_ARGS_MAX    65536u /* of a command */
#define PROXY_WORDS       256u
#define PROXY_PATIENCE_NS 30000000000ull /* a run that finds no leader for this time ends with an error */

/* An entry of this member's own. */
struct proxy_note {
	struct hf_smr_call call;
	struct resp_out entry;
	bool out; /* it is proposed */
};

struct proxy {
	struct hf_node *node;
	struct hf_loop *loop;
	struct proxy_events events;
	void *context;
	struct hf_smr *smr;
	struct hf_smr_config smr_config;
	uint8_t id;
	bool failed, closing;
	/* the server */
	int server_pid;
	bool works, unwell; /* works: at a write of this leader; unwell: this member does not lead */
	const struct protocol *protocol;
	struct proxy_server *server;
	struct commands commands; /* of Redis */
	struct server_gather learned;
	struct answers answers;
	struct deadlines deadlines; /* with memcached every key: `unique` is its `cas unique` */
	struct hf_timer due;
	struct hf_smr_call due_call;
	struct resp_out due_entry;
	bool due_proposed;
	uint64_t due_mark; /* at the server, behind the last keys that were due */
	/* clients */
	struct hf_addr listen;
	struct hf_io *listener;
	struct hf_watch listener_watch;
	struct list clients;
	unsigned client_count, clients_max;
	size_t clients_bytes_max, buffered; /* of the buffers of all */
	uint64_t next_client, accepted, evicted, commands_done;
	struct log_limit full_log, evicted_log, http_log;
	/* runs */
	struct list crowded, held_reads, stranded, sent;
	struct http_pages pages;
	struct service_metrics metrics;
	struct hf_timer retry;
	uint64_t next_run;
	struct hf_channel *channel;
	struct hf_peer *peers[HF_SMR_MEMBERS_MAX]; /* with the proxy of that member; NULL: none */
	struct list forward_peers, orphans;        /* forward.c's */
	/* snapshots */
	struct proxy_snapshot *snapshot; /* one is read: what is applied waits in `held` */
	struct proxy_restore *restore;
	/* entries: apply.c */
	struct resp_out held;    /* that the server does not have */
	size_t held_at;          /* of held: the server has what is before */
	struct hf_poller giver;  /* of what is held */
	uint64_t applied, given; /* places of the last ones; given: to the server */
	uint64_t cleared;        /* up to this place they have ended no server */
	uint64_t inherited;      /* a leader's: up to this place others proposed them */
	uint64_t sample, sample_mark;
	struct proxy_note done, skip;
	struct hf_timer tell, leave;
	bool ending, lost; /* the server has ended; lost: those that waited for it are told */
	char end_words[PROXY_WORDS];
	struct resp_arg args[PROXY_ARGS_MAX]; /* of the command that is looked at */
};

uint64_t proxy_now_ms(const struct proxy *proxy);
/* Steps out, once: the replica and its server are over. */
void proxy_fail(struct proxy *proxy, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Likewise: the log is for another kind of server. */
void proxy_fail_kind(struct proxy *proxy);
/* The deadline of a key, as the servers have it (shifted), or DEADLINE_NEVER: listed. */
void proxy_set_deadline(struct proxy *proxy, const uint8_t *key, size_t key_bytes, int64_t shifted_ms);

/* apply.c */
void proxy_apply_open(struct proxy *proxy);
void proxy_apply_close(struct proxy *proxy); /* before the replica stops */
void proxy_apply_free(struct proxy *proxy);
void proxy_apply(struct proxy *proxy, const struct hf_smr_applied *request);
/* This member leads: its server gets all entries. */
void proxy_apply_leads(struct proxy *proxy);
/* Its server computes at a write that this leader proposed. */
bool proxy_apply_works(const struct proxy *proxy);
/* What it had is lost, and executed nowhere; then the member steps out. */
void proxy_apply_ended(struct proxy *proxy, const char *why);
bool proxy_is_held(const struct proxy *proxy);  /* the server has not all entries that are applied */
bool proxy_may_give(const struct proxy *proxy); /* some of them are for it, though a snapshot may be read */
void proxy_give_held(struct proxy *proxy);      /* as many as it may have at once */
/* A snapshot contains what is held, which returns how many, and takes its place. False: it is damaged. */
uint32_t proxy_put_held(const struct proxy *proxy, struct resp_out *out);
void proxy_drop_held(struct proxy *proxy);
bool proxy_take_held(struct proxy *proxy, const struct stream_key *entry);

/* client.c */
int proxy_client_listen(struct proxy *proxy, struct hf_error *error);
void proxy_client_close_all(struct proxy *proxy);

/* status.c: pages of the node's HTTP server, which must not be called once the proxy is closed, and metrics */
int proxy_status_open(struct proxy *proxy, struct hf_error *error);
void proxy_status_close(struct proxy *proxy);

/* forward.c */
int proxy_forward_open(struct proxy *proxy, struct hf_error *error);
void proxy_forward_close(struct proxy *proxy);

/* snapshot.c, restore.c: members of struct hf_smr_app */
int proxy_snapshot_open(void *context, void **snapshot_out);
ssize_t proxy_snapshot_read(void *context, void *snapshot, void *data, size_t bytes);
void proxy_snapshot_close(void *context, void *snapshot);
int proxy_restore_open(void *context);
int proxy_restore_write(void *context, const void *data, size_t bytes);
int proxy_restore_close(void *context, bool whole);

#endif
