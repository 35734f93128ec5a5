/* engine.h - shared state of the parts of a store: records, busy keys, links, flows and operations.
 *
 *   flows.c    operations in the order of their connection, and their results
 *   change.c   the effect of an operation on a record (pure)
 *   writes.c   writes of this node: begin, acknowledge, replay, end; executes the actions of kv_step.c
 *   doubts.c   DOUBTFUL records, which may not be at every member
 *   hear.c     messages of the other members
 *   busy.c     keys with pending operations or writes
 *   council.c  membership: leases, suspicion, entries of the replicated log; epoch.c installs its decisions
 *   copy.c     recovery of a member that returns: all records, or the missed ones (missed.c)
 *   purge.c    removal of deleted records
 *   told.c     reports of the durable end of each log, against older copies
 *   durable.c  logging, and waiting for durability; log.c writes the log, log_open.c reads it at the start,
 *              recycle.c frees segments
 *   status.c   status for operators; recovery.c has the times of recoveries
 *
 * A turn handles messages, replays records that have been INVALID for too long, completes operations, and sends the
 * links' messages. */
#ifndef HOLDFAST_KV_ENGINE_H
#define HOLDFAST_KV_ENGINE_H

#include <holdfast/kv.h>

#include "base/list.h"
#include "kv/cm.h"
#include "kv/copy.h"
#include "kv/council.h"
#include "kv/durable.h"
#include "kv/kv_step.h"
#include "kv/link.h"
#include "kv/log.h"
#include "kv/missed.h"
#include "kv/recycle.h"
#include "kv/purge.h"
#include "kv/recovery.h"
#include "kv/store.h"
#include "kv/told.h"
#include "kv/wire.h"
#include "net/http.h"
#include "node/service_metrics.h"

struct clients;

enum op_state {
	OP_QUEUED,  /* behind others of its flow */
	OP_WAITING, /* for its key */
	OP_BEGUN,   /* its write is in flight */
	OP_REFUSED, /* its write was, and may be replayed until the newer record is VALID (R-K6) */
	OP_DONE,    /* to be answered when those before it are */
};

/* An operation on its way; `user` is the caller's. */
struct op {
	struct hf_kv_op *user;
	struct hf_kv_flow *flow;
	enum op_state state;
	struct list in_flow, in_key, in_age; /* of the flow, of the busy key, of all by their deadlines */
	uint64_t posted_ns, deadline_ns;
	struct busy *key; /* OP_BEGUN: its write is in flight */
	uint8_t *saved;   /* the value before a write that returns it */
};

struct hf_kv_flow {
	struct hf_kv *kv;
	struct list ops;             /* in order */
	struct list in_kv, in_ready; /* of all flows; of those with something to answer or to begin */
	bool running, closed;
	bool held; /* nothing is answered or begun: the client has not taken the answers so far */
};

/* A key that waits for something: it has a write of this node in flight, is INVALID, or operations wait for it. */
struct busy {
	uint32_t entry, number; /* of the key; of this in kv->busy */
	bool used;
	struct list invalid; /* in kv->invalid, unless it has a write in flight */
	uint64_t since_ns;
	struct list waiters;   /* struct op */
	struct list unsettled; /* in kv->unsettled while the record is not VALID */
	struct kv_write write;
	struct list flight; /* in kv->flights, in the order in which they began */
	uint64_t serial;    /* of the write: with it the peers name it */
	uint8_t *inv;       /* the write's INV as it was sent */
	uint32_t inv_bytes;
	struct op *op; /* the operation of this write; NULL: none any more */
};

struct hf_kv {
	struct hf_kv_config config;
	struct hf_node *node;
	struct hf_loop *loop;
	struct hf_env *env;
	struct link_pool links;
	struct store store;
	size_t reserve;          /* memory that is kept for the writes of others */
	uint64_t incarnation;    /* of this process */
	struct cm cm, installed; /* what is decided, and what this member acts on */
	uint8_t restored[CM_STATE_BYTES];
	size_t restored_bytes;
	struct kv_view view;
	uint64_t epoch; /* installed */
	bool live;      /* others need this member's ACKs */
	bool member;    /* and it may answer clients while it has a lease */
	struct council council;
	struct copy copy;
	struct recovery recovery;
	struct missed missed;
	struct purge purge;
	struct log log;
	struct durable durable;
	struct recycle recycle;
	struct told told[HF_KV_MEMBERS_MAX]; /* by the process of each that is the last one in the log of the members */

