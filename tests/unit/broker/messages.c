#include "messages.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz"

static uint64_t draw(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

struct drawing {
	int16_t version;
	struct codec_arena *arena;
	uint64_t *seed;
};

static void draw_struct(struct drawing *drawing, const struct codec_struct *of, uint8_t *to);

static void draw_span(struct drawing *drawing, bool text, struct codec_bytes *to)
{
	uint8_t *bytes;

	to->bytes = (int32_t)(draw(drawing->seed) % 9);
	bytes = codec_arena_take(drawing->arena, (size_t)to->bytes + 1);
	for (int32_t i = 0; i < to->bytes; i++)
		bytes[i] = text ? (uint8_t)LETTERS[draw(drawing->seed) % 26] : (uint8_t)draw(drawing->seed);
	to->at = bytes;
}

static void draw_element(struct drawing *drawing, const struct codec_field *field, uint8_t *to)
{
	uint64_t value = draw(drawing->seed) << 31 ^ draw(drawing->seed);
	double real = (double)(value % 1000) / 8;

	switch (field->kind) {
	case CODEC_BOOL:
		*(bool *)to = value % 2;
		break;
	case CODEC_INT8:
		memcpy(to, &value, 1);
		break;
	case CODEC_INT16:
	case CODEC_UINT16:
		memcpy(to, &value, 2);
		break;
	case CODEC_INT32:
	case CODEC_UINT32:
		memcpy(to, &value, 4);
		break;
	case CODEC_INT64:
		memcpy(to, &value, 8);
		break;
	case CODEC_FLOAT64:
		memcpy(to, &real, sizeof(real));
		break;
	case CODEC_UUID:
		put_be64(to, value);
		put_be64(to + 8, value * 3);
		break;
	case CODEC_STRING:
	case CODEC_BYTES:
	case CODEC_RECORDS:
		draw_span(drawing, field->kind == CODEC_STRING, (struct codec_bytes *)(void *)to);
		break;
	case CODEC_STRUCT:
		draw_struct(drawing, field->of, to);
		break;
	}
}

static void draw_struct(struct drawing *drawing, const struct codec_struct *of, uint8_t *to)
{
	codec_default(of, to);
	for (uint32_t i = 0; i < of->field_count; i++) {
		const struct codec_field *field = &of->fields[i];
		struct codec_array *array = (struct codec_array *)(void *)(to + field->offset);

		if (!codec_in(field->versions, drawing->version))
			continue;
		if (codec_in(field->null, drawing->version) && draw(drawing->seed) % 3 == 0) {
			/* Strings, bytes and arrays have one shape. */
			*array = (struct codec_array){NULL, -1};
			continue;
		}
		if (!field->array) {
			draw_element(drawing, field, to + field->offset);
			continue;
		}
		array->count = (int32_t)(draw(drawing->seed) % 4);
		array->at = codec_arena_take_array(drawing->arena, (size_t)array->count, codec_element_bytes(field));
		for (int32_t k = 0; k < array->count; k++)
			draw_element(drawing, field, (uint8_t *)array->at + (size_t)k * codec_element_bytes(field));
	}
}

void messages_draw(
	const struct codec_message *of, int16_t version, struct codec_arena *arena, void *message, uint64_t *seed)
{
	struct drawing drawing = {version, arena, seed};

	draw_struct(&drawing, of->root, message);
}
