/* A proxy that leads a log of one member, before a memcached or a Redis that the test plays. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "proxy/client.h"
#include "proxy/snapshot.h"

#define LIMIT_NS    20000000000ull
#define TURN_NS     100000
#define TURN_BYTES  (256u << 10)
#define SILENT_NS   200000000ull
#define STACK_BYTES (512u << 10)
#define REFUSED     20000u
#define MANY        300000u
#define LARGE_BYTES (4u << 20)
#define KEY_BYTES   ((960u << 10) - 500)

struct bed {
	struct hf_loop *loop;
	struct hf_node *node;
	struct proxy *proxy;
	struct hf_addr listen;
	bool redis, ready, silent; /* silent: the server does not answer */
	bool old;                  /* the server is a Redis 6 */
	char why[128];             /* the proxy failed */
	unsigned restored;         /* keys */
	struct hf_smr_member member;
	int listener, server, client;
	char directory[64];
	struct sockaddr_un path;
	struct resp_out asked, wanted; /* what the server was told so far; of that, what it has not answered */
	struct resp_out replies;       /* to the client, */
	bool ended;                    /* which is all that it gets */
};

static struct bed bed;
static unsigned generation;

static void on_ready(void *context, const struct hf_addr *listen)
{
	(void)context;
	bed.listen = *listen;
	bed.ready = true;
}

static void on_failed(void *context, const char *why)
{
	(void)context;
	snprintf(bed.why, sizeof(bed.why), "%s", why);
}

static struct hf_addr address(uint16_t port)
{
	struct hf_addr addr;
	char text[HF_ADDR_TEXT];

	snprintf(text, sizeof(text), "127.%u.%u.%u", 32 + ((unsigned)getpid() >> 8) % 64, (unsigned)getpid() & 0xff,
		1 + generation);
	assert_int_equal(hf_addr_parse(text, &addr), 0);
	hf_addr_set_port(&addr, port);
	return addr;
}

static void open_server(void)
{
	bed.path.sun_family = AF_UNIX;
	snprintf(bed.directory, sizeof(bed.directory), "/tmp/holdfast-proxy-XXXXXX");
	assert_non_null(mkdtemp(bed.directory));
	snprintf(bed.path.sun_path, sizeof(bed.path.sun_path), "%.60s/server", bed.directory);
	bed.listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(bed.listener, (struct sockaddr *)&bed.path, sizeof(bed.path)), 0);
	assert_int_equal(listen(bed.listener, 1), 0);
}

/* Each whole request is answered, as a Redis whose keys have no deadlines does. */
static void answer_redis(void)
{
	static const char table[] = "*3\r\n$3\r\nset\r\n:-3\r\n*1\r\n+write\r\n"
				    "*3\r\n$3\r\ndel\r\n:-2\r\n*1\r\n+write\r\n"
				    "*3\r\n$6\r\nexpire\r\n:-3\r\n*1\r\n+write\r\n";
	static const char later[] = "*3\r\n$11\r\npexpiretime\r\n:2\r\n*1\r\n+readonly\r\n";
	struct resp_request request;
	struct resp_arg args[8];
	char commands[512];
	size_t used;

	snprintf(commands, sizeof(commands), "*%u\r\n%s%s", bed.old ? 3 : 4, table, bed.old ? "" : later);
	while (!bed.silent) {
		const char *reply = "+OK\r\n";

		resp_request_init(&request, args, 8, 1u << 20);
		if (resp_request_read(&request, bed.wanted.data, bed.wanted.bytes, &used) != RESP_WHOLE)
			return;
		if (proxy_command_word(bed.wanted.data, &args[0], "COMMAND"))
			reply = commands;
		if (proxy_command_word(bed.wanted.data, &args[0], "PEXPIRETIME"))
			reply = ":-1\r\n";
		if (proxy_command_word(bed.wanted.data, &args[0], "RESTORE") && bed.restored++ > 0 &&
			!proxy_command_word(bed.wanted.data, &args[request.arg_count - 1], "REPLACE"))
			reply = "-BUSYKEY Target key name already exists.\r\n";
		assert_true(write(bed.server, reply, strlen(reply)) == (ssize_t)strlen(reply));
		resp_out_drop(&bed.wanted, used);
	}
}

