/* Channels between the same layers of two nodes. Kinds of messages (message.h); `to` and `from` are numbers of
 * channels, which a node gives once:
 *
 *   CHANNEL_OPEN   from; name[32]                          the sender has registered the name
 *   CHANNEL_CLOSE  from                                    and has closed it
 *   PIECE          to, from; u32 left, u16 bytes, bytes    of a message (pieces.h)
 *   CREDIT         u32 taken                               pieces that the sender has taken, in all
 *
 * A node sends at most WINDOW pieces to a peer ahead of its credit, of all channels in turn. What waits is kept here;
 * so a message of vqps never has more than WINDOW pieces before it on the way.
 *
 * Invariants:
 *   CHAN-1  left - credited <= WINDOW.
 *   CHAN-2  A piece is delivered to the registration that it was sent to: numbers are not used again, so what was on
 *           its way to a channel that closed finds no other.
 *   CHAN-3  `end` follows each `open`, and nothing comes between `end` and the next `open`. */
#include "node/channels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/states.h"
#include "base/log.h"
#include "node/node.h"
#include "node/peer.h"

#define WINDOW        16u
#define CREDIT_EVERY  4u
#define MESSAGE_EXTRA 64u /* counted for each message that waits, beside its bytes */
#define NUM_LAST      0xffffffu
/* What was refused fits when no more than this waits. */
#define WRITABLE_BYTES (HF_CHANNEL_QUEUE_BYTES - HF_CHANNEL_MESSAGE_BYTES - MESSAGE_EXTRA)

_Static_assert(CREDIT_EVERY <= WINDOW, "credit comes before the window is used up");
_Static_assert(HF_CHANNEL_QUEUE_BYTES >= HF_CHANNEL_MESSAGE_BYTES + MESSAGE_EXTRA, "the longest message fits");

struct hf_channel {
	struct hf_node *node;
	unsigned slot; /* in channels.at */
	uint32_t num;
	char name[HF_NAME_BYTES];
	struct hf_channel_events events;
	void *context;
};

struct waiting { /* a message in the queue of an end */
	struct list link;
	uint32_t bytes, sent;
	uint8_t data[];
};

/* ---- messages ---- */

struct open_message {
	struct message_head head;
	char name[HF_NAME_BYTES];
};

struct piece_message {
	struct message_head head;
	uint32_t left;
	uint16_t bytes;
	uint8_t data[PIECE_BYTES];
};
_Static_assert(sizeof(struct piece_message) <= MESSAGE_STRUCT_MAX, "a piece is a message");
_Static_assert(MESSAGE_HEAD_BYTES + 4 + 2 + PIECE_BYTES <= MESSAGE_MAX, "and fits into a frame");

struct credit_message {
	struct message_head head;
	uint32_t taken;
};

static const struct field open_fields[] = {FIELD_NAME(struct open_message, name)};
static const struct field piece_fields[] = {
	FIELD_MAX(struct piece_message, left, HF_CHANNEL_MESSAGE_BYTES),
	FIELD_MAX(struct piece_message, bytes, PIECE_BYTES),
	FIELD_COUNTED(struct piece_message, data, bytes),
};
static const struct field credit_fields[] = {FIELD_ANY(struct credit_message, taken)};

static void take_open(struct hf_peer *peer, const struct message_head *head);
static void take_close(struct hf_peer *peer, const struct message_head *head);
static void take_piece(struct hf_peer *peer, const struct message_head *head);
static void take_credit(struct hf_peer *peer, const struct message_head *head);

static const struct message_kind open_kind =
	MESSAGE_KIND(MESSAGE_CHANNEL_OPEN, "CHANNEL_OPEN", struct open_message, open_fields, take_open);
static const struct message_kind close_kind =
	MESSAGE_KIND_BARE(MESSAGE_CHANNEL_CLOSE, "CHANNEL_CLOSE", struct message_head, take_close);
static const struct message_kind piece_kind =
	MESSAGE_KIND(MESSAGE_PIECE, "PIECE", struct piece_message, piece_fields, take_piece);
static const struct message_kind credit_kind =
	MESSAGE_KIND(MESSAGE_CREDIT, "CREDIT", struct credit_message, credit_fields, take_credit);

void channels_register(struct message_kinds *kinds)
{
	message_register(kinds, &open_kind);
	message_register(kinds, &close_kind);
	message_register(kinds, &piece_kind);
	message_register(kinds, &credit_kind);
}

static void say_open(const struct hf_channel *channel, struct hf_peer *peer)
{
	struct open_message message = {.head = {.kind = &open_kind, .from = channel->num}};

	memcpy(message.name, channel->name, sizeof(message.name));
	peer_send(peer, &message.head);
}

/* ---- an end: opens, ends ---- */

