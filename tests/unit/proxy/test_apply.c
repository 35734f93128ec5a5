/* Entries at a member that does not lead: its server gets those that have ended no other one (R-S33). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "proxy/objects.h"
#include "proxy/snapshot.h"

#define LIMIT_NS 20000000000ull
#define TURN_NS  100000u
#define SESSION  77u

static struct proxy *proxy;
static struct sockaddr_un path;
static char directory[64], why[256];
static int listener, server;
static uint8_t asked[1024];
static size_t asked_bytes;

static void on_failed(void *context, const char *words)
{
	(void)context;
	snprintf(why, sizeof(why), "%s", words);
}

static const struct proxy_events proxy_events = {.failed = on_failed};

static void on_broken(void *context, const char *words)
{
	proxy_apply_ended(context, words);
}

/* A proxy without a replica leads nothing. */
static void open_proxy(void)
{
	static const struct server_events events = {.broken = on_broken};
	struct hf_error error = {0};

	snprintf(directory, sizeof(directory), "/tmp/holdfast-apply-XXXXXX");
	assert_non_null(mkdtemp(directory));
	path.sun_family = AF_UNIX;
	snprintf(path.sun_path, sizeof(path.sun_path), "%.60s/server", directory);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&path, sizeof(path)), 0);
	assert_int_equal(listen(listener, 1), 0);
	why[0] = '\0';
	asked_bytes = 0;
	proxy = calloc(1, sizeof(*proxy));
	assert_non_null(proxy);
	proxy->events = proxy_events;
	proxy->protocol = &proxy_redis;
	list_init(&proxy->held_reads);
	proxy_answers_init(&proxy->answers);
	assert_int_equal(hf_loop_create(hf_env_host(), &proxy->loop), 0);
	assert_int_equal(proxy_server_open(proxy->loop, path.sun_path, LIMIT_NS, &proxy_redis.replies, &events, proxy,
				 &proxy->server, &error),
		0);
	server = accept(listener, NULL, NULL);
	assert_true(server >= 0);
	proxy_apply_open(proxy);
}

static void close_proxy(void)
{
	proxy_apply_close(proxy);
	proxy_server_close(proxy->server);
	proxy_answers_free(&proxy->answers);
	proxy_deadlines_free(&proxy->deadlines);
	proxy_apply_free(proxy);
	hf_loop_destroy(proxy->loop);
	free(proxy);
	close(listener);
	close(server);
	unlink(path.sun_path);
	rmdir(directory);
}

/* What the server is told within some turns. */
static void turn(void)
{
	for (unsigned i = 0; i < 20; i++) {
		ssize_t n;

		(void)hf_loop_turn(proxy->loop, TURN_NS);
		n = recv(server, asked + asked_bytes, sizeof(asked) - asked_bytes, MSG_DONTWAIT);
		if (n > 0)
			asked_bytes += (size_t)n;
	}
}

static bool has(const char *word)
{
	turn();
	return memmem(asked, asked_bytes, word, strlen(word)) != NULL;
}

static uint64_t place_of(uint64_t index)
{
	return index << 16;
}

static void apply(uint64_t index, const struct resp_out *entry, uint32_t sequence)
{
	proxy_apply(proxy, &(struct hf_smr_applied){.index = index,
				   .data = entry->data,
				   .bytes = (uint32_t)entry->bytes,
				   .session = sequence == 0 ? 0 : SESSION,
				   .sequence = sequence});
}

static void apply_write(uint64_t index, const char *word)
{
	struct resp_out entry = {0};
	size_t record;

	proxy_entry_begin(&entry, ENTRY_OF_REDIS, ENTRY_WRITE, 0);
	record = proxy_entry_record(&entry, ENTRY_PLAIN);
	resp_out_array(&entry, 2);
	resp_out_text(&entry, "PERSIST");
	resp_out_text(&entry, word);
	proxy_entry_record_end(&entry, record);
	apply(index, &entry, (uint32_t)index);
	resp_out_free(&entry);
}

static void apply_note(uint64_t index, enum entry_kind kind, uint64_t place)
{
	struct resp_out entry = {0};

	proxy_entry_begin(&entry, ENTRY_OF_REDIS, kind, place);
	apply(index, &entry, 0);
	resp_out_free(&entry);
}

static void an_entry_waits_until_a_server_has_answered_it(void **state)
{
	(void)state;
	open_proxy();
	apply_write(10, "first");
	apply_write(11, "second");
	assert_false(has("first"));
	apply_note(12, ENTRY_DONE, place_of(10));
	assert_true(has("first"));
	assert_false(has("second"));
	apply_note(13, ENTRY_DONE, place_of(11));
	assert_true(has("second"));
	close_proxy();
}

