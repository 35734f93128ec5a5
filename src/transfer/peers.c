/* Other engines: the channel to them opens, says what they have registered, and ends. */
#include "transfer/engine.h"

#include <stdlib.h>

#include "base/log.h"
#include "node/peer.h"
#include "transfer/say.h"

bool peer_is_released(const struct peer *peer)
{
	return rdma_peer_is_released(&peer->rails[0]) && rdma_peer_is_released(&peer->rails[1]) &&
	       tcp_peer_is_released(&peer->tcp);
}

unsigned peer_transports(const struct peer *peer)
{
	const struct hf_transfer *engine = peer->engine;
	uint32_t common = 0;

	for (unsigned i = 0; i < hf_node_rails(engine->node); i++)
		if (hf_peer_rail(peer->node_peer, i) != HF_RAIL_PEER)
			common |= 1u << i;
	return (unsigned)((common & engine->shm.rails) != 0) + (unsigned)((common & engine->rdma.rails) != 0) +
	       (unsigned)(engine->target != NULL && peer->segment.view->tcp_family != 0);
}

static struct peer *peer_of(struct hf_channel *channel, struct hf_peer *node_peer)
{
	return hf_channel_peer_context(channel, node_peer);
}

/* ---- what we say ---- */

void peers_tell_segment(struct hf_transfer *engine)
{
	say_describe_segment(engine, &engine->said->segment);
	if (segment_set(&engine->own.self.segment, &engine->said->segment) != 0)
		log_error("transfer: no memory for the list of %u own buffers: copies within the engine use the one "
			  "before",
			engine->buffers.count);
	list_for_each (at, &engine->peers) {
		struct peer *peer = container_of(at, struct peer, link);

		if (peer->node_peer != NULL)
			say_segment(peer);
	}
}

static bool tell_released(struct peer *peer)
{
	if (!peer->owes_release || peer->node_peer == NULL || !peer_is_released(peer))
		return false;
	peer->owes_release = false;
	say_released(peer, peer->segment.view->generation);
	return true;
}

/* ---- what we hear ---- */

static void on_open(struct hf_channel *channel, struct hf_peer *node_peer, void *context)
{
	struct hf_transfer *engine = context;
	struct peer *peer = calloc(1, sizeof(*peer));

	if (peer == NULL || segment_init(&peer->segment, peer) != 0) {
		free(peer);
		log_error("transfer: no memory for peer %s: nothing is transferred to it", hf_peer_name(node_peer));
		return;
	}
	peer->engine = engine;
	peer->node_peer = node_peer;
	peer->first_epoch = engine->tcp.next_epoch;
	list_init(&peer->unsaid);
	rdma_peer_init(&peer->rails[0], &engine->shm, peer);
	rdma_peer_init(&peer->rails[1], &engine->rdma, peer);
	tcp_peer_init(&peer->tcp, &engine->tcp, peer);
	list_push_back(&engine->peers, &peer->link);
	hf_channel_set_peer_context(channel, node_peer, peer);
	say_segment(peer);
}

static void hear_segment(struct peer *peer, const struct wire_segment *segment)
{
	struct hf_transfer *engine = peer->engine;

	if (segment_set(&peer->segment, segment) != 0) {
		log_error("transfer: no memory for the list of the %u buffers of peer %s: requests to new ones fail",
			segment->count, hf_peer_name(peer->node_peer));
		return;
	}
	peer->owes_release = true;
	if (segment->first_epoch - 1 > peer->fenced_epoch)
		peer->fenced_epoch = segment->first_epoch - 1;
	if (engine->events.segment != NULL)
		engine->events.segment(engine, peer->node_peer, engine->context);
}

static void hear_fence(struct peer *peer, uint32_t epoch)
{
	uint64_t answered = 0;

	if (epoch > peer->fenced_epoch)
		peer->fenced_epoch = epoch;
	if (peer->engine->target != NULL)
		answered = tcp_target_fence(peer->engine->target, peer->segment.view->incarnation, epoch);
	say_fenced(peer, epoch, answered);
}

static void on_message(
	struct hf_channel *channel, struct hf_peer *node_peer, const void *data, size_t bytes, void *context)
{
	struct hf_transfer *engine = context;
	union wire_message *message = engine->heard;
	struct peer *peer = peer_of(channel, node_peer);
	enum wire_kind kind;

	if (peer == NULL)
		return;
	if (!wire_decode(data, bytes, &kind, message)) {
		log_warn("transfer: a malformed message of peer %s was dropped; run the same version at both ends",
			hf_peer_name(node_peer));
		return;
	}
	switch (kind) {
	case WIRE_SEGMENT:
		hear_segment(peer, &message->segment);
		break;
	case WIRE_FENCE:
		hear_fence(peer, message->fence.epoch);
		break;
	case WIRE_FENCED:
		tcp_peer_fenced(&peer->tcp, message->fence.epoch, message->fence.answered);
		break;
	case WIRE_RELEASED:
		peer->released = message->released.generation;
		break;
	}
}

