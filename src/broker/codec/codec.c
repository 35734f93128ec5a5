/* Decoding and encoding by descriptions.
 *
 *   bool, int8      1 byte                int16, uint16   2    int32, uint32  4    int64, float64  8    uuid  16
 *   string          i16 length, bytes     compact: uvarint length + 1, bytes
 *   bytes, records  i32 length, bytes     compact: uvarint length + 1, bytes
 *   array           i32 count, elements   compact: uvarint count + 1, elements
 *   struct          its fields in order; in flexible versions then: uvarint n, and n times uvarint tag, uvarint bytes,
 *                   field
 *
 * A null is the length or count -1; compact: 0. All numbers are big-endian; a uvarint has 7 bits a byte, the low ones
 * first. (https://kafka.apache.org/protocol; KIP-482 for flexible versions.) */
#include "broker/codec/codec.h"

#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"

struct reader {
	const uint8_t *at, *end;
	struct codec_arena *arena;
	int16_t version;
	bool flexible;
};

static const size_t memory_bytes[] = {
	[CODEC_BOOL] = sizeof(bool),
	[CODEC_INT8] = 1,
	[CODEC_INT16] = 2,
	[CODEC_UINT16] = 2,
	[CODEC_INT32] = 4,
	[CODEC_UINT32] = 4,
	[CODEC_INT64] = 8,
	[CODEC_FLOAT64] = 8,
	[CODEC_UUID] = 16,
	[CODEC_STRING] = sizeof(struct codec_string),
	[CODEC_BYTES] = sizeof(struct codec_bytes),
	[CODEC_RECORDS] = sizeof(struct codec_bytes),
};

size_t codec_element_bytes(const struct codec_field *field)
{
	return field->kind == CODEC_STRUCT ? field->of->bytes : memory_bytes[field->kind];
}

const struct codec_api *codec_find_api(const struct codec_api *apis, size_t count, int16_t key)
{
	for (size_t i = 0; i < count; i++)
		if (apis[i].key == key)
			return &apis[i];
	return NULL;
}

void codec_default(const struct codec_struct *of, void *message)
{
	memcpy(message, of->defaults, of->bytes);
}

int codec_compare(const char *text, struct codec_string other)
{
	size_t bytes = strlen(text);
	size_t least = bytes < (size_t)other.bytes ? bytes : (size_t)other.bytes;
	int order = least == 0 ? 0 : memcmp(text, other.at, least); /* an empty one may be at NULL */

	return order != 0 ? order : bytes < (size_t)other.bytes ? -1 : bytes > (size_t)other.bytes;
}

/* ---- decoding ---- */

static const uint8_t *read_bytes(struct reader *reader, size_t bytes)
{
	const uint8_t *at = reader->at;

	if ((size_t)(reader->end - at) < bytes)
		return NULL;
	reader->at += bytes;
	return at;
}

static bool read_uvarint(struct reader *reader, uint32_t *value_out)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 35; shift += 7) {
		const uint8_t *byte = read_bytes(reader, 1);

		if (byte == NULL)
			return false;
		value |= (uint64_t)(*byte & 0x7f) << shift;
		if ((*byte & 0x80) == 0) {
			*value_out = (uint32_t)value;
			return value <= UINT32_MAX;
		}
	}
	return false;
}

/* A length or count; `wide`: of 4 bytes where it is not compact. */
static bool read_length(struct reader *reader, const struct codec_field *field, bool wide, int32_t *length_out)
{
	const uint8_t *at;
	uint32_t compact;

	if (reader->flexible && !field->rigid) {
		if (!read_uvarint(reader, &compact) || compact > (uint32_t)INT32_MAX)
			return false;
		*length_out = (int32_t)compact - 1;
	} else {
		at = read_bytes(reader, wide ? 4 : 2);
		if (at == NULL)
			return false;
		*length_out = wide ? (int32_t)get_be32(at) : (int16_t)get_be16(at);
	}
	if (!wide && *length_out > INT16_MAX)
		return false;
	return *length_out >= 0 || (*length_out == -1 && codec_in(field->null, reader->version));
}

static enum codec_result read_span(struct reader *reader, const struct codec_field *field, void *to)
{
	struct codec_bytes span = {0};

	if (!read_length(reader, field, field->kind != CODEC_STRING, &span.bytes))
		return CODEC_MALFORMED;
	if (span.bytes >= 0) {
		span.at = read_bytes(reader, (size_t)span.bytes);
		if (span.at == NULL)
			return CODEC_MALFORMED;
	}
	memcpy(to, &span, sizeof(span)); /* a codec_string has the same shape */
	return CODEC_OK;
}
_Static_assert(sizeof(struct codec_string) == sizeof(struct codec_bytes) &&
		       offsetof(struct codec_string, bytes) == offsetof(struct codec_bytes, bytes),
	"strings and bytes have one shape");

