/* The connection of a proxy to its server: how long a silence lasts. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "env/world.h"
#include "proxy/protocol.h"
#include "proxy/server.h"

#define SILENCE_NS 400000000ull
#define TURN_NS    1000000u
#define PING       "*1\r\n$4\r\nPING\r\n"

static unsigned broken, unwell; /* unwell: how often it became so */
static bool was_unwell;

static void on_broken(void *context, const char *why)
{
	(void)context;
	assert_string_equal(why, "the server did not answer for too long");
	broken++;
}

static void on_unwell(void *context, bool is_unwell)
{
	(void)context;
	unwell += is_unwell && !was_unwell;
	was_unwell = is_unwell;
}

static const struct server_events events = {.broken = on_broken, .unwell = on_unwell};

static uint64_t now_ns(void)
{
	return hf_env_now_ns(hf_env_host());
}

static struct hf_loop *loop;
static struct proxy_server *server;
static struct sockaddr_un path;
static char directory[64];
static int listener;

static void open_server(void)
{
	struct hf_error error = {0};

	broken = unwell = 0;
	was_unwell = false;
	snprintf(directory, sizeof(directory), "/tmp/holdfast-server-XXXXXX");
	assert_non_null(mkdtemp(directory));
	path.sun_family = AF_UNIX;
	snprintf(path.sun_path, sizeof(path.sun_path), "%.60s/server", directory);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&path, sizeof(path)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	assert_int_equal(proxy_server_open(
				 loop, path.sun_path, SILENCE_NS, &proxy_redis.replies, &events, NULL, &server, &error),
		0);
}

static void close_server(void)
{
	proxy_server_close(server);
	hf_loop_destroy(loop);
	close(listener);
	unlink(path.sun_path);
	rmdir(directory);
}

/* Without a turn of the loop, for longer than the server may be silent. */
static void stand_still(void)
{
	for (uint64_t until = now_ns() + 2 * SILENCE_NS; now_ns() < until;)
		sched_yield();
}

/* The host was suspended: the server had no time to answer either. */
static void time_in_which_the_process_stood_still_does_not_count(void **state)
{
	(void)state;
	open_server();
	proxy_server_ask(server, PING, sizeof(PING) - 1, ENTRY_DROP, 0, NULL);
	for (unsigned i = 0; i < 3; i++) {
		stand_still();
		for (unsigned n = 0; n < 5; n++)
			(void)hf_loop_turn(loop, 0);
		assert_int_equal(broken, 0);
	}
	assert_int_equal(unwell, 0);
	for (uint64_t until = now_ns() + 50 * SILENCE_NS; now_ns() < until && broken == 0;)
		(void)hf_loop_turn(loop, TURN_NS);
	assert_int_equal(broken, 1);
	assert_int_equal(unwell, 1);
	close_server();
}

/* Accepts what waits, and answers on all connections but the first one. */
static void answer_on_others(int connections[2])
{
	char question[64];
	ssize_t n;

	for (unsigned i = 0; i < 2; i++)
		if (connections[i] < 0)
			connections[i] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	if (connections[1] < 0)
		return;
	n = read(connections[1], question, sizeof(question));
	if (n > 0)
		assert_int_equal(write(connections[1], "+PONG\r\n", 7), 7);
}

/* It works at a command that takes longer than it may be silent. */
static void a_server_that_answers_elsewhere_is_not_given_up(void **state)
{
	int connections[2] = {-1, -1};
	uint64_t until;

	(void)state;
	open_server();
	assert_int_equal(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
	proxy_server_ask(server, PING, sizeof(PING) - 1, ENTRY_DROP, 0, NULL);
	for (until = now_ns() + 5 * SILENCE_NS; now_ns() < until;) {
		(void)hf_loop_turn(loop, TURN_NS);
		answer_on_others(connections);
		assert_int_equal(broken, 0);
	}
	assert_int_equal(unwell, 1);
	for (until = now_ns() + 50 * SILENCE_NS; now_ns() < until && broken == 0;) /* hung as well */
		(void)hf_loop_turn(loop, TURN_NS);
	assert_int_equal(broken, 1);
	close_server();
	close(connections[0]);
	close(connections[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_answers_elsewhere_is_not_given_up),
		cmocka_unit_test(time_in_which_the_process_stood_still_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
