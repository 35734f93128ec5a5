/* Runs of clients at a proxy that does not lead, on a channel to the leader's, and their replies.
 *
 * Messages, little-endian:
 *   HELLO     0 u8 type   1 u8 member
 *   RUN       0 u8 type   1 u8 kind     2 u16 0      4 u32 commands   8 u64 id   16 u64 session   24 u32 sequence
 *            28 u32 0    32 the commands
 *   ANSWER    0 u8 type   1 u8 status   2 u8 more    3 u8[5] 0        8 u64 id   16 a piece of the reply */
#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "proxy/objects.h"

enum { MESSAGE_HELLO = 1, MESSAGE_RUN, MESSAGE_ANSWER };
enum { HELLO_BYTES = 2, RUN_BYTES = 32, ANSWER_BYTES = 16 };
#define PIECE_BYTES (256u << 10)

/* A run of another proxy's client, at the leader. */
struct forwarded {
	struct run run;
	struct hf_peer *peer; /* NULL: gone, and the reply with it */
	struct list every;    /* of that peer's, or of the proxy's orphans */
	uint64_t id;          /* the other proxy's */
	size_t sent;          /* bytes of the reply */
};

/* What is kept for a peer with an open channel. */
struct forward_peer {
	struct list node;
	struct hf_peer *peer;
	int member;          /* -1: not told yet */
	struct list answers; /* that wait for room */
	struct list runs;
	struct resp_out reply; /* of an answer in pieces */
};

static struct forward_peer *state_of(struct proxy *proxy, struct hf_peer *peer)
{
	return hf_channel_peer_context(proxy->channel, peer);
}

static void forwarded_free(struct forwarded *forwarded)
{
	list_remove(&forwarded->every);
	list_remove(&forwarded->run.node);
	proxy_run_free(&forwarded->run);
	free(forwarded);
}

/* ---- the leader's end ---- */

/* Sends what there is room for; false: there is no more room. */
static bool send_answer(struct forwarded *forwarded)
{
	struct run *run = &forwarded->run;
	size_t left = run->reply.bytes - forwarded->sent, piece = left < PIECE_BYTES ? left : PIECE_BYTES;
	uint8_t head[ANSWER_BYTES] = {MESSAGE_ANSWER, (uint8_t)run->status, piece < left};
	struct resp_out *message = &run->entry;
	int rc;

	put_le64(head + 8, forwarded->id);
	message->bytes = 0;
	resp_out_raw(message, head, sizeof(head));
	if (piece > 0)
		resp_out_raw(message, run->reply.data + forwarded->sent, piece);
	rc = message->failed ? -ENOMEM
			     : hf_channel_send(run->proxy->channel, forwarded->peer, message->data, message->bytes);
	if (rc == -EAGAIN)
		return false;
	forwarded->sent += piece;
	if (rc != 0 || piece == left)
		forwarded_free(forwarded);
	return true;
}

static void send_answers(struct forward_peer *state)
{
	while (!list_empty(&state->answers))
		if (!send_answer(container_of(state->answers.next, struct forwarded, run.node)))
			return;
}

static void forwarded_done(struct run *run)
{
	struct forwarded *forwarded = container_of(run, struct forwarded, run);
	struct forward_peer *state;

	if (forwarded->peer == NULL) {
		forwarded_free(forwarded);
		return;
	}
	if (run->status != RUN_ANSWERED)
		run->reply.bytes = 0;
	state = state_of(run->proxy, forwarded->peer);
	list_push_back(&state->answers, &run->node);
	send_answers(state);
}

static void hear_run(struct proxy *proxy, struct hf_peer *peer, const uint8_t *data, size_t bytes)
{
	struct forward_peer *state = state_of(proxy, peer);
	struct forwarded *forwarded;

	if (bytes < RUN_BYTES || data[1] >= RUN_KINDS)
		return;
	forwarded = calloc(1, sizeof(*forwarded));
	if (forwarded == NULL)
		return; /* the other proxy's patience ends it */
	proxy_run_init(&forwarded->run, proxy, (enum run_kind)data[1]);
	forwarded->run.commands = get_le32(data + 4);
	forwarded->id = get_le64(data + 8);
	forwarded->run.session = get_le64(data + 16);
	forwarded->run.sequence = get_le32(data + 24);
	forwarded->run.done = forwarded_done;
	forwarded->peer = peer;
	list_push_back(&state->runs, &forwarded->every);
	resp_out_raw(&forwarded->run.raw, data + RUN_BYTES, bytes - RUN_BYTES);
	if (forwarded->run.raw.failed) {
		forwarded_free(forwarded);
		return;
	}
	proxy_lead(&forwarded->run);
}

/* ---- the client's end ---- */

