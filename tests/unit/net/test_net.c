#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "net/control.h"
#include "net/frame.h"
#include "net/peer_table.h"

#define MS 1000000ull

/* ---- frames ---- */

static uint32_t sample_frame(uint8_t *at)
{
	struct frame frame = {.type = FRAME_MESSAGE, .sequence = 7, .ack = 3, .body = "hello", .body_bytes = 5};

	return frame_encode(&frame, at);
}

static void a_frame_is_read_as_it_was_written(void **state)
{
	uint8_t at[FRAME_MAX];
	uint32_t bytes = sample_frame(at), used;
	const char *reason;
	struct frame frame;

	(void)state;
	assert_int_equal(frame_decode(at, bytes, &frame, &used, &reason), FRAME_OK);
	assert_int_equal(used, bytes);
	assert_int_equal(frame.type, FRAME_MESSAGE);
	assert_int_equal(frame.sequence, 7);
	assert_int_equal(frame.ack, 3);
	assert_int_equal(frame.body_bytes, 5);
	assert_memory_equal(frame.body, "hello", 5);
}

static void every_beginning_of_a_frame_asks_for_more(void **state)
{
	uint8_t at[FRAME_MAX];
	uint32_t bytes = sample_frame(at), used;
	const char *reason;
	struct frame frame;

	(void)state;
	for (uint32_t n = 0; n < bytes; n++)
		assert_int_equal(frame_decode(at, n, &frame, &used, &reason), FRAME_MORE);
}

