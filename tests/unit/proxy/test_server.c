/* The connection of a proxy to its server: how long a silence lasts. */
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

static unsigned broken, unwell;

static void on_broken(void *context, const char *why)
{
	(void)context;
	assert_string_equal(why, "the server did not answer for too long");
	broken++;
}

static void on_unwell(void *context, bool is_unwell)
{
	(void)context;
	unwell += is_unwell;
}

static const struct server_events events = {.broken = on_broken, .unwell = on_unwell};

static uint64_t now_ns(void)
{
	return hf_env_now_ns(hf_env_host());
}

static void turn_for(struct hf_loop *loop, uint64_t ns)
{
	for (uint64_t until = now_ns() + ns; now_ns() < until && broken == 0;)
		(void)hf_loop_turn(loop, TURN_NS);
}

/* The host was suspended: the server had no time to answer either. */
static void time_in_which_the_process_stood_still_does_not_count(void **state)
{
	struct sockaddr_un path = {.sun_family = AF_UNIX};
	char directory[] = "/tmp/holdfast-server-XXXXXX";
	struct proxy_server *server;
	struct hf_error error = {0};
	struct hf_loop *loop;
	int listener;

	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(path.sun_path, sizeof(path.sun_path), "%s/server", directory);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&path, sizeof(path)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(hf_loop_create(hf_env_host(), &loop), 0);
	assert_int_equal(proxy_server_open(
				 loop, path.sun_path, SILENCE_NS, &proxy_redis.replies, &events, NULL, &server, &error),
		0);
	proxy_server_ask(server, "*1\r\n$4\r\nPING\r\n", 14, ENTRY_DROP, 0, NULL);
	for (unsigned i = 0; i < 3; i++) {
		usleep(2 * SILENCE_NS / 1000);
		for (unsigned n = 0; n < 5; n++)
			(void)hf_loop_turn(loop, 0);
		assert_int_equal(broken, 0);
	}
	assert_int_equal(unwell, 1);
	turn_for(loop, 50 * SILENCE_NS);
	assert_int_equal(broken, 1);
	proxy_server_close(server);
	hf_loop_destroy(loop);
	close(listener);
	unlink(path.sun_path);
	rmdir(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_in_which_the_process_stood_still_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
