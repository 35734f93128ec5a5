/* Clients of a store that send more than they take, or stop in the middle: what they cost is bounded, and they are
 * closed or wait without harm to others. */
#include "sim/tests/fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>

#include <holdfast/kv.h>

#include "sim/disk.h"
#include "sim/endpoint.h"

#define STEP_NS       (100 * NS_US)
#define STEPS_MAX     200000u
#define SECOND_NS     1000000000ull
#define SYNC_NS       (2 * SECOND_NS)
#define STUCK_NS      (61 * SECOND_NS) /* CLIENT_STUCK_NS, and a second */
#define VALUE_BYTES   (1u << 20)
#define COST_MAX      (8u << 20) /* buffers of a connection, a reply more than they take, and the simulated stream */
#define FLOOD_BYTES   (64u << 20)
#define REQUEST_BYTES 65536u

struct stand {
	struct fixture f;
	struct hf_loop *loop;
	struct hf_node *node;
	struct hf_kv *kv;
	struct hf_io *io; /* the client's */
	size_t got;
	char first[96]; /* of what it read */
	bool ended;
	size_t before;
};

static size_t memory_used(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static struct hf_io *connect_client(struct stand *s)
{
	struct hf_addr here = fixture_addr("10.0.0.2:0"), there = fixture_addr("10.0.0.1:7600");
	struct hf_io *io;

	assert_int_equal(hf_stream_connect(fixture_env(&s->f, 1), &here, &there, &io, NULL), 0);
	return io;
}

static int stand_open(void **state)
{
	struct stand *s = calloc(1, sizeof(*s));
	struct hf_node_config node = {.rail_count = 1};
	struct hf_kv_config kv = {.member_count = 1, .min_members = 1, .store_mb = 32, .missed_mb = 1};
	struct hf_kv_status status = {0};
	struct hf_error error = {0};
	struct hf_addr address = fixture_addr("10.0.0.1:0");

	*state = s;
	if (s == NULL)
		return -1;
	fixture_open(&s->f, 3, NULL, NULL);
	snprintf(node.name, sizeof(node.name), "a");
	snprintf(node.secret, sizeof(node.secret), "%s", ENDPOINT_SECRET);
	endpoint_set_rail(&node, 0, &address, 7000);
	snprintf(kv.cluster, sizeof(kv.cluster), "sim");
	snprintf(kv.log, sizeof(kv.log), "kv");
	snprintf(kv.members[0].name, sizeof(kv.members[0].name), "a");
	kv.members[0].control[0] = fixture_addr("10.0.0.1:7000");
	kv.members[0].control_count = 1;
	kv.listen = fixture_addr("10.0.0.1:7600");
	assert_int_equal(hf_loop_create(fixture_env(&s->f, 0), &s->loop), 0);
	if (hf_node_open(s->loop, &node, NULL, NULL, &s->node, &error) != 0 ||
		hf_kv_open(s->node, &kv, &s->kv, &error) != 0)
		fail_msg("%s", error.text);
	for (unsigned i = 0; i < STEPS_MAX && !status.serving; i++) {
		fixture_run(&s->f, STEP_NS);
		hf_kv_status(s->kv, &status);
	}
	assert_true(status.serving);
	s->io = connect_client(s);
	return 0;
}

static int stand_close(void **state)
{
	struct stand *s = *state;

	hf_io_close(s->io);
	hf_kv_close(s->kv);
	hf_node_close(s->node);
	hf_loop_destroy(s->loop);
	fixture_close(&s->f);
	free(s);
	return 0;
}

/* Reads what is there. */
static void take(struct stand *s)
{
	static char in[1u << 20];
	ssize_t n = 1;

	while (n > 0) {
		n = hf_stream_read(s->io, in, sizeof(in));
		for (ssize_t i = 0; i < n && s->got + (size_t)i < sizeof(s->first) - 1; i++)
			s->first[s->got + (size_t)i] = in[i];
		s->got += n > 0 ? (size_t)n : 0;
	}
	s->ended |= n == 0 || (n < 0 && n != -EAGAIN && n != -ENOTCONN);
}

/* As much of it as goes within the time, of which the client takes replies meanwhile. Returns how much went. */
static size_t send_for(struct stand *s, const char *data, size_t bytes, uint64_t ns, bool takes)
{
	uint64_t until_ns = s->f.world.now_ns + ns;
	size_t sent = 0;

	while (sent < bytes && s->f.world.now_ns < until_ns) {
		ssize_t n = hf_stream_write(s->io, data + sent, bytes - sent);

		sent += n > 0 ? (size_t)n : 0;
		if (n <= 0)
			fixture_run(&s->f, STEP_NS);
		if (takes)
			take(s);
	}
	return sent;
}

static void send_all(struct stand *s, const char *text)
{
	assert_int_equal(send_for(s, text, strlen(text), SECOND_NS, true), strlen(text));
}

static void wait_for(struct stand *s, size_t bytes)
{
	for (unsigned i = 0; i < STEPS_MAX && s->got < bytes; i++) {
		fixture_run(&s->f, STEP_NS);
		take(s);
	}
	assert_int_equal(s->got, bytes);
	s->got = 0;
}

static void begin(struct stand *s)
{
	s->before = memory_used();
}

static void costs_little(const struct stand *s)
{
	size_t now = memory_used();

	if (now > s->before + COST_MAX)
		fail_msg("%zu bytes more", now - s->before);
}

/* A record of VALUE_BYTES. */
static void set_large(struct stand *s)
{
	char *value = malloc(VALUE_BYTES + 64);
	int head = snprintf(value, 64, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%u\r\n", VALUE_BYTES);

	memset(value + head, 'x', VALUE_BYTES);
	memcpy(value + head + VALUE_BYTES, "\r\n", 2);
	assert_true(send_for(s, value, (size_t)head + VALUE_BYTES + 2, SECOND_NS, true) > VALUE_BYTES);
	free(value);
	wait_for(s, strlen("+OK\r\n"));
}

/* The store goes on for another client. */
static void others_are_served(struct stand *s)
{
	struct hf_io *stuck = s->io;

	s->io = connect_client(s);
	s->got = 0;
	s->ended = false;
	send_all(s, "PING\r\n");
	wait_for(s, strlen("+PONG\r\n"));
	hf_io_close(s->io);
	s->io = stuck;
}

static void is_closed_in_the_end(struct stand *s)
{
	others_are_served(s);
	costs_little(s);
	fixture_run(&s->f, STUCK_NS);
	take(s); /* what was on the way */
	assert_true(s->ended);
}

static void reply_of_many_values_is_not_made_ahead(void **state)
{
	struct stand *s = *state;

	set_large(s);
	begin(s);
	send_all(s, "MGET");
	for (unsigned i = 0; i < 500; i++)
		send_for(s, " k", 2, SECOND_NS, false);
	send_for(s, "\r\n", 2, SECOND_NS, false);
	fixture_run(&s->f, SECOND_NS);
	costs_little(s);
	is_closed_in_the_end(s);
}

static void slow_disk(struct stand *s)
{
	s->f.hosts[0].disk->call_ns_min = s->f.hosts[0].disk->call_ns_max = SYNC_NS;
}

/* They waited for the write before them. */
static void pipelined_values_are_not_read_ahead(void **state)
{
	struct stand *s = *state;

	set_large(s);
	slow_disk(s);
	begin(s);
	send_all(s, "SET other v\r\n");
	for (unsigned i = 0; i < 500; i++)
		send_for(s, "GET k\r\n", 7, SYNC_NS / 4, false);
	fixture_run(&s->f, 2 * SYNC_NS);
	costs_little(s);
	is_closed_in_the_end(s);
}

static void slow_reader_gets_every_value(void **state)
{
	enum { VALUES = 40 };
	struct stand *s = *state;
	size_t each = VALUE_BYTES + strlen("$1048576\r\n\r\n");

	set_large(s);
	begin(s);
	for (unsigned i = 0; i < VALUES; i++)
		send_for(s, "GET k\r\n", 7, SECOND_NS, false);
	fixture_run(&s->f, 6 * SECOND_NS); /* longer than an operation may wait */
	costs_little(s);
	wait_for(s, VALUES * each);
	assert_false(s->ended);
}

static void repeat(struct stand *s, const char *request, size_t bytes, uint64_t ns)
{
	char *data = malloc(REQUEST_BYTES);
	size_t n = 0, length = strlen(request);

	for (; n + length <= REQUEST_BYTES; n += length)
		memcpy(data + n, request, length);
	for (size_t sent = 0; sent < bytes; sent += n)
		if (send_for(s, data, n, ns, false) < n)
			break;
	free(data);
}

/* Replies that need no record wait behind a write. */
static void replies_behind_a_write_are_bounded(void **state)
{
	struct stand *s = *state;
	char echo[2100];

	memset(echo, 'x', sizeof(echo));
	memcpy(echo, "ECHO ", 5);
	memcpy(echo + sizeof(echo) - 3, "\r\n", 3);
	slow_disk(s);
	begin(s);
	send_all(s, "SET k v\r\n");
	repeat(s, echo, FLOOD_BYTES, SYNC_NS / 4);
	costs_little(s);
}

/* So does a request about all records, and nothing is read behind it. */
static void nothing_is_read_behind_a_request_that_waits(void **state)
{
	struct stand *s = *state;

	slow_disk(s);
	begin(s);
	send_all(s, "SET k v\r\nDBSIZE\r\n");
	repeat(s, "PING\r\n", FLOOD_BYTES, SYNC_NS / 4);
	costs_little(s);
	s->f.hosts[0].disk->call_ns_min = s->f.hosts[0].disk->call_ns_max = NS_US;
	fixture_run(&s->f, 2 * SYNC_NS);
	take(s);
	assert_int_equal(strncmp(s->first, "+OK\r\n:1\r\n+PONG\r\n", 16), 0);
}

/* It takes several turns: the index has 2^18 entries. */
static void requests_behind_a_digest_are_answered_behind_it(void **state)
{
	struct stand *s = *state;
	char expected[96];
	int bytes;

	send_all(s, "SET k v\r\nHFDIGEST\r\nPING\r\nHFDIGEST\r\n");
	fixture_run(&s->f, SECOND_NS);
	take(s);
	bytes = snprintf(expected, sizeof(expected), "+OK\r\n$16\r\n%016" PRIx64 "\r\n+PONG\r\n$16\r\n%016" PRIx64,
		hf_kv_digest(s->kv), hf_kv_digest(s->kv));
	assert_int_equal(s->got, bytes + 2);
	s->first[bytes] = '\0';
	assert_string_equal(s->first, expected);
}

static void values_that_wait_are_bounded(void **state)
{
	struct stand *s = *state;
	char *value = malloc(VALUE_BYTES + 64);
	int head = snprintf(value, 64, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%u\r\n", VALUE_BYTES / 2);

	memset(value + head, 'x', VALUE_BYTES / 2);
	memcpy(value + head + VALUE_BYTES / 2, "\r\n", 2);
	slow_disk(s);
	begin(s);
	for (unsigned i = 0; i < 100; i++)
		if (send_for(s, value, (size_t)head + VALUE_BYTES / 2 + 2, SYNC_NS / 4, false) == 0)
			break;
	free(value);
	/* each lies in the request, in the INV and in the log */
	if (memory_used() > s->before + 4 * COST_MAX)
		fail_msg("%zu bytes more", memory_used() - s->before);
}

static void half_a_request_costs_what_was_sent(void **state)
{
	struct stand *s = *state;

	begin(s);
	send_all(s, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nhalf of it");
	fixture_run(&s->f, STUCK_NS);
	take(s);
	assert_false(s->ended);
	assert_int_equal(s->got, 0);
	costs_little(s);
	others_are_served(s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, stand_open, stand_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reply_of_many_values_is_not_made_ahead),
		TEST(pipelined_values_are_not_read_ahead),
		TEST(slow_reader_gets_every_value),
		TEST(replies_behind_a_write_are_bounded),
		TEST(nothing_is_read_behind_a_request_that_waits),
		TEST(requests_behind_a_digest_are_answered_behind_it),
		TEST(values_that_wait_are_bounded),
		TEST(half_a_request_costs_what_was_sent),
	};

	return cmocka_run_group_tests_name("kv clients", tests, NULL, NULL);
}