/* Likewise, as memcached does. */
static void answer_memcached(void)
{
	while (!bed.silent) {
		const char *text = (const char *)bed.wanted.data, *reply = "OK\r\n";
		const char *end = bed.wanted.bytes == 0 ? NULL : memchr(text, '\n', bed.wanted.bytes);
		size_t used = end == NULL ? 0 : (size_t)(end - text) + 1;
		unsigned bytes = 0;

		if (used == 0)
			return;
		if (strncmp(text, "version", 7) == 0)
			reply = "VERSION 1.6\r\n";
		if (sscanf(text, "set %*s %*s %*s %u", &bytes) == 1) {
			used += bytes + 2;
			reply = "STORED\r\n";
		}
		if (used > bed.wanted.bytes)
			return;
		assert_true(write(bed.server, reply, strlen(reply)) == (ssize_t)strlen(reply));
		resp_out_drop(&bed.wanted, used);
	}
}

static void turn(void)
{
	static uint8_t bytes[TURN_BYTES];
	ssize_t n;

	(void)hf_loop_turn(bed.loop, TURN_NS);
	n = recv(bed.server, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (n > 0) {
		resp_out_raw(&bed.asked, bytes, (size_t)n);
		resp_out_raw(&bed.wanted, bytes, (size_t)n);
	}
	if (bed.redis)
		answer_redis();
	else
		answer_memcached();
	n = bed.client < 0 ? -1 : recv(bed.client, bytes, sizeof(bytes), MSG_DONTWAIT);
	bed.ended |= n == 0;
	if (n > 0)
		resp_out_raw(&bed.replies, bytes, (size_t)n);
}

static void until(bool (*done)(void))
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + LIMIT_NS;

	while (!done()) {
		assert_true(hf_env_now_ns(hf_env_host()) < end_ns);
		turn();
	}
}

static bool leads(void)
{
	assert_string_equal(bed.why, "");
	return bed.ready && hf_smr_is_leader(proxy_smr(bed.proxy));
}

static void start_bed(bool redis, bool old)
{
	static const struct proxy_events events = {.ready = on_ready, .failed = on_failed};
	static const struct hf_node_events none = {0};
	struct hf_node_config node = {.name = "n0", .rail_count = 1, .policy = HF_POLICY_VARUNA};
	struct proxy_config config = {.memcached = !redis};
	struct hf_error error = {0};

	bed = (struct bed){.redis = redis, .old = old, .client = -1, .member = {.address_count = 1}};
	generation++;
	assert_int_equal(hf_loop_create(hf_env_host(), &bed.loop), 0);
	snprintf(node.fabric, sizeof(node.fabric), "test-proxy-%u-%u", (unsigned)getpid(), generation);
	snprintf(node.rails[0].name, HF_NAME_BYTES, "r0");
	snprintf(node.rails[0].kind, HF_NAME_BYTES, "shm");
	node.rails[0].address = node.rails[0].control = address(18536);
	bed.member.addresses[0] = node.rails[0].control;
	assert_int_equal(hf_node_open(bed.loop, &node, &none, NULL, &bed.node, &error), 0);
	open_server();
	config.smr = (struct hf_smr_config){
		.cluster = "one", .members = &bed.member, .member_count = 1, .slots = 1024, .slot_bytes = 16384};
	config.socket = bed.path.sun_path;
	config.listen = address(0);
	assert_int_equal(proxy_open(bed.node, &config, &events, NULL, &bed.proxy, &error), 0);
	bed.server = accept(bed.listener, NULL, NULL);
	assert_true(bed.server >= 0);
}

static void open_bed_of(bool redis)
{
	start_bed(redis, false);
	until(leads);
}

static void open_bed(void)
{
	open_bed_of(false);
}

static void connect_client(void)
{
	bed.client = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(bed.client, &bed.listen.sa, sizeof(bed.listen.in)), 0);
}

static void close_bed(void)
{
	proxy_close(bed.proxy);
	hf_node_close(bed.node);
	hf_loop_destroy(bed.loop);
	close(bed.listener);
	close(bed.server);
	if (bed.client >= 0)
		close(bed.client);
	resp_out_free(&bed.asked);
	resp_out_free(&bed.wanted);
	resp_out_free(&bed.replies);
	(void)unlink(bed.path.sun_path);
	(void)rmdir(bed.directory);
}

