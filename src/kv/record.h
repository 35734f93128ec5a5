/* record.h - one key with its value and its timestamp, in the store's memory.
 *
 *    0 u64 generation << 8 | state     8 u64 version  16 u32 join  20 u16 node    the timestamp, compared in this order
 *   22 u8 flags  23 u8 class of its slot (store.h)  24 u32 key_bytes  28 u32 value_bytes
 *   32 u32 crc32c of generation, timestamp, flags, key, value
 *   40 u64 log position  48 u64 missed position  64 key, value
 *
 * The generation grows with each change of the fields that the CRC covers, and when the slot is reused for another
 * record, so that a reader of the bytes alone detects the change (R-K29). Timestamps order the writes of a key; one
 * timestamp identifies one value for ever (R-K5): version grows, join is the epoch in which its node was admitted, and
 * a node starts one write of a key after the other. */
#ifndef HOLDFAST_KV_RECORD_H
#define HOLDFAST_KV_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum record_state {
	RECORD_FREE,    /* no record: the slot is free */
	RECORD_VALID,   /* every live node has it */
	RECORD_INVALID, /* another node's write that is not known to be everywhere: waits for its VAL, or is replayed */
	RECORD_WRITE,   /* this node's own write: waits for ACKs */
	RECORD_REPLAY,  /* another node's write that this node has taken over: waits for ACKs */
	RECORD_STATES,
};

enum record_flag {
	RECORD_TOMBSTONE = 1 << 0,
	RECORD_RMW = 1 << 1,      /* refused by a member that has a newer one */
	RECORD_DOUBTFUL = 1 << 2, /* kept over an exclusion, and not known to be at all live nodes (R-K13) */
};

struct record_ts {
	uint64_t version; /* 0: no record */
	uint32_t join;
	uint16_t node;
};

struct record {
	uint64_t word;
	uint64_t version;
	uint32_t join;
	uint16_t node;
	uint8_t flags, slot_class;
	uint32_t key_bytes, value_bytes;
	uint32_t crc, zero2;
	uint64_t log_position, missed_position;
	uint64_t zero3;
	uint8_t key[];
};
_Static_assert(offsetof(struct record, version) == 8 && offsetof(struct record, join) == 16, "layout");
_Static_assert(offsetof(struct record, node) == 20 && offsetof(struct record, flags) == 22, "layout");
_Static_assert(offsetof(struct record, slot_class) == 23, "layout");
_Static_assert(offsetof(struct record, key_bytes) == 24 && offsetof(struct record, value_bytes) == 28, "layout");
_Static_assert(offsetof(struct record, crc) == 32 && offsetof(struct record, log_position) == 40, "layout");
_Static_assert(offsetof(struct record, missed_position) == 48 && offsetof(struct record, key) == 64, "layout");
_Static_assert(sizeof(struct record) == 64, "layout");

static inline int record_compare(struct record_ts a, struct record_ts b)
{
	if (a.version != b.version)
		return a.version < b.version ? -1 : 1;
	if (a.join != b.join)
		return a.join < b.join ? -1 : 1;
	return a.node < b.node ? -1 : a.node > b.node;
}

static inline struct record_ts record_ts(const struct record *record)
{
	return (struct record_ts){.version = record->version, .join = record->join, .node = record->node};
}

static inline enum record_state record_state(const struct record *record)
{
	return (enum record_state)(record->word & 0xff);
}

static inline uint8_t *record_value(struct record *record)
{
	return record->key + record->key_bytes;
}

#endif
