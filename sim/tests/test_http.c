/* The HTTP server and its clients, over streams that move bytes in pieces of any size, and in virtual time. */
#include "sim/tests/fixture.h"

#include <errno.h>
#include <stdio.h>

#include "net/http.h"

#define STEP_NS      (100 * NS_US)
#define STEPS_MAX    50000u
#define ANSWER_BYTES 65536u
#define LONG_BYTES   20000u

struct stand {
	struct fixture f;
	struct hf_loop *loop;
	struct http_server *server;
	unsigned served;
	char text[ANSWER_BYTES]; /* what a client has read */
	size_t bytes;
};

static void hello(const struct http_request *request, struct http_answer *answer, void *context)
{
	struct stand *s = context;

	assert_string_equal(request->path, "/hello");
	answer->body = strdup("hello\n");
	s->served++;
}

static void long_page(const struct http_request *request, struct http_answer *answer, void *context)
{
	(void)request, (void)context;
	answer->type = "text/html; charset=utf-8";
	answer->body = malloc(LONG_BYTES + 1);
	assert_non_null(answer->body);
	memset(answer->body, 'x', LONG_BYTES);
	answer->body[LONG_BYTES] = '\0';
}

static void no_memory(const struct http_request *request, struct http_answer *answer, void *context)
{
	(void)request, (void)answer, (void)context;
}

static void stand_open(struct stand *s)
{
	struct hf_addr address = fixture_addr("10.0.0.1:80");
	struct hf_error error = {0};

	*s = (struct stand){0};
	fixture_open(&s->f, 11, NULL, NULL);
	assert_int_equal(hf_loop_create(fixture_env(&s->f, 0), &s->loop), 0);
	if (http_open(s->loop, &address, &s->server, &error) != 0)
		fail_msg("%s", error.text);
	assert_int_equal(http_route(s->server, "/hello", hello, s), 0);
	assert_int_equal(http_route(s->server, "/long", long_page, s), 0);
	assert_int_equal(http_route(s->server, "/none", no_memory, s), 0);
	assert_int_equal(http_route(s->server, "/hello", hello, s), -EEXIST);
}

static void stand_close(struct stand *s)
{
	http_close(s->server);
	hf_loop_destroy(s->loop);
	fixture_close(&s->f);
}

/* ---- a client ---- */

static struct hf_io *dial(struct stand *s)
{
	struct hf_addr here = fixture_addr("10.0.0.2"), there = fixture_addr("10.0.0.1:80");
	struct hf_io *io;

	assert_int_equal(hf_stream_connect(fixture_env(&s->f, 1), &here, &there, &io, NULL), 0);
	s->bytes = 0;
	s->text[0] = '\0';
	return io;
}

static void say(struct stand *s, struct hf_io *io, const char *text)
{
	size_t bytes = strlen(text), done = 0;

	for (unsigned i = 0; i < STEPS_MAX && done < bytes; i++) {
		ssize_t n = hf_stream_write(io, text + done, bytes - done);

		done += n > 0 ? (size_t)n : 0;
		fixture_run(&s->f, STEP_NS);
	}
	assert_int_equal(done, bytes);
}

/* What has come; false: the server closed. */
static bool hear(struct stand *s, struct hf_io *io)
{
	ssize_t n = hf_stream_read(io, s->text + s->bytes, ANSWER_BYTES - 1 - s->bytes);

	if (n > 0)
		s->bytes += (size_t)n;
	s->text[s->bytes] = '\0';
	return n > 0 || n == -EAGAIN || n == -ENOTCONN;
}

static void until_closed(struct stand *s, struct hf_io *io)
{
	for (unsigned i = 0; i < STEPS_MAX; i++) {
		if (!hear(s, io))
			return;
		fixture_run(&s->f, STEP_NS);
	}
	fail_msg("the connection is still open after: %s", s->text);
}

static unsigned count(const char *text, const char *words)
{
	unsigned n = 0;

	for (; (text = strstr(text, words)) != NULL; text++)
		n++;
	return n;
}

static void until_answers(struct stand *s, struct hf_io *io, unsigned n, const char *end)
{
	for (unsigned i = 0; i < STEPS_MAX && count(s->text, end) < n; i++) {
		assert_true(hear(s, io));
		fixture_run(&s->f, STEP_NS);
	}
	assert_int_equal(count(s->text, end), n);
}

