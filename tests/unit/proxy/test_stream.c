/* The bytes of a snapshot: what was put is read, in whatever pieces it comes; what was not is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "proxy/stream.h"

static struct resp_out whole(void)
{
	struct resp_out out = {0};

	proxy_stream_begin(&out, ENTRY_OF_REDIS);
	proxy_stream_put(&out, &(struct stream_key){.key = (const uint8_t *)"a", .key_bytes = 1, .deadline_ms = -1});
	proxy_stream_put(&out, &(struct stream_key){.key = (const uint8_t *)"key",
				       .key_bytes = 3,
				       .value = (const uint8_t *)"value",
				       .value_bytes = 5,
				       .deadline_ms = 77});
	proxy_stream_end(&out, 2);
	return out;
}

/* Reads it in pieces of this size, and says how it ended. */
static enum stream_outcome read_all(const uint8_t *data, size_t bytes, size_t piece, unsigned *keys)
{
	struct stream_reader reader = {0};
	struct stream_key key;
	size_t from = 0, to = 0, used;

	*keys = 0;
	for (;;) {
		enum stream_outcome outcome = proxy_stream_read(&reader, data + from, to - from, &key, &used);

		from += used;
		if (outcome == STREAM_KEY && ++*keys == 2) {
			assert_memory_equal(key.key, "key", 3);
			assert_memory_equal(key.value, "value", 5);
			assert_int_equal(key.deadline_ms, 77);
		}
		if (outcome == STREAM_KEY)
			continue;
		if (outcome != STREAM_MORE || to == bytes)
			return outcome;
		to = bytes - to < piece ? bytes : to + piece;
	}
}

static void what_was_put_is_read_in_any_pieces(void **state)
{
	struct resp_out out = whole();
	unsigned keys;

	(void)state;
	for (size_t piece = 1; piece <= out.bytes; piece++) {
		assert_int_equal(read_all(out.data, out.bytes, piece, &keys), STREAM_END);
		assert_int_equal(keys, 2);
	}
	for (size_t bytes = 0; bytes < out.bytes; bytes++)
		assert_int_equal(read_all(out.data, bytes, bytes + 1, &keys), STREAM_MORE);
	resp_out_free(&out);
}

static void other_bytes_are_refused(void **state)
{
	struct resp_out out = whole();
	unsigned keys;

	(void)state;
	out.data[0] ^= 0x80; /* the magic */
	assert_int_equal(read_all(out.data, out.bytes, 7, &keys), STREAM_DAMAGED);
	out.data[0] ^= 0x80;
	out.data[out.bytes - 4] ^= 1; /* the number of keys */
	assert_int_equal(read_all(out.data, out.bytes, 7, &keys), STREAM_DAMAGED);
	out.data[out.bytes - 4] ^= 1;
	out.data[7] = 0x7f; /* the length of a key */
	assert_int_equal(read_all(out.data, out.bytes, 7, &keys), STREAM_DAMAGED);
	out.data[7] = 0;
	resp_out_raw(&out, "x", 1); /* behind the end */
	assert_int_equal(read_all(out.data, out.bytes, out.bytes, &keys), STREAM_DAMAGED);
	resp_out_free(&out);
}

static void the_kind_of_server_is_in_it(void **state)
{
	for (enum entry_server server = ENTRY_OF_REDIS; server < ENTRY_SERVERS; server++) {
		struct stream_reader reader = {0};
		struct resp_out out = {0};
		struct stream_key key;
		size_t used;

		(void)state;
		proxy_stream_begin(&out, server);
		assert_int_equal(proxy_stream_read(&reader, out.data, out.bytes, &key, &used), STREAM_MORE);
		assert_true(reader.begun);
		assert_int_equal(reader.server, server);
		resp_out_free(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_put_is_read_in_any_pieces),
		cmocka_unit_test(other_bytes_are_refused),
		cmocka_unit_test(the_kind_of_server_is_in_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
