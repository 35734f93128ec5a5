/* The grammar of Redis' protocol: requests, replies and refusals, in whatever pieces the bytes come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "net/resp.h"
#include "net/resp_out.h"

#define ARGS 8u

struct found {
	enum resp_outcome outcome;
	size_t used;
	unsigned count;
	char words[256]; /* args, each in brackets */
	char error[RESP_ERROR_BYTES];
};

/* Reads a request of which `first` bytes come first and `step` more each time, every time elsewhere in memory. */
static struct found read_request(const char *text, size_t bytes, size_t first, size_t step)
{
	struct resp_arg args[ARGS];
	struct resp_request request;
	struct found found = {0};
	uint8_t *piece = NULL;
	size_t n = first;

	resp_request_init(&request, args, ARGS, 4096);
	for (;;) {
		free(piece);
		piece = malloc(n > 0 ? n : 1);
		assert_non_null(piece);
		memcpy(piece, text, n);
		found.outcome = resp_request_read(&request, piece, n, &found.used);
		if (found.outcome != RESP_MORE || n == bytes)
			break;
		assert_true(request.wanted > n);
		n = bytes - n < step ? bytes : n + step;
	}
	memcpy(found.error, request.error, sizeof(found.error));
	if (found.outcome == RESP_WHOLE) {
		size_t at = 0;

		found.count = request.arg_count;
		for (unsigned i = 0; i < request.arg_count; i++) {
			found.words[at++] = '[';
			memcpy(found.words + at, piece + args[i].at, args[i].bytes);
			at += args[i].bytes;
			found.words[at++] = ']';
		}
	}
	free(piece);
	return found;
}

static void expect_same(const struct found *a, const struct found *b)
{
	assert_int_equal(a->outcome, b->outcome);
	assert_int_equal(a->used, b->used);
	assert_int_equal(a->count, b->count);
	assert_string_equal(a->words, b->words);
	assert_string_equal(a->error, b->error);
}

/* Read at once, byte by byte, and cut at every byte. */
static struct found read_all_ways(const char *text, size_t bytes)
{
	struct found whole = read_request(text, bytes, bytes, bytes), other = read_request(text, bytes, 0, 1);

	expect_same(&whole, &other);
	for (size_t cut = 0; cut < bytes; cut++) {
		other = read_request(text, bytes, cut, bytes);
		expect_same(&whole, &other);
	}
	return whole;
}

static void expect_words(const char *text, const char *words)
{
	struct found found = read_all_ways(text, strlen(text));

	assert_int_equal(found.outcome, RESP_WHOLE);
	assert_string_equal(found.words, words);
	assert_int_equal(found.used, strlen(text));
}

static void expect_refused(const char *text, const char *error)
{
	struct found found = read_all_ways(text, strlen(text));

	assert_int_equal(found.outcome, RESP_REFUSED);
	assert_string_equal(found.error, error);
}