static void has(const struct stand *s, const char *words)
{
	if (strstr(s->text, words) == NULL)
		fail_msg("there is no \"%s\" in: %s", words, s->text);
}

/* ---- answers ---- */

static void a_page_is_served_and_the_connection_kept(void **state)
{
	struct stand s;
	struct hf_io *io;

	(void)state;
	stand_open(&s);
	io = dial(&s);
	say(&s, io, "GET /hello?a=b HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n");
	until_answers(&s, io, 1, "hello\n");
	has(&s, "HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 ");
	has(&s, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 6\r\nConnection: "
		"keep-alive\r\n\r\nhello\n");
	say(&s, io, "GET http://a/hello HTTP/1.1\r\nHost: a\r\n\r\n");
	until_answers(&s, io, 2, "hello\n");
	assert_int_equal(s.served, 2);
	hf_io_close(io);
	stand_close(&s);
}

static void requests_that_come_together_are_answered_in_order(void **state)
{
	struct stand s;
	struct hf_io *io;

	(void)state;
	stand_open(&s);
	io = dial(&s);
	say(&s, io,
		"GET /hello HTTP/1.1\r\n\r\nGET /lost HTTP/1.1\r\n\r\nHEAD /hello HTTP/1.1\r\n\r\n"
		"GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n");
	until_closed(&s, io);
	assert_int_equal(count(s.text, "HTTP/1.1 200 OK"), 3);
	assert_int_equal(count(s.text, "\r\n\r\nhello\n"), 2); /* none to HEAD */
	assert_true(strstr(s.text, "404 Not Found") > strstr(s.text, "200 OK"));
	has(&s, "Connection: close\r\n\r\nhello\n");
	hf_io_close(io);
	stand_close(&s);
}

static void an_answer_longer_than_the_window_arrives_whole(void **state)
{
	struct stand s;
	struct hf_io *io;

	(void)state;
	stand_open(&s);
	io = dial(&s);
	say(&s, io, "GET /long HTTP/1.0\r\n\r\n");
	until_closed(&s, io); /* HTTP/1.0 keeps no connection unasked */
	has(&s, "Content-Length: 20000\r\nConnection: close\r\n\r\nxxx");
	assert_int_equal(strlen(strstr(s.text, "\r\n\r\n") + 4), LONG_BYTES);
	hf_io_close(io);
	stand_close(&s);
}

static void refused(struct stand *s, const char *request, const char *status, const char *sentence)
{
	struct hf_io *io = dial(s);

	say(s, io, request);
	until_answers(s, io, 1, sentence);
	assert_int_equal(strncmp(s->text, "HTTP/1.1 ", 9), 0);
	assert_int_equal(strncmp(s->text + 9, status, strlen(status)), 0);
	has(s, "Connection: close\r\n");
	hf_io_close(io);
}

