/* Which commands the proxy takes, and what it says of the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "proxy/redis/commands.h"
#include "proxy/redis/command_list.h"

static struct commands commands;

static const struct command *find(const char *name)
{
	return proxy_command_find((const uint8_t *)name, strlen(name));
}

/* Checks an inline request; NULL: it is taken. */
static const char *refusal(const char *line)
{
	static char words[COMMAND_WORDS];
	struct resp_arg args[8];
	struct resp_request request;
	uint8_t data[256];
	size_t bytes = strlen(line), used;

	memcpy(data, line, bytes);
	data[bytes++] = '\n';
	resp_request_init(&request, args, 8, 256);
	assert_int_equal(resp_request_read(&request, data, bytes, &used), RESP_WHOLE);
	words[0] = '\0';
	return proxy_command_check(&commands, proxy_command_find(data + args[0].at, args[0].bytes), data, args,
		       request.arg_count, words)
		       ? NULL
		       : words;
}

static void list_is_sorted_and_whole(void **state)
{
	(void)state;
	for (unsigned i = 0; i < command_list_count; i++) {
		assert_ptr_equal(find(command_list[i].name), &command_list[i]);
		if (i > 0)
			assert_true(strcmp(command_list[i - 1].name, command_list[i].name) < 0);
		if (command_list[i].kind == COMMAND_REFUSED)
			assert_non_null(command_list[i].why);
	}
	assert_ptr_equal(find("GeT"), find("get"));
	assert_null(find("ge"));
	assert_null(find("gett"));
	assert_null(find(""));
}

static void command_is_taken_as_redis_lists_it(void **state)
{
	static const char reply[] = "*4\r\n"
				    "*6\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
				    "*3\r\n$6\r\nstrlen\r\n:2\r\n*1\r\n+write\r\n" /* as if a new version changed it */
				    "*3\r\n$3\r\nset\r\n:-3\r\n*1\r\n+write\r\n"
				    "*4\r\n$7\r\nnewname\r\n:1\r\n*0\r\n*1\r\n*1\r\n:1\r\n";

	(void)state;
	memset(&commands, 0, sizeof(commands));
	assert_true(proxy_command_learn(&commands, (const uint8_t *)reply, sizeof(reply) - 1));
	assert_false(proxy_command_learn(&commands, (const uint8_t *)reply, sizeof(reply) - 8));
	assert_null(refusal("GET k"));
	assert_null(refusal("set k v"));
	assert_string_equal(refusal("get"), "ERR wrong number of arguments for 'get' command");
	assert_string_equal(refusal("set k"), "ERR wrong number of arguments for 'set' command");
	assert_non_null(strstr(refusal("strlen k"), "strlen writes in this version"));
	assert_non_null(strstr(refusal("newname"), "unknown command 'newname'"));
	assert_non_null(strstr(refusal("incr k"), "unknown command 'incr'")); /* ours, but not Redis' */
}

static void others_are_refused_in_words(void **state)
{
	(void)state;
	memset(&commands, 0, sizeof(commands));
	for (unsigned i = 0; i < command_list_count; i++)
		commands.arity[i] = -1;
	assert_non_null(strstr(refusal("WATCH k"), "WATCH is refused"));
	assert_non_null(strstr(refusal("blpop k 0"), "blocking"));
	assert_non_null(strstr(refusal("xread BLOCK 0 STREAMS s $"), "BLOCK"));
	assert_null(refusal("xread STREAMS BLOCK 0"));
	assert_non_null(strstr(refusal("sort s BY w_* ALPHA STORE d"), "its own order"));
	assert_null(refusal("sort s BY w_* STORE d"));
	assert_null(refusal("sort s ALPHA STORE d"));
	assert_null(refusal("sort s BY ALPHA GET STORE"));
	assert_non_null(strstr(refusal("subscribe c"), "pub/sub"));
	assert_non_null(strstr(refusal("config get save"), "configuration"));
	assert_non_null(strstr(refusal("client kill x"), "takes only"));
	assert_null(refusal("client setname x"));
	assert_non_null(strstr(refusal("eval x 0"), "--scripts"));
	commands.scripts = true;
	assert_null(refusal("eval x 0"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list_is_sorted_and_whole),
		cmocka_unit_test(command_is_taken_as_redis_lists_it),
		cmocka_unit_test(others_are_refused_in_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
