/* entry.h - the format of a log entry of the proxy: a request of hf_smr_propose, with one run of commands. Pure.
 *
 * Little-endian:
 *    0 u8 version (1)   1 u8 kind   2 u8 server   3 u8 0   4 u32 records
 *    8 u64 time_ms  of the leader, since 1970; of DONE and SKIP, which have no records: a place in the log
 *   16 record[], each:
 *        0 u32 bytes   4 u8 reply   5 u8[3] 0   8 u32 key_at   12 u32 key_bytes
 *       16 bytes: a command for the server, or with ENTRY_TEXT the reply itself; padded to 8. Commands of Redis have
 *       the
 *          form for the server, those of memcached are arrays of bulk strings for memcached/inject.c
 *
 * The entry contains every value of a clock or of chance, so that it has the same effect at every server (R-S27). */
#ifndef HOLDFAST_PROXY_ENTRY_H
#define HOLDFAST_PROXY_ENTRY_H

#include <stdbool.h>

#include "net/resp_out.h"

#define ENTRY_HEAD_BYTES   16u
#define ENTRY_RECORD_BYTES 16u
#define ENTRY_ROOM_BYTES   24u /* of a record: its head and padding */

enum entry_kind {
	ENTRY_WRITE = 1, /* of a client */
	ENTRY_MULTI,     /* the same; its answer is an array of what its commands answer */
	ENTRY_DUE,       /* expired keys */
	ENTRY_DONE,      /* a server has answered all entries up to this place (apply.c) */
	ENTRY_SKIP,      /* the entries from this place on, up to here, are executed nowhere */
	ENTRY_KINDS,
};

/* For which server: all members run the same. */
enum entry_server {
	ENTRY_OF_REDIS,
	ENTRY_OF_MEMCACHED,
	ENTRY_SERVERS,
};

/* What becomes of the server's reply. */
enum entry_reply {
	ENTRY_PLAIN, /* it is the client's */
	ENTRY_DROP,  /* dropped */
	ENTRY_TTL,   /* of PEXPIRETIME: seconds left, rounded; for TTL */
	ENTRY_PTTL,  /* milliseconds left */
	ENTRY_AT,    /* the second of the deadline */
	ENTRY_PAT,   /* its millisecond */
	ENTRY_TEXT,  /* not sent to the server: the record is the client's reply */
	ENTRY_GETS,  /* of memcached: with uniques of ours; not in entries */
	ENTRY_REPLIES,
};

/* Deadlines lie so far beyond the time that they mean that no server's clock reaches them. */
#define ENTRY_SHIFT_MS 1000000000000000ll

struct entry_record {
	enum entry_reply reply;
	const uint8_t *data;
	uint32_t bytes;
	const uint8_t *key; /* not NULL: its deadline may be another one afterwards */
	uint32_t key_bytes;
};

struct entry_reader {
	const uint8_t *at, *end;
	uint32_t left;
	uint64_t time_ms;
	enum entry_kind kind;
	enum entry_server server;
};

void proxy_entry_begin(struct resp_out *out, enum entry_server server, enum entry_kind kind, uint64_t time_ms);
/* Between them the caller writes the record's bytes into `out`. A key is a part of them, from key_at on. */
size_t proxy_entry_record(struct resp_out *out, enum entry_reply reply);
void proxy_entry_key(struct resp_out *out, size_t record, size_t key_at, size_t key_bytes);
void proxy_entry_record_end(struct resp_out *out, size_t record);

/* False: these bytes are no entry. */
bool proxy_entry_read(struct entry_reader *reader, const void *data, size_t bytes);
/* False: there is none left, or it is damaged (reader->left is not 0 then). */
bool proxy_entry_next(struct entry_reader *reader, struct entry_record *record_out);

#endif
