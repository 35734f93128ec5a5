/* A client's connection. */
#include "sim/broker/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/ensure.h"
#include "base/list.h"

#define HEADER_BYTES 10u /* key, version, correlation id, a null client id */
#define ARENA_BYTES  (4u << 20)

static void disconnect(struct wire *wire)
{
	hf_loop_unwatch(&wire->watch);
	hf_io_close(wire->io);
	wire->io = NULL;
	wire->in_bytes = wire->out_bytes = 0;
	wire->waiting = false;
}

static void break_off(struct wire *wire)
{
	disconnect(wire);
	wire->broken(wire);
	hf_loop_set_timer(wire->loop, &wire->timer, hf_loop_now_ns(wire->loop) + wire->again_ns);
}

static void want(struct wire *wire)
{
	unsigned wanted = HF_READABLE | (wire->out_bytes > 0 ? HF_WRITABLE : 0);

	if (wire->io != NULL && wire->watch.wanted != wanted)
		hf_loop_watch(wire->loop, &wire->watch, wire->io, wanted);
}

/* 0, or -errno. */
static int push(struct wire *wire)
{
	while (wire->out_bytes > 0) {
		ssize_t n = hf_stream_write(wire->io, wire->out, wire->out_bytes);

		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return (int)n;
		wire->out += n;
		wire->out_bytes -= (size_t)n;
	}
	return 0;
}

static int deliver(struct wire *wire)
{
	size_t bytes = wire->in_bytes < 4 ? 0 : get_be32(wire->in);
	void *response;

	if (wire->in_bytes < 4 || wire->in_bytes < bytes + 4)
		return bytes + 4 > WIRE_BYTES ? -EMSGSIZE : 0;
	ensure(wire->waiting && bytes >= 4 && (int32_t)get_be32(wire->in + 4) == wire->correlation);
	response = codec_arena_take(&wire->arena, wire->api->response->root->bytes);
	ensure(response != NULL);
	ensure(codec_decode(wire->api->response, wire->version, wire->in + 8, bytes - 4, &wire->arena, response,
		       NULL) == CODEC_OK);
	wire->waiting = false;
	wire->in_bytes = 0;
	wire->answer(wire, response);
	return 0;
}

static int pull(struct wire *wire)
{
	ssize_t n = hf_stream_read(wire->io, wire->in + wire->in_bytes, WIRE_BYTES - wire->in_bytes);

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n == 0 ? -EPIPE : (int)n;
	wire->in_bytes += (size_t)n;
	return deliver(wire);
}

static void wire_ready(struct hf_watch *watch, unsigned ready)
{
	struct wire *wire = container_of(watch, struct wire, watch);
	int rc = (ready & HF_WRITABLE) != 0 ? push(wire) : 0;

	if (rc == 0 && (ready & HF_READABLE) != 0)
		rc = pull(wire);
	if (rc != 0)
		break_off(wire);
	want(wire);
}

static void connect_again(struct wire *wire)
{
	struct hf_error error;
	int rc = hf_stream_connect(hf_loop_env(wire->loop), &wire->local, &wire->remote, &wire->io, &error);

	if (rc == 0)
		rc = hf_loop_watch(wire->loop, &wire->watch, wire->io, HF_READABLE);
	if (rc != 0) {
		break_off(wire);
		return;
	}
	wire->ready(wire);
	want(wire);
}

static void timer_fired(struct hf_timer *timer, uint64_t now_ns)
{
	struct wire *wire = container_of(timer, struct wire, timer);

	(void)now_ns;
	if (wire->io == NULL) {
		connect_again(wire);
	} else if (wire->waiting) {
		break_off(wire);
	} else {
		wire->ready(wire);
		want(wire);
	}
}

void wire_open(struct wire *wire, struct hf_loop *loop, const struct hf_addr *local, const struct hf_addr *remote)
{
	wire->loop = loop;
	wire->local = *local;
	wire->remote = *remote;
	wire->watch.ready = wire_ready;
	wire->timer.fire = timer_fired;
	wire->in = malloc(WIRE_BYTES);
	ensure(wire->in != NULL);
	codec_arena_init(&wire->arena, ARENA_BYTES);
	hf_loop_set_timer(loop, &wire->timer, hf_loop_now_ns(loop) + 1);
}

void wire_close(struct wire *wire)
{
	if (wire->loop == NULL)
		return;
	hf_loop_cancel_timer(wire->loop, &wire->timer);
	disconnect(wire);
	codec_arena_free(&wire->arena);
	free(wire->in);
	wire->in = NULL;
	wire->loop = NULL;
}

static const struct codec_api *find_api(int16_t key)
{
	for (unsigned i = 0; i < KAFKA_APIS; i++)
		if (kafka_apis[i].key == key)
			return &kafka_apis[i];
	return NULL;
}

void wire_send(struct wire *wire, int16_t key, int16_t version, const void *request)
{
	uint8_t *data;
	size_t bytes;

	ensure(!wire->waiting && wire->io != NULL);
	codec_arena_reset(&wire->arena, ARENA_BYTES);
	wire->api = find_api(key);
	wire->version = version;
	wire->waiting = true;
	bytes = codec_encode(wire->api->request, version, request, &wire->arena, 4 + HEADER_BYTES, &data, NULL);
	ensure(bytes > 0);
	put_be32(data, (uint32_t)(bytes - 4));
	put_be16(data + 4, (uint16_t)key);
	put_be16(data + 6, (uint16_t)version);
	put_be32(data + 8, (uint32_t)++wire->correlation);
	put_be16(data + 12, UINT16_MAX);
	wire->out = data;
	wire->out_bytes = bytes;
	hf_loop_set_timer(wire->loop, &wire->timer, hf_loop_now_ns(wire->loop) + wire->late_ns);
	want(wire);
}

void wire_move(struct wire *wire, const struct hf_addr *remote)
{
	ensure(!wire->waiting);
	wire->remote = *remote;
	if (wire->io != NULL)
		disconnect(wire);
}

void wire_rest(struct wire *wire, uint64_t ns)
{
	hf_loop_set_timer(wire->loop, &wire->timer, hf_loop_now_ns(wire->loop) + ns);
}
