/* The second step of unregistering a buffer (R-T20).
 *
 *   owner                               each peer
 *     | SEGMENT{generation, without it} --> |   no new slice names the buffer
 *     |                                     |   its slices that are under way end
 *     | <------------ RELEASED{generation}  |
 *     deregistered, when all have answered, or RELEASE_NS later */
#include "transfer/engine.h"

#define RELEASE_NS 1000000000ull
#define RETRY_NS   1000000000ull /* each try may block for long */

static bool is_released(const struct hf_transfer *engine, const struct buffer *buffer, uint64_t now_ns)
{
	if (buffer->users > 0 || now_ns < buffer->retry_ns)
		return false;
	if (now_ns - buffer->left_ns >= RELEASE_NS)
		return true;
	list_for_each (at, &engine->peers) {
		const struct peer *peer = container_of(at, struct peer, link);

		if (peer->node_peer != NULL && (int32_t)(peer->released - buffer->left) < 0)
			return false;
	}
	return true;
}

static void finish(struct hf_transfer *engine, struct buffer *buffer, uint64_t now_ns)
{
	void (*done)(struct hf_transfer * engine, void *addr, void *context) = buffer->done;
	void *addr = buffer->addr, *context = buffer->context;

	if (engine->target != NULL)
		tcp_target_release(engine->target, buffer->addr, buffer->bytes);
	if (buffers_remove(&engine->buffers, buffer) != 0) {
		buffer->retry_ns = now_ns + RETRY_NS;
		return;
	}
	if (done != NULL)
		done(engine, addr, context);
}

bool release_turn(struct hf_transfer *engine, uint64_t now_ns)
{
	list_for_each (at, &engine->buffers.list) {
		struct buffer *buffer = container_of(at, struct buffer, link);

		if (!buffer->leaving || !is_released(engine, buffer, now_ns))
			continue;
		finish(engine, buffer, now_ns); /* may change the list */
		return true;
	}
	return false;
}