static const struct state channel_states[CHANNEL_STATES] = {
	[CHANNEL_ABSENT] = {"absent", BIT(CHANNEL_FOUND)},
	[CHANNEL_FOUND] = {"found", BIT(CHANNEL_OPEN) | BIT(CHANNEL_ABSENT)},
	[CHANNEL_OPEN] = {"open", BIT(CHANNEL_ABSENT)},
};

static struct channel_end *end_of(const struct hf_channel *channel, const struct hf_peer *peer)
{
	return (struct channel_end *)(uintptr_t)&peer->channels.ends[channel->slot];
}

static void end_move(struct hf_channel *channel, struct hf_peer *peer, enum channel_state to)
{
	states_move("channel", channel_states, &end_of(channel, peer)->state, to, "%s to %s", channel->name,
		hf_peer_name(peer));
}

static void found(struct hf_channel *channel, struct hf_peer *peer, uint32_t theirs)
{
	struct channel_end *end = end_of(channel, peer);

	end->theirs = theirs;
	end_move(channel, peer, CHANNEL_FOUND);
}

static void open_end(struct hf_channel *channel, struct hf_peer *peer)
{
	end_move(channel, peer, CHANNEL_OPEN);
	if (channel->events.open != NULL)
		channel->events.open(channel, peer, channel->context);
}

/* True: its layer is to be told. */
static bool reset_end(struct hf_channel *channel, struct hf_peer *peer)
{
	struct channel_end *end = end_of(channel, peer);
	bool was_open = end->state == CHANNEL_OPEN;
	struct list *at;

	if (end->state == CHANNEL_ABSENT)
		return false;
	end_move(channel, peer, CHANNEL_ABSENT);
	while ((at = list_pop_front(&end->queue)) != NULL)
		free(container_of(at, struct waiting, link));
	pieces_reset(&end->pieces);
	end->queued_bytes = end->theirs = 0;
	end->refused = false;
	return was_open;
}

static void end_end(struct hf_channel *channel, struct hf_peer *peer)
{
	if (reset_end(channel, peer) && channel->events.end != NULL)
		channel->events.end(channel, peer, channel->context);
	if (end_of(channel, peer)->state == CHANNEL_ABSENT)
		end_of(channel, peer)->context = NULL;
}

static struct hf_channel *find_name(const struct hf_node *node, const char *name)
{
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
		if (node->channels.at[i] != NULL && strcmp(node->channels.at[i]->name, name) == 0)
			return node->channels.at[i];
	return NULL;
}

static struct remote_channel *find_remote(struct hf_peer *peer, uint32_t num)
{
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
		if (peer->channels.remote[i].num == num)
			return &peer->channels.remote[i];
	return NULL;
}

static bool remote_has_name(const struct hf_peer *peer, const char *name)
{
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
		if (peer->channels.remote[i].num != 0 && strcmp(peer->channels.remote[i].name, name) == 0)
			return true;
	return false;
}

static void take_open(struct hf_peer *peer, const struct message_head *head)
{
	const struct open_message *message = (const void *)head;
	struct hf_channel *channel = find_name(peer->node, message->name);
	struct remote_channel *remote = find_remote(peer, 0);

	if (head->from == 0 || remote == NULL || find_remote(peer, head->from) != NULL ||
		remote_has_name(peer, message->name)) {
		peer_fail(peer, "it registers a channel twice, or too many of them");
		return;
	}
	remote->num = head->from;
	memcpy(remote->name, message->name, sizeof(remote->name));
	if (channel == NULL)
		return;
	found(channel, peer, head->from);
	open_end(channel, peer);
}

static void take_close(struct hf_peer *peer, const struct message_head *head)
{
	struct remote_channel *remote = head->from == 0 ? NULL : find_remote(peer, head->from);
	struct hf_channel *channel = remote == NULL ? NULL : find_name(peer->node, remote->name);

	if (remote == NULL)
		return;
	*remote = (struct remote_channel){0};
	if (channel != NULL)
		end_end(channel, peer);
}

/* ---- sending ---- */

/* The end that has waited longest for its turn; NULL: none has anything. */
static struct channel_end *next_end(struct peer_channels *channels)
{
	for (unsigned i = 1; i <= HF_CHANNELS_MAX; i++) {
		unsigned slot = (channels->turn + i) % HF_CHANNELS_MAX;

		if (!list_empty(&channels->ends[slot].queue)) {
			channels->turn = slot;
			return &channels->ends[slot];
		}
	}
	return NULL;
}