bool proxy_forward(struct run *run, int member)
{
	struct proxy *proxy = run->proxy;
	struct hf_peer *peer = proxy->peers[member];
	uint8_t head[RUN_BYTES] = {MESSAGE_RUN, (uint8_t)run->kind};
	size_t before = run->entry.bytes;
	int rc;

	if (peer == NULL || !hf_channel_is_open(proxy->channel, peer))
		return false;
	put_le32(head + 4, run->commands);
	put_le64(head + 8, run->id);
	put_le64(head + 16, run->session);
	put_le32(head + 24, run->sequence);
	resp_out_raw(&run->entry, head, sizeof(head));
	resp_out_raw(&run->entry, run->raw.data, run->raw.bytes);
	rc = run->entry.failed
		     ? -ENOMEM
		     : hf_channel_send(proxy->channel, peer, run->entry.data + before, run->entry.bytes - before);
	resp_out_free(&run->entry);
	return rc == 0;
}

static void hear_answer(struct proxy *proxy, struct hf_peer *peer, const uint8_t *data, size_t bytes)
{
	struct forward_peer *state = state_of(proxy, peer);

	if (bytes < ANSWER_BYTES || data[1] >= RUN_STATUSES)
		return;
	resp_out_raw(&state->reply, data + ANSWER_BYTES, bytes - ANSWER_BYTES);
	if (data[2] != 0)
		return;
	proxy_route_answered(
		proxy, get_le64(data + 8), state->reply.failed ? RUN_LOST : (enum run_status)data[1], &state->reply);
	state->reply.bytes = 0;
	state->reply.failed = false;
}

/* ---- the channel ---- */

static void on_open(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct proxy *proxy = context;
	struct forward_peer *state = calloc(1, sizeof(*state));
	const uint8_t hello[HELLO_BYTES] = {MESSAGE_HELLO, proxy->id};

	if (state == NULL)
		return; /* nothing is forwarded to it */
	list_push_back(&proxy->forward_peers, &state->node);
	state->peer = peer;
	state->member = -1;
	list_init(&state->answers);
	list_init(&state->runs);
	hf_channel_set_peer_context(channel, peer, state);
	(void)hf_channel_send(channel, peer, hello, sizeof(hello));
}

static void on_message(struct hf_channel *channel, struct hf_peer *peer, const void *data, size_t bytes, void *context)
{
	struct proxy *proxy = context;
	struct forward_peer *state = hf_channel_peer_context(channel, peer);
	const uint8_t *message = data;

	if (state == NULL || bytes < HELLO_BYTES || proxy->closing)
		return;
	if (message[0] == MESSAGE_HELLO && message[1] < HF_SMR_MEMBERS_MAX) {
		state->member = message[1];
		if (proxy->peers[state->member] != NULL && proxy->peers[state->member] != peer) {
			proxy->peers[state->member] = NULL; /* it started again: its earlier process answers nothing */
			proxy_route_lost(proxy, state->member);
		}
		proxy->peers[state->member] = peer;
		proxy_route_again(proxy);
	} else if (message[0] == MESSAGE_RUN) {
		hear_run(proxy, peer, message, bytes);
	} else if (message[0] == MESSAGE_ANSWER) {
		hear_answer(proxy, peer, message, bytes);
	}
}

static void on_writable(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct forward_peer *state = hf_channel_peer_context(channel, peer);

	if (state != NULL)
		send_answers(state);
	proxy_route_again(context);
}

/* Runs that lead.c has end there, and their replies are dropped. */
static void forget_peer(struct proxy *proxy, struct forward_peer *state)
{
	while (!list_empty(&state->runs)) {
		struct forwarded *forwarded = container_of(list_pop_front(&state->runs), struct forwarded, every);

		forwarded->peer = NULL;
		if (forwarded->run.leading)
			list_push_back(&proxy->orphans, &forwarded->every);
		else
			forwarded_free(forwarded);
	}
	for (unsigned i = 0; i < HF_SMR_MEMBERS_MAX; i++)
		if (proxy->peers[i] == state->peer)
			proxy->peers[i] = NULL;
	list_remove(&state->node);
	resp_out_free(&state->reply);
	free(state);
}

static void on_end(struct hf_channel *channel, struct hf_peer *peer, void *context)
{
	struct proxy *proxy = context;
	struct forward_peer *state = hf_channel_peer_context(channel, peer);
	int member;

	if (state == NULL)
		return;
	member = state->member;
	hf_channel_set_peer_context(channel, peer, NULL);
	forget_peer(proxy, state);
	if (member >= 0 && proxy->peers[member] == NULL)
		proxy_route_lost(proxy, member);
}

int proxy_forward_open(struct proxy *proxy, struct hf_error *error)
{
	static const struct hf_channel_events events = {
		.open = on_open, .message = on_message, .writable = on_writable, .end = on_end};

	return hf_channel_register(proxy->node, "smr-proxy", &events, proxy, &proxy->channel, error);
}

void proxy_forward_close(struct proxy *proxy)
{
	hf_channel_close(proxy->channel);
	proxy->channel = NULL;
	while (!list_empty(&proxy->forward_peers))
		forget_peer(proxy, container_of(proxy->forward_peers.next, struct forward_peer, node));
	while (!list_empty(&proxy->orphans))
		forwarded_free(container_of(proxy->orphans.next, struct forwarded, every));
}
