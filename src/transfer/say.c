/* What an engine says to a peer. What its channel refuses waits, in order, until the channel is writable: a FENCE that
 * were lost would leave tasks pending for good (R-T3). */
#include "transfer/say.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transfer/engine.h"

/* A segment is told as it is when it is sent. */
struct unsaid {
	struct list link;
	enum wire_kind kind;
	struct wire_fence fence;
	struct wire_released released;
};

void say_describe_segment(struct hf_transfer *engine, struct wire_segment *segment)
{
	memset(segment, 0, offsetof(struct wire_segment, buffers));
	segment->incarnation = engine->incarnation;
	segment->probe = probe_describe(&engine->probe);
	buffers_describe(&engine->buffers, segment);
	if (engine->target != NULL) {
		struct hf_addr addr = tcp_target_addr(engine->target);

		wire_set_tcp(segment, &addr);
	}
}

static int send_now(struct peer *peer, const struct unsaid *unsaid)
{
	union wire_message *message = peer->engine->said;
	uint8_t *bytes = peer->engine->wire;

	if (unsaid->kind == WIRE_SEGMENT) {
		say_describe_segment(peer->engine, &message->segment);
		message->segment.first_epoch = peer->first_epoch;
	} else if (unsaid->kind == WIRE_RELEASED) {
		message->released = unsaid->released;
	} else {
		message->fence = unsaid->fence;
	}
	return hf_channel_send(
		peer->engine->channel, peer->node_peer, bytes, wire_encode(unsaid->kind, message, bytes));
}

/* The first one of a kind that waits; NULL: none does. */
static struct unsaid *waiting(struct peer *peer, enum wire_kind kind)
{
	list_for_each (at, &peer->unsaid) {
		struct unsaid *unsaid = container_of(at, struct unsaid, link);

		if (unsaid->kind == kind)
			return unsaid;
	}
	return NULL;
}

static int keep(struct peer *peer, const struct unsaid *unsaid)
{
	struct unsaid *kept = NULL;

	if (unsaid->kind == WIRE_SEGMENT || unsaid->kind == WIRE_RELEASED)
		kept = waiting(peer, unsaid->kind); /* the last word of these counts */
	if (kept == NULL) {
		kept = calloc(1, sizeof(*kept));
		if (kept == NULL)
			return -ENOMEM;
		list_push_back(&peer->unsaid, &kept->link);
	}
	kept->kind = unsaid->kind;
	kept->fence = unsaid->fence;
	kept->released = unsaid->released;
	return 0;
}

static void say(struct peer *peer, const struct unsaid *unsaid)
{
	int rc = list_empty(&peer->unsaid) ? send_now(peer, unsaid) : -EAGAIN;

	if (rc == -EAGAIN)
		rc = keep(peer, unsaid);
	if (rc != 0)
		log_error(
			"transfer: cannot send a message to peer %s (error %d); transfers to it wait until it is gone",
			hf_peer_name(peer->node_peer), -rc);
}

void say_segment(struct peer *peer)
{
	say(peer, &(struct unsaid){.kind = WIRE_SEGMENT});
}

void say_fence(struct peer *peer, uint32_t epoch)
{
	if (peer->node_peer != NULL)
		say(peer, &(struct unsaid){.kind = WIRE_FENCE, .fence = {.epoch = epoch}});
}

void say_fenced(struct peer *peer, uint32_t epoch, uint64_t answered)
{
	say(peer, &(struct unsaid){.kind = WIRE_FENCED, .fence = {.epoch = epoch, .answered = answered}});
}

void say_released(struct peer *peer, uint32_t generation)
{
	say(peer, &(struct unsaid){.kind = WIRE_RELEASED, .released = {.generation = generation}});
}

void say_waiting(struct peer *peer)
{
	while (!list_empty(&peer->unsaid)) {
		struct unsaid *unsaid = container_of(peer->unsaid.next, struct unsaid, link);

		if (send_now(peer, unsaid) == -EAGAIN)
			return;
		list_remove(&unsaid->link);
		free(unsaid);
	}
}

void say_nothing_more(struct peer *peer)
{
	struct list *at;

	while ((at = list_pop_front(&peer->unsaid)) != NULL)
		free(container_of(at, struct unsaid, link));
}