static enum codec_result read_number(struct reader *reader, enum codec_kind kind, void *to)
{
	const uint8_t *at = read_bytes(reader, kind == CODEC_BOOL ? 1 : memory_bytes[kind]);
	uint64_t wide;
	uint32_t word;
	uint16_t half;

	if (at == NULL)
		return CODEC_MALFORMED;
	switch (memory_bytes[kind]) {
	case 1:
		if (kind == CODEC_BOOL)
			*(bool *)to = *at != 0;
		else
			*(uint8_t *)to = *at;
		break;
	case 2:
		half = get_be16(at);
		memcpy(to, &half, sizeof(half));
		break;
	case 4:
		word = get_be32(at);
		memcpy(to, &word, sizeof(word));
		break;
	case 8:
		wide = get_be64(at);
		memcpy(to, &wide, sizeof(wide));
		break;
	default:
		memcpy(to, at, memory_bytes[kind]);
	}
	return CODEC_OK;
}

static enum codec_result read_struct(struct reader *reader, const struct codec_struct *of, uint8_t *to);

static enum codec_result read_element(struct reader *reader, const struct codec_field *field, uint8_t *to)
{
	if (field->kind == CODEC_STRUCT)
		return read_struct(reader, field->of, to);
	if (field->kind == CODEC_STRING || field->kind == CODEC_BYTES || field->kind == CODEC_RECORDS)
		return read_span(reader, field, to);
	return read_number(reader, field->kind, to);
}

/* Elements of an array may not be null, whatever the array may be. */
static enum codec_result read_array(struct reader *reader, const struct codec_field *field, uint8_t *to)
{
	struct codec_field element = *field;
	struct codec_array array = {0};
	enum codec_result result;
	size_t bytes = codec_element_bytes(field);

	if (!read_length(reader, field, true, &array.count))
		return CODEC_MALFORMED;
	element.null = (struct codec_range){1, 0};
	/* An element takes a byte at least, but for structs without fields, which Kafka has not. */
	if (array.count > reader->end - reader->at)
		return CODEC_MALFORMED;
	if (array.count > 0) {
		array.at = codec_arena_take_array(reader->arena, (size_t)array.count, bytes);
		if (array.at == NULL)
			return CODEC_TOO_LARGE;
	}
	for (int32_t i = 0; i < array.count; i++) {
		result = read_element(reader, &element, (uint8_t *)array.at + (size_t)i * bytes);
		if (result != CODEC_OK)
			return result;
	}
	memcpy(to, &array, sizeof(array));
	return CODEC_OK;
}

static enum codec_result read_field(struct reader *reader, const struct codec_field *field, uint8_t *to)
{
	return field->array ? read_array(reader, field, to) : read_element(reader, field, to);
}

static const struct codec_field *find_tag(const struct codec_struct *of, uint32_t tag, int16_t version)
{
	for (uint32_t i = 0; i < of->field_count; i++)
		if (of->fields[i].tag == tag && codec_in(of->fields[i].tagged, version))
			return &of->fields[i];
	return NULL;
}

/* Tags rise. What is not known is skipped. */
static enum codec_result read_tagged(struct reader *reader, const struct codec_struct *of, uint8_t *to)
{
	uint32_t count, tag, bytes, least = 0;

	if (!read_uvarint(reader, &count))
		return CODEC_MALFORMED;
	for (uint32_t i = 0; i < count; i++) {
		const struct codec_field *field;
		struct reader inner = *reader;
		enum codec_result result;

		if (!read_uvarint(reader, &tag) || !read_uvarint(reader, &bytes) || (i > 0 && tag < least))
			return CODEC_MALFORMED;
		least = tag + 1;
		inner.at = read_bytes(reader, bytes);
		if (inner.at == NULL)
			return CODEC_MALFORMED;
		inner.end = inner.at + bytes;
		field = find_tag(of, tag, reader->version);
		if (field == NULL)
			continue;
		result = read_field(&inner, field, to + field->offset);
		if (result != CODEC_OK)
			return result;
		if (inner.at != inner.end)
			return CODEC_MALFORMED;
	}
	return CODEC_OK;
}

