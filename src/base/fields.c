#include "base/fields.h"

#include <endian.h>
#include <string.h>

#include "base/ensure.h"

/* One walk over the table for both directions: `to` is set when the struct is written, `from` when it is read. */
struct walk {
	const uint8_t *from;
	uint8_t *to;
	uint32_t bytes, used;
	bool bad;
};

static void walk_bytes(struct walk *walk, uint8_t *member, uint32_t bytes)
{
	if (walk->bad || walk->bytes - walk->used < bytes) {
		walk->bad = true;
		return;
	}
	if (walk->from != NULL)
		memcpy(member, walk->from + walk->used, bytes);
	else
		memcpy(walk->to + walk->used, member, bytes);
	walk->used += bytes;
}

static uint64_t load(const uint8_t *member, uint16_t bytes)
{
	uint16_t two;
	uint32_t four;
	uint64_t eight;

	switch (bytes) {
	case sizeof(uint8_t):
		return *member;
	case sizeof(two):
		memcpy(&two, member, sizeof(two));
		return two;
	case sizeof(four):
		memcpy(&four, member, sizeof(four));
		return four;
	}
	ensure(bytes == sizeof(eight));
	memcpy(&eight, member, sizeof(eight));
	return eight;
}

static void store(uint8_t *member, uint16_t bytes, uint64_t value)
{
	uint8_t one = (uint8_t)value;
	uint16_t two = (uint16_t)value;
	uint32_t four = (uint32_t)value;

	memcpy(member,
		bytes == 1   ? (void *)&one
		: bytes == 2 ? (void *)&two
		: bytes == 4 ? (void *)&four
			     : &value,
		bytes);
}

static void walk_integer(struct walk *walk, const struct field *field, uint8_t *member)
{
	uint64_t value = walk->from != NULL ? 0 : load(member, field->bytes), le = htole64(value);

	walk_bytes(walk, (uint8_t *)&le, field->bytes);
	value = le64toh(le);
	if (walk->bad || value < field->min || value > field->max)
		walk->bad = true;
	else if (walk->from != NULL)
		store(member, field->bytes, value);
}

static void walk_name(struct walk *walk, const struct field *field, uint8_t *member)
{
	size_t length;

	walk_bytes(walk, member, field->bytes);
	length = walk->bad ? 0 : strnlen((const char *)member, field->bytes);
	walk->bad = length == 0 || length == field->bytes;
}

static void walk_fields(struct walk *walk, const struct fields *fields, uint8_t *object);

static void walk_field(struct walk *walk, const struct field *field, uint8_t *object)
{
	uint8_t *member = object + field->offset;
	uint64_t elements =
		field->count_bytes == 0 ? field->elements : load(object + field->count_offset, field->count_bytes);

	if (elements > field->elements) {
		walk->bad = true;
		return;
	}
	if (field->type == FIELD_RAW) {
		walk_bytes(walk, member, (uint32_t)elements * field->bytes);
		return;
	}
	for (uint64_t i = 0; !walk->bad && i < elements; i++, member += field->bytes) {
		if (field->type == FIELD_INTEGERS)
			walk_integer(walk, field, member);
		else if (field->type == FIELD_NAMES)
			walk_name(walk, field, member);
		else
			walk_fields(walk, field->of, member);
	}
}

static void walk_fields(struct walk *walk, const struct fields *fields, uint8_t *object)
{
	for (unsigned i = 0; !walk->bad && i < fields->count; i++)
		walk_field(walk, &fields->fields[i], object);
}

uint32_t fields_bytes_max(const struct fields *fields)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < fields->count; i++) {
		const struct field *field = &fields->fields[i];
		uint32_t one = field->type == FIELD_STRUCTS ? fields_bytes_max(field->of) : field->bytes;

		sum += one * field->elements;
	}
	return sum;
}

uint32_t fields_write(const struct fields *fields, const void *object, uint8_t *at)
{
	struct walk walk = {.to = at, .bytes = UINT32_MAX};

	walk_fields(&walk, fields, (uint8_t *)(uintptr_t)object); /* nothing is stored there: `from` is NULL */
	ensure(!walk.bad);
	return walk.used;
}

bool fields_read(const struct fields *fields, const uint8_t *at, uint32_t bytes, void *object_out)
{
	struct walk walk = {.from = at, .bytes = bytes};

	walk_fields(&walk, fields, object_out);
	return !walk.bad && walk.used == bytes;
}