	uint32_t complete; /* the join as of which this store is whole; 0: it is not */
	bool wiped;        /* by its log it was, and what it had is gone */
	bool failed;       /* the log: this member has left */
	uint32_t *doubts;  /* entries of records that it had not known to be everywhere (R-K13) */
	uint32_t doubt_count, doubt_room;
	struct list unleased; /* struct op: wait for a lease */
	struct busy **busy;
	uint32_t busy_count, busy_free, busy_room; /* number + 1 of the first free one, by its entry */
	uint32_t *busy_of;                         /* of each entry of the index that is busy: its number */
	uint64_t *busy_bits;                       /* which are; most are not, and their pages are never touched */
	struct list unsettled; /* struct busy: records that are not VALID, by their position in the log */
	struct list stopped;   /* struct op: writes that wait for a recovery (HF_KV_STOP) */
	struct list invalid, flights, flows, ready, ages;
	struct op *op_free;
	uint64_t serial;
	struct hf_poller poller;
	struct hf_timer timer;
	struct clients *clients;
	struct hf_kv_status counters;
	bool attached;
	struct http_pages pages;
	struct service_metrics metrics;
};

/* ---- busy.c ---- */
int kv_busy_open(struct hf_kv *kv);                          /* -ENOMEM */
void kv_busy_expect(const struct hf_kv *kv, uint32_t entry); /* it is looked for soon */
struct busy *kv_busy_get(struct hf_kv *kv, uint32_t entry);  /* NULL: no memory */
struct busy *kv_busy_find(const struct hf_kv *kv, uint32_t entry);
struct busy *kv_busy_of_write(const struct hf_kv *kv, uint64_t write); /* NULL: that write has ended */
void kv_busy_leave(struct hf_kv *kv, struct busy *busy);               /* frees it if nothing waits any more */
void kv_busy_reset(struct hf_kv *kv, struct busy *busy); /* nothing waits for it, whatever its record is */
void kv_busy_free_all(struct hf_kv *kv);
static inline uint64_t busy_write_number(const struct busy *busy)
{
	return busy->serial << 32 | busy->number;
}

/* ---- writes.c ---- */
/* The record that an operation writes. */
struct write_content {
	const void *value;
	uint32_t value_bytes;
	uint8_t flags;
};
enum write_outcome { WRITE_BEGUN, WRITE_WAITS, WRITE_NO_MEMORY };
enum write_outcome kv_writes_begin(struct hf_kv *kv, struct op *op, const struct write_content *content);
/* Carries out a step on the key that a message names. False: the message makes no sense, or there is no memory. */
bool kv_writes_hear(struct hf_kv *kv, unsigned from, const struct wire_message *message);
void kv_writes_say(struct hf_kv *kv, unsigned peer, const struct wire_message *message);
/* Another epoch: ACKs are dropped, and every INV leaves again (R-K2). */
void kv_writes_install(struct hf_kv *kv);
void kv_writes_durable(struct hf_kv *kv, uint64_t write); /* what that write had logged is, if it is still in flight */
/* The position behind which everything lies that is not known to be at all live members (R-K11). */
uint64_t kv_writes_oldest(const struct hf_kv *kv);
void kv_writes_resend(struct hf_kv *kv, unsigned peer); /* every INV that it has not acknowledged, in order */
bool kv_writes_turn(struct hf_kv *kv, uint64_t now_ns); /* replays */
uint64_t kv_writes_wake_ns(const struct hf_kv *kv);

/* The record that a message carries. */
static inline struct store_content kv_content_of(const struct wire_message *message)
{
	return (struct store_content){.key = message->key,
		.key_bytes = message->key_bytes,
		.value = message->value,
		.value_bytes = message->value_bytes,
		.ts = message->ts,
		.flags = message->flags};
}