static enum codec_result read_struct(struct reader *reader, const struct codec_struct *of, uint8_t *to)
{
	memcpy(to, of->defaults, of->bytes);
	for (uint32_t i = 0; i < of->field_count; i++) {
		const struct codec_field *field = &of->fields[i];
		enum codec_result result;

		if (!codec_in(field->versions, reader->version) || codec_in(field->tagged, reader->version))
			continue;
		result = read_field(reader, field, to + field->offset);
		if (result != CODEC_OK)
			return result;
	}
	return reader->flexible ? read_tagged(reader, of, to) : CODEC_OK;
}

enum codec_result codec_decode(const struct codec_message *of, int16_t version, const void *data, size_t bytes,
	struct codec_arena *arena, void *message, size_t *used_out)
{
	const uint8_t *from = data;
	struct reader reader = {from, from + bytes, arena, version, codec_in(of->flexible, version)};
	enum codec_result result = read_struct(&reader, of->root, message);

	if (used_out != NULL)
		*used_out = (size_t)(reader.at - from);
	else if (result == CODEC_OK && reader.at != reader.end)
		return CODEC_TRAILING;
	return result;
}

/* ---- encoding ---- */

/* First without a buffer, to count; then into one of exactly that size. */
struct writer {
	uint8_t *to; /* NULL: count only */
	size_t used;
	int16_t version;
	bool flexible, keep; /* keep: records as pieces */
	struct codec_arena *arena;
	struct codec_piece **last; /* where the next piece is hung in */
	bool failed;
};

static void write_bytes(struct writer *writer, const void *data, size_t bytes)
{
	if (writer->to != NULL && bytes > 0)
		memcpy(writer->to + writer->used, data, bytes);
	writer->used += bytes;
}

static void write_uvarint(struct writer *writer, uint32_t value)
{
	do {
		uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

		write_bytes(writer, &byte, 1);
		value >>= 7;
	} while (value > 0);
}

static void write_length(struct writer *writer, const struct codec_field *field, bool wide, int32_t length)
{
	uint8_t bytes[4];

	if (writer->flexible && !field->rigid) {
		write_uvarint(writer, (uint32_t)(length + 1));
	} else if (wide) {
		put_be32(bytes, (uint32_t)length);
		write_bytes(writer, bytes, 4);
	} else {
		ensure(length <= INT16_MAX);
		put_be16(bytes, (uint16_t)length);
		write_bytes(writer, bytes, 2);
	}
}

static void write_piece(struct writer *writer, const struct codec_bytes *span)
{
	struct codec_piece *piece;

	if (writer->to == NULL || span->bytes <= 0)
		return;
	piece = codec_arena_take(writer->arena, sizeof(*piece));
	if (piece == NULL) {
		writer->failed = true;
		return;
	}
	*piece = (struct codec_piece){.behind = writer->used, .at = span->at, .bytes = (size_t)span->bytes};
	*writer->last = piece;
	writer->last = &piece->next;
}

static void write_span(struct writer *writer, const struct codec_field *field, const void *from)
{
	struct codec_bytes span;

	memcpy(&span, from, sizeof(span));
	/* A null of ours where the version has none reads as empty. */
	if (span.bytes < 0 && !codec_in(field->null, writer->version))
		span.bytes = 0;
	write_length(writer, field, field->kind != CODEC_STRING, span.bytes);
	if (field->kind == CODEC_RECORDS && writer->keep)
		write_piece(writer, &span);
	else if (span.bytes > 0)
		write_bytes(writer, span.at, (size_t)span.bytes);
}

static void write_number(struct writer *writer, enum codec_kind kind, const void *from)
{
	uint8_t bytes[16];
	uint64_t wide;
	uint32_t word;
	uint16_t half;

	switch (memory_bytes[kind]) {
	case 1:
		bytes[0] = kind == CODEC_BOOL ? *(const bool *)from : *(const uint8_t *)from;
		break;
	case 2:
		memcpy(&half, from, sizeof(half));
		put_be16(bytes, half);
		break;
	case 4:
		memcpy(&word, from, sizeof(word));
		put_be32(bytes, word);
		break;
	case 8:
		memcpy(&wide, from, sizeof(wide));
		put_be64(bytes, wide);
		break;
	default:
		memcpy(bytes, from, memory_bytes[kind]);
	}
	write_bytes(writer, bytes, memory_bytes[kind]);
}

static void write_struct(struct writer *writer, const struct codec_struct *of, const uint8_t *from);

static void write_element(struct writer *writer, const struct codec_field *field, const uint8_t *from)
{
	if (field->kind == CODEC_STRUCT)
		write_struct(writer, field->of, from);
	else if (field->kind == CODEC_STRING || field->kind == CODEC_BYTES || field->kind == CODEC_RECORDS)
		write_span(writer, field, from);
	else
		write_number(writer, field->kind, from);
}