static void free_unless_opened(struct peer *peer)
{
	if (peer->segment.opened || peer->leaving || peer->node_peer != NULL)
		return;
	list_remove(&peer->link);
	segment_free(&peer->segment);
	free(peer);
}

void peer_close_segment(struct peer *peer)
{
	peer->segment.opened = false;
	free_unless_opened(peer);
}

/* It may execute what was sent to it until over_ns; turns end the slices. No task ends here, since its `idle` must not
 * run within a callback of the node. */
static void leave(struct peer *peer)
{
	struct hf_transfer *engine = peer->engine;

	if (engine->target != NULL && peer->segment.view->incarnation != 0)
		tcp_target_end(engine->target, peer->segment.view->incarnation);
	say_nothing_more(peer);
	peer->over_ns = peer_lease_over_ns(peer->node_peer);
	peer->node_peer = NULL;
	peer->leaving = true;
}

/* Its slices have ended, or those of the engine have. The peer stays while the caller may name its segment. */
static void close_peer(struct peer *peer)
{
	rdma_peer_close(&peer->rails[0]);
	rdma_peer_close(&peer->rails[1]);
	tcp_peer_close(&peer->tcp);
	peer->leaving = false;
	free_unless_opened(peer);
}

static void on_writable(struct hf_channel *channel, struct hf_peer *node_peer, void *context)
{
	struct peer *peer = peer_of(channel, node_peer);

	(void)context;
	if (peer != NULL)
		say_waiting(peer);
}

static void on_end(struct hf_channel *channel, struct hf_peer *node_peer, void *context)
{
	struct peer *peer = peer_of(channel, node_peer);

	(void)context;
	if (peer != NULL)
		leave(peer);
}

const struct hf_channel_events peers_channel_events = {
	.open = on_open, .message = on_message, .writable = on_writable, .end = on_end};

static const struct peer *find(const struct hf_transfer *engine, uint64_t incarnation)
{
	list_for_each (at, &engine->peers) {
		const struct peer *peer = container_of(at, struct peer, link);

		if (peer->node_peer != NULL && peer->segment.view->incarnation == incarnation)
			return peer;
	}
	return NULL;
}

bool peers_admit(void *engine, uint64_t initiator, uint32_t epoch)
{
	const struct peer *peer = find(engine, initiator);

	return peer != NULL && epoch > peer->fenced_epoch;
}

uint64_t peers_lease_until_ns(void *engine, uint64_t initiator)
{
	const struct peer *peer = find(engine, initiator);

	return peer == NULL ? 0 : peer_lease_until_ns(peer->node_peer);
}

/* ---- turns ---- */

static void close_left(struct hf_transfer *engine)
{
	list_for_each_safe (at, &engine->peers) {
		struct peer *peer = container_of(at, struct peer, link);

		if (peer->leaving && rdma_peer_has_ended(&peer->rails[0]) && rdma_peer_has_ended(&peer->rails[1]) &&
			tcp_peer_has_ended(&peer->tcp))
			close_peer(peer);
	}
}

bool peers_turn(struct hf_transfer *engine, uint64_t now_ns)
{
	bool busy = false;

	list_for_each (at, &engine->peers) {
		struct peer *peer = container_of(at, struct peer, link);

		if (peer->node_peer == NULL && !peer->leaving)
			continue;
		busy |= rdma_peer_turn(&peer->rails[0], now_ns);
		busy |= rdma_peer_turn(&peer->rails[1], now_ns);
		busy |= tcp_peer_turn(&peer->tcp, now_ns);
		busy |= tell_released(peer);
	}
	close_left(engine);
	return busy;
}

uint64_t peers_wake_ns(const struct hf_transfer *engine)
{
	uint64_t wake_ns = UINT64_MAX;

	list_for_each (at, &engine->peers) {
		const struct peer *peer = container_of(at, struct peer, link);
		const uint64_t wakes[] = {rdma_peer_wake_ns(&peer->rails[0]), rdma_peer_wake_ns(&peer->rails[1]),
			tcp_peer_wake_ns(&peer->tcp)};

		for (unsigned i = 0; peer->node_peer != NULL && i < sizeof(wakes) / sizeof(*wakes); i++)
			if (wakes[i] < wake_ns)
				wake_ns = wakes[i];
	}
	return wake_ns;
}

void peers_close(struct hf_transfer *engine)
{
	while (!list_empty(&engine->peers)) {
		struct peer *peer = container_of(engine->peers.next, struct peer, link);

		peer->segment.opened = false;
		if (peer->node_peer != NULL)
			leave(peer);
		if (peer->leaving)
			close_peer(peer);
		else
			free_unless_opened(peer);
	}
}
