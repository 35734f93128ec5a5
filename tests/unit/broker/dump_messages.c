/* Prints messages of Kafka's keys with drawn contents, a line each: name, version, bytes in hexadecimal. For a judge
 * that is another implementation (scripts/check_kafka.py). */
#include <stdio.h>
#include <stdlib.h>

#include "messages.h"

#define ARENA_BYTES (16u << 20)
#define DRAWS       8
#define OUR_KEYS    30000 /* nobody else has them */

static void dump(const struct codec_message *of, int16_t version, uint64_t seed)
{
	void *message = calloc(1, of->root->bytes);
	struct codec_arena arena;
	uint8_t *data;
	size_t bytes;

	codec_arena_init(&arena, ARENA_BYTES);
	messages_draw(of, version, &arena, message, &seed);
	bytes = codec_encode(of, version, message, &arena, 0, &data, NULL);
	printf("%s %d ", of->name, version);
	for (size_t i = 0; i < bytes; i++)
		printf("%02x", data[i]);
	printf("\n");
	codec_arena_free(&arena);
	free(message);
}

int main(void)
{
	for (unsigned i = 0; i < KAFKA_APIS && kafka_apis[i].key < OUR_KEYS; i++) {
		const struct codec_message *both[] = {kafka_apis[i].request, kafka_apis[i].response};

		for (unsigned k = 0; k < 2; k++)
			for (int16_t version = both[k]->versions.from; version <= both[k]->versions.to; version++)
				for (uint64_t seed = 0; seed < DRAWS; seed++)
					dump(both[k], version, seed * 1000 + i);
	}
	return 0;
}
