/* A client's connection. */
#include "broker/client/kafka_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define HEADER_BYTES 10u /* key, version, correlation id, a null client id; of a flexible version then: no tags */
#define ARENA_BYTES  (128u << 20)
#define AGAIN_NS     20000000ull
#define IN_MOST      (128u << 20)
#define IN_LEAST     65536u

static void disconnect(struct kafka_link *link)
{
	hf_loop_cancel_timer(link->loop, &link->timer);
	hf_loop_unwatch(&link->watch);
	hf_io_close(link->io);
	link->io = NULL;
	link->in_bytes = link->out_from = link->out_to = 0;
}

static void end(struct kafka_link *link, int reason)
{
	struct list calls, *node;

	disconnect(link);
	if (link->broken == 0)
		link->broken = reason;
	link->again_ns = hf_loop_now_ns(link->loop) + AGAIN_NS;
	list_init(&calls);
	while ((node = list_pop_front(&link->calls)) != NULL)
		list_push_back(&calls, node);
	while ((node = list_pop_front(&calls)) != NULL) {
		struct kafka_call *call = container_of(node, struct kafka_call, node);

		call->waiting = false;
		call->done(call, NULL);
	}
}

void kafka_link_break(struct kafka_link *link)
{
	end(link, -ECONNABORTED);
}

uint64_t kafka_link_owes_ns(const struct kafka_link *link)
{
	if (list_empty(&link->calls))
		return 0;
	return hf_loop_now_ns(link->loop) - container_of(link->calls.next, struct kafka_call, node)->sent_ns;
}

static void want(struct kafka_link *link)
{
	unsigned wanted = HF_READABLE | (link->out_to > link->out_from ? HF_WRITABLE : 0);

	if (link->io != NULL && link->watch.wanted != wanted)
		(void)hf_loop_watch(link->loop, &link->watch, link->io, wanted);
}

/* 0, or -errno. */
static int push(struct kafka_link *link)
{
	while (link->out_to > link->out_from) {
		ssize_t n = hf_stream_write(link->io, link->out + link->out_from, link->out_to - link->out_from);

		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return (int)n;
		link->out_from += (size_t)n;
	}
	link->out_from = link->out_to = 0;
	return 0;
}

static void watch_lateness(struct kafka_link *link)
{
	if (list_empty(&link->calls))
		hf_loop_cancel_timer(link->loop, &link->timer);
	else
		hf_loop_set_timer(link->loop, &link->timer,
			container_of(link->calls.next, struct kafka_call, node)->sent_ns + link->late_ns);
}

/* ApiVersions has the old header in every version, so that a client of any age can read it. */
static int16_t header_version(const struct kafka_call *call)
{
	return call->api->key != KAFKA_API_VERSIONS && codec_in(call->api->response->flexible, call->version);
}

static int answer(struct kafka_link *link, const uint8_t *at, size_t bytes)
{
	struct list *node = link->calls.next;
	struct kafka_call *call = container_of(node, struct kafka_call, node);
	struct kafka_response_header header;
	size_t used;
	void *response;

	if (node == &link->calls)
		return -EPROTO;
	codec_arena_reset(&link->arena, ARENA_BYTES);
	if (codec_decode(&kafka_response_header_codec, header_version(call), at, bytes, &link->arena, &header, &used) !=
			CODEC_OK ||
		header.correlation_id != call->correlation)
		return -EPROTO;
	response = codec_arena_take(&link->arena, call->api->response->root->bytes);
	at += used;
	bytes -= used;
	/* Bytes behind the message are ignored (R-B40). */
	if (response == NULL ||
		codec_decode(call->api->response, call->version, at, bytes, &link->arena, response, &used) != CODEC_OK)
		return -EPROTO;
	list_remove(&call->node);
	watch_lateness(link);
	call->waiting = false;
	call->done(call, response);
	return 0;
}

static int deliver(struct kafka_link *link)
{
	size_t from = 0;
	int rc = 0;

	while (rc == 0 && link->in_bytes - from >= 4) {
		size_t bytes = get_be32(link->in + from);

		if (bytes > IN_MOST)
			return -EMSGSIZE;
		if (link->in_bytes - from - 4 < bytes)
			break;
		rc = answer(link, link->in + from + 4, bytes);
		from += 4 + bytes;
	}
	if (rc == 0) {
		memmove(link->in, link->in + from, link->in_bytes - from);
		link->in_bytes -= from;
	}
	return rc;
}

