/* Channels between two nodes: messages of all lengths, bounded queues, ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include <holdfast/channel.h>

#include "../vqp/pair.h"
#include "node/pieces.h"
#include "vqp/objects.h"

/* Message k of a side: its bytes begin at another letter each time. */
static uint8_t source[HF_CHANNEL_MESSAGE_BYTES + 256];

struct side {
	struct hf_channel *channel, *second;
	struct hf_peer *peer;
	unsigned opened, ended, received, wrong, writable, second_received;
	unsigned received_at_second; /* what `channel` had received when `second` got its first */
	unsigned peers_down_at_end;
	size_t last_bytes;
	bool closes; /* the channel, inside its message callback */
	struct end *end;
};

static struct side sides[2];
static size_t lengths[64];

static void on_open(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct side *side = context;

	assert_true(hf_channel_is_open(channel, peer));
	assert_null(hf_channel_peer_context(channel, peer));
	hf_channel_set_peer_context(channel, peer, side);
	side->peer = peer;
	side->opened++;
}

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct side *side = context;
	unsigned k = side->received++;

	if (side->closes) {
		hf_channel_close(channel);
		side->channel = NULL;
	} else {
		side->wrong += hf_channel_peer_context(channel, peer) != side;
	}
	side->wrong += k < 64 && (bytes != lengths[k] || memcmp(data, source + k, bytes) != 0);
	side->last_bytes = bytes;
}

static void on_writable(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct side *side = context;

	(void)channel, (void)peer;
	side->writable++;
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct side *side = context;

	assert_false(hf_channel_is_open(channel, peer));
	assert_ptr_equal(hf_channel_peer_context(channel, peer), side);
	side->peers_down_at_end = side->end->peers_down;
	side->ended++;
}

static void on_second(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct side *side = context;

	(void)channel, (void)peer, (void)data, (void)bytes;
	if (side->second_received++ == 0)
		side->received_at_second = side->received;
}

static const struct hf_channel_events events = {
	.open = on_open, .message = on_message, .writable = on_writable, .end = on_end};
static const struct hf_channel_events second_events = {.message = on_second};

static void reg(struct pair *pair, unsigned which)
{
	struct side *side = &sides[which];

	side->end = which == 0 ? &pair->a : &pair->b;
	assert_int_equal(hf_channel_register(side->end->node, "test", &events, side, &side->channel, NULL), 0);
	assert_int_equal(hf_channel_register(side->end->node, "second", &second_events, side, &side->second, NULL), 0);
}

static bool are_open(struct pair *pair)
{
	(void)pair;
	return sides[0].opened > 0 && sides[1].opened > 0;
}

static void open_both(struct pair *pair)
{
	memset(sides, 0, sizeof(sides));
	pair_open(pair, HF_POLICY_VARUNA);
	reg(pair, 0);
	reg(pair, 1);
	assert_int_equal(hf_peer_connect(pair->a.node, pair->control[1], 2, &pair->a.peer, NULL), 0);
	assert_true(pair_until(pair, are_open));
}

static int send_message(unsigned which, unsigned k)
{
	return hf_channel_send(sides[which].channel, sides[which].peer, source + k, lengths[k]);
}

static unsigned count; /* of messages that are awaited at both sides */

static bool have_all(struct pair *pair)
{
	(void)pair;
	return sides[0].received == count && sides[1].received == count;
}

static void messages_of_any_length_arrive_in_order_and_whole(void **state)
{
	static const size_t some[] = {0, 1, 5, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 5000,
		70000, HF_CHANNEL_MESSAGE_BYTES, 3, 100000};
	struct pair pair;

	(void)state;
	open_both(&pair);
	count = sizeof(some) / sizeof(some[0]);
	memcpy(lengths, some, sizeof(some));
	for (unsigned k = 0; k < count; k++) {
		assert_int_equal(send_message(0, k), 0);
		assert_int_equal(send_message(1, k), 0);
	}
	pair_turn(&pair, 3, 0);
	assert_false(have_all(&pair));
	pair_cut(&pair, 0, false); /* the control path that carries them */
	assert_true(pair_until(&pair, have_all));
	assert_int_equal(sides[0].wrong + sides[1].wrong, 0);
	pair_turn_for(&pair, 50000000);
	assert_true(have_all(&pair)); /* and no more */
	pair_close(&pair);
}

static bool second_is_there(struct pair *pair)
{
	(void)pair;
	return sides[1].second_received == 1;
}

static void a_long_message_does_not_hold_up_another_channel(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	lengths[0] = HF_CHANNEL_MESSAGE_BYTES;
	assert_int_equal(send_message(0, 0), 0);
	assert_int_equal(hf_channel_send(sides[0].second, sides[0].peer, "now", 3), 0);
	assert_true(pair_until(&pair, second_is_there));
	assert_int_equal(sides[1].received_at_second, 0);
	pair_close(&pair);
}

static unsigned expected;

static bool has_received(struct pair *pair)
{
	(void)pair;
	return sides[1].received >= expected;
}

