/* Clients of a store of one member, which runs in this process: what they send, and the replies byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kv/clients.h"
#include "store_bed.h"

#define TURNS_MAX 2000000u
#define TURN_NS   1000000u
#define TALK_MAX  (1u << 20)

static struct store_bed bed;

struct talk {
	struct hf_io *io;
	size_t bytes;
	bool ended;
	char in[TALK_MAX + 1];
};

static void open_store(struct hf_kv_config *config)
{
	bed = (struct store_bed){0};
	config->member_count = 1;
	config->min_members = config->min_members == 0 ? 1 : config->min_members;
	config->store_mb = 32;
	config->missed_mb = 1;
	config->lease_ns = 1000000000ull;
	ensure(hf_addr_parse("127.0.0.1:0", &config->listen) == 0);
	store_bed_open(&bed, config);
}

static void wait_serving(void)
{
	struct hf_kv_status status = {0};

	for (unsigned i = 0; !status.serving; i++) {
		assert_true(i < TURNS_MAX);
		(void)hf_loop_turn(bed.loop, TURN_NS);
		hf_kv_status(bed.kv, &status);
	}
}

static int set_up(void **state)
{
	struct hf_kv_config config = {0};

	(void)state;
	open_store(&config);
	wait_serving();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	hf_kv_close(bed.kv);
	hf_node_close(bed.node);
	hf_loop_destroy(bed.loop);
	return 0;
}

static struct talk *talk_open(void)
{
	struct talk *talk = calloc(1, sizeof(*talk));
	struct hf_addr address;

	assert_non_null(talk);
	assert_int_equal(hf_kv_address(bed.kv, &address), 0);
	assert_int_equal(hf_stream_connect(hf_env_host(), NULL, &address, &talk->io, NULL), 0);
	return talk;
}

static void talk_close(struct talk *talk)
{
	hf_io_close(talk->io);
	free(talk);
}

static void talk_turn(struct talk *talk, bool reads)
{
	ssize_t n = -EAGAIN;

	(void)hf_loop_turn(bed.loop, 0);
	if (reads && talk->bytes < TALK_MAX)
		n = hf_stream_read(talk->io, talk->in + talk->bytes, TALK_MAX - talk->bytes);
	if (n > 0)
		talk->bytes += (size_t)n;
	else if (n != -EAGAIN)
		talk->ended = true;
	talk->in[talk->bytes] = '\0';
}

static void talk_send(struct talk *talk, const char *data, size_t bytes, bool reads)
{
	size_t sent = 0;

	for (unsigned i = 0; sent < bytes; i++) {
		ssize_t n = hf_stream_write(talk->io, data + sent, bytes - sent);

		assert_true(i < TURNS_MAX);
		if (n <= 0 && n != -EAGAIN)
			break;
		sent += n > 0 ? (size_t)n : 0;
		talk_turn(talk, reads);
	}
}

/* Sends `words`; what comes back is `replies`, and the end of the connection where `ends`. */
static void asks(struct talk *talk, const char *words, const char *replies, bool ends)
{
	size_t wanted = strlen(replies);

	talk->bytes = 0;
	talk_send(talk, words, strlen(words), true);
	for (unsigned i = 0; !talk->ended && (ends || talk->bytes < wanted); i++) {
		assert_true(i < TURNS_MAX);
		talk_turn(talk, true);
	}
	assert_string_equal(talk->in, replies);
	assert_int_equal(talk->ended, ends);
}

static void asks_anew(const char *words, const char *replies, bool ends)
{
	struct talk *talk = talk_open();

	asks(talk, words, replies, ends);
	talk_close(talk);
}

/* R-K49 */
static void nothing_behind_http_is_executed(void **state)
{
	static const char refusal[] = "-ERR this is no HTTP server\r\n";

	(void)state;
	asks_anew("POST / HTTP/1.1\r\nHost: a\r\n\r\nSET k v\r\n", refusal, true);
	asks_anew("GET / HTTP/1.1\r\nSET k v\r\n", refusal, true);
	asks_anew("OPTIONS /x HTTP/1.0\r\nSET k v\r\n", refusal, true);
	asks_anew("Host: 127.0.0.1\r\nSET k v\r\n", refusal, true);
	asks_anew("SET n 1\r\nhost: a\r\nSET k v\r\n", "+OK\r\n-ERR this is no HTTP server\r\n", true);
	asks_anew("GET k\r\nGET n\r\n", "$-1\r\n$1\r\n1\r\n", false);
	asks_anew("*3\r\n$3\r\nSET\r\n$5\r\nhost:\r\n$8\r\nHTTP/1.1\r\nGET host:\r\n", "+OK\r\n$8\r\nHTTP/1.1\r\n",
		false);
}