static void send_text(const char *text)
{
	assert_true(send(bed.client, text, strlen(text), 0) == (ssize_t)strlen(text));
}

static unsigned count(const struct resp_out *in, const char *text)
{
	unsigned n = 0;

	for (size_t i = 0; i + strlen(text) <= in->bytes; i++)
		n += memcmp(in->data + i, text, strlen(text)) == 0;
	return n;
}

/* Where the last of these texts begins; SIZE_MAX: there is none. */
static size_t place(const struct resp_out *in, const char *text)
{
	for (size_t i = in->bytes; i-- > 0;)
		if (in->bytes - i >= strlen(text) && memcmp(in->data + i, text, strlen(text)) == 0)
			return i;
	return SIZE_MAX;
}

static bool is_stored(void)
{
	return count(&bed.replies, "STORED\r\n") == 1;
}

static bool is_held(void)
{
	return bed.proxy->held.bytes > 0;
}

static bool is_flushed(void)
{
	return place(&bed.asked, "flush_all") != SIZE_MAX;
}

/* Else the one who takes the snapshot gets keys of two states, and the entries come after the restored ones. */
static void a_restore_ends_the_snapshot_that_is_given(void **state)
{
	uint8_t bytes[64];
	void *snapshot;

	(void)state;
	open_bed();
	connect_client();
	send_text("set a 0 0 1\r\nx\r\n");
	until(is_stored);
	assert_int_equal(proxy_snapshot_open(bed.proxy, &snapshot), 0);
	send_text("set b 0 0 1\r\ny\r\n");
	until(is_held);
	assert_int_equal(count(&bed.asked, "set b"), 0);
	assert_int_equal(proxy_restore_open(bed.proxy), 0);
	assert_int_equal(proxy_snapshot_read(bed.proxy, snapshot, bytes, sizeof(bytes)), -ECANCELED);
	proxy_snapshot_close(bed.proxy, snapshot);
	until(is_flushed);
	assert_false(is_held());
	assert_int_equal(count(&bed.asked, "set b"), 1);
	assert_true(place(&bed.asked, "set b") < place(&bed.asked, "flush_all"));
	assert_int_equal(proxy_restore_close(bed.proxy, false), 0);
	close_bed();
}

static bool none_waits(void)
{
	return proxy_server_waiting(bed.proxy->server) == 0;
}

/* With the old deadline the key is never deleted once this member leads. */
static void a_deadline_asked_before_a_restore_changes_no_restored_key(void **state)
{
	static const uint8_t key[] = "k", value[] = "v";
	struct resp_out stream = {0};
	struct deadline *listed;

	(void)state;
	open_bed_of(true);
	bed.silent = true;
	proxy_server_ask_deadline(bed.proxy->server, key, 1);
	assert_int_equal(proxy_restore_open(bed.proxy), 0);
	proxy_stream_begin(&stream, ENTRY_OF_REDIS);
	proxy_stream_put(&stream,
		&(struct stream_key){
			.key = key, .key_bytes = 1, .value = value, .value_bytes = 1, .deadline_ms = INT64_MAX / 2});
	proxy_stream_end(&stream, 1);
	assert_int_equal(proxy_restore_write(bed.proxy, stream.data, stream.bytes), 0);
	bed.silent = false;
	until(none_waits);
	assert_int_equal(proxy_restore_close(bed.proxy, true), 0);
	listed = proxy_deadlines_get(&bed.proxy->deadlines, key, 1);
	assert_non_null(listed);
	assert_int_equal(listed->ms, INT64_MAX / 2);
	/* one that is asked behind the restored keys counts */
	proxy_server_ask_deadline(bed.proxy->server, key, 1);
	until(none_waits);
	assert_null(proxy_deadlines_get(&bed.proxy->deadlines, key, 1));
	resp_out_free(&stream);
	close_bed();
}