static void send_piece(struct hf_peer *peer, struct channel_end *end)
{
	const struct hf_channel *channel = peer->node->channels.at[peer->channels.turn];
	struct waiting *waiting = container_of(end->queue.next, struct waiting, link);
	struct piece_message message = {.head = {.kind = &piece_kind, .to = end->theirs, .from = channel->num}};

	message.bytes = (uint16_t)pieces_next(waiting->bytes, waiting->sent);
	memcpy(message.data, waiting->data + waiting->sent, message.bytes);
	waiting->sent += message.bytes;
	message.left = waiting->bytes - waiting->sent;
	peer->channels.left++;
	peer_send(peer, &message.head);
	if (message.left > 0)
		return;
	end->queued_bytes -= waiting->bytes + MESSAGE_EXTRA;
	list_remove(&waiting->link);
	free(waiting);
}

static void pump(struct hf_peer *peer)
{
	struct peer_channels *channels = &peer->channels;
	struct channel_end *end;

	while (channels->left - channels->credited < WINDOW && (end = next_end(channels)) != NULL)
		send_piece(peer, end);
}

int hf_channel_send(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes)
{
	struct channel_end *end = end_of(channel, peer);
	struct waiting *waiting;

	if (bytes > HF_CHANNEL_MESSAGE_BYTES)
		return -EMSGSIZE;
	if (!peer->up || peer->control == NULL)
		return -ENOTCONN;
	if (end->state == CHANNEL_ABSENT)
		return -EPROTONOSUPPORT;
	if (end->queued_bytes + bytes + MESSAGE_EXTRA > HF_CHANNEL_QUEUE_BYTES) {
		end->refused = true;
		return -EAGAIN;
	}
	waiting = malloc(sizeof(*waiting) + bytes);
	if (waiting == NULL)
		return -ENOMEM;
	waiting->bytes = (uint32_t)bytes;
	waiting->sent = 0;
	if (bytes > 0)
		memcpy(waiting->data, data, bytes);
	list_push_back(&end->queue, &waiting->link);
	end->queued_bytes += waiting->bytes + MESSAGE_EXTRA;
	pump(peer);
	return 0;
}

static void tell_writable(struct hf_peer *peer)
{
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++) {
		struct channel_end *end = &peer->channels.ends[i];
		struct hf_channel *channel = peer->node->channels.at[i];

		if (!end->refused || end->queued_bytes > WRITABLE_BYTES)
			continue;
		end->refused = false;
		if (channel->events.writable != NULL)
			channel->events.writable(channel, peer, channel->context);
	}
}

static void take_credit(struct hf_peer *peer, const struct message_head *head)
{
	const struct credit_message *message = (const void *)head;
	struct peer_channels *channels = &peer->channels;

	if (message->taken - channels->credited > channels->left - channels->credited) {
		peer_fail(peer, "it acknowledges more channel messages than this node sent");
		return;
	}
	channels->credited = message->taken;
	pump(peer);
	tell_writable(peer);
}

/* ---- receiving ---- */

static void say_credit(struct hf_peer *peer)
{
	struct credit_message message = {.head = {.kind = &credit_kind}, .taken = peer->channels.taken};

	if (peer->channels.taken - peer->channels.told < CREDIT_EVERY)
		return;
	peer->channels.told = peer->channels.taken;
	peer_send(peer, &message.head);
}

static struct hf_channel *find_num(const struct hf_node *node, uint32_t num)
{
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
		if (node->channels.at[i] != NULL && node->channels.at[i]->num == num)
			return node->channels.at[i];
	return NULL;
}

/* The layer may close the channel meanwhile: what it reads is not the end's any more. */
static void deliver(struct hf_channel *channel, struct hf_peer *peer, const uint8_t *data, uint32_t bytes)
{
	struct channel_end *end = end_of(channel, peer);
	struct pieces done = end->pieces;

	end->pieces = (struct pieces){0};
	if (channel->events.message != NULL)
		channel->events.message(channel, peer, data, bytes, channel->context);
	pieces_reset(&done);
}

static void take_into(struct hf_channel *channel, struct hf_peer *peer, const struct piece_message *message)
{
	struct channel_end *end = end_of(channel, peer);
	const uint8_t *data = NULL;
	uint32_t bytes = 0;

	switch (pieces_add(&end->pieces, message->data, message->bytes, message->left, &data, &bytes)) {
	case PIECES_MORE:
		break;
	case PIECES_WHOLE:
		deliver(channel, peer, data, bytes);
		break;
	case PIECES_VIOLATION:
		peer_fail(peer, "it left out pieces of a channel message");
		break;
	case PIECES_NO_MEMORY:
		peer_fail(peer, "no memory for a channel message from it");
		break;
	}
}

static void take_piece(struct hf_peer *peer, const struct message_head *head)
{
	const struct piece_message *message = (const void *)head;
	struct hf_channel *channel = find_num(peer->node, head->to);

	peer->channels.taken++;
	say_credit(peer);
	if (channel == NULL || end_of(channel, peer)->theirs != head->from)
		return; /* either side has closed it meanwhile (CHAN-2) */
	if (end_of(channel, peer)->state == CHANNEL_FOUND)
		open_end(channel, peer);
	if (find_num(peer->node, head->to) == channel && end_of(channel, peer)->state == CHANNEL_OPEN)
		take_into(channel, peer, message);
}