static void an_entry_that_ended_a_server_is_skipped_with_those_behind_it(void **state)
{
	(void)state;
	open_proxy();
	apply_write(10, "before");
	apply_write(11, "fatal");
	apply_write(12, "behind");
	apply_note(13, ENTRY_SKIP, place_of(11));
	apply_write(14, "after");
	apply_note(15, ENTRY_DONE, place_of(14));
	assert_true(has("before") && has("after"));
	assert_false(has("fatal") || has("behind"));
	assert_string_equal(why, "");
	close_proxy();
}

/* Its client sends it again, to the next leader. */
static void a_write_that_is_skipped_is_known_as_such(void **state)
{
	struct answer *answer;

	(void)state;
	open_proxy();
	apply_write(11, "fatal");
	answer = proxy_answers_find(&proxy->answers, SESSION, 11);
	assert_false(answer->whole);
	apply_note(12, ENTRY_SKIP, place_of(11));
	answer = proxy_answers_find(&proxy->answers, SESSION, 11);
	assert_true(answer != NULL && answer->whole && answer->skipped);
	close_proxy();
}

/* The same entry at every member, or this one ends. */
static void a_member_whose_server_has_executed_what_is_skipped_ends(void **state)
{
	(void)state;
	open_proxy();
	apply_write(11, "fatal");
	apply_note(12, ENTRY_DONE, place_of(11));
	assert_true(has("fatal"));
	apply_note(13, ENTRY_SKIP, place_of(11));
	assert_non_null(strstr(why, "executed"));
	close_proxy();
}

static void a_snapshot_has_the_entries_that_wait(void **state)
{
	struct resp_out stream = {0}, put = {0};

	(void)state;
	open_proxy();
	apply_write(10, "first");
	apply_write(11, "second");
	proxy_stream_begin(&stream, ENTRY_OF_REDIS);
	assert_int_equal(proxy_put_held(proxy, &stream), 2);
	proxy_stream_end(&stream, 2);
	close_proxy();

	open_proxy();
	apply_write(9, "older"); /* the snapshot has it */
	assert_int_equal(proxy_restore_open(proxy), 0);
	assert_int_equal(proxy_restore_write(proxy, stream.data, stream.bytes), 0);
	assert_int_equal(proxy_restore_close(proxy, true), 0);
	assert_false(has("first") || has("older"));
	assert_int_equal(proxy_put_held(proxy, &put), 2);
	apply_note(12, ENTRY_DONE, place_of(10));
	apply_note(13, ENTRY_SKIP, place_of(11));
	assert_true(has("first"));
	assert_false(has("second") || has("older"));
	resp_out_free(&stream);
	resp_out_free(&put);
	close_proxy();
}

/* A replica that reads its own disk goes on: what clears them comes behind them. */
static void entries_that_wait_for_a_leader_make_no_member_busy(void **state)
{
	(void)state;
	open_proxy();
	apply_write(10, "first");
	assert_true(proxy_is_held(proxy));
	assert_false(proxy_may_give(proxy));
	close_proxy();
}

/* The leader's server is slow, and the leader has not reached its own limit. */
static void a_member_waits_longer_for_a_slow_leader_than_that_does_for_its_server(void **state)
{
	static uint8_t value[1u << 20];
	struct resp_out entry = {0};
	size_t record;

	(void)state;
	open_proxy();
	proxy_entry_begin(&entry, ENTRY_OF_REDIS, ENTRY_WRITE, 0);
	record = proxy_entry_record(&entry, ENTRY_DROP);
	resp_out_bulk(&entry, value, sizeof(value));
	proxy_entry_record_end(&entry, record);
	for (size_t bytes = 0; bytes <= SERVER_QUEUE_BYTES; bytes += entry.bytes)
		apply(10, &entry, 0);
	assert_string_equal(why, "");
	apply_note(11, ENTRY_DONE, place_of(10));
	assert_string_equal(why, "");
	resp_out_free(&entry);
	close_proxy();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_entry_waits_until_a_server_has_answered_it),
		cmocka_unit_test(an_entry_that_ended_a_server_is_skipped_with_those_behind_it),
		cmocka_unit_test(a_write_that_is_skipped_is_known_as_such),
		cmocka_unit_test(a_member_whose_server_has_executed_what_is_skipped_ends),
		cmocka_unit_test(a_snapshot_has_the_entries_that_wait),
		cmocka_unit_test(a_member_waits_longer_for_a_slow_leader_than_that_does_for_its_server),
		cmocka_unit_test(entries_that_wait_for_a_leader_make_no_member_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
