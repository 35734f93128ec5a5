/* stream.h - the bytes of a snapshot: every key of a server with its value and deadline. Pure.
 *
 * Little-endian: u32 magic + server (entry.h), then for each key
 *    0 u32 key_bytes, not all ones   4 u32 value_bytes   8 i64 deadline, shifted; -1: none; -2: it is an entry
 *   16 key, value: that of DUMP, or of memcached.c
 *      of an entry: 0 u64 place   8 u64 session   16 u32 sequence, and its bytes
 * and at the end u32 all ones, u32 keys. */
#ifndef HOLDFAST_PROXY_STREAM_H
#define HOLDFAST_PROXY_STREAM_H

#include <stdbool.h>

#include "net/resp_out.h"
#include "proxy/entry.h"

#define STREAM_ENTRY (-2)

struct stream_key {
	const uint8_t *key, *value;
	uint32_t key_bytes, value_bytes;
	int64_t deadline_ms; /* shifted; -1: none; STREAM_ENTRY: an entry that the server does not have (apply.c) */
};

struct stream_reader { /* zeroed: at its beginning */
	bool begun, ended;
	enum entry_server server; /* begun: of which it is */
	uint32_t keys;
};

enum stream_outcome {
	STREAM_MORE,    /* the bytes end within a key, or before its end */
	STREAM_KEY,     /* one key */
	STREAM_END,     /* the end, and nothing behind it */
	STREAM_DAMAGED, /* this is no snapshot of that many keys */
};

void proxy_stream_begin(struct resp_out *out, enum entry_server server);
void proxy_stream_put(struct resp_out *out, const struct stream_key *key);
void proxy_stream_end(struct resp_out *out, uint32_t keys);

/* Reads what begins at `data`; *used_out bytes are done with, also before STREAM_MORE. */
enum stream_outcome proxy_stream_read(
	struct stream_reader *reader, const uint8_t *data, size_t bytes, struct stream_key *key_out, size_t *used_out);

#endif
