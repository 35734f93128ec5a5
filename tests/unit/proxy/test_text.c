/* memcached's text: what clients and servers say is read whole, in whatever pieces it comes, and what is wrong has the
 * server's own words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "proxy/memcached/text.h"

#define ARGS_MOST  16u
#define BYTES_MOST 1000u

struct said {
	struct resp_request request;
	struct resp_arg args[ARGS_MOST];
	enum resp_outcome outcome;
	size_t used, skip;
	uint8_t *data; /* of exactly its size: what reads beyond it is found */
};

static struct said *say(const char *text, size_t bytes)
{
	struct said *said = calloc(1, sizeof(*said));

	assert_non_null(said);
	said->data = malloc(bytes == 0 ? 1 : bytes);
	assert_non_null(said->data);
	memcpy(said->data, text, bytes);
	resp_request_init(&said->request, said->args, ARGS_MOST, BYTES_MOST);
	said->outcome = proxy_text_read(&said->request, said->data, bytes, &said->used, &said->skip);
	return said;
}

static void forget(struct said *said)
{
	free(said->data);
	free(said);
}

static void assert_args(const struct said *said, const char *joined)
{
	char text[256] = "";

	for (unsigned i = 0; i < said->request.arg_count; i++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%.*s", i > 0 ? "|" : "",
			(int)said->args[i].bytes, (const char *)said->data + said->args[i].at);
	assert_string_equal(text, joined);
}

static void requests_become_a_command_and_its_arguments(void **state)
{
	static const struct {
		const char *text, *args;
		bool replies;
	} cases[] = {
		{"set k 5 0 3\r\nabc\r\n", "set|k|5|0|abc", true},
		{"set k 5 0 7\r\nnoreply\r\n", "set|k|5|0|noreply", true},
		{"set k 5 0 3 noreply\r\nabc\r\n", "set|k|5|0|abc|noreply", false},
		{"set k 5 0 3 other\r\nabc\r\n", "set|k|5|0|abc", true},
		{"add k 5 0 0\n\r\n", "add|k|5|0|", true},
		{"cas k 5 0 3 77\r\na\nb\r\n", "cas|k|5|0|77|a\nb", true},
		{"cas k 5 0 3 77 noreply\r\nabc\r\n", "cas|k|5|0|77|abc|noreply", false},
		{"  get  a   b \r\n", "get|a|b", true},
		{"get noreply\r\n", "get|noreply", true},
		{"incr k 1 noreply\r\n", "incr|k|1|noreply", false},
		{"delete k 0 noreply\r\n", "delete|k|0|noreply", false},
		{"delete noreply\r\n", "delete|noreply", true},
		{"flush_all noreply\r\n", "flush_all|noreply", false},
		{"flush_all 10\r\n", "flush_all|10", true},
		{"mg k v\r\n", "mg|k|v", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const size_t bytes = strlen(cases[i].text);
		struct said *said;
		const struct command *command;
		struct command_args request;

		for (size_t n = 0; n < bytes; n++) {
			said = say(cases[i].text, n);
			assert_int_equal(said->outcome, RESP_MORE);
			assert_in_range(said->request.wanted, n + 1, bytes);
			forget(said);
		}
		said = say(cases[i].text, bytes);
		assert_int_equal(said->outcome, RESP_WHOLE);
		assert_int_equal(said->used, bytes);
		assert_string_equal(said->request.error, "");
		assert_args(said, cases[i].args);
		request =
			(struct command_args){.data = said->data, .args = said->args, .count = said->request.arg_count};
		command = proxy_text_find(said->data + said->args[0].at, said->args[0].bytes);
		if (command != NULL)
			assert_int_equal(proxy_text_wants_reply(command, &request), cases[i].replies);
		forget(said);
	}
}

static void what_is_wrong_has_the_words_of_memcached(void **state)
{
	static const char line[] = "CLIENT_ERROR bad command line format";
	static const struct {
		const char *text, *error;
		size_t used, skip;
	} cases[] = {
		{"\r\n", "ERROR", 2, 0},
		{"set k 0 0\r\n", "ERROR", 11, 0},
		{"set k x 0 1\r\na\r\n", line, 13, 0},
		{"set k 0 0 -1\r\na\r\n", line, 14, 0},
		{"set k 0 0 99999999999\r\na\r\n", line, 23, 0},
		{"set k 0 0 x noreply\r\n", "", 21, 0},
		{"set k 0 0 1\r\nabc", "CLIENT_ERROR bad data chunk", 16, 0},
		{"set k 0 0 2000\r\nabc", "SERVER_ERROR object too large for cache", 16, 2002},
		{"set k 0 0 2000 noreply\r\n", "", 24, 2002},
		{"incr k -1\r\n", "CLIENT_ERROR invalid numeric delta argument", 11, 0},
		{"touch k 1x\r\n", "CLIENT_ERROR invalid exptime argument", 12, 0},
		{"delete k 5\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]", 12, 0},
		{"gat\r\n", "ERROR", 5, 0},
		{"get\r\n", "ERROR", 5, 0},
		{"flush_all x\r\n", "CLIENT_ERROR invalid exptime argument", 13, 0},
	};
	struct said *said;
	char text[300];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		said = say(cases[i].text, strlen(cases[i].text));
		assert_int_equal(said->outcome, RESP_WHOLE);
		assert_string_equal(said->request.error, cases[i].error);
		assert_int_equal(said->request.arg_count, 0);
		assert_int_equal(said->used, cases[i].used);
		assert_int_equal(said->skip, cases[i].skip);
		forget(said);
	}
	(void)snprintf(text, sizeof(text), "get %0251d\r\n", 0);
	said = say(text, strlen(text));
	assert_string_equal(said->request.error, line);
	forget(said);
}

