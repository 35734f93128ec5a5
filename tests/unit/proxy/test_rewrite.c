/* What a client's write becomes in the log: nothing that a clock or chance decides is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "proxy/redis/rewrite.h"

#define NOW_MS 1000000u /* a deadline in 10 s is at 1010000 ms, shifted by 10^15 */

static struct resp_arg args[32];
static uint8_t line[512];

static struct command_args parse(const char *text)
{
	struct resp_request request;
	size_t bytes = strlen(text), used;

	memcpy(line, text, bytes);
	line[bytes++] = '\n';
	resp_request_init(&request, args, 32, 512);
	assert_int_equal(resp_request_read(&request, line, bytes, &used), RESP_WHOLE);
	return (struct command_args){.data = line, .args = args, .count = request.arg_count};
}

/* A record as words: an inline command, where a script is shown as SCRIPT and the key whose deadline is asked for
 * stands in brackets; or a text. */
static void describe(const struct entry_record *record, char *out, size_t room)
{
	struct resp_element element;
	size_t at = 0, used, n = 0;

	out[0] = '\0';
	if (record->reply == ENTRY_TEXT) {
		(void)snprintf(out, room, "%.*s", (int)record->bytes - 2, (const char *)record->data);
		return;
	}
	while (at < record->bytes) {
		bool marked;

		assert_int_equal(resp_element_read(record->data + at, record->bytes - at, &element, &used), RESP_WHOLE);
		at += used;
		if (element.type == RESP_ARRAY)
			continue;
		marked = record->key != NULL && record->key == element.text;
		n += (size_t)snprintf(out + n, room - n, "%s%s%.*s%s", n > 0 ? " " : "", marked ? "[" : "",
			element.bytes > 60 ? 6 : (int)element.bytes,
			element.bytes > 60 ? "SCRIPT" : (const char *)element.text, marked ? "]" : "");
	}
}

static void expect_entry(const struct resp_out *entry, const char *const *records, unsigned count)
{
	struct entry_reader reader;
	struct entry_record record;
	char words[512];
	unsigned n = 0;

	assert_false(entry->failed);
	assert_true(proxy_entry_read(&reader, entry->data, entry->bytes));
	while (proxy_entry_next(&reader, &record)) {
		assert_true(n < count);
		describe(&record, words, sizeof(words));
		assert_string_equal(words, records[n++]);
	}
	assert_int_equal(reader.left, 0);
	assert_int_equal(n, count);
}

static void expect(const char *text, const char *first, const char *second)
{
	const char *const records[] = {first, second};
	struct command_args request = parse(text);
	const struct command *command = proxy_command_find(line + args[0].at, args[0].bytes);
	struct resp_out entry = {0};

	assert_non_null(command);
	proxy_entry_begin(&entry, ENTRY_OF_REDIS, ENTRY_WRITE, NOW_MS);
	proxy_rewrite(command, &request, NOW_MS, &entry);
	expect_entry(&entry, records, second == NULL ? 1 : 2);
	assert_true(entry.bytes <= ENTRY_HEAD_BYTES + proxy_rewrite_bytes(command, &request));
	resp_out_free(&entry);
}

static void relative_time_becomes_absolute_and_shifted(void **state)
{
	(void)state;
	expect("SET k v", "SET k v", NULL);
	expect("SET k v EX 10", "SET [k] v PXAT 1000000001010000", NULL);
	expect("SET k v GET px 5 NX", "SET [k] v GET PXAT 1000000001000005 NX", NULL);
	expect("SET k v KEEPTTL", "SET [k] v KEEPTTL", NULL);
	expect("SET k v EXAT 2000", "SET [k] v PXAT 1000000002000000", NULL);
	expect("SETEX k 10 v", "SET [k] v PXAT 1000000001010000", NULL);
	expect("PSETEX k 10 v", "SET [k] v PXAT 1000000001000010", NULL);
	expect("GETEX k", "GETEX k", NULL);
	expect("GETEX k EX 1", "GETEX [k] PXAT 1000000001001000", NULL);
	expect("GETEX k PERSIST", "GETEX [k] PERSIST", NULL);
	expect("EXPIRE k 10", "PEXPIREAT [k] 1000000001010000", NULL);
	expect("PEXPIRE k 10 NX", "PEXPIREAT [k] 1000000001000010 NX", NULL);
	expect("EXPIREAT k 2000 gt", "PEXPIREAT [k] 1000000002000000 gt", NULL);
	expect("RESTORE k 0 x", "RESTORE [k] 0 x ABSTTL", NULL);
	expect("RESTORE k 5 x REPLACE", "RESTORE [k] 1000000001000005 x REPLACE ABSTTL", NULL);
	expect("RESTORE k 1000005 x ABSTTL", "RESTORE [k] 1000000001000005 x ABSTTL", NULL);
	expect("RENAME a b", "RENAME a [b]", NULL);
	expect("PERSIST a", "PERSIST [a]", NULL);
}