/* R-K48 */
static void nothing_behind_a_refused_multi_is_executed(void **state)
{
#define MULTI "-ERR MULTI is refused: there are no transactions here; nothing is executed until EXEC or DISCARD\r\n"
#define NONE  "-ERR not executed: MULTI was refused; EXEC or DISCARD ends this\r\n"
	struct talk *talk = talk_open();

	(void)state;
	asks(talk, "MULTI\r\nSET k v\r\nINCR n\r\nNONSENSE\r\nMULTI\r\nEXEC\r\nGET k\r\n",
		MULTI NONE NONE NONE NONE
		"-EXECABORT Transaction discarded because MULTI was refused: nothing was executed\r\n"
		"$-1\r\n",
		false);
	asks(talk, "MULTI\r\nSET k v\r\nDISCARD\r\nGET k\r\n",
		MULTI NONE "-ERR MULTI was refused: nothing is to be discarded\r\n$-1\r\n", false);
	asks(talk, "EXEC\r\nDISCARD\r\n", "-ERR EXEC without MULTI\r\n-ERR DISCARD without MULTI\r\n", false);
	asks(talk, "MULTI\r\nQUIT\r\nSET k v\r\n", MULTI "+OK\r\n", true);
	talk_close(talk);
#undef MULTI
#undef NONE
}

/* R-K46: its 30 MB of replies fit nowhere. */
static void a_client_may_write_all_before_it_reads(void **state)
{
	enum { KEY_BYTES = 9, REQUESTS = 30000, VALUE_BYTES = 1000, REPLY_BYTES = VALUE_BYTES + 9 };
	static char set[VALUE_BYTES + 64], all[REQUESTS * KEY_BYTES + 1];
	struct talk *talk = talk_open();
	size_t got = 0;

	(void)state;
	snprintf(set, sizeof(set), "SET key %0*d\r\n", VALUE_BYTES, 7);
	asks(talk, set, "+OK\r\n", false);
	for (size_t i = 0; i < REQUESTS; i++)
		memcpy(all + i * KEY_BYTES, "GET key\r\n", KEY_BYTES);
	talk_send(talk, all, REQUESTS * (size_t)KEY_BYTES, false);
	for (unsigned i = 0; got < (size_t)REQUESTS * REPLY_BYTES; i++) {
		assert_true(i < TURNS_MAX && !talk->ended);
		talk->bytes = 0;
		talk_turn(talk, true);
		got += talk->bytes;
	}
	asks(talk, "ECHO end\r\n", "$3\r\nend\r\n", false);
	talk_close(talk);
}

/* R-K46: the others are served; the buffers of all have a limit. */
static void the_client_with_the_largest_buffers_is_closed(void **state)
{
	struct hf_kv_config config = {.clients_mb = 32};
	static char all[1u << 20];
	struct talk *bad, *good;
	unsigned sent = 0;

	(void)state;
	open_store(&config);
	wait_serving();
	bad = talk_open();
	good = talk_open();
	for (size_t i = 0; i < sizeof(all); i += 16)
		memcpy(all + i, "ECHO 123456789\r\n", 16);
	for (; !bad->ended; sent++) {
		assert_true(sent < 200);
		talk_send(bad, all, sizeof(all), false);
		asks(good, "PING\r\n", "+PONG\r\n", false);
		if (kv_clients_count(bed.kv->clients).now < 2)
			break;
		assert_true(kv_clients_count(bed.kv->clients).buffered <= 2u * 32 << 20);
	}
	assert_int_equal(kv_clients_count(bed.kv->clients).evicted, 1);
	asks(good, "PING\r\n", "+PONG\r\n", false);
	talk_close(bad);
	talk_close(good);
	tear_down(state);
}

/* R-K47: its requests take a turn each, and the other one has its own in the first. */
static void slow_scans_leave_turns_for_others(void **state)
{
	enum { KEY_BYTES = 12000, KEYS = 20, SCANS = 20 };
	static char words[SCANS * 1100], one[1100], set[KEY_BYTES + 64];
	struct talk *slow = talk_open(), *quick = talk_open();
	unsigned answered = 0;

	(void)state;
	for (unsigned i = 0; i < KEYS; i++) {
		memset(set, 'a', sizeof(set));
		memcpy(set, "SET ", 4);
		snprintf(set + 4 + KEY_BYTES, sizeof(set) - 4 - KEY_BYTES, "%u v\r\n", i);
		asks(quick, set, "+OK\r\n", false);
	}
	memset(one, 'a', sizeof(one));
	memcpy(one, "SCAN 0 MATCH *", 14);
	snprintf(one + 900, sizeof(one) - 900, "b COUNT 10000\r\n");
	for (unsigned i = 0; i < SCANS; i++)
		memcpy(words + i * strlen(one), one, strlen(one) + 1);
	talk_send(slow, words, strlen(words), false);
	asks(quick, "PING\r\n", "+PONG\r\n", false);
	talk_turn(slow, true);
	for (const char *at = slow->in; (at = strstr(at, "*2\r\n")) != NULL; at++)
		answered++;
	assert_true(answered > 0 && answered < SCANS);
	talk_close(slow);
	talk_close(quick);
}