static void a_frame_with_any_bit_flipped_is_never_believed(void **state)
{
	uint8_t at[FRAME_MAX];
	uint32_t bytes = sample_frame(at), used;
	const char *reason;
	struct frame frame;

	(void)state;
	for (uint32_t bit = 0; bit < bytes * 8; bit++) {
		at[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(frame_decode(at, bytes, &frame, &used, &reason), FRAME_OK);
		at[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void garbage_is_refused_before_more_is_waited_for(void **state)
{
	const char *reason = NULL;
	struct frame frame;
	uint32_t used;

	(void)state;
	assert_int_equal(frame_decode((const uint8_t *)"GET", 3, &frame, &used, &reason), FRAME_BAD);
	assert_non_null(reason);
}

static void a_hello_is_read_as_it_was_written(void **state)
{
	struct frame_hello hello = {.incarnation = 99, .name = "node-a", .label = "r1", .endpoint_count = 2}, out;
	uint8_t at[FRAME_BODY_MAX];
	const char *reason;
	uint32_t bytes;

	(void)state;
	snprintf(hello.endpoints[0].label, sizeof(hello.endpoints[0].label), "%s", "r0");
	snprintf(hello.endpoints[1].label, sizeof(hello.endpoints[1].label), "%s", "@0");
	assert_int_equal(hf_addr_parse("127.0.0.2:18515", &hello.endpoints[0].addr), 0);
	assert_int_equal(hf_addr_parse("[::1]:18516", &hello.endpoints[1].addr), 0);
	bytes = frame_hello_encode(&hello, at);
	assert_int_equal(frame_hello_decode(at, bytes, &out, &reason), FRAME_OK);
	assert_string_equal(out.name, "node-a");
	assert_string_equal(out.label, "r1");
	assert_int_equal(out.endpoint_count, 2);
	for (unsigned i = 0; i < 2; i++)
		assert_true(hf_addr_equal(&out.endpoints[i].addr, &hello.endpoints[i].addr));
	assert_int_equal(frame_hello_decode(at, bytes - 1, &out, &reason), FRAME_BAD);
	at[72] = 200; /* more addresses than it brings */
	assert_int_equal(frame_hello_decode(at, bytes, &out, &reason), FRAME_BAD);
}

/* ---- session ---- */

static void messages_move_to_another_path_from_the_first_unacknowledged_on(void **state)
{
	struct session session;

	(void)state;
	session_init(&session, 50 * MS, 4, 1000 * MS, 0);
	session_path_up(&session, 0, 0);
	session_path_up(&session, 1, 0);
	for (uint64_t i = 1; i <= 5; i++) {
		assert_int_equal(session_queue(&session), i);
		assert_int_equal(session_next(&session), i);
		session_sent(&session);
	}
	assert_int_equal(session_next(&session), 0);
	assert_int_equal(session_heard(&session, 0, 0, 2, MS), SESSION_NOTHING);
	session_path_lost(&session, 0, MS);
	assert_int_equal(session.active, 1);
	assert_int_equal(session_next(&session), 3);
	session_path_lost(&session, 1, MS);
	assert_int_equal(session_next(&session), 0);
	session_path_up(&session, 1, MS);
	assert_int_equal(session_next(&session), 3);
}

static void each_message_is_delivered_once_and_in_order(void **state)
{
	struct session session;

	(void)state;
	session_init(&session, 50 * MS, 4, 1000 * MS, 0);
	session_path_up(&session, 0, 0);
	session_path_up(&session, 1, 0);
	assert_int_equal(session_heard(&session, 0, 1, 0, 0), SESSION_DELIVER);
	assert_int_equal(session_heard(&session, 0, 2, 0, 0), SESSION_DELIVER);
	assert_int_equal(session_heard(&session, 1, 1, 0, 0), SESSION_NOTHING);
	assert_int_equal(session_heard(&session, 1, 2, 0, 0), SESSION_NOTHING);
	assert_int_equal(session_heard(&session, 1, 3, 0, 0), SESSION_DELIVER);
	assert_int_equal(session_heard(&session, 1, 5, 0, 0), SESSION_VIOLATION);
	assert_int_equal(session_heard(&session, 1, 0, 1, 0), SESSION_VIOLATION); /* we sent nothing */
}

static void who_tells_of_less_than_was_said_before_has_forgotten_it(void **state)
{
	struct session_mark mark;
	struct session session;

	(void)state;
	session_init(&session, 50 * MS, 4, 1000 * MS, 0);
	session_path_up(&session, 0, 0);
	assert_true(session_is_remembered(session_mark(&session), 0, 0));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_not_equal(session_queue(&session), 0);
		session_sent(&session);
	}
	assert_int_equal(session_heard(&session, 0, 1, 2, 0), SESSION_DELIVER);
	mark = session_mark(&session);
	assert_true(session_is_remembered(mark, 1, 2));
	assert_true(session_is_remembered(mark, 9, 9));
	assert_false(session_is_remembered(mark, 0, 2));
	assert_false(session_is_remembered(mark, 1, 1));
}

/* Ticks when each is due, the last one at that time. */
static void tick_until(struct session *session, uint64_t now_ns, struct session_actions *actions)
{
	while (actions->due_ns < now_ns) {
		session_tick(session, actions->due_ns, session->gaps_ns, actions);
		assert_int_equal(actions->lost, 0);
	}
	session_tick(session, now_ns, session->gaps_ns, actions);
}

static void a_silent_path_is_lost_and_a_peer_without_paths_is_dead(void **state)
{
	struct session_actions actions;
	struct session session;

	(void)state;
	session_init(&session, 50 * MS, 4, 1000 * MS, 0);
	session_path_up(&session, 0, 0);
	session_path_up(&session, 1, 0);
	session_tick(&session, 0, 0, &actions);
	assert_int_equal(actions.heartbeat, 3);
	assert_int_equal(actions.due_ns, 50 * MS);
	tick_until(&session, 150 * MS, &actions);
	session_heard(&session, 1, 0, 0, 150 * MS);
	tick_until(&session, 199 * MS, &actions);
	assert_int_equal(actions.lost, 0);
	tick_until(&session, 200 * MS, &actions);
	assert_int_equal(actions.lost, 1);
	assert_int_equal(session.active, 1);
	tick_until(&session, 350 * MS, &actions);
	assert_int_equal(actions.lost, 2);
	assert_false(actions.dead);
	tick_until(&session, 1349 * MS, &actions);
	assert_false(actions.dead);
	tick_until(&session, 1350 * MS, &actions);
	assert_true(actions.dead);
}

/* R-G5: neither the closed streams of a process nor a refused connection alone are its death. */
static void a_process_has_died_when_its_streams_are_closed_and_connections_refused(void **state)
{
	struct session session;

	(void)state;
	session_init(&session, 50 * MS, 4, 1000 * MS, 0);
	assert_false(session_has_died(&session));
	session_path_refused(&session, 0); /* it was never there */
	assert_false(session_has_died(&session));
	for (unsigned i = 0; i < 3; i++)
		session_path_up(&session, i, 0);
	session_path_lost(&session, 2, 0); /* a rail that was cut says nothing */
	session_path_refused(&session, 2);
	session_path_closed(&session, 0, 0);
	session_path_refused(&session, 0);
	assert_false(session_probes(&session, 0));
	assert_false(session_has_died(&session)); /* there is a path */
	session_path_closed(&session, 1, 0);
	assert_true(session_probes(&session, 1));
	assert_false(session_probes(&session, 2));
	assert_false(session_has_died(&session)); /* all are closed, and it may answer on the second */
	session_path_refused(&session, 1);
	assert_true(session_has_died(&session));
	session_path_up(&session, 1, 0);
	assert_false(session_has_died(&session));
	session_path_closed(&session, 1, 0);
	assert_false(session_has_died(&session)); /* what was refused before does not count */
}

static void refused_without_a_closed_stream_is_no_death(void **state)
{
	struct session session;

	(void)state;
	session_init(&session, 50 * MS, 4, 1000 * MS, 0);
	session_path_up(&session, 0, 0);
	session_path_lost(&session, 0, 0);
	session_path_refused(&session, 0); /* as a firewall does */
	assert_false(session_has_died(&session));
}

/* The heartbeats of that time wait to be read: they are judged at the next tick. */
static void nobody_is_silent_while_this_process_does_not_run(void **state)
{
	struct session_actions actions;
	struct session session;

	(void)state;
	session_init(&session, 50 * MS, 4, 1000 * MS, 0);
	session_path_up(&session, 0, 0);
	session_tick(&session, 0, 0, &actions);
	session_tick(&session, 5000 * MS, 4950 * MS, &actions); /* due at 50 */
	assert_int_equal(actions.lost, 0);
	session_heard(&session, 0, 0, 0, 5000 * MS);
	session_tick(&session, 5600 * MS, 5500 * MS, &actions); /* again, and again: only 100 ms were attended to */
	assert_int_equal(actions.lost, 0);
	session_heard(&session, 0, 0, 0, 5600 * MS);
	tick_until(&session, 5799 * MS, &actions);
	assert_int_equal(actions.lost, 0);
	tick_until(&session, 5800 * MS, &actions); /* and of true silence it is lost as ever */
	assert_int_equal(actions.lost, 1);
}

static void a_peer_that_acknowledges_nothing_stops_the_queue(void **state)
{
	struct session session;

	(void)state;
	session_init(&session, 50 * MS, 4, 1000 * MS, 0);
	for (unsigned i = 0; i < SESSION_QUEUED_MAX; i++)
		assert_int_not_equal(session_queue(&session), 0);
	assert_int_equal(session_queue(&session), 0);
}

/* ---- the channel ---- */

struct side {
	struct control *control;
	struct control_peer *peer;
	unsigned ups, downs, paths, received, deaths;
	uint64_t next;
	struct frame_endpoint endpoints[3];
	char name[8];
};

struct channel {
	struct hf_loop *loop;
	struct side a, b;
};

static void on_up(struct control_peer *peer, void *context)
{
	struct side *side = context;

	side->peer = peer;
	side->ups++;
}

static void on_down(struct control_peer *peer, void *context)
{
	struct side *side = context;

	if (side->peer == peer)
		side->peer = NULL;
	side->downs++;
}

static void on_died(struct control_peer *peer, void *context)
{
	struct side *side = context;

	(void)peer;
	side->deaths++;
}

static void on_message(struct control_peer *peer, const void *data, uint32_t bytes, void *context)
{
	struct side *side = context;
	uint64_t value;

	(void)peer;
	assert_true(bytes >= sizeof(value));
	memcpy(&value, data, sizeof(value));
	assert_int_equal(value, side->next);
	side->next++;
	side->received++;
}

static void on_path(struct control_peer *peer, unsigned endpoint, bool up, void *context)
{
	struct side *side = context;

	(void)peer;
	side->paths = up ? side->paths | 1u << endpoint : side->paths & ~(1u << endpoint);
}

static const struct control_events events = {
	.up = on_up, .down = on_down, .message = on_message, .path = on_path, .died = on_died};

/* Of sides that are opened from now on. */
static uint64_t heartbeat_ns = 20 * MS, dead_ns = 5000 * MS;
static unsigned endpoints = 3;

/* The same in a child of this process. */
static struct hf_addr side_address(unsigned number, unsigned endpoint)
{
	static unsigned process;
	char text[HF_ADDR_TEXT];
	struct hf_addr address;

	process = process == 0 ? (unsigned)getpid() : process;
	snprintf(text, sizeof(text), "127.%u.%u.%u:18600", 96 + (process >> 8) % 64, process & 0xff,
		1 + number * 3 + endpoint);
	assert_int_equal(hf_addr_parse(text, &address), 0);
	return address;
}

static void side_open(
	struct channel *channel, struct side *side, const char *name, unsigned number, uint64_t incarnation)
{
	static const char *const labels[] = {"r0", "r1", "@0"};
	struct control_config config = {.name = name,
		.incarnation = incarnation,
		.heartbeat_ns = heartbeat_ns,
		.misses = 4,
		.dead_ns = dead_ns,
		.endpoint_count = endpoints,
		.endpoints = side->endpoints};
	struct hf_error error = {0};

	for (unsigned i = 0; i < 3; i++) {
		snprintf(side->endpoints[i].label, sizeof(side->endpoints[i].label), "%s", labels[i]);
		side->endpoints[i].addr = side_address(number, i);
	}
	if (control_open(channel->loop, &config, &events, side, &side->control, &error) != 0)
		fail_msg("%s", error.text);
}

static void channel_open(struct channel *channel)
{
	*channel = (struct channel){0};
	assert_int_equal(hf_loop_create(hf_env_host(), &channel->loop), 0);
	side_open(channel, &channel->a, "a", 0, 11);
	side_open(channel, &channel->b, "b", 1, 22);
}

static void channel_close(struct channel *channel)
{
	control_close(channel->a.control);
	control_close(channel->b.control);
	hf_loop_destroy(channel->loop);
}

static void until(struct channel *channel, bool (*done)(const struct channel *channel))
{
	uint64_t end_ns = hf_env_now_ns(hf_env_host()) + 20000 * MS;

	while (!done(channel)) {
		assert_true(hf_env_now_ns(hf_env_host()) < end_ns);
		hf_loop_turn(channel->loop, 5 * MS);
	}
}

static bool all_paths(const struct channel *channel)
{
	return channel->a.paths == 7 && channel->b.paths == 7;
}

static void a_connects_to_the_second_address_of_b(struct channel *channel)
{
	struct control_peer *peer;

	assert_int_equal(control_connect(channel->a.control, &channel->b.endpoints[1].addr, 1, NULL, &peer), 0);
	until(channel, all_paths);
}

static void send_n(struct side *side, uint64_t first, unsigned n)
{
	for (uint64_t value = first; value < first + n; value++)
		assert_int_equal(control_send(side->peer, &value, sizeof(value)), 0);
}

static void one_address_brings_up_every_path(void **state)
{
	struct channel channel;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	assert_int_equal(channel.a.ups, 1);
	assert_int_equal(channel.b.ups, 1);
	assert_string_equal(control_peer_name(channel.a.peer), "b");
	assert_string_equal(control_peer_name(channel.b.peer), "a");
	channel_close(&channel);
}

static void what_a_peer_has_said_is_heard_without_waiting_for_the_loop(void **state)
{
	struct channel channel;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	send_n(&channel.a, 0, 2);
	assert_int_equal(channel.b.received, 0);
	control_hear(channel.b.peer);
	assert_int_equal(channel.b.received, 2);
	control_hear(channel.b.peer); /* nothing is no fault */
	assert_int_equal(channel.b.paths, 7);
	channel_close(&channel);
}

static bool b_has_2000(const struct channel *channel)
{
	return channel->b.received == 2000;
}

static void messages_outlive_the_path_they_were_sent_on(void **state)
{
	struct channel channel;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	send_n(&channel.a, 0, 1000);
	control_enable(channel.b.control, 0, false); /* falls silent under them */
	send_n(&channel.a, 1000, 1000);
	until(&channel, b_has_2000);
	control_enable(channel.b.control, 0, true);
	until(&channel, all_paths);
	assert_int_equal(channel.a.downs, 0);
	channel_close(&channel);
}

static bool b_has_60000(const struct channel *channel)
{
	return channel->b.received == 60000;
}

/* Each is found without looking through the others, or this does not end in time. */
static void tens_of_thousands_of_messages_wait_for_a_path(void **state)
{
	struct channel channel;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	for (unsigned i = 0; i < 3; i++)
		control_enable(channel.b.control, i, false);
	send_n(&channel.a, 0, 60000);
	for (unsigned i = 0; i < 3; i++)
		control_enable(channel.b.control, i, true);
	until(&channel, b_has_60000);
	channel_close(&channel);
}

static bool a_sees_the_cut(const struct channel *channel)
{
	return channel->a.paths == 6;
}

static bool a_has_no_peer(const struct channel *channel)
{
	return channel->a.downs == 1;
}

/* Whoever is told only some of what is said to it goes wrong. */
static void a_peer_for_whom_no_more_can_be_kept_goes_down(void **state)
{
	struct channel channel;
	uint64_t value = 0;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	for (unsigned i = 0; i < 2; i++)
		control_enable(channel.a.control, i, false);
	while (control_send(channel.a.peer, &value, sizeof(value)) == 0)
		value++;
	assert_int_equal(value, SESSION_QUEUED_MAX);
	until(&channel, a_has_no_peer);
	channel_close(&channel);
}

static void a_cut_path_looks_cut_and_is_not_closed(void **state)
{
	struct channel channel;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	control_enable(channel.b.control, 0, false);
	assert_int_equal(channel.b.paths, 6); /* b knows at once */
	hf_loop_turn(channel.loop, 0);
	hf_loop_turn(channel.loop, 0);
	assert_int_equal(channel.a.paths, 7); /* a has to miss heartbeats */
	until(&channel, a_sees_the_cut);
	channel_close(&channel);
}

static bool a_met_the_successor(const struct channel *channel)
{
	return channel->a.downs == 1;
}

static bool the_successor_is_up(const struct channel *channel)
{
	return channel->a.peer != NULL && control_peer_incarnation(channel->a.peer) == 33 && channel->a.paths == 7;
}

static void a_restarted_peer_is_another_peer(void **state)
{
	struct control_peer *peer;
	struct channel channel;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	send_n(&channel.a, 0, 10);
	/* It dies without a word: every path falls silent, then its addresses are somebody else's. */
	for (unsigned i = 0; i < 3; i++)
		control_enable(channel.b.control, i, false);
	control_close(channel.b.control);
	channel.b = (struct side){0};
	side_open(&channel, &channel.b, "b", 1, 33);
	until(&channel, a_met_the_successor);
	assert_int_equal(control_connect(channel.a.control, &channel.b.endpoints[0].addr, 1, NULL, &peer), 0);
	until(&channel, the_successor_is_up);
	assert_int_equal(channel.b.received, 0); /* nothing of the old conversation reaches it */
	channel_close(&channel);
}

static bool has_all_paths(const struct channel *channel)
{
	return channel->a.paths == 7;
}

static bool has_died(const struct channel *channel)
{
	return channel->a.deaths == 1;
}

static void open_and_connect(struct channel *channel, struct side *side, unsigned number, bool dials)
{
	struct hf_addr there = side_address(1 - number, 0);
	struct control_peer *peer;

	assert_int_equal(hf_loop_create(hf_env_host(), &channel->loop), 0);
	side_open(channel, side, number == 0 ? "a" : "b", number, 11 + 11 * number);
	if (dials)
		assert_int_equal(control_connect(side->control, &there, 1, NULL, &peer), 0);
}

/* R-G5, by a real kernel: the process is killed that dialed, or the other one. */
static void the_end_of_a_process_is_noticed(void **state)
{
	(void)state;
	for (unsigned dialer = 0; dialer < 2; dialer++) {
		struct channel channel = {0};
		pid_t child;

		(void)side_address(0, 0);
		child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			open_and_connect(&channel, &channel.b, 1, dialer == 1);
			for (;;)
				hf_loop_turn(channel.loop, 5 * MS);
		}
		open_and_connect(&channel, &channel.a, 0, dialer == 0);
		until(&channel, has_all_paths);
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		until(&channel, has_died);
		assert_int_equal(channel.a.downs, 0);
		control_close(channel.a.control);
		hf_loop_destroy(channel.loop);
	}
}

/* As after a long cut, or when the BYE is lost: one side gives the other up, which knows nothing of that. */
static void give_up_silently(struct channel *channel, struct side *side)
{
	for (unsigned i = 0; i < 3; i++)
		control_enable(side->control, i, false);
	control_peer_close(side->peer);
	side->peer = NULL;
	side->next = side->received = 0;
	for (unsigned i = 0; i < 3; i++)
		control_enable(side->control, i, true);
	hf_loop_turn(channel->loop, 0);
}

static bool both_have_10(const struct channel *channel)
{
	return channel->a.received == 10 && channel->b.received == 10;
}

static bool both_are_up_twice(const struct channel *channel)
{
	return channel->a.ups == 2 && channel->b.ups == 2 && all_paths(channel);
}

static void talk(struct channel *channel)
{
	channel->a.next = channel->b.next = channel->a.received = channel->b.received = 0;
	send_n(&channel->a, 0, 10);
	send_n(&channel->b, 0, 10);
	until(channel, both_have_10);
}

static void whoever_was_given_up_hears_of_it_when_it_is_dialed_again(void **state)
{
	struct control_peer *peer;
	struct channel channel;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	talk(&channel);
	give_up_silently(&channel, &channel.a);
	assert_int_equal(control_connect(channel.a.control, &channel.b.endpoints[0].addr, 1, NULL, &peer), 0);
	until(&channel, both_are_up_twice);
	assert_int_equal(channel.b.downs, 1);
	talk(&channel);
	channel_close(&channel);
}

static void whoever_was_given_up_hears_of_it_when_it_dials(void **state)
{
	struct control_peer *peer;
	struct channel channel;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	talk(&channel);
	give_up_silently(&channel, &channel.b);
	until(&channel, a_met_the_successor);
	assert_int_equal(control_connect(channel.a.control, &channel.b.endpoints[0].addr, 1, NULL, &peer), 0);
	until(&channel, both_are_up_twice);
	assert_int_equal(channel.a.downs, 1);
	talk(&channel);
	channel_close(&channel);
}

static bool the_path_is_up(const struct channel *channel)
{
	return channel->a.paths == 1 && channel->b.paths == 1;
}

static bool b_is_told(const struct channel *channel)
{
	return channel->b.downs == 1;
}

/* Over the one path, which nobody gives up: it cannot learn it otherwise. */
static void bye_waits_until_a_full_socket_has_room(void **state)
{
	static uint64_t large[CONTROL_MESSAGE_MAX / sizeof(uint64_t)];
	struct control_peer *peer;
	struct channel channel;

	(void)state;
	heartbeat_ns = dead_ns = 3600000 * MS;
	endpoints = 1;
	channel_open(&channel);
	heartbeat_ns = 20 * MS;
	dead_ns = 5000 * MS;
	endpoints = 3;
	assert_int_equal(control_connect(channel.a.control, &channel.b.endpoints[0].addr, 1, NULL, &peer), 0);
	until(&channel, the_path_is_up);
	for (large[0] = 0; framed_has_room(&peer->paths[0]->framed); large[0]++)
		assert_int_equal(control_send(peer, large, sizeof(large)), 0);
	control_peer_close(peer);
	channel.a.peer = NULL;
	until(&channel, b_is_told);
	channel_close(&channel);
}

/* ---- what a dead process left in a socket ---- */

#define DEAD 21 /* b's incarnation before this one */

static void write_frame(struct channel *channel, struct hf_io *io, const struct frame *frame)
{
	uint8_t at[FRAME_MAX];
	uint32_t bytes = frame_encode(frame, at);
	ssize_t n = -1;

	for (unsigned i = 0; i < 1000 && n < 0; i++) {
		n = hf_stream_write(io, at, bytes);
		hf_loop_turn(channel->loop, MS);
	}
	assert_int_equal(n, bytes);
}

static void write_hello_of_dead_b(struct channel *channel, struct hf_io *io)
{
	struct frame_hello hello = {.incarnation = DEAD, .name = "b", .endpoint_count = 1};
	uint8_t body[FRAME_BODY_MAX];
	struct frame frame = {.type = FRAME_HELLO, .body = body};

	hello.endpoints[0] = channel->b.endpoints[0];
	memcpy(hello.label, channel->a.endpoints[0].label, sizeof(hello.label));
	frame.body_bytes = frame_hello_encode(&hello, body);
	write_frame(channel, io, &frame);
}

static void b_is_still_b(struct channel *channel)
{
	for (unsigned i = 0; i < 20; i++)
		hf_loop_turn(channel->loop, MS);
	assert_int_equal(channel->a.downs, 0);
	send_n(&channel->a, 0, 2000);
	until(channel, b_has_2000);
	assert_int_equal(control_peer_incarnation(channel->a.peer), 22);
}

static void an_answer_that_a_dead_process_left_does_not_end_its_successor(void **state)
{
	struct hf_addr addresses[2], from;
	struct hf_io *listener, *io = NULL;
	struct control_peer *peer;
	struct channel channel;

	(void)state;
	channel_open(&channel);
	addresses[0] = addresses[1] = channel.b.endpoints[1].addr;
	hf_addr_set_port(&addresses[0], 18601); /* as if it was b's then */
	assert_int_equal(hf_stream_listen(hf_env_host(), &addresses[0], &listener, NULL), 0);
	assert_int_equal(control_connect(channel.a.control, addresses, 2, NULL, &peer), 0);
	until(&channel, all_paths);
	assert_int_equal(hf_stream_accept(listener, &io, &from), 0); /* dialed when nobody had answered yet */
	write_hello_of_dead_b(&channel, io);
	b_is_still_b(&channel);
	hf_io_close(io);
	hf_io_close(listener);
	channel_close(&channel);
}

static void nor_does_the_introduction_that_it_left(void **state)
{
	static const uint8_t no_proof[FRAME_PROOF_BYTES]; /* there is no secret */
	struct channel channel;
	struct hf_addr local;
	struct hf_io *io;

	(void)state;
	channel_open(&channel);
	assert_int_equal(hf_addr_parse("127.0.0.1", &local), 0);
	assert_int_equal(hf_stream_connect(hf_env_host(), &local, &channel.a.endpoints[0].addr, &io, NULL), 0);
	write_hello_of_dead_b(&channel, io);
	for (unsigned i = 0; i < 20; i++)
		hf_loop_turn(channel.loop, MS);
	a_connects_to_the_second_address_of_b(&channel);
	write_frame(
		&channel, io, &(struct frame){.type = FRAME_READY, .body = no_proof, .body_bytes = sizeof(no_proof)});
	b_is_still_b(&channel);
	hf_io_close(io);
	channel_close(&channel);
}

static unsigned lines;

static void count_line(enum log_level level, const char *line, void *context)
{
	(void)context;
	if (level >= LOG_WARN && strstr(line, "magic") != NULL)
		lines++;
}

static void whoever_speaks_garbage_is_disconnected_with_a_reason(void **state)
{
	struct channel channel;
	struct hf_addr local;
	struct hf_io *io;
	ssize_t n = -1;
	char end;

	(void)state;
	channel_open(&channel);
	a_connects_to_the_second_address_of_b(&channel);
	lines = 0;
	log_set_sink(count_line, NULL);
	assert_int_equal(hf_addr_parse("127.0.0.1", &local), 0);
	assert_int_equal(hf_stream_connect(hf_env_host(), &local, &channel.b.endpoints[0].addr, &io, NULL), 0);
	for (unsigned i = 0; i < 1000 && n < 0; i++) {
		n = hf_stream_write(io, "GET / HTTP/1.1\r\n\r\n", 18);
		hf_loop_turn(channel.loop, MS);
	}
	assert_int_equal(n, 18);
	do {
		hf_loop_turn(channel.loop, MS);
		n = hf_stream_read(io, &end, 1);
	} while (n > 0 || n == -EAGAIN);
	hf_io_close(io);
	log_set_sink(NULL, NULL);
	assert_int_equal(lines, 1);
	assert_int_equal(channel.b.downs, 0);
	send_n(&channel.a, 0, 2000);
	until(&channel, b_has_2000);
	channel_close(&channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_is_read_as_it_was_written),
		cmocka_unit_test(every_beginning_of_a_frame_asks_for_more),
		cmocka_unit_test(a_frame_with_any_bit_flipped_is_never_believed),
		cmocka_unit_test(garbage_is_refused_before_more_is_waited_for),
		cmocka_unit_test(a_hello_is_read_as_it_was_written),
		cmocka_unit_test(messages_move_to_another_path_from_the_first_unacknowledged_on),
		cmocka_unit_test(each_message_is_delivered_once_and_in_order),
		cmocka_unit_test(who_tells_of_less_than_was_said_before_has_forgotten_it),
		cmocka_unit_test(a_silent_path_is_lost_and_a_peer_without_paths_is_dead),
		cmocka_unit_test(a_process_has_died_when_its_streams_are_closed_and_connections_refused),
		cmocka_unit_test(refused_without_a_closed_stream_is_no_death),
		cmocka_unit_test(nobody_is_silent_while_this_process_does_not_run),
		cmocka_unit_test(a_peer_that_acknowledges_nothing_stops_the_queue),
		cmocka_unit_test(one_address_brings_up_every_path),
		cmocka_unit_test(what_a_peer_has_said_is_heard_without_waiting_for_the_loop),
		cmocka_unit_test(messages_outlive_the_path_they_were_sent_on),
		cmocka_unit_test(tens_of_thousands_of_messages_wait_for_a_path),
		cmocka_unit_test(a_peer_for_whom_no_more_can_be_kept_goes_down),
		cmocka_unit_test(a_cut_path_looks_cut_and_is_not_closed),
		cmocka_unit_test(the_end_of_a_process_is_noticed),
		cmocka_unit_test(a_restarted_peer_is_another_peer),
		cmocka_unit_test(whoever_was_given_up_hears_of_it_when_it_is_dialed_again),
		cmocka_unit_test(whoever_was_given_up_hears_of_it_when_it_dials),
		cmocka_unit_test(bye_waits_until_a_full_socket_has_room),
		cmocka_unit_test(an_answer_that_a_dead_process_left_does_not_end_its_successor),
		cmocka_unit_test(nor_does_the_introduction_that_it_left),
		cmocka_unit_test(whoever_speaks_garbage_is_disconnected_with_a_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