/* For doubts.c. Every written record is logged, and enters the list of missed updates. replaces: it may be older than
 * the one before. STORE_NO_ENTRY: no memory. */
uint32_t kv_writes_put(struct hf_kv *kv, const struct store_content *content, enum record_state state, bool replaces);
/* The record of a busy key has got this state; logged: just now. */
void kv_writes_settle(struct hf_kv *kv, struct busy *busy, enum record_state state, bool logged);
void kv_writes_invalid(struct hf_kv *kv, struct busy *busy); /* the time until its replay begins now */

/* ---- doubts.c ---- */
/* No write of this node is in flight any more, and no key is busy. What was not VALID is in doubt; false: no memory to
 * remember it. */
bool kv_doubts_forget(struct hf_kv *kv);
bool kv_doubts_add(struct hf_kv *kv, uint32_t entry); /* false: no memory to remember it */
/* What is in doubt is replayed: all members of the cold start do so, and the newest remains. False: no memory. */
bool kv_doubts_replay(struct hf_kv *kv);
/* The buddy has no such record: what is here in doubt never was (R-K15). False: no memory. */
bool kv_doubts_revoke(struct hf_kv *kv, const struct wire_message *message);
/* A record that has not changed since the position, if that entry has one, never was, in doubt or not. Likewise. */
bool kv_doubts_revoke_older(struct hf_kv *kv, uint32_t entry, uint64_t position);
/* A record as the buddy has it, if it is newer or ours is in doubt. False: no memory. */
bool kv_doubts_take(struct hf_kv *kv, const struct wire_message *message, enum record_state state);

/* ---- hear.c ---- */
size_t kv_hear_messages(void *context, unsigned peer, const uint8_t *at, size_t bytes);

/* ---- flows.c ---- */
void kv_flows_wait(struct list *waiters, struct op *op);
void kv_flows_refused(struct list *waiters, struct op *op); /* its write was; it is the next to try again */
void kv_flows_wake(struct hf_kv *kv, struct list *waiters); /* the operations that wait there try again */
/* All operations end: unknown, or not begun. */
void kv_flows_forget(struct hf_kv *kv);
void kv_flows_finish(struct hf_kv *kv, struct op *op, enum hf_kv_result result);
void kv_flows_begun(struct busy *busy, struct op *op); /* its write is in flight */
/* While a flow is held its operations wait, and those that have not begun wait for their whole budget again. */
void kv_flows_hold(struct hf_kv_flow *flow, bool held);
bool kv_flows_turn(struct hf_kv *kv, uint64_t now_ns); /* answers; ends what waited for too long */
uint64_t kv_flows_wake_ns(const struct hf_kv *kv);
void kv_flows_close_all(struct hf_kv *kv);

/* ---- status.c ---- */
int kv_status_open(struct hf_kv *kv, struct hf_error *error); /* its pages; -EEXIST: the node has a store */
void kv_status_close(struct hf_kv *kv);

/* ---- epoch.c ---- */
bool kv_epoch_install(struct hf_kv *kv); /* true: another epoch is installed */
void kv_epoch_fail(struct hf_kv *kv);    /* the log cannot be written: this member leaves for good (R-K9) */

/* ---- change.c ---- */
enum change_outcome { CHANGE_READ, CHANGE_WRITE, CHANGE_NO_MEMORY };
#define CHANGE_NUMBER_BYTES 24u
/* What the operation makes of the record (NULL: there is none). CHANGE_READ: user->result is the answer. CHANGE_WRITE:
 * content; its value lies in the operation, in `number`, or in *made, which is for free(). */
enum change_outcome kv_change_of(struct op *op, struct record *record, struct write_content *content,
	char number[CHANGE_NUMBER_BYTES], uint8_t **made);
/* Whether the operation needs to know the record before it. */
bool kv_change_is_rmw(const struct hf_kv_op *op);
static inline bool change_is_read(const struct hf_kv_op *op)
{
	return op->kind == HF_KV_GET;
}

#endif