/* As one in which SCAN returned a key twice. */
static void a_snapshot_may_have_a_key_twice(void **state)
{
	static const struct stream_key key = {.key = (const uint8_t *)"k",
		.key_bytes = 1,
		.value = (const uint8_t *)"v",
		.value_bytes = 1,
		.deadline_ms = -1};
	struct resp_out stream = {0};

	(void)state;
	open_bed_of(true);
	assert_int_equal(proxy_restore_open(bed.proxy), 0);
	proxy_stream_begin(&stream, ENTRY_OF_REDIS);
	proxy_stream_put(&stream, &key);
	proxy_stream_put(&stream, &key);
	proxy_stream_end(&stream, 2);
	assert_int_equal(proxy_restore_write(bed.proxy, stream.data, stream.bytes), 0);
	until(none_waits);
	assert_int_equal(bed.restored, 2);
	assert_int_equal(proxy_restore_close(bed.proxy, true), 0);
	resp_out_free(&stream);
	close_bed();
}

static struct resp_out large;
static unsigned refusals;

static int restore_large(void)
{
	int rc = proxy_restore_write(bed.proxy, large.data, large.bytes);

	assert_true(rc == 0 || rc == -EAGAIN);
	refusals += rc == -EAGAIN;
	return rc;
}

static bool large_is_taken(void)
{
	return restore_large() == 0;
}

/* Without the bound the commands that wait for the server end this member, again after each restart. */
static void a_restore_of_large_values_waits_for_the_server(void **state)
{
	static uint8_t value[LARGE_BYTES];
	struct resp_out begin = {0};

	(void)state;
	open_bed_of(true);
	bed.silent = true;
	assert_int_equal(proxy_restore_open(bed.proxy), 0);
	proxy_stream_begin(&begin, ENTRY_OF_REDIS);
	assert_int_equal(proxy_restore_write(bed.proxy, begin.data, begin.bytes), 0);
	large = (struct resp_out){0};
	refusals = 0;
	proxy_stream_put(&large, &(struct stream_key){.key = (const uint8_t *)"k",
					 .key_bytes = 1,
					 .value = value,
					 .value_bytes = LARGE_BYTES,
					 .deadline_ms = -1});
	for (size_t queued = 0; refusals == 0; queued += LARGE_BYTES) {
		assert_true(queued < SERVER_QUEUE_BYTES);
		(void)restore_large();
	}
	until(large_is_taken);
	assert_int_equal(proxy_restore_close(bed.proxy, false), 0);
	resp_out_free(&begin);
	resp_out_free(&large);
	close_bed();
}

static void inject_entry(struct resp_out *entry)
{
	proxy_apply(bed.proxy, &(struct hf_smr_applied){.data = entry->data, .bytes = (uint32_t)entry->bytes});
}

static void put_record(struct resp_out *entry, const char *name, const uint8_t *key, size_t bytes)
{
	size_t record = proxy_entry_record(entry, ENTRY_DROP);

	resp_out_array(entry, 2);
	resp_out_text(entry, name);
	resp_out_bulk(entry, key, bytes);
	proxy_entry_key(entry, record, entry->bytes - 2 - bytes, bytes);
	proxy_entry_record_end(entry, record);
}

/* With the deadlines that are requested for their keys, they are more than may wait for the server. */
static void entries_that_waited_for_a_snapshot_do_not_overrun_the_server(void **state)
{
	static const uint8_t key[44];
	struct resp_out entry = {0};
	uint8_t bytes[64];
	void *snapshot, *second;

	(void)state;
	open_bed_of(true);
	proxy_entry_begin(&entry, ENTRY_OF_REDIS, ENTRY_WRITE, 0);
	while (entry.bytes < 60000)
		put_record(&entry, "PERSIST", key, sizeof(key));
	assert_int_equal(proxy_snapshot_open(bed.proxy, &snapshot), 0);
	while (bed.proxy->snapshot != NULL)
		inject_entry(&entry);
	assert_int_equal(proxy_snapshot_read(bed.proxy, snapshot, bytes, sizeof(bytes)), -ECANCELED);
	proxy_snapshot_close(bed.proxy, snapshot);
	assert_true(is_held());
	assert_true(proxy_server_unsent(bed.proxy->server) < SERVER_QUEUE_BYTES / 2);
	assert_int_equal(proxy_snapshot_open(bed.proxy, &second), -EBUSY);
	assert_int_equal(proxy_restore_open(bed.proxy), -EAGAIN);
	resp_out_free(&entry);
	close_bed();
}

static bool all_are_answered(void)
{
	return !is_held() && none_waits();
}

