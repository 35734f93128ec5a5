/* wire.h - messages between stores. A vqp carries them as one stream of bytes: a message may begin in one SEND and end
 * in another.
 *
 * Message, little-endian:
 *    0 u32 bytes of all of it   4 u8 kind   5 u8 flags (enum record_flag)   6 u16 node of the timestamp
 *    8 u64 epoch               16 u64 version   24 u32 join   28 u32 key_bytes   32 u32 value_bytes   36 u32 note
 *   40 u64 write: the coordinator's number for it, which ACK and NACK return
 *   48 key, value
 *
 * Pure. Lengths and ranges of a peer's messages are checked here. */
#ifndef HOLDFAST_KV_WIRE_H
#define HOLDFAST_KV_WIRE_H

#include <stdbool.h>

#include "kv/record.h"

#define WIRE_HEAD_BYTES 48u
#define WIRE_EPOCH_AT   8u

enum wire_kind {
	WIRE_INV,
	WIRE_ACK,  /* no key, no value */
	WIRE_NACK, /* timestamp, flags and value of the newer record; no key */
	WIRE_VAL,  /* no value */
	/* Each lease / 10 to every other member: a heartbeat, and the request for a lease, which the leader answers.
	 * `write` is when it was sent. Value: u64 up to where its log is durable, u64 as of which join its store is
	 * whole, u64 round and u64 highest (purge.h); the report of the log of its last process that was a member, and
	 * those that it has of all members (told.h). */
	WIRE_ASK,
	WIRE_GRANT, /* `write` of the ASK comes back */
	/* What a shadow lacks: `write` is the number of the request. */
	WIRE_COPY_REQUEST, /* all records */
	WIRE_COPY_MISSED, /* those that it missed; value: the parts of its log by process (told.h), the oldest first; */
	WIRE_COPY_ASKED,  /* and, before that request, each of which it is in doubt */
	WIRE_COPY_RECORD, /* the record's state is in `note` */
	WIRE_COPY_NONE, /* with a key: there is no such record; without: the member has no list of the missed updates */
	WIRE_COPY_END,  /* value: the buddy's floor and highest (purge.h) */
	WIRE_KINDS,
};

/* note of an ASK: the members that the sender cannot reach, as bits, and these. */
#define WIRE_NOTE_COPIED   (1u << 16) /* a shadow has all that it was to get */
#define WIRE_NOTE_NO_ROOM  (1u << 17) /* it has no room for further records */
#define WIRE_NOTE_NEW      (1u << 18) /* by its log its store has never been whole */
#define WIRE_NOTE_LEAVES   (1u << 19) /* it has given its lease up, and takes no other one */
#define WIRE_NOTE_ENDED    (1u << 20) /* the process of which it reports the part of the log has ended (R-D10) */
#define WIRE_NOTE_SUSPECTS 0xffu

struct wire_message {
	enum wire_kind kind;
	uint8_t flags;
	uint32_t note;
	uint64_t epoch, write;
	struct record_ts ts; /* ASK: ts.version is the incarnation */
	const uint8_t *key, *value;
	uint32_t key_bytes, value_bytes;
};

enum wire_outcome {
	WIRE_MORE,  /* not whole yet; *used_out: the bytes that it will have, 0 when that is not known */
	WIRE_WHOLE, /* *used_out bytes were read */
	WIRE_WRONG, /* no peer of this version sends it */
};

static inline uint32_t kv_wire_bytes(const struct wire_message *message)
{
	return WIRE_HEAD_BYTES + message->key_bytes + message->value_bytes;
}

/* Writes kv_wire_bytes(). */
void kv_wire_write(const struct wire_message *message, uint8_t *at);
/* key and value point into `at`. */
enum wire_outcome kv_wire_read(const uint8_t *at, size_t bytes, struct wire_message *message_out, size_t *used_out);

#endif