static int make_room(struct kafka_link *link)
{
	size_t need = link->in_bytes < 4 ? IN_LEAST : 4 + (size_t)get_be32(link->in), room = link->in_room;
	uint8_t *in;

	need = need < link->in_bytes + IN_LEAST ? link->in_bytes + IN_LEAST : need;
	if (need <= room)
		return 0;
	if (need > IN_MOST)
		return -EMSGSIZE;
	in = realloc(link->in, need);
	if (in == NULL)
		return -ENOMEM;
	link->in = in;
	link->in_room = need;
	return 0;
}

static int pull(struct kafka_link *link)
{
	int rc = make_room(link);
	ssize_t n;

	if (rc != 0)
		return rc;
	n = hf_stream_read(link->io, link->in + link->in_bytes, link->in_room - link->in_bytes);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n == 0 ? -EPIPE : (int)n;
	link->in_bytes += (size_t)n;
	return deliver(link);
}

static void link_ready(struct hf_watch *watch, unsigned ready)
{
	struct kafka_link *link = container_of(watch, struct kafka_link, watch);
	int rc = (ready & HF_WRITABLE) != 0 ? push(link) : 0;

	if (rc == 0 && (ready & HF_READABLE) != 0)
		rc = pull(link);
	if (rc != 0)
		end(link, rc);
	want(link);
}

static void late(struct hf_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	end(container_of(timer, struct kafka_link, timer), -ETIMEDOUT);
}

static bool connect_now(struct kafka_link *link)
{
	struct hf_error error;
	int rc;

	if (link->io != NULL)
		return true;
	if (hf_loop_now_ns(link->loop) < link->again_ns)
		return false;
	link->again_ns = hf_loop_now_ns(link->loop) + AGAIN_NS;
	rc = hf_stream_connect(hf_loop_env(link->loop), &link->local, &link->remote, &link->io, &error);
	if (rc != 0) {
		link->broken = rc;
		link->io = NULL;
		return false;
	}
	link->broken = hf_loop_watch(link->loop, &link->watch, link->io, HF_READABLE | HF_WRITABLE);
	if (link->broken == 0)
		return true;
	disconnect(link);
	return false;
}

static bool put_out(struct kafka_link *link, const uint8_t *data, size_t bytes)
{
	if (link->out_to + bytes > link->out_room) {
		size_t room = link->out_to + bytes + IN_LEAST;
		uint8_t *out = realloc(link->out, room);

		if (out == NULL)
			return false;
		link->out = out;
		link->out_room = room;
	}
	memcpy(link->out + link->out_to, data, bytes);
	link->out_to += bytes;
	return true;
}

bool kafka_link_call(
	struct kafka_link *link, struct kafka_call *call, int16_t key, int16_t version, const void *request)
{
	struct codec_arena arena;
	bool idle = link->out_from == link->out_to, flexible, taken;
	uint8_t *data;
	size_t bytes;

	if (!connect_now(link))
		return false;
	codec_arena_init(&arena, ARENA_BYTES); /* answers lie in the link's */
	call->api = codec_find_api(kafka_apis, KAFKA_APIS, key);
	call->version = version;
	call->correlation = ++link->correlation;
	call->sent_ns = hf_loop_now_ns(link->loop);
	flexible = codec_in(call->api->request->flexible, version);
	bytes = codec_encode(call->api->request, version, request, &arena, 4 + HEADER_BYTES + flexible, &data, NULL);
	if (bytes > 0) {
		put_be32(data, (uint32_t)(bytes - 4));
		put_be16(data + 4, (uint16_t)key);
		put_be16(data + 6, (uint16_t)version);
		put_be32(data + 8, (uint32_t)call->correlation);
		put_be16(data + 12, UINT16_MAX);
		if (flexible)
			data[4 + HEADER_BYTES] = 0;
	}
	taken = bytes > 0 && put_out(link, data, bytes);
	codec_arena_free(&arena);
	if (!taken)
		return false;
	call->waiting = true;
	list_push_back(&link->calls, &call->node);
	watch_lateness(link);
	if (idle)
		link->broken = push(link); /* the watch tells that it broke, but not the reason again */
	want(link);
	return true;
}

void kafka_link_open(struct kafka_link *link, struct hf_loop *loop, const struct hf_addr *local,
	const struct hf_addr *remote, uint64_t late_ns)
{
	*link = (struct kafka_link){.loop = loop,
		.local = *local,
		.remote = *remote,
		.watch = {.ready = link_ready},
		.timer = {.fire = late},
		.late_ns = late_ns};
	list_init(&link->calls);
	codec_arena_init(&link->arena, ARENA_BYTES);
}

void kafka_link_close(struct kafka_link *link)
{
	if (link->loop == NULL)
		return;
	disconnect(link);
	while (list_pop_front(&link->calls) != NULL)
		continue;
	codec_arena_free(&link->arena);
	free(link->in);
	free(link->out);
	*link = (struct kafka_link){0};
}