static void entries_that_waited_reach_the_server_in_order(void **state)
{
	static uint8_t key[1u << 19];
	struct resp_out entry = {0}, last = {0};
	void *snapshot;
	unsigned n = 0;

	(void)state;
	open_bed_of(true);
	proxy_entry_begin(&entry, ENTRY_OF_REDIS, ENTRY_WRITE, 0);
	put_record(&entry, "large", key, sizeof(key));
	proxy_entry_begin(&last, ENTRY_OF_REDIS, ENTRY_WRITE, 0);
	put_record(&last, "last", key, 1);
	assert_int_equal(proxy_snapshot_open(bed.proxy, &snapshot), 0);
	for (; bed.proxy->held.bytes <= SERVER_UNSENT_MOST; n++)
		inject_entry(&entry);
	proxy_snapshot_close(bed.proxy, snapshot);
	assert_true(is_held());
	inject_entry(&last);
	until(all_are_answered);
	assert_int_equal(count(&bed.asked, "large"), n);
	assert_true(place(&bed.asked, "large") < place(&bed.asked, "last"));
	resp_out_free(&entry);
	resp_out_free(&last);
	close_bed();
}

static bool key_is_proposed(void)
{
	return count(&bed.asked, "EVAL") > 0;
}

/* Else the log gets the same keys each millisecond, as long as the server is behind. */
static void due_keys_are_proposed_once_while_the_server_is_silent(void **state)
{
	uint64_t end_ns;

	(void)state;
	open_bed_of(true);
	bed.silent = true;
	proxy_set_deadline(bed.proxy, (const uint8_t *)"k", 1, 1);
	until(key_is_proposed);
	end_ns = hf_env_now_ns(hf_env_host()) + SILENT_NS;
	while (hf_env_now_ns(hf_env_host()) < end_ns)
		turn();
	assert_int_equal(count(&bed.asked, "EVAL"), 1);
	bed.silent = false;
	until(none_waits);
	assert_int_equal(bed.proxy->deadlines.count, 0);
	close_bed();
}

/* A key of an earlier version, which took its command. */
static void a_due_key_that_fits_in_no_entry_delays_no_other_key(void **state)
{
	size_t bytes;
	uint8_t *key;

	(void)state;
	open_bed_of(true);
	bytes = hf_smr_request_bytes_max(proxy_smr(bed.proxy)) - 150;
	key = calloc(1, bytes);
	assert_non_null(key);
	proxy_set_deadline(bed.proxy, key, bytes, 1);
	proxy_set_deadline(bed.proxy, (const uint8_t *)"k", 1, 2);
	until(key_is_proposed);
	until(none_waits);
	assert_int_equal(bed.proxy->deadlines.count, 1);
	free(key);
	close_bed();
}

static bool is_told(void)
{
	return count(&bed.replies, "\r\n") == 1;
}

/* The entry that deletes the key is longer than that of the command. */
static void a_command_that_leaves_an_entry_no_room_is_refused(void **state)
{
	static uint8_t key[KEY_BYTES];
	struct resp_out request = {0};

	(void)state;
	open_bed_of(true);
	connect_client();
	resp_out_array(&request, 3);
	resp_out_text(&request, "EXPIRE");
	resp_out_bulk(&request, key, sizeof(key));
	resp_out_text(&request, "10");
	while (request.bytes > 0) {
		ssize_t n = send(bed.client, request.data, request.bytes, MSG_DONTWAIT);

		resp_out_drop(&request, n < 0 ? 0 : (size_t)n);
		turn();
	}
	until(is_told);
	assert_int_equal(count(&bed.replies, "too large"), 1);
	assert_int_equal(count(&bed.asked, "EXPIRE"), 0);
	resp_out_free(&request);
	close_bed();
}

static bool two_are_told(void)
{
	return count(&bed.replies, "\r\n") == 2;
}

/* Reading a line resolves its quotes in place: read again, it would be another command. */
static void a_malformed_line_behind_a_write_is_refused(void **state)
{
	(void)state;
	open_bed_of(true);
	connect_client();
	send_text("SET a 1\r\nDEL \"x\" y\"\n");
	until(two_are_told);
	assert_int_equal(place(&bed.replies, "+OK\r\n-ERR Protocol error: unbalanced quotes"), 0);
	assert_int_equal(count(&bed.asked, "DEL"), 0);
	close_bed();
}