static void one_client_more_is_refused_in_the_words_of_redis(void **state)
{
	struct hf_kv_config config = {.clients = 1};
	struct talk *talk;

	(void)state;
	open_store(&config);
	wait_serving();
	talk = talk_open();
	asks(talk, "PING\r\n", "+PONG\r\n", false);
	asks_anew("", "-ERR max number of clients reached\r\n", true);
	asks(talk, "PING\r\n", "+PONG\r\n", false);
	talk_close(talk);
	tear_down(state);
}

/* R-K50 */
static void a_ping_is_refused_before_the_member_serves(void **state)
{
	struct hf_kv_config config = {0};
	struct talk *talk;

	(void)state;
	open_store(&config);
	talk = talk_open();
	asks(talk, "PING\r\n", "-LOADING this node is not yet a member; ask another one\r\n", false);
	wait_serving();
	asks(talk, "PING\r\n", "+PONG\r\n", false);
	asks(talk, "PING x\r\n", "$1\r\nx\r\n", false);
	talk_close(talk);
	tear_down(state);
}

/* R-K51 */
static void below_min_members_nothing_is_written(void **state)
{
#define REFUSAL "-NOREPLICAS too few members are connected to write\r\n"
	struct hf_kv_config config = {.min_members = 2};
	struct talk *talk;

	(void)state;
	open_store(&config);
	wait_serving();
	talk = talk_open();
	asks(talk, "SET k v\r\nDEL k\r\nINCR k\r\nMSET a 1 b 2\r\n", REFUSAL REFUSAL REFUSAL REFUSAL, false);
	asks(talk, "GET k\r\nPING\r\nMGET a k\r\n", "$-1\r\n+PONG\r\n*2\r\n$-1\r\n$-1\r\n", false);
	talk_close(talk);
	tear_down(state);
#undef REFUSAL
}

static void times_are_those_of_the_configuration(void **state)
{
	struct hf_kv_config config = {.suspect_ns = 400000000, .cold_wait_ns = 7000000000};

	open_store(&config);
	assert_int_equal(bed.kv->council.suspect_ns, 400000000);
	assert_int_equal(bed.kv->council.cold_wait_ns, 7000000000);
	tear_down(state);
	config.suspect_ns = config.cold_wait_ns = 0;
	open_store(&config);
	assert_int_equal(bed.kv->council.suspect_ns, 500000000);
	assert_int_equal(bed.kv->council.cold_wait_ns, 20000000000);
	tear_down(state);
}

static void config_is_a_map_in_resp3(void **state)
{
	struct talk *talk = talk_open();

	(void)state;
	asks(talk, "CONFIG GET appendonly save\r\n", "*4\r\n$4\r\nsave\r\n$0\r\n\r\n$10\r\nappendonly\r\n$2\r\nno\r\n",
		false);
	asks(talk, "CONFIG GET nonsense\r\n", "*0\r\n", false);
	asks(talk, "HELLO 3 nonsense\r\n", "-ERR syntax error in HELLO\r\n", false);
	talk_send(talk, "HELLO 3\r\n", 9, true);
	while (strstr(talk->in, "master\r\n") == NULL)
		talk_turn(talk, true);
	assert_memory_equal(strchr(talk->in, '%'), "%6\r\n", 4);
	asks(talk, "CONFIG GET maxclients\r\n", "%1\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n", false);
	asks(talk, "COMMAND DOCS\r\n", "%0\r\n", false);
	talk_close(talk);
}

static void commands_that_are_not_here_say_why(void **state)
{
	struct talk *talk = talk_open();

	(void)state;
	asks(talk, "Expire k 1\r\n", "-ERR records do not expire here: delete them instead\r\n", false);
	asks(talk, "EXPIR k 1\r\n",
		"-ERR unknown command 'EXPIR'; this store has strings only, docs/kv.md lists the commands\r\n", false);
	asks(talk, "CLUSTER SLOTS\r\n", "-ERR This instance has cluster support disabled\r\n", false);
	asks(talk, "\"\" k\r\n",
		"-ERR unknown command ''; this store has strings only, docs/kv.md lists the commands\r\n", false);
	talk_close(talk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_behind_http_is_executed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_behind_a_refused_multi_is_executed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_client_may_write_all_before_it_reads, set_up, tear_down),
		cmocka_unit_test(the_client_with_the_largest_buffers_is_closed),
		cmocka_unit_test_setup_teardown(slow_scans_leave_turns_for_others, set_up, tear_down),
		cmocka_unit_test(one_client_more_is_refused_in_the_words_of_redis),
		cmocka_unit_test(a_ping_is_refused_before_the_member_serves),
		cmocka_unit_test(below_min_members_nothing_is_written),
		cmocka_unit_test(times_are_those_of_the_configuration),
		cmocka_unit_test_setup_teardown(config_is_a_map_in_resp3, set_up, tear_down),
		cmocka_unit_test_setup_teardown(commands_that_are_not_here_say_why, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