static void a_line_without_end_and_a_binary_request_end_the_connection(void **state)
{
	char text[3000];
	struct said *said;

	(void)state;
	said = say("\x80\x0a", 2);
	assert_int_equal(said->outcome, RESP_REFUSED);
	assert_string_equal(said->request.error, "ERROR");
	forget(said);
	memset(text, 'x', sizeof(text));
	said = say(text, sizeof(text));
	assert_int_equal(said->outcome, RESP_REFUSED);
	forget(said);
}

static enum resp_outcome read_reply(const char *text, size_t bytes, size_t piece, size_t *used)
{
	struct resp_reply reply = {0};
	enum resp_outcome outcome = RESP_MORE;

	for (size_t n = piece < bytes ? piece : bytes; outcome == RESP_MORE;
		n = n + piece < bytes ? n + piece : bytes) {
		outcome = proxy_text_reply_read(&reply, (const uint8_t *)text, n, used);
		if (n == bytes)
			break;
	}
	return outcome;
}

static void replies_end_where_they_end(void **state)
{
	static const char *const replies[] = {"STORED\r\n", "5\r\n", "END\r\n", "VALUE k 0 5\r\nEND\r\n\r\nEND\r\n",
		"VALUE k 0 0\r\n\r\nVALUE l 1 1 9\r\nx\r\nEND\r\n", "STAT a 1\r\nSTAT b\r\nEND\r\n",
		"CLIENT_ERROR VALUE\r\n"};
	char text[200];
	size_t used;

	(void)state;
	for (size_t i = 0; i < sizeof(replies) / sizeof(*replies); i++)
		for (size_t piece = 1; piece < 60; piece += 7) {
			(void)snprintf(text, sizeof(text), "%sSTORED\r\n", replies[i]);
			assert_int_equal(read_reply(text, strlen(text), piece, &used), RESP_WHOLE);
			assert_int_equal(used, strlen(replies[i]));
			assert_int_equal(read_reply(replies[i], strlen(replies[i]) - 1, piece, &used), RESP_MORE);
		}
	assert_int_equal(read_reply("VALUE k\r\n", 9, 9, &used), RESP_REFUSED);
	assert_int_equal(read_reply("VALUE k 0 99999999999\r\n", 23, 23, &used), RESP_REFUSED);
	assert_int_equal(read_reply("\n", 1, 1, &used), RESP_REFUSED);
}

static void gets_has_the_uniques_of_the_proxy(void **state)
{
	static const char reply[] = "VALUE k 7 5 1\r\nab\r\nc\r\nVALUE l 0 0 2\r\n\r\nEND\r\n";
	struct resp_out out = {0}, uniques = {0};
	size_t first;

	(void)state;
	proxy_text_put_unique(&uniques, 100, (const uint8_t *)"k", 1);
	first = uniques.bytes;
	proxy_text_put_unique(&uniques, 5, (const uint8_t *)"kk", 2); /* the server left it out */
	proxy_text_put_unique(&uniques, UINT64_MAX, (const uint8_t *)"l", 1);
	assert_true(proxy_text_put_gets(&out, (const uint8_t *)reply, strlen(reply), uniques.data, uniques.bytes));
	resp_out_raw(&out, "", 1);
	assert_string_equal((const char *)out.data,
		"VALUE k 7 5 100\r\nab\r\nc\r\nVALUE l 0 0 18446744073709551615\r\n\r\nEND\r\n");
	assert_false(proxy_text_put_gets(&out, (const uint8_t *)reply, strlen(reply), uniques.data, first));
	assert_true(proxy_text_put_gets(&out, (const uint8_t *)"END\r\n", 5, uniques.data, first));
	resp_out_free(&out);
	resp_out_free(&uniques);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_become_a_command_and_its_arguments),
		cmocka_unit_test(what_is_wrong_has_the_words_of_memcached),
		cmocka_unit_test(a_line_without_end_and_a_binary_request_end_the_connection),
		cmocka_unit_test(replies_end_where_they_end),
		cmocka_unit_test(gets_has_the_uniques_of_the_proxy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
