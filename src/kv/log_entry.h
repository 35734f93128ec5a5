/* log_entry.h - the bytes of the store's log.
 *
 * A segment is a file: a head of 256 bytes, then entries. Positions count the bytes of entries, heads left out, from
 * the beginning of the log; the head says which one its segment begins at. Little-endian:
 *
 *   head   0 u64 "HFKVLOG2"   8 u32 crc32c of what follows   12 u32 1: a mark is beside the log   16 u64 position
 *         24 u64 sequence   32 u32 life   40 u64 incarnation of the process of that life
 *         64 name of the cluster  128 name of the member  256
 *   entry  0 u32 crc32c of what follows   4 u32 bytes of all of it, a multiple of 64   8 u64 sequence   16 u32 life
 *         20 u8 kind  21 u8 flags  22 u16 node  24 u64 version  32 u32 join  36 u32 key_bytes  40 u32 value_bytes
 *         44 u32 1 + units of 64 bytes from where its flush begins; 0: of a medium that syncs nothing
 *         48 key, value, zeros
 *
 * A reader continues only with an entry whose CRC fits, whose sequence is the next, and whose life is the current one
 * or, for a LIFE, a later one. Each opening begins a life, which is durable before its entries: so entries behind a
 * torn end never continue the entries that are written there later (R-K27).
 *
 * A flush is written when all before it is durable. So an entry proves that what lies before its flush was there: a
 * break before that is damage, and one within the last flush is torn (R-D2).
 *
 * Pure. */
#ifndef HOLDFAST_KV_LOG_ENTRY_H
#define HOLDFAST_KV_LOG_ENTRY_H

#include <stdbool.h>

#include "kv/record.h"

#define LOG_HEAD_BYTES  256u
#define LOG_ENTRY_BYTES 48u /* before key and value */
#define LOG_UNIT        64u

enum log_kind {
	/* The log was opened: life + 1; `version`: the incarnation of the process; join 1: in another boot of the host
	 * than the life before, or in a copy of its files. */
	LOG_LIFE,
	LOG_WRITE,   /* a record, newer than what is known */
	LOG_DELETE,  /* the same, a tombstone */
	LOG_REPLACE, /* a record, whatever is known; version 0: there was none (R-K15) */
	LOG_MARK,    /* all before position `version` is durable at all live members; value: told.h */
	LOG_EPOCH,   /* `version` is installed; join: as of which this store is whole, or 0 */
	LOG_WIPE,    /* nothing before counts */
	LOG_FLOOR,   /* value: u64 floor, u64 highest of deleted records (purge.h) */
	LOG_KINDS,
};

struct log_entry {
	enum log_kind kind;
	uint8_t flags; /* enum record_flag */
	uint64_t sequence;
	uint32_t life;
	struct record_ts ts;
	const uint8_t *key, *value;
	uint32_t key_bytes, value_bytes;
	uint32_t flush; /* 1 + LOG_UNITs from where its flush begins; 0: nothing before is known to be durable */
};

uint32_t kv_log_entry_bytes(const struct log_entry *entry);
/* Writes kv_log_entry_bytes(). */
void kv_log_entry_write(const struct log_entry *entry, uint8_t *at);
/* False: no whole entry is there. Key and value point into `at`. */
bool kv_log_entry_read(const uint8_t *at, size_t bytes, struct log_entry *entry_out);
/* Whether it may follow: `sequence` is the one that is expected, `life` the one that was read last. */
bool kv_log_entry_follows(const struct log_entry *entry, uint64_t sequence, uint32_t life);

struct log_head {
	uint64_t position, sequence, incarnation;
	uint32_t life;
	bool marked; /* it was begun beside a mark: without one the log is damaged */
	char cluster[64], member[64];
};

void kv_log_head_write(const struct log_head *head, uint8_t at[LOG_HEAD_BYTES]);
bool kv_log_head_is_foreign(const uint8_t *at, size_t bytes);                      /* of another version's layout */
bool kv_log_head_read(const uint8_t *at, size_t bytes, struct log_head *head_out); /* false: there is none */

#endif