static void what_is_refused_gets_its_status_and_a_sentence(void **state)
{
	static char many[HTTP_HEAD_BYTES_MAX + 64];
	struct stand s;

	(void)state;
	stand_open(&s);
	refused(&s, "POST /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 ", "GET and HEAD only.\n");
	has(&s, "Allow: GET, HEAD\r\n");
	refused(&s, "GET /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "400 ", "without a body.\n");
	refused(&s, "GET /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "400 ", "without a body.\n");
	refused(&s, "HFC1 what is this\r\n\r\n", "400 ", "not a request");
	refused(&s, "GET /hello HTTP/3.0\r\n\r\n", "505 ", "HTTP/1.1.\n");
	snprintf(many, sizeof(many), "GET /hello HTTP/1.1\r\nCookie: ");
	memset(many + strlen(many), 'x', sizeof(many) - 1 - strlen(many));
	refused(&s, many, "431 ", "more than 8192 bytes");
	assert_int_equal(s.served, 0);
	stand_close(&s);
}

static void a_path_without_a_page_and_a_page_without_memory_are_told(void **state)
{
	struct stand s;
	struct hf_io *io;

	(void)state;
	stand_open(&s);
	io = dial(&s);
	say(&s, io, "GET /nowhere HTTP/1.1\r\n\r\n");
	until_answers(&s, io, 1, "nothing at this path");
	has(&s, "HTTP/1.1 404 Not Found\r\n");
	say(&s, io, "GET /none HTTP/1.1\r\n\r\n"); /* the connection was kept */
	until_answers(&s, io, 1, "no memory");
	has(&s, "HTTP/1.1 500 Internal Server Error\r\n");
	hf_io_close(io);
	stand_close(&s);
}

/* ---- time ---- */

static void a_request_that_is_not_whole_in_time_is_told(void **state)
{
	struct stand s;
	struct hf_io *io;

	(void)state;
	stand_open(&s);
	io = dial(&s);
	for (const char *at = "GET /hell"; *at != '\0'; at++) { /* a byte a second does not keep it alive */
		char byte[2] = {*at, '\0'};

		say(&s, io, byte);
		fixture_run(&s.f, NS_S);
		assert_true(hear(&s, io));
	}
	assert_int_equal(s.bytes, 0);
	fixture_run(&s.f, 3 * NS_S);
	until_answers(&s, io, 1, "408 Request Timeout");
	has(&s, "send it again");
	fixture_run(&s.f, 11 * NS_S);
	until_closed(&s, io);
	hf_io_close(io);
	stand_close(&s);
}

static void an_idle_connection_is_closed_after_a_minute(void **state)
{
	struct stand s;
	struct hf_io *io;

	(void)state;
	stand_open(&s);
	io = dial(&s);
	say(&s, io, "GET /hello HTTP/1.1\r\n\r\n");
	until_answers(&s, io, 1, "hello\n");
	fixture_run(&s.f, 55 * NS_S);
	assert_true(hear(&s, io));
	fixture_run(&s.f, 10 * NS_S);
	assert_false(hear(&s, io));
	assert_int_equal(count(s.text, "HTTP/1.1"), 1); /* and nothing is said */
	hf_io_close(io);
	stand_close(&s);
}

static unsigned streams_of_server(const struct stand *s)
{
	unsigned n = 0;

	list_for_each (at, &s->f.ports[0]->streams)
		n++;
	return n;
}

/* Half-open ones, for an hour: they take their places for seconds, and others are served meanwhile. */
static void a_crowd_costs_a_bounded_number_of_connections(void **state)
{
	struct hf_io *ios[2 * HTTP_CONNECTIONS_MAX], *io;
	struct stand s;
	uint64_t end_ns;
	unsigned most = 0;

	(void)state;
	stand_open(&s);
	end_ns = s.f.world.now_ns + 3600 * NS_S;
	while (s.f.world.now_ns < end_ns) {
		for (unsigned i = 0; i < 2 * HTTP_CONNECTIONS_MAX; i++) {
			ios[i] = dial(&s);
			fixture_run(&s.f, 2 * STEP_NS);
			(void)hf_stream_write(ios[i], "GET /hel", i % 8);
			most = streams_of_server(&s) > most ? streams_of_server(&s) : most;
		}
		io = dial(&s);
		say(&s, io, "GET /hello HTTP/1.1\r\n\r\n");
		until_answers(&s, io, 1, "hello\n");
		hf_io_close(io);
		fixture_run(&s.f, 30 * NS_S);
		assert_int_equal(streams_of_server(&s), 0);
		for (unsigned i = 0; i < 2 * HTTP_CONNECTIONS_MAX; i++)
			hf_io_close(ios[i]);
	}
	assert_true(most >= HTTP_CONNECTIONS_MAX && most <= HTTP_CONNECTIONS_MAX + 17); /* and the backlog */
	stand_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_is_served_and_the_connection_kept),
		cmocka_unit_test(requests_that_come_together_are_answered_in_order),
		cmocka_unit_test(an_answer_longer_than_the_window_arrives_whole),
		cmocka_unit_test(what_is_refused_gets_its_status_and_a_sentence),
		cmocka_unit_test(a_path_without_a_page_and_a_page_without_memory_are_told),
		cmocka_unit_test(a_request_that_is_not_whole_in_time_is_told),
		cmocka_unit_test(an_idle_connection_is_closed_after_a_minute),
		cmocka_unit_test(a_crowd_costs_a_bounded_number_of_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
