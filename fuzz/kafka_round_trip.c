#include "kafka_round_trip.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"

#define ARENA_BYTES (1u << 20)

static void look(const struct codec_message *of, int16_t version, const uint8_t *data, size_t bytes)
{
	struct codec_arena arena, room;
	void *first = calloc(1, of->root->bytes), *second = calloc(1, of->root->bytes);
	uint8_t *once, *twice;
	size_t n, m, used;

	codec_arena_init(&arena, ARENA_BYTES);
	/* As broker and clients do: bytes behind it are ignored. */
	if (codec_decode(of, version, data, bytes, &arena, first, &used) == CODEC_OK) {
		ensure(arena.taken <= ARENA_BYTES && used <= bytes);
		codec_arena_init(&room, ARENA_BYTES * 16);
		n = codec_encode(of, version, first, &room, 0, &once, NULL);
		ensure(codec_decode(of, version, once, n, &room, second, NULL) == CODEC_OK);
		m = codec_encode(of, version, second, &room, 0, &twice, NULL);
		ensure(m == n && memcmp(once, twice, n) == 0);
		codec_arena_free(&room);
	}
	codec_arena_free(&arena);
	free(first);
	free(second);
}

void kafka_round_trip(const uint8_t *data, size_t bytes, bool response)
{
	if (bytes < 4)
		return;
	for (unsigned i = 0; i < KAFKA_APIS; i++) {
		const struct codec_message *of = response ? kafka_apis[i].response : kafka_apis[i].request;
		int16_t version = (int16_t)get_be16(data + 2);

		if (kafka_apis[i].key == get_be16(data) && codec_in(of->versions, version))
			look(of, version, data + 4, bytes - 4);
	}
}