/* ---- registering ---- */

/* Of channels that were registered when peers had registered the name before. */
static void opens_due(struct hf_timer *timer, uint64_t now_ns)
{
	struct hf_node *node = container_of(timer, struct hf_node, channels.timer);

	(void)now_ns;
	list_for_each_safe (at, &node->peers) {
		struct hf_peer *peer = container_of(at, struct hf_peer, node_link);

		for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
			if (peer->channels.ends[i].state == CHANNEL_FOUND)
				open_end(node->channels.at[i], peer);
	}
}

static void join_peer(struct hf_channel *channel, struct hf_peer *peer)
{
	if (peer->channels.introduced)
		say_open(channel, peer);
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++) {
		const struct remote_channel *remote = &peer->channels.remote[i];

		if (remote->num != 0 && strcmp(remote->name, channel->name) == 0)
			found(channel, peer, remote->num);
	}
}

static int check_name(const struct hf_node *node, const char *name, struct hf_error *error)
{
	size_t length = strlen(name);

	if (length == 0 || length >= HF_NAME_BYTES)
		return hf_error_set(error, -EINVAL, "the name of a channel has 1 to %d letters", HF_NAME_BYTES - 1);
	if (find_name(node, name) != NULL)
		return hf_error_set(error, -EEXIST, "the channel '%s' is registered already", name);
	return 0;
}

int hf_channel_register(struct hf_node *node, const char *name, const struct hf_channel_events *events, void *context,
	struct hf_channel **channel_out, struct hf_error *error)
{
	struct hf_channel *channel;
	unsigned slot = 0;
	int rc = check_name(node, name, error);

	*channel_out = NULL;
	if (rc != 0)
		return rc;
	while (slot < HF_CHANNELS_MAX && node->channels.at[slot] != NULL)
		slot++;
	if (slot == HF_CHANNELS_MAX || node->channels.last_num == NUM_LAST)
		return hf_error_set(error, -ENOSPC, "a node has at most %u channels; close one first", HF_CHANNELS_MAX);
	channel = calloc(1, sizeof(*channel));
	if (channel == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for a channel");
	channel->node = node;
	channel->slot = slot;
	channel->num = ++node->channels.last_num;
	memcpy(channel->name, name, strlen(name));
	channel->events = *events;
	channel->context = context;
	node->channels.at[slot] = channel;
	list_for_each (at, &node->peers)
		join_peer(channel, container_of(at, struct hf_peer, node_link));
	hf_loop_set_timer(node->loop, &node->channels.timer, hf_loop_now_ns(node->loop));
	*channel_out = channel;
	return 0;
}

void hf_channel_close(struct hf_channel *channel)
{
	struct hf_node *node;

	if (channel == NULL)
		return;
	node = channel->node;
	list_for_each (at, &node->peers) {
		struct hf_peer *peer = container_of(at, struct hf_peer, node_link);
		const struct message_head message = {.kind = &close_kind, .from = channel->num};

		if (peer->channels.introduced)
			peer_send(peer, &message);
		(void)reset_end(channel, peer);
		end_of(channel, peer)->context = NULL;
	}
	node->channels.at[channel->slot] = NULL;
	free(channel);
}

bool hf_channel_is_open(const struct hf_channel *channel, const struct hf_peer *peer)
{
	return end_of(channel, peer)->state == CHANNEL_OPEN;
}

void hf_channel_set_peer_context(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	end_of(channel, peer)->context = context;
}

void *hf_channel_peer_context(const struct hf_channel *channel, const struct hf_peer *peer)
{
	return end_of(channel, peer)->context;
}

/* ---- of nodes and peers ---- */

void channels_init(struct channels *channels)
{
	channels->timer.fire = opens_due;
}

void channels_close(struct hf_node *node)
{
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
		hf_channel_close(node->channels.at[i]);
	hf_loop_cancel_timer(node->loop, &node->channels.timer);
}

void channels_peer_init(struct peer_channels *channels)
{
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
		list_init(&channels->ends[i].queue);
}

void channels_introduce(struct hf_peer *peer)
{
	peer->channels.introduced = true;
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
		if (peer->node->channels.at[i] != NULL)
			say_open(peer->node->channels.at[i], peer);
}

void channels_peer_end(struct hf_peer *peer)
{
	peer->channels.introduced = false;
	memset(peer->channels.remote, 0, sizeof(peer->channels.remote));
	for (unsigned i = 0; i < HF_CHANNELS_MAX; i++)
		if (peer->node->channels.at[i] != NULL)
			end_end(peer->node->channels.at[i], peer);
}