static void a_line_behind_a_write_may_begin_with_a_quoted_star(void **state)
{
	(void)state;
	open_bed_of(true);
	connect_client();
	send_text("SET a 1\r\n\"*1\" b\r\n");
	until(two_are_told);
	assert_int_equal(place(&bed.replies, "+OK\r\n-ERR unknown command '*1'"), 0);
	close_bed();
}

static bool is_closed(void)
{
	return bed.ended && list_empty(&bed.proxy->clients);
}

/* As `printf ... | nc -N` and redis-cli --pipe do. */
static void a_client_that_ends_its_side_gets_all_replies(void **state)
{
	(void)state;
	open_bed_of(true);
	connect_client();
	send_text("SET a 1\r\nDEL a\r\nSET b 2\r\nSET c");
	assert_int_equal(shutdown(bed.client, SHUT_WR), 0);
	until(is_closed);
	assert_int_equal(bed.replies.bytes, strlen("+OK\r\n+OK\r\n+OK\r\n"));
	assert_int_equal(place(&bed.replies, "+OK\r\n+OK\r\n+OK\r\n"), 0);
	close_bed();
}

/* A page in a browser can send it to an address of the inner network, with commands in its body. */
static void of_http_requests_nothing_takes_effect(bool redis, const char *const *requests, unsigned n)
{
	open_bed_of(redis);
	for (unsigned i = 0; i < n; i++) {
		connect_client();
		bed.ended = false;
		send_text(requests[i]);
		until(is_closed);
		assert_int_equal(count(&bed.replies, "this is no HTTP server"), i + 1);
		close(bed.client);
		bed.client = -1;
	}
	assert_int_equal(count(&bed.asked, "SET") + count(&bed.asked, "set"), 0);
	close_bed();
}

/* R-S29 */
static void of_an_http_request_nothing_takes_effect(void **state)
{
	static const char *const redis[] = {"POST / HTTP/1.1\r\nSET a 1\r\n", "GET / x\r\nHost: a\r\nSET a 1\r\n",
		"PUT /a HTTP/1.1\r\nSET a 1\r\n", "GET /a HTTP/1.1\r\nSET a 1\r\n"};
	static const char *const memcached[] = {
		"POST / HTTP/1.1\r\nset a 0 0 1\r\n1\r\n", "GET /a HTTP/1.1\r\n\r\nset a 0 0 1\r\n1\r\n"};

	(void)state;
	of_http_requests_nothing_takes_effect(true, redis, 4);
	of_http_requests_nothing_takes_effect(false, memcached, 2);
}

static bool has_failed(void)
{
	return bed.why[0] != '\0';
}

static void a_redis_before_7_is_refused(void **state)
{
	(void)state;
	start_bed(true, true);
	until(has_failed);
	assert_string_equal(
		bed.why, "the server is older than Redis 7.0; start the proxy with a Redis that it supports");
	close_bed();
}

static struct client *first_client(void)
{
	return container_of(bed.proxy->clients.next, struct client, node);
}

static bool first_client_runs(void)
{
	return !list_empty(&bed.proxy->clients) && first_client()->running;
}

static bool both_are_stored(void)
{
	return count(&bed.replies, "STORED\r\n") == 2;
}

static void a_client_whose_numbers_are_used_up_gets_another_session(void **state)
{
	uint64_t session;

	(void)state;
	open_bed();
	connect_client();
	send_text("set a 0 0 1\r\nx\r\n");
	until(is_stored);
	session = first_client()->session;
	first_client()->sequence = UINT32_MAX;
	send_text("set b 0 0 1\r\ny\r\n");
	until(both_are_stored);
	assert_int_equal(count(&bed.asked, "set b"), 1);
	assert_int_not_equal(first_client()->session, session);
	assert_int_equal(first_client()->sequence, 1);
	close_bed();
}

static bool is_removed(void)
{
	return count(&bed.replies, "OK") == 1;
}

/* The proxy does not propose the addition again. */
static void an_addition_that_is_ended_is_answered(void **state)
{
	int other;

	(void)state;
	open_bed();
	connect_client();
	send_text("HOLDFAST ADD 3 d 127.0.0.9:18515\r\n");
	until(first_client_runs);
	other = bed.client;
	connect_client();
	send_text("HOLDFAST REMOVE MEMBER 3\r\n");
	until(is_removed);
	close(bed.client);
	bed.client = other;
	until(two_are_told);
	assert_int_equal(count(&bed.replies, "its removal ended this"), 1);
	close_bed();
}