static void request_is_an_array_of_bulk_strings(void **state)
{
	(void)state;
	expect_words("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nab\r\nc\r\n", "[SET][k][ab\r\nc]");
	expect_words("*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "[GET][]");
	expect_words("*0\r\n", "");
	expect_words("*-1\r\n", "");
}

static void request_is_a_line_with_quotes(void **state)
{
	(void)state;
	expect_words("PING\r\n", "[PING]");
	expect_words("  set  k\tv \n", "[set][k][v]");
	expect_words("\r\n", "");
	expect_words("set k \"a b\\x41\\n\\\"\"\r\n", "[set][k][a bA\n\"]");
	expect_words("set k 'it\\'s \\n'\r\n", "[set][k][it's \\n]");
	expect_words("set k \"\"\r\n", "[set][k][]");
	expect_refused("set k \"a\r\n", "ERR Protocol error: unbalanced quotes in request");
	expect_refused("set \"k\"v\r\n", "ERR Protocol error: unbalanced quotes in request");
}

static void next_request_stays_where_it_is(void **state)
{
	const char *text = "*1\r\n$4\r\nPING\r\nGET k\r\n";
	struct found found = read_all_ways(text, strlen(text));

	(void)state;
	assert_string_equal(found.words, "[PING]");
	assert_int_equal(found.used, 14);
	found = read_all_ways(text + found.used, strlen(text) - found.used);
	assert_string_equal(found.words, "[GET][k]");
}

static void half_a_request_is_none(void **state)
{
	const char *text = "*2\r\n$3\r\nGET\r\n$5\r\nabc";

	(void)state;
	assert_int_equal(read_all_ways(text, strlen(text)).outcome, RESP_MORE);
	assert_int_equal(read_all_ways("PING", 4).outcome, RESP_MORE);
}

static void refusal_has_the_words_of_redis(void **state)
{
	static char line[RESP_LINE_MAX + 16];

	(void)state;
	expect_refused("*x\r\n", "ERR Protocol error: invalid multibulk length");
	expect_refused("*01\r\n", "ERR Protocol error: invalid multibulk length");
	expect_refused("*99\r\n", "ERR Protocol error: invalid multibulk length");
	expect_refused("*99999999999999999999\r\n", "ERR Protocol error: invalid multibulk length");
	expect_refused("*1\r\n:3\r\n", "ERR Protocol error: expected '$', got ':'");
	expect_refused("*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length");
	expect_refused("*1\r\n$4096\r\n", "ERR Protocol error: invalid bulk length");
	memset(line, '1', sizeof(line));
	assert_string_equal(
		read_request(line, sizeof(line), sizeof(line), 1).error, "ERR Protocol error: too big inline request");
	line[0] = '*';
	assert_string_equal(read_request(line, sizeof(line), sizeof(line), 1).error,
		"ERR Protocol error: too big mbulk count string");
}

/* ---- replies ---- */

/* The bytes of the first reply, read at once and byte by byte; 0: not whole, SIZE_MAX: refused. */
static size_t reply_bytes(const char *text, size_t bytes)
{
	struct resp_reply reply = {0};
	size_t used = 0, whole;
	enum resp_outcome outcome = resp_reply_read(&reply, (const uint8_t *)text, bytes, &whole), other = RESP_MORE;

	reply = (struct resp_reply){0};
	for (size_t n = 0; n <= bytes && other == RESP_MORE; n++)
		other = resp_reply_read(&reply, (const uint8_t *)text, n, &used);
	assert_int_equal(outcome, other);
	assert_int_equal(whole, used);
	return outcome == RESP_REFUSED ? SIZE_MAX : whole;
}

static void reply_is_read_with_its_elements(void **state)
{
	static const char *const replies[] = {"+OK\r\n", "-ERR no\r\n", ":-12\r\n", "$3\r\na\r\n\r\n", "$0\r\n\r\n",
		"$-1\r\n", "*-1\r\n", "*0\r\n", "*2\r\n*2\r\n:1\r\n$1\r\nx\r\n*0\r\n"};

	(void)state;
	for (unsigned i = 0; i < sizeof(replies) / sizeof(*replies); i++) {
		char text[128];

		memcpy(text, replies[i], strlen(replies[i]));
		memcpy(text + strlen(replies[i]), "+X\r\n", 4);
		assert_int_equal(reply_bytes(text, strlen(replies[i]) + 4), strlen(replies[i]));
		assert_int_equal(reply_bytes(text, strlen(replies[i]) - 1), 0);
	}
}

static void what_is_no_reply_is_refused(void **state)
{
	static const char *const others[] = {
		"OK\r\n", ":x\r\n", "$-2\r\n", "*-2\r\n", "$1\r\nabc\r\n", "*4294967296\r\n"};

	(void)state;
	for (unsigned i = 0; i < sizeof(others) / sizeof(*others); i++)
		assert_int_equal(reply_bytes(others[i], strlen(others[i])), SIZE_MAX);
}

static void number_is_that_of_redis(void **state)
{
	static const char *const bad[] = {"", "-", "+1", "01", "-0", "1 ", "9223372036854775808", "0x1"};
	int64_t number;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(resp_number((const uint8_t *)bad[i], strlen(bad[i]), &number));
	assert_true(resp_number((const uint8_t *)"-9223372036854775808", 20, &number));
	assert_true(number == INT64_MIN);
	assert_true(resp_number((const uint8_t *)"0", 1, &number));
	assert_true(number == 0);
}

static void what_is_written_is_read(void **state)
{
	struct resp_out out = {0};
	size_t at = 0;
	unsigned n = 0;

	(void)state;
	resp_out_simple(&out, "OK");
	resp_out_error(&out, "ERR %s", "two\r\nlines");
	resp_out_integer(&out, -7);
	resp_out_array(&out, 3);
	resp_out_text(&out, "a");
	resp_out_null(&out);
	resp_out_null_array(&out);
	assert_false(out.failed);
	while (at < out.bytes) {
		size_t used = reply_bytes((const char *)out.data + at, out.bytes - at);

		assert_true(used > 0 && used != SIZE_MAX);
		at += used;
		n++;
	}
	assert_int_equal(n, 4);
	assert_memory_equal(out.data, "+OK\r\n-ERR two  lines\r\n:-7\r\n", 26);
	resp_out_drop(&out, 5);
	assert_memory_equal(out.data, "-ERR", 4);
	resp_out_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_is_an_array_of_bulk_strings),
		cmocka_unit_test(request_is_a_line_with_quotes),
		cmocka_unit_test(next_request_stays_where_it_is),
		cmocka_unit_test(half_a_request_is_none),
		cmocka_unit_test(refusal_has_the_words_of_redis),
		cmocka_unit_test(reply_is_read_with_its_elements),
		cmocka_unit_test(what_is_no_reply_is_refused),
		cmocka_unit_test(number_is_that_of_redis),
		cmocka_unit_test(what_is_written_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