static void write_field(struct writer *writer, const struct codec_field *field, const uint8_t *from)
{
	struct codec_field element = *field;
	struct codec_array array;

	if (!field->array) {
		write_element(writer, field, from);
		return;
	}
	memcpy(&array, from, sizeof(array));
	if (array.count < 0 && !codec_in(field->null, writer->version))
		array.count = 0;
	write_length(writer, field, true, array.count);
	element.null = (struct codec_range){1, 0};
	for (int32_t i = 0; i < array.count; i++)
		write_element(writer, &element, (const uint8_t *)array.at + (size_t)i * codec_element_bytes(field));
}

static bool same_span(const uint8_t *a, const uint8_t *b)
{
	struct codec_bytes left, right;

	memcpy(&left, a, sizeof(left));
	memcpy(&right, b, sizeof(right));
	return left.bytes == right.bytes && (left.bytes <= 0 || memcmp(left.at, right.at, (size_t)left.bytes) == 0);
}

static bool is_default(const struct codec_struct *of, const struct codec_field *field, const uint8_t *from)
{
	const uint8_t *ours = from + field->offset, *theirs = (const uint8_t *)of->defaults + field->offset;
	struct codec_array array, other;

	if (field->array) {
		memcpy(&array, ours, sizeof(array));
		memcpy(&other, theirs, sizeof(other));
		return array.count <= 0 && array.count == other.count;
	}
	if (field->kind == CODEC_STRUCT) {
		for (uint32_t i = 0; i < field->of->field_count; i++)
			if (!is_default(field->of, &field->of->fields[i], ours))
				return false;
		return true;
	}
	if (field->kind == CODEC_STRING || field->kind == CODEC_BYTES || field->kind == CODEC_RECORDS)
		return same_span(ours, theirs);
	return memcmp(ours, theirs, memory_bytes[field->kind]) == 0;
}

/* The tagged field of the least tag from `least` on that is not its default. */
static const struct codec_field *next_tagged(
	const struct codec_struct *of, const uint8_t *from, int16_t version, uint32_t least)
{
	const struct codec_field *next = NULL;

	for (uint32_t i = 0; i < of->field_count; i++) {
		const struct codec_field *field = &of->fields[i];

		if (codec_in(field->tagged, version) && field->tag >= least &&
			(next == NULL || field->tag < next->tag) && !is_default(of, field, from))
			next = field;
	}
	return next;
}

static void write_tagged(struct writer *writer, const struct codec_struct *of, const uint8_t *from)
{
	const struct codec_field *field;
	uint32_t count = 0;

	for (uint32_t tag = 0; (field = next_tagged(of, from, writer->version, tag)) != NULL; tag = field->tag + 1)
		count++;
	write_uvarint(writer, count);
	for (uint32_t tag = 0; (field = next_tagged(of, from, writer->version, tag)) != NULL; tag = field->tag + 1) {
		struct writer counting = {.version = writer->version, .flexible = true};

		write_field(&counting, field, from + field->offset);
		write_uvarint(writer, tag = field->tag);
		write_uvarint(writer, (uint32_t)counting.used);
		write_field(writer, field, from + field->offset);
	}
}

static void write_struct(struct writer *writer, const struct codec_struct *of, const uint8_t *from)
{
	for (uint32_t i = 0; i < of->field_count; i++) {
		const struct codec_field *field = &of->fields[i];

		if (codec_in(field->versions, writer->version) && !codec_in(field->tagged, writer->version))
			write_field(writer, field, from + field->offset);
	}
	if (writer->flexible)
		write_tagged(writer, of, from);
}

size_t codec_encode(const struct codec_message *of, int16_t version, const void *message, struct codec_arena *arena,
	size_t room, uint8_t **data_out, struct codec_piece **pieces_out)
{
	struct codec_piece *first = NULL;
	struct writer writer = {.used = room,
		.version = version,
		.flexible = codec_in(of->flexible, version),
		.keep = pieces_out != NULL,
		.arena = arena,
		.last = &first};

	write_struct(&writer, of->root, message);
	*data_out = codec_arena_take(arena, writer.used == 0 ? 1 : writer.used);
	if (*data_out == NULL)
		return 0;
	writer.to = *data_out;
	writer.used = room;
	write_struct(&writer, of->root, message);
	if (pieces_out != NULL)
		*pieces_out = first;
	return writer.failed ? 0 : writer.used;
}