static bool does_not_lead(void)
{
	return !leads();
}

static bool is_stranded(void)
{
	return !list_empty(&bed.proxy->stranded);
}

static bool is_unknown(void)
{
	return count(&bed.replies, "UNKNOWN the leader was lost") == 1;
}

/* R-S19 */
static void a_member_whose_server_is_silent_does_not_lead(void **state)
{
	(void)state;
	open_bed();
	connect_client();
	bed.silent = true;
	send_text("set a 0 0 1\r\nx\r\n");
	until(does_not_lead);
	bed.silent = false;
	until(leads);
	until(is_stored);
	close_bed();
}

static bool server_has_it(void)
{
	return count(&bed.asked, "fatal") == 1;
}

static bool is_refused_everywhere(void)
{
	return count(&bed.replies, "ended while it had this command: it was not executed") == 1;
}

static bool has_ended(void)
{
	return bed.why[0] != '\0';
}

static void end_server(const char *text)
{
	open_bed_of(true);
	connect_client();
	bed.silent = true;
	send_text(text);
	until(server_has_it);
	shutdown(bed.server, SHUT_RDWR);
}

/* R-S33: no other member gets it, and the client learns that. */
static void a_write_that_ends_the_leaders_server_is_skipped(void **state)
{
	(void)state;
	end_server("SET fatal x\r\n");
	until(is_refused_everywhere);
	until(has_ended);
	assert_non_null(strstr(bed.why, "end of the stream"));
	close_bed();
}

static void a_read_that_ends_the_leaders_server_is_answered(void **state)
{
	(void)state;
	end_server("PEXPIRETIME fatal\r\n");
	until(is_refused_everywhere);
	until(has_ended);
	close_bed();
}

/* An earlier leader may have answered it. */
static void an_entry_of_an_earlier_leader_is_not_skipped(void **state)
{
	(void)state;
	open_bed_of(true);
	connect_client();
	bed.silent = true;
	send_text("SET fatal x\r\n");
	until(server_has_it);
	bed.proxy->inherited = bed.proxy->applied;
	shutdown(bed.server, SHUT_RDWR);
	until(has_ended);
	assert_false(is_refused_everywhere());
	close_bed();
}

static bool is_cleared(void)
{
	return bed.proxy->cleared > 0 && bed.proxy->cleared == bed.proxy->given;
}

static void what_the_leaders_server_has_answered_is_cleared(void **state)
{
	(void)state;
	open_bed_of(true);
	connect_client();
	send_text("SET a x\r\n");
	until(is_cleared);
	close_bed();
}

static bool works(void)
{
	return bed.proxy->works;
}

static void a_leader_whose_server_works_at_a_write_leads_on(void **state)
{
	(void)state;
	open_bed();
	connect_client();
	bed.proxy->server_pid = getpid();
	bed.silent = true;
	send_text("set a 0 0 1\r\nx\r\n");
	until(works);
	assert_true(leads());
	bed.proxy->server_pid = 0;
	until(does_not_lead);
	close_bed();
}

/* The leader that is lost may have removed it. */
static void a_change_that_is_sent_again_and_refused_is_unknown(void **state)
{
	struct run *run;

	(void)state;
	open_bed();
	connect_client();
	hf_smr_set_well(bed.proxy->smr, false);
	until(does_not_lead);
	send_text("HOLDFAST REMOVE MEMBER 3\r\n");
	until(is_stranded);
	run = &first_client()->run;
	list_remove(&run->node);
	run->leader = 1;
	list_push_back(&bed.proxy->sent, &run->node); /* as to a leader that is lost then */
	proxy_route_lost(bed.proxy, 1);
	hf_smr_set_well(bed.proxy->smr, true);
	until(is_unknown);
	close_bed();
}

static bool many_are_refused(void)
{
	const char *end = bed.replies.bytes == 0 ? NULL : memchr(bed.replies.data, '\n', bed.replies.bytes);

	size_t line = end == NULL ? 0 : (size_t)(end - (const char *)bed.replies.data) + 1; /* they are alike */

	return line > 0 && bed.replies.bytes == MANY * line;
}

static bool all_are_refused(void)
{
	return count(&bed.replies, "wrong\r\n") == REFUSED;
}