static bool is_writable(struct pair *pair)
{
	(void)pair;
	return sides[0].writable > 0;
}

static void a_full_queue_refuses_and_tells_when_there_is_room(void **state)
{
	struct pair pair;
	unsigned sent = 0;
	int rc;

	(void)state;
	open_both(&pair);
	for (unsigned k = 0; k < 64; k++)
		lengths[k] = HF_CHANNEL_MESSAGE_BYTES / 4;
	while ((rc = send_message(0, sent)) == 0)
		sent++;
	assert_int_equal(rc, -EAGAIN);
	assert_true(sent >= 7 && sent <= 9);
	assert_true(pair_until(&pair, is_writable));
	lengths[sent] = HF_CHANNEL_MESSAGE_BYTES;
	assert_int_equal(send_message(0, sent), 0);
	expected = sent + 1;
	assert_true(pair_until(&pair, has_received));
	assert_int_equal(sides[1].wrong, 0);
	assert_int_equal(sides[0].writable, 1);
	pair_close(&pair);
}

/* Also of messages without bytes: each takes memory. */
static void short_messages_fill_the_queue_too(void **state)
{
	struct pair pair;
	unsigned sent = 0;

	(void)state;
	open_both(&pair);
	while (hf_channel_send(sides[0].channel, sides[0].peer, NULL, 0) == 0 && sent < HF_CHANNEL_QUEUE_BYTES)
		sent++;
	assert_true(sent < HF_CHANNEL_QUEUE_BYTES / 32);
	pair_close(&pair);
}

static void each_reason_why_nothing_can_be_sent_has_its_own_error(void **state)
{
	struct hf_error error = {0};
	struct hf_channel *channel;
	struct pair pair;

	(void)state;
	memset(sides, 0, sizeof(sides));
	pair_open(&pair, HF_POLICY_VARUNA);
	reg(&pair, 0);
	assert_int_equal(hf_peer_connect(pair.a.node, pair.control[1], 2, &pair.a.peer, NULL), 0);
	assert_int_equal(hf_channel_send(sides[0].channel, pair.a.peer, "x", 1), -ENOTCONN);
	while (pair.a.peers_up == 0)
		pair_turn(&pair, 1, 1000000);
	pair_turn_for(&pair, 20000000);
	assert_int_equal(sides[0].opened, 0);
	assert_int_equal(hf_channel_send(sides[0].channel, pair.a.peer, "x", 1), -EPROTONOSUPPORT);
	reg(&pair, 1);
	assert_true(pair_until(&pair, are_open));
	assert_int_equal(
		hf_channel_send(sides[0].channel, pair.a.peer, source, HF_CHANNEL_MESSAGE_BYTES + 1), -EMSGSIZE);
	lengths[0] = 1;
	assert_int_equal(send_message(0, 0), 0);
	assert_int_equal(hf_channel_register(pair.a.node, "test", &events, NULL, &channel, &error), -EEXIST);
	assert_non_null(strstr(error.text, "'test'"));
	assert_int_equal(hf_channel_register(pair.a.node, "", &events, NULL, &channel, &error), -EINVAL);
	pair_close(&pair);
}

static bool has_ended(struct pair *pair)
{
	(void)pair;
	return sides[0].ended > 0;
}

static void the_end_comes_once_and_before_peer_down(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	lengths[0] = HF_CHANNEL_MESSAGE_BYTES;
	assert_int_equal(send_message(0, 0), 0);
	pair_turn(&pair, 3, 0);
	pair_close_end(&pair, &pair.b);
	assert_true(pair_until(&pair, has_ended));
	assert_int_equal(sides[0].peers_down_at_end, 0);
	pair_turn_for(&pair, 20000000);
	assert_int_equal(sides[0].ended, 1);
	assert_int_equal(pair.a.peers_down, 1);
	assert_int_equal(sides[1].ended, 1);                  /* hf_node_close ended it there */
	pair_open_end(&pair, &pair.b, "b", HF_POLICY_VARUNA); /* for pair_close */
	pair_close(&pair);
}

static bool is_open_again(struct pair *pair)
{
	(void)pair;
	return sides[0].opened == 2 && sides[1].opened == 2;
}

/* What a has sent to the registration of before is nothing to the new one (CHAN-2). */
static void a_new_registration_gets_nothing_that_was_sent_to_the_one_before(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	for (unsigned k = 0; k < 3; k++)
		lengths[k] = 100000;
	assert_int_equal(send_message(0, 0), 0);
	assert_int_equal(send_message(0, 1), 0);
	pair_turn(&pair, 4, 0);
	hf_channel_close(sides[1].channel);
	assert_int_equal(hf_channel_register(pair.b.node, "test", &events, &sides[1], &sides[1].channel, NULL), 0);
	sides[1].received = 0;
	assert_true(pair_until(&pair, is_open_again));
	assert_int_equal(sides[0].ended, 1);
	assert_int_equal(sides[1].ended, 0);
	pair_turn_for(&pair, 20000000);
	assert_int_equal(sides[1].received, 0);
	assert_int_equal(send_message(0, 0), 0);
	expected = 1;
	assert_true(pair_until(&pair, has_received));
	assert_int_equal(sides[1].wrong, 0);
	pair_close(&pair);
}

