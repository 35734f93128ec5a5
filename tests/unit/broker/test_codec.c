/* Kafka's messages: every key and version, decoded and encoded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "messages.h"

#define ARENA_BYTES (16u << 20)
#define DRAWS       8

static uint8_t *encode(const struct codec_message *of, int16_t version, const void *message, struct codec_arena *arena,
	size_t *bytes_out)
{
	uint8_t *data;

	*bytes_out = codec_encode(of, version, message, arena, 0, &data, NULL);
	return data;
}

static void round_trip(const struct codec_message *of, int16_t version, uint64_t seed)
{
	struct codec_arena arena;
	void *message = calloc(1, of->root->bytes), *again = calloc(1, of->root->bytes);
	size_t bytes, more;
	uint8_t *data, *other;

	codec_arena_init(&arena, ARENA_BYTES);
	messages_draw(of, version, &arena, message, &seed);
	data = encode(of, version, message, &arena, &bytes);
	assert_int_equal(codec_decode(of, version, data, bytes, &arena, again, NULL), CODEC_OK);
	other = encode(of, version, again, &arena, &more);
	assert_int_equal(more, bytes);
	assert_memory_equal(other, data, bytes);
	for (size_t cut = 0; cut < bytes; cut++) {
		uint8_t *part = malloc(cut + 1); /* of its own, so that a sanitizer sees a read behind it */

		memcpy(part, data, cut);
		assert_int_equal(codec_decode(of, version, part, cut, &arena, again, NULL), CODEC_MALFORMED);
		free(part);
	}
	codec_arena_free(&arena);
	free(message);
	free(again);
}

static void every_message_survives_and_no_part_of_one_is_taken(void **state)
{
	unsigned messages = 0;

	(void)state;
	for (unsigned i = 0; i < KAFKA_APIS; i++) {
		const struct codec_message *both[] = {kafka_apis[i].request, kafka_apis[i].response};

		for (unsigned k = 0; k < 2; k++)
			for (int16_t version = both[k]->versions.from; version <= both[k]->versions.to; version++)
				for (uint64_t seed = 0; seed < DRAWS; seed++, messages++)
					round_trip(both[k], version, seed * 1000 + i);
	}
	assert_true(messages > 1000);
}

/* Bytes that a client sends: kcat's ApiVersions, version 3, behind its header. */
static void a_known_request_is_read(void **state)
{
	static const uint8_t bytes[] = "\x0blibrdkafka\x06"
				       "2.0.2"; /* and 0 tagged fields */
	struct kafka_api_versions_request request;
	struct codec_arena arena;

	(void)state;
	codec_arena_init(&arena, ARENA_BYTES);
	assert_int_equal(
		codec_decode(&kafka_api_versions_request_codec, 3, bytes, sizeof(bytes), &arena, &request, NULL),
		CODEC_OK);
	assert_int_equal(codec_compare("librdkafka", request.client_software_name), 0);
	assert_int_equal(codec_compare("2.0.2", request.client_software_version), 0);
	codec_arena_free(&arena);
}

/* Metadata, version 1: i32 count, strings with an i16 length. A null list is -1. */
static void a_known_request_is_written(void **state)
{
	static const uint8_t bytes[] = {0, 0, 0, 2, 0, 1, 'a', 0, 2, 'b', 'c'};
	struct kafka_metadata_request_metadata_request_topic topics[] = {{.name = {"a", 1}}, {.name = {"bc", 2}}};
	struct kafka_metadata_request request = {.topics = {topics, 2}};
	struct codec_arena arena;
	uint8_t *data;
	size_t n;

	(void)state;
	codec_arena_init(&arena, ARENA_BYTES);
	data = encode(&kafka_metadata_request_codec, 1, &request, &arena, &n);
	assert_int_equal(n, sizeof(bytes));
	assert_memory_equal(data, bytes, n);
	request.topics.count = -1;
	data = encode(&kafka_metadata_request_codec, 1, &request, &arena, &n);
	assert_memory_equal(data, "\xff\xff\xff\xff", 4);
	codec_arena_free(&arena);
}

static void a_lying_count_takes_no_memory(void **state)
{
	static const uint8_t bytes[] = {0x7f, 0xff, 0xff, 0xff, 0, 1, 'a'};
	struct kafka_metadata_request request;
	struct codec_arena arena;

	(void)state;
	codec_arena_init(&arena, ARENA_BYTES);
	assert_int_equal(codec_decode(&kafka_metadata_request_codec, 1, bytes, sizeof(bytes), &arena, &request, NULL),
		CODEC_MALFORMED);
	assert_int_equal(arena.taken, 0);
	codec_arena_free(&arena);
}

static void a_request_takes_no_more_than_its_arena(void **state)
{
	static uint8_t bytes[4 + 2000] = {0, 0, 0x03, 0xe8}; /* 1,000 empty names */
	struct kafka_metadata_request request;
	struct codec_arena arena;

	(void)state;
	codec_arena_init(&arena, 4096);
	assert_int_equal(codec_decode(&kafka_metadata_request_codec, 1, bytes, sizeof(bytes), &arena, &request, NULL),
		CODEC_TOO_LARGE);
	codec_arena_reset(&arena, ARENA_BYTES);
	assert_int_equal(
		codec_decode(&kafka_metadata_request_codec, 1, bytes, sizeof(bytes), &arena, &request, NULL), CODEC_OK);
	codec_arena_free(&arena);
}

static void an_unknown_tag_is_skipped_and_trailing_bytes_are_refused(void **state)
{
	/* Two empty strings, one tagged field 9 of 3 bytes. */
	static const uint8_t bytes[] = {1, 1, 1, 9, 3, 'x', 'y', 'z', 0};
	struct kafka_api_versions_request request;
	struct codec_arena arena;

	(void)state;
	codec_arena_init(&arena, ARENA_BYTES);
	assert_int_equal(
		codec_decode(&kafka_api_versions_request_codec, 3, bytes, 8, &arena, &request, NULL), CODEC_OK);
	assert_int_equal(
		codec_decode(&kafka_api_versions_request_codec, 3, bytes, 9, &arena, &request, NULL), CODEC_TRAILING);
	codec_arena_free(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_survives_and_no_part_of_one_is_taken),
		cmocka_unit_test(a_known_request_is_read),
		cmocka_unit_test(a_known_request_is_written),
		cmocka_unit_test(a_lying_count_takes_no_memory),
		cmocka_unit_test(a_request_takes_no_more_than_its_arena),
		cmocka_unit_test(an_unknown_tag_is_skipped_and_trailing_bytes_are_refused),
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