static void deadline_in_the_past_takes_effect_at_once(void **state)
{
	(void)state;
	expect("EXPIRE k -1", "PEXPIREAT [k] 1000000000999000", "EVAL SCRIPT 1 [k] 1000000000999000");
	expect("PEXPIREAT k 5", "PEXPIREAT [k] 1000000000000005", "EVAL SCRIPT 1 [k] 1000000000000005");
	expect("SET k v PXAT 5", "SET [k] v PXAT 1000000000000005", "EVAL SCRIPT 1 [k] 1000000000000005");
	expect("EXPIREAT k -5", "PEXPIREAT [k] 1000000000000000", "EVAL SCRIPT 1 [k] 1000000000000000");
}

static void wrong_time_gets_the_words_of_redis(void **state)
{
	(void)state;
	expect("SET k v EX 0", "-ERR invalid expire time in 'set' command", NULL);
	expect("SET k v EX x", "-ERR value is not an integer or out of range", NULL);
	expect("SET k v EX", "-ERR syntax error", NULL);
	expect("SET k v EX 1 PX 1", "-ERR syntax error", NULL);
	expect("SETEX k -1 v", "-ERR invalid expire time in 'setex' command", NULL);
	expect("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command", NULL);
}

static void stream_ids_are_the_leaders(void **state)
{
	(void)state;
	expect("XADD s 5-1 f v", "XADD s 5-1 f v", NULL);
	expect("XADD s * f v", "EVAL SCRIPT 1 s 1 1000000 * f v", NULL);
	expect("XADD s NOMKSTREAM MAXLEN ~ 10 LIMIT 5 * f *", "EVAL SCRIPT 1 s 5 1000000 NOMKSTREAM MAXLEN = 10 * f *",
		NULL);
	expect("XADD s MAXLEN ~ 10 5-1 LIMIT ~", "XADD s MAXLEN = 10 5-1 LIMIT ~", NULL);
	expect("XTRIM s MAXLEN ~ 10 LIMIT 5", "XTRIM s MAXLEN = 10", NULL);
	expect("XTRIM s MINID 5", "XTRIM s MINID 5", NULL);
	expect("XTRIM ~ MAXLEN ~ 10", "XTRIM ~ MAXLEN = 10", NULL);
}

static void members_are_those_that_the_leader_drew(void **state)
{
	static const char *const one[] = {"EVAL SCRIPT 1 s -1 a"}, *const two[] = {"EVAL SCRIPT 1 s 2 a b"},
				 *const none[] = {"EVAL SCRIPT 1 s -1"},
				 *const wrong[] = {"-ERR value is out of range, must be positive"};
	static const struct {
		const char *request, *question, *answer;
		const char *const *records;
	} cases[] = {
		{"SPOP s", "*3\r\n$11\r\nSRANDMEMBER\r\n$1\r\ns\r\n$1\r\n1\r\n", "*1\r\n$1\r\na\r\n", one},
		{"SPOP s 2", "*3\r\n$11\r\nSRANDMEMBER\r\n$1\r\ns\r\n$1\r\n2\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", two},
		{"SPOP s", "*3\r\n$11\r\nSRANDMEMBER\r\n$1\r\ns\r\n$1\r\n1\r\n", "-WRONGTYPE no set\r\n", none},
		{"SPOP s -1", "*3\r\n$11\r\nSRANDMEMBER\r\n$1\r\ns\r\n$1\r\n0\r\n", "*0\r\n", wrong},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct command_args request = parse(cases[i].request);
		struct resp_out out = {0};

		proxy_rewrite_draw(&request, &out);
		assert_int_equal(out.bytes, strlen(cases[i].question));
		assert_memory_equal(out.data, cases[i].question, out.bytes);
		out.bytes = 0;
		proxy_entry_begin(&out, ENTRY_OF_REDIS, ENTRY_WRITE, NOW_MS);
		proxy_rewrite_drawn(&request, (const uint8_t *)cases[i].answer, strlen(cases[i].answer), &out);
		expect_entry(&out, cases[i].records, 1);
		resp_out_free(&out);
	}
}

static void damaged_entry_is_refused(void **state)
{
	struct command_args request = parse("SET k v EX 10");
	struct resp_out entry = {0};
	struct entry_reader reader;
	struct entry_record record;

	(void)state;
	proxy_entry_begin(&entry, ENTRY_OF_REDIS, ENTRY_WRITE, NOW_MS);
	proxy_rewrite(proxy_command_find((const uint8_t *)"SET", 3), &request, NOW_MS, &entry);
	for (size_t bytes = 0; bytes < entry.bytes; bytes++)
		if (proxy_entry_read(&reader, entry.data, bytes)) {
			assert_false(proxy_entry_next(&reader, &record));
			assert_int_equal(reader.left, 1);
		}
	entry.data[0] ^= 1;
	assert_false(proxy_entry_read(&reader, entry.data, entry.bytes));
	resp_out_free(&entry);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(relative_time_becomes_absolute_and_shifted),
		cmocka_unit_test(deadline_in_the_past_takes_effect_at_once),
		cmocka_unit_test(wrong_time_gets_the_words_of_redis),
		cmocka_unit_test(stream_ids_are_the_leaders),
		cmocka_unit_test(members_are_those_that_the_leader_drew),
		cmocka_unit_test(damaged_entry_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