static void a_channel_may_be_closed_inside_its_own_callback(void **state)
{
	struct pair pair;

	(void)state;
	open_both(&pair);
	lengths[0] = lengths[1] = 100000;
	sides[1].closes = true;
	assert_int_equal(send_message(0, 0), 0);
	assert_int_equal(send_message(0, 1), 0);
	assert_true(pair_until(&pair, has_ended));
	assert_int_equal(sides[1].received, 1);
	assert_int_equal(sides[1].wrong, 0);
	pair_close(&pair);
}

static bool is_down(struct pair *pair)
{
	return pair->a.peers_down == 1;
}

/* A peer that breaks the rules: what follows could be anything, so nothing of it is delivered. */
static void a_peer_whose_pieces_do_not_fit_goes_down(void **state)
{
	struct {
		struct message_head head;
		uint32_t left;
		uint16_t bytes;
		uint8_t data[PIECE_BYTES];
	} piece = {.left = 5000, .bytes = PIECE_BYTES};
	struct pair pair;

	(void)state;
	open_both(&pair);
	piece.head.kind = pair.a.node->kinds.by_number[MESSAGE_PIECE];
	piece.head.to = 1;
	piece.head.from = pair.a.peer->channels.ends[0].theirs;
	piece.head.kind->take(pair.a.peer, &piece.head);
	assert_false(pair.a.peer->failed);
	piece.left = 4000; /* 3,016 would follow */
	piece.head.kind->take(pair.a.peer, &piece.head);
	assert_true(pair.a.peer->failed);
	assert_true(pair_until(&pair, is_down));
	assert_int_equal(sides[0].ended, 1);
	assert_int_equal(sides[0].received, 0);
	pair_close(&pair);
}

/* ---- pieces ---- */

static void memory_grows_with_what_has_arrived(void **state)
{
	static uint8_t piece[PIECE_BYTES];
	struct pieces pieces = {0};
	const uint8_t *message;
	uint32_t bytes, left = HF_CHANNEL_MESSAGE_BYTES - PIECE_BYTES;

	(void)state;
	assert_int_equal(pieces_add(&pieces, piece, PIECE_BYTES, left, &message, &bytes), PIECES_MORE);
	assert_true(pieces.room <= 4 * PIECE_BYTES);
	for (; left > 0; left -= bytes) {
		bytes = pieces_next(left, 0);
		if (pieces_add(&pieces, piece, bytes, left - bytes, &message, &bytes) == PIECES_WHOLE)
			break;
		bytes = PIECE_BYTES;
		assert_true(pieces.room <= HF_CHANNEL_MESSAGE_BYTES);
	}
	assert_int_equal(bytes, HF_CHANNEL_MESSAGE_BYTES);
	pieces_reset(&pieces);
}

static void pieces_that_do_not_fit_are_refused(void **state)
{
	static uint8_t piece[PIECE_BYTES];
	struct pieces pieces = {0};
	const uint8_t *message;
	uint32_t bytes;

	(void)state;
	assert_int_equal(pieces_add(&pieces, piece, 5, 1, &message, &bytes), PIECES_VIOLATION); /* not full */
	assert_int_equal(pieces_add(&pieces, piece, PIECE_BYTES, HF_CHANNEL_MESSAGE_BYTES, &message, &bytes),
		PIECES_VIOLATION); /* too long */
	assert_int_equal(pieces_add(&pieces, piece, PIECE_BYTES, 10, &message, &bytes), PIECES_MORE);
	assert_int_equal(pieces_add(&pieces, piece, 9, 0, &message, &bytes), PIECES_VIOLATION);
	assert_int_equal(pieces_add(&pieces, piece, 10, 0, &message, &bytes), PIECES_WHOLE);
	assert_int_equal(bytes, PIECE_BYTES + 10);
	pieces_reset(&pieces);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_any_length_arrive_in_order_and_whole),
		cmocka_unit_test(a_long_message_does_not_hold_up_another_channel),
		cmocka_unit_test(a_full_queue_refuses_and_tells_when_there_is_room),
		cmocka_unit_test(short_messages_fill_the_queue_too),
		cmocka_unit_test(each_reason_why_nothing_can_be_sent_has_its_own_error),
		cmocka_unit_test(the_end_comes_once_and_before_peer_down),
		cmocka_unit_test(a_new_registration_gets_nothing_that_was_sent_to_the_one_before),
		cmocka_unit_test(a_channel_may_be_closed_inside_its_own_callback),
		cmocka_unit_test(a_peer_whose_pieces_do_not_fit_goes_down),
		cmocka_unit_test(memory_grows_with_what_has_arrived),
		cmocka_unit_test(pieces_that_do_not_fit_are_refused),
	};

	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (uint8_t)(i * 7 + i / 251);
	if (argc > 1)
		pair_kind = argv[1];
	return cmocka_run_group_tests_name("channels", tests, NULL, NULL);
}