/* A client that sends all it can before the first is answered. */
static void *send_refused(void *nothing)
{
	(void)nothing;
	send_text("version\r\n");
	for (unsigned i = 0; i < REFUSED; i++)
		send_text("HOLDFAST a b c\r\n");
	return NULL;
}

static bool many_wait(void)
{
	return !list_empty(&bed.proxy->clients) &&
	       first_client()->in.bytes - first_client()->read == REFUSED * strlen("HOLDFAST a b c\r\n");
}

static void *refuse_many(void *nothing)
{
	pthread_t thread;

	(void)nothing;
	open_bed();
	connect_client();
	bed.silent = true;
	assert_int_equal(pthread_create(&thread, NULL, send_refused, NULL), 0);
	until(many_wait);
	bed.silent = false;
	until(all_are_refused);
	assert_int_equal(pthread_join(thread, NULL), 0);
	close_bed();
	return NULL;
}

/* R-S28: replies of some 15 MB fit nowhere, and it reads none before it has written all. */
static void a_client_may_write_all_before_it_reads(void **state)
{
	static const char request[] = "HOLDFAST a b c\r\n";
	const size_t bytes = sizeof(request) - 1, all = MANY * bytes;
	char *data = malloc(all);
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + LIMIT_NS;

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < MANY; i++)
		memcpy(data + i * bytes, request, bytes);
	open_bed();
	connect_client();
	for (size_t sent = 0; sent < all;) {
		ssize_t n = send(bed.client, data + sent, all - sent, MSG_DONTWAIT);

		assert_true(hf_env_now_ns(hf_env_host()) < end_ns);
		sent += n > 0 ? (size_t)n : 0;
		(void)hf_loop_turn(bed.loop, 0);
	}
	assert_true(bed.proxy->buffered > 0);
	until(many_are_refused);
	free(data);
	close_bed();
}

/* Each is answered while it is submitted. On a small stack, which the answers do not fill. */
static void a_pipeline_of_refused_commands_is_answered(void **state)
{
	pthread_attr_t attributes;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_attr_init(&attributes), 0);
	assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
	assert_int_equal(pthread_create(&thread, &attributes, refuse_many, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_attr_destroy(&attributes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_restore_ends_the_snapshot_that_is_given),
		cmocka_unit_test(a_deadline_asked_before_a_restore_changes_no_restored_key),
		cmocka_unit_test(a_snapshot_may_have_a_key_twice),
		cmocka_unit_test(a_restore_of_large_values_waits_for_the_server),
		cmocka_unit_test(entries_that_waited_for_a_snapshot_do_not_overrun_the_server),
		cmocka_unit_test(entries_that_waited_reach_the_server_in_order),
		cmocka_unit_test(due_keys_are_proposed_once_while_the_server_is_silent),
		cmocka_unit_test(a_due_key_that_fits_in_no_entry_delays_no_other_key),
		cmocka_unit_test(a_command_that_leaves_an_entry_no_room_is_refused),
		cmocka_unit_test(a_malformed_line_behind_a_write_is_refused),
		cmocka_unit_test(a_line_behind_a_write_may_begin_with_a_quoted_star),
		cmocka_unit_test(a_client_that_ends_its_side_gets_all_replies),
		cmocka_unit_test(of_an_http_request_nothing_takes_effect),
		cmocka_unit_test(a_redis_before_7_is_refused),
		cmocka_unit_test(a_client_whose_numbers_are_used_up_gets_another_session),
		cmocka_unit_test(an_addition_that_is_ended_is_answered),
		cmocka_unit_test(a_change_that_is_sent_again_and_refused_is_unknown),
		cmocka_unit_test(a_member_whose_server_is_silent_does_not_lead),
		cmocka_unit_test(a_write_that_ends_the_leaders_server_is_skipped),
		cmocka_unit_test(a_read_that_ends_the_leaders_server_is_answered),
		cmocka_unit_test(an_entry_of_an_earlier_leader_is_not_skipped),
		cmocka_unit_test(a_leader_whose_server_works_at_a_write_leads_on),
		cmocka_unit_test(what_the_leaders_server_has_answered_is_cleared),
		cmocka_unit_test(a_client_may_write_all_before_it_reads),
		cmocka_unit_test(a_pipeline_of_refused_commands_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
