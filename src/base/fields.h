/* fields.h - a struct as a table of its fields. One table writes the struct as bytes and reads it back, so that the two
 * cannot differ. Pure.
 *
 * Bytes are little-endian and packed, in the order of the table. Reading validates everything: the range of each
 * integer, that names end and are not empty, the count of each list, and that no byte is missing or left over.
 *
 *   static const struct field rails_fields[] = {
 *           FIELD_MAX(struct rails_message, count, 8),
 *           FIELD_LIST(struct rails_message, rails, count, &rail_fields),
 *   };
 *   static const struct fields rails_layout = FIELDS(rails_fields); */
#ifndef HOLDFAST_BASE_FIELDS_H
#define HOLDFAST_BASE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fields {
	const struct field *fields;
	unsigned count;
};

enum field_type {
	FIELD_INTEGERS, /* `elements` unsigned integers of `bytes` bytes, each within min and max */
	FIELD_NAMES,    /* a text with its NUL, not empty, padded to `bytes` */
	FIELD_RAW,      /* `bytes` bytes as they are */
	FIELD_STRUCTS,  /* `elements` structs, described by `of` */
};

struct field {
	enum field_type type;
	uint16_t offset;   /* of the member in its struct */
	uint16_t bytes;    /* of an element */
	uint16_t elements; /* at most, where they are counted; else exactly */
	/* The field with the number of elements, earlier in the table. Its bytes are 0: not counted. */
	uint16_t count_offset, count_bytes;
	uint64_t min, max;
	const struct fields *of;
};

#define FIELDS(array)                                                                                                  \
	{                                                                                                              \
		.fields = (array), .count = sizeof(array) / sizeof((array)[0])                                         \
	}

#define FIELD_SIZE(type, member) sizeof(((type *)NULL)->member)

/* An integer of any value; up to a maximum; between two bounds. */
#define FIELD_RANGE(type_, member, min_, max_)                                                                         \
	{                                                                                                              \
		.type = FIELD_INTEGERS, .offset = offsetof(type_, member), .bytes = FIELD_SIZE(type_, member),         \
		.elements = 1, .min = (min_), .max = (max_)                                                            \
	}
#define FIELD_MAX(type_, member, max_) FIELD_RANGE(type_, member, 0, max_)
#define FIELD_ANY(type_, member)       FIELD_RANGE(type_, member, 0, UINT64_MAX >> (64 - 8 * FIELD_SIZE(type_, member)))
/* An array of integers of any value, all of it. */
#define FIELD_ARRAY(type_, member)                                                                                     \
	{                                                                                                              \
		.type = FIELD_INTEGERS, .offset = offsetof(type_, member), .bytes = FIELD_SIZE(type_, member[0]),      \
		.elements = FIELD_SIZE(type_, member) / FIELD_SIZE(type_, member[0]),                                  \
		.max = UINT64_MAX >> (64 - 8 * FIELD_SIZE(type_, member[0]))                                           \
	}
#define FIELD_NAME(type_, member)                                                                                      \
	{                                                                                                              \
		.type = FIELD_NAMES, .offset = offsetof(type_, member), .bytes = FIELD_SIZE(type_, member),            \
		.elements = 1                                                                                          \
	}
#define FIELD_BYTES(type_, member)                                                                                     \
	{                                                                                                              \
		.type = FIELD_RAW, .offset = offsetof(type_, member), .bytes = FIELD_SIZE(type_, member),              \
		.elements = 1                                                                                          \
	}
/* Bytes, or structs; their number is in the member `count_`. */
#define FIELD_COUNTED(type_, member, count_)                                                                           \
	{                                                                                                              \
		.type = FIELD_RAW, .offset = offsetof(type_, member), .bytes = 1,                                      \
		.elements = FIELD_SIZE(type_, member), .count_offset = offsetof(type_, count_),                        \
		.count_bytes = FIELD_SIZE(type_, count_)                                                               \
	}
#define FIELD_LIST(type_, member, count_, of_)                                                                         \
	{                                                                                                              \
		.type = FIELD_STRUCTS, .offset = offsetof(type_, member), .bytes = FIELD_SIZE(type_, member[0]),       \
		.elements = FIELD_SIZE(type_, member) / FIELD_SIZE(type_, member[0]),                                  \
		.count_offset = offsetof(type_, count_), .count_bytes = FIELD_SIZE(type_, count_), .of = (of_)         \
	}
#define FIELD_STRUCT(type_, member, of_)                                                                               \
	{                                                                                                              \
		.type = FIELD_STRUCTS, .offset = offsetof(type_, member), .bytes = FIELD_SIZE(type_, member),          \
		.elements = 1, .of = (of_)                                                                             \
	}

/* How many bytes a struct takes at most. */
uint32_t fields_bytes_max(const struct fields *fields);
/* Returns the length, at most fields_bytes_max. The struct must be valid: ensured. */
uint32_t fields_write(const struct fields *fields, const void *object, uint8_t *at);
/* False: the bytes do not follow the table. What the table does not name stays as it is. */
bool fields_read(const struct fields *fields, const uint8_t *at, uint32_t bytes, void *object_out);

#endif
