/* The memory of one request. */
#include "broker/codec/codec_arena.h"

#include <stdarg.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 16384u

struct codec_arena_chunk {
	struct codec_arena_chunk *next;
	size_t bytes;
	alignas(max_align_t) uint8_t data[];
};

void codec_arena_init(struct codec_arena *arena, size_t limit)
{
	*arena = (struct codec_arena){.limit = limit};
}

static struct codec_arena_chunk *add_chunk(struct codec_arena *arena, size_t bytes)
{
	size_t all = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
	struct codec_arena_chunk *chunk = malloc(sizeof(*chunk) + all);

	if (chunk == NULL)
		return NULL;
	*chunk = (struct codec_arena_chunk){.next = arena->chunks, .bytes = all};
	arena->chunks = chunk;
	arena->used = 0;
	return chunk;
}

void *codec_arena_take(struct codec_arena *arena, size_t bytes)
{
	struct codec_arena_chunk *chunk = arena->chunks;
	uint8_t *at;

	if (bytes > arena->limit)
		return NULL;
	bytes = (bytes + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
	if (bytes > arena->limit - arena->taken)
		return NULL;
	if (chunk == NULL || chunk->bytes - arena->used < bytes)
		chunk = add_chunk(arena, bytes);
	if (chunk == NULL)
		return NULL;
	at = chunk->data + arena->used;
	arena->used += bytes;
	arena->taken += bytes;
	return memset(at, 0, bytes);
}

void *codec_arena_take_array(struct codec_arena *arena, size_t count, size_t bytes)
{
	size_t all;

	return __builtin_mul_overflow(count, bytes, &all) ? NULL : codec_arena_take(arena, all);
}

char *codec_arena_format(struct codec_arena *arena, const char *format, ...)
{
	va_list arguments;
	char *text;
	int bytes;

	va_start(arguments, format);
	bytes = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	text = bytes < 0 ? NULL : codec_arena_take(arena, (size_t)bytes + 1);
	if (text == NULL)
		return NULL;
	va_start(arguments, format);
	vsnprintf(text, (size_t)bytes + 1, format, arguments);
	va_end(arguments);
	return text;
}

/* Keeps one chunk of the usual size. */
void codec_arena_reset(struct codec_arena *arena, size_t limit)
{
	struct codec_arena_chunk *kept = NULL, *next;

	for (struct codec_arena_chunk *chunk = arena->chunks; chunk != NULL; chunk = next) {
		next = chunk->next;
		if (kept == NULL && chunk->bytes == CHUNK_BYTES)
			kept = chunk;
		else
			free(chunk);
	}
	if (kept != NULL)
		kept->next = NULL;
	*arena = (struct codec_arena){.chunks = kept, .limit = limit};
}

void codec_arena_free(struct codec_arena *arena)
{
	struct codec_arena_chunk *next;

	for (struct codec_arena_chunk *chunk = arena->chunks; chunk != NULL; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	*arena = (struct codec_arena){.limit = arena->limit};
}
