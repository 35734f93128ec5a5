/* codec_arena.h - the memory of one request: allocated in order, freed at once, within a limit.
 *
 * Chunks come from malloc; all but large ones are kept for the next request. Not thread safe. */
#ifndef HOLDFAST_BROKER_CODEC_ARENA_H
#define HOLDFAST_BROKER_CODEC_ARENA_H

#include <stddef.h>

struct codec_arena_chunk;

struct codec_arena {
	struct codec_arena_chunk *chunks; /* the one in use first */
	size_t used, taken, limit;        /* of the first chunk; of all since the reset; of taken */
};

void codec_arena_init(struct codec_arena *arena, size_t limit);
/* Zeroed and aligned for anything; NULL: the limit is reached, or there is no memory. 0 bytes are legal. */
void *codec_arena_take(struct codec_arena *arena, size_t bytes);
/* Of `count` elements; NULL also when their size overflows. */
void *codec_arena_take_array(struct codec_arena *arena, size_t count, size_t bytes);
/* Gives the array of a message n elements; none when there is no memory. */
#define codec_arena_array(arena, array, n)                                                                             \
	((array)->at = codec_arena_take_array((arena), (size_t)(n), sizeof(*(array)->at)),                             \
		(array)->count = (array)->at == NULL ? 0 : (n))
/* A copy of the text with printf's format; NULL as above. */
char *codec_arena_format(struct codec_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void codec_arena_reset(struct codec_arena *arena, size_t limit);
void codec_arena_free(struct codec_arena *arena);

#endif
