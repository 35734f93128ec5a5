/* codec.h - Kafka's messages as structs: decoding and encoding by descriptions generated from Kafka's definitions.
 *
 * scripts/kafka_messages.py generates a struct and a description of each message (broker/kafka_messages.h). One decoder
 * and one encoder follow the descriptions for every key and version.
 *
 * Decoded strings, bytes and records point into the input; arrays are in the arena. Pure. */
#ifndef HOLDFAST_BROKER_CODEC_H
#define HOLDFAST_BROKER_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/codec/codec_arena.h"

/* Not NUL terminated. */
struct codec_string {
	const char *at;
	int32_t bytes; /* -1: null */
};
/* As strcmp of a NUL terminated one and one that is not null. */
int codec_compare(const char *text, struct codec_string other);

struct codec_bytes {
	const uint8_t *at;
	int32_t bytes; /* -1: null */
};
struct codec_uuid {
	uint8_t byte[16];
};
struct codec_array { /* the shape of every array in a message */
	void *at;
	int32_t count; /* -1: null */
};

enum codec_kind {
	CODEC_BOOL,
	CODEC_INT8,
	CODEC_INT16,
	CODEC_UINT16,
	CODEC_INT32,
	CODEC_UINT32,
	CODEC_INT64,
	CODEC_FLOAT64,
	CODEC_UUID,
	CODEC_STRING,
	CODEC_BYTES,
	CODEC_RECORDS,
	CODEC_STRUCT,
};

struct codec_range {
	int16_t from, to; /* versions, both included; from > to: none */
};

static inline bool codec_in(struct codec_range range, int16_t version)
{
	return version >= range.from && version <= range.to;
}

struct codec_field {
	const char *name; /* as in Kafka's JSON */
	enum codec_kind kind;
	bool array;
	bool rigid; /* a string that is never compact */
	uint32_t offset, tag;
	struct codec_range versions, null, tagged;
	const struct codec_struct *of; /* STRUCT */
};

struct codec_struct {
	const struct codec_field *fields;
	uint32_t field_count;
	size_t bytes;
	const void *defaults;
};

struct codec_message {
	const char *name;
	const struct codec_struct *root;
	struct codec_range versions, flexible;
};

struct codec_api {
	int16_t key;
	const char *name;
	const struct codec_message *request, *response;
};

enum codec_result {
	CODEC_OK,
	CODEC_MALFORMED, /* a length lies, a null where none may be, bytes are missing */
	CODEC_TOO_LARGE, /* more than the arena may hold */
	CODEC_TRAILING,  /* whole, and bytes are left */
};

/* Fills *message, a struct of the message's size, from `bytes` bytes. *used_out (may be NULL: what is left is TRAILING)
 * gets the length of the message. */
enum codec_result codec_decode(const struct codec_message *of, int16_t version, const void *data, size_t bytes,
	struct codec_arena *arena, void *message, size_t *used_out);

/* A place in encoded bytes at which records stand that were not copied. */
struct codec_piece {
	size_t behind; /* bytes of the buffer that come before */
	const uint8_t *at;
	size_t bytes;
	struct codec_piece *next;
};

/* Encodes `message` behind the `used` bytes of the buffer. Records are copied when `pieces` is NULL, else only their
 * place is recorded: pieces in order, from the arena. *data_out lies in the arena, behind `room` bytes that the caller
 * fills. Returns the bytes in the buffer, `room` included; 0: no memory. */
size_t codec_encode(const struct codec_message *of, int16_t version, const void *message, struct codec_arena *arena,
	size_t room, uint8_t **data_out, struct codec_piece **pieces_out);

/* The requests and answers of a key; NULL: no such key. */
const struct codec_api *codec_find_api(const struct codec_api *apis, size_t count, int16_t key);
/* Bytes in memory of one value of the field: of an array, of one element. */
size_t codec_element_bytes(const struct codec_field *field);
/* Sets every field to its default. */
void codec_default(const struct codec_struct *of, void *message);

#endif
