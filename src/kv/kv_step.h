/* kv_step.h - the write protocol of one record (Hermes, with epochs): a pure step for a record and this node's write of
 * it.
 *
 *   coordinator                                   followers: every other live node
 *     begin: applied, logged, WRITE or REPLAY
 *     | INV{epoch, ts, key, value} -------------->  newer: applied, INVALID, logged
 *     | <------------------------- ACK{epoch, ts}   when it is durable, and all before it (R-K4, R-K9)
 *     all live nodes and the own log: VALID, answered
 *     | VAL{ts} --------------------------------->  VALID, if that is still the record
 *
 * A write that a newer one has superseded is obsolete and still acknowledged; a read-modify-write (RMW) is
 * refused with a NACK, which carries the newer record, and restarts when that is VALID (R-K6). A replayed RMW is
 * refused in the same way.
 *
 * A key without a record, or with a deleted one, begins above the versions that its record may have had: a plain write
 * above `highest`, an RMW above `floor`, which is not above any member's highest (purge.h). So of both the plain write
 * wins, as on any other base.
 *
 * The coordinator acknowledges no replay of its own write in flight: it completes the write itself. Only the
 * coordinator commits its write while it lives, so a refused RMW may restart when the newer record is VALID. When the
 * coordinator is excluded before that, a member without the newer record replays the RMW: it is unknown until then.
 *
 * Invariants, ensured here and checked by the simulator:
 *   KV-1  A record's ts never goes back, unless the record is DOUBTFUL.
 *   KV-2  A record becomes VALID only by the ACKs of all live nodes in one epoch, or by a VAL of its ts.
 *   KV-3  A node has at most one write of a record in flight. */
#ifndef HOLDFAST_KV_KV_STEP_H
#define HOLDFAST_KV_KV_STEP_H

#include <stdbool.h>

#include "kv/record.h"

/* Where this node stands. */
struct kv_view {
	uint32_t live; /* nodes that must acknowledge a write, with this one, as bits */
	uint32_t join; /* epoch in which this node was admitted */
	uint16_t self;
	uint64_t floor, highest; /* versions of deleted records */
};

enum kv_write_state {
	KV_WRITE_NONE,   /* this node has no write of the record in flight */
	KV_WRITE_PLAIN,  /* waits for ACKs */
	KV_WRITE_RMW,    /* waits for ACKs, or a NACK */
	KV_WRITE_REPLAY, /* of another node's write: likewise */
	KV_WRITE_STATES,
};

struct kv_write {
	enum kv_write_state state;
	struct record_ts ts;
	uint8_t flags;  /* of the record that it writes */
	uint32_t acked; /* nodes, as bits; this one when it is durable here */
};

/* A node's state of a record. ts.version 0: it never received one, and it is VALID. */
struct kv_known {
	enum record_state state;
	struct record_ts ts;
	uint8_t flags;
};

enum kv_event_kind {
	KV_EVENT_WRITE,   /* a client's: `flags` say whether it is an RMW. The record has no write in flight */
	KV_EVENT_REPLAY,  /* INVALID for too long, and no write in flight */
	KV_EVENT_INV,     /* of this epoch, from `from` */
	KV_EVENT_ACK,     /* of this epoch, for the write in flight */
	KV_EVENT_NACK,    /* of this epoch, for the write in flight: ts and flags of the newer record */
	KV_EVENT_VAL,     /* any epoch */
	KV_EVENT_DURABLE, /* what the write in flight had logged is */
	KV_EVENT_INSTALL, /* another epoch: `view` is the new one */
	KV_EVENTS,
};

struct kv_event {
	enum kv_event_kind kind;
	unsigned from;
	struct record_ts ts;
	uint8_t flags;
};

struct kv_actions {
	bool apply;      /* the event's value, and log it; `known` is what the record has become */
	bool send_inv;   /* of the write, to all other live nodes */
	bool ack;        /* to `from`, when the record is durable here, and all that was logged before it */
	bool nack;       /* to `from`, with the record */
	bool send_val;   /* of the write, to all other live nodes; it is the newest here */
	bool committed;  /* the write has ended: it took effect */
	bool refused;    /* the write has ended: it did not; begin again when the record is VALID */
	bool overtaken;  /* a replay has ended, because another node completed that write or a newer one arrived */
	bool wait;       /* KV_EVENT_WRITE: nothing was begun; again when the record is VALID */
	bool readable;   /* the record has become VALID */
	bool unreadable; /* it has become INVALID, or was invalidated again: the time until its replay begins now */
};

void kv_step(const struct kv_view *view, struct kv_known *known, struct kv_write *write, const struct kv_event *event,
	struct kv_actions *actions);

#endif
