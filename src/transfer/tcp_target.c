#include "transfer/tcp_target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/log.h"
#include "transfer/tcp_pipe.h"

#define LEASE_LOOK_NS 10000000ull

struct tcp_target {
	struct hf_loop *loop;
	struct tcp_target_config config;
	struct hf_io *listener;
	struct hf_watch watch;
	struct list streams; /* in the order in which they came */
	unsigned count;
	struct log_limit limit;
	uint64_t looked_ns; /* at the leases */
};

struct target_stream {
	struct list link;
	struct tcp_target *target;
	struct tcp_pipe pipe;
	struct hf_addr remote;
	bool begun; /* its HELLO has come */
	uint64_t initiator;
	uint32_t epoch;
	uint64_t answered; /* id of the last that was placed or answered */
	uint64_t refused;  /* id of the first with a NAK; 0: none */
	uint64_t until_ns; /* nothing is placed from then on */
	bool over;         /* for good: the lease was not extended in time */
};

static void stream_free(struct target_stream *stream)
{
	list_remove(&stream->link);
	stream->target->count--;
	tcp_pipe_close(&stream->pipe);
	free(stream);
}

static void answer(struct target_stream *stream, const struct tcp_header *to, enum tcp_header_type type,
	enum tcp_nak reason, const uint8_t *payload)
{
	const struct tcp_header header = {.type = type,
		.reason = reason,
		.epoch = stream->epoch,
		.length = type == TCP_DATA ? to->length : 0,
		.id = to->id};

	tcp_pipe_send(&stream->pipe, &header, payload);
	stream->answered = to->id;
	if (type == TCP_NAK && stream->refused == 0)
		stream->refused = to->id;
	if (!tcp_pipe_has_room(&stream->pipe))
		tcp_pipe_pause(&stream->pipe, true);
}

/* By the clock, not by the turn, in which the process may have been stopped. Looks first and extends then: contact that
 * is heard after the stop says nothing for what came before it. */
static const char *may_place(struct tcp_pipe *pipe)
{
	struct target_stream *stream = container_of(pipe, struct target_stream, pipe);
	const struct tcp_target_config *config = &stream->target->config;
	uint64_t until_ns;

	stream->over |= hf_env_boot_ns(hf_loop_env(stream->target->loop)) >= stream->until_ns;
	if (stream->over)
		return "the lease was over: this process stood still, or lost contact";
	until_ns = config->lease_until_ns(config->context, stream->initiator);
	if (until_ns > stream->until_ns)
		stream->until_ns = until_ns;
	return NULL;
}

static const char *begin(struct target_stream *stream, const struct tcp_header *hello)
{
	const struct tcp_target_config *config = &stream->target->config;

	if (hello->type != TCP_HELLO)
		return "it does not begin with a HELLO";
	if (hello->key != config->incarnation)
		return "it is for a process that has ended";
	if (!config->admits(config->context, hello->id, hello->epoch))
		return "it is of no peer, or was fenced";
	stream->begun = true;
	stream->initiator = hello->id;
	stream->epoch = hello->epoch;
	stream->until_ns = config->lease_until_ns(config->context, stream->initiator);
	return NULL;
}

static const char *check(const struct target_stream *stream, const struct tcp_header *header)
{
	if (header->type != TCP_WRITE && header->type != TCP_READ)
		return "an initiator sends nothing but WRITE and READ";
	if (header->epoch != stream->epoch || header->id <= stream->answered)
		return "the epoch or the order of ids is wrong";
	return NULL;
}

static bool on_header(struct tcp_pipe *pipe, const struct tcp_header *header, uint8_t **place_out, const char **reason)
{
	struct target_stream *stream = container_of(pipe, struct target_stream, pipe);
	const struct tcp_target_config *config = &stream->target->config;
	bool writes = header->type == TCP_WRITE;
	uint8_t *at = NULL;
	enum tcp_nak nak;

	*reason = stream->begun ? check(stream, header) : begin(stream, header);
	if (*reason != NULL)
		return false;
	if (header->type == TCP_HELLO)
		return true;
	nak = header->length == 0
		      ? TCP_NAK_BOUNDS
		      : config->find(config->context, header->key, writes ? HF_TRANSFER_WRITE : HF_TRANSFER_READ,
				header->offset, header->length, &at);
	if (nak != TCP_NAK_NONE)
		answer(stream, header, TCP_NAK, nak, NULL);
	else if (writes)
		*place_out = at;
	else
		answer(stream, header, TCP_DATA, TCP_NAK_NONE, at);
	return true;
}

static void on_placed(struct tcp_pipe *pipe, const struct tcp_header *header)
{
	answer(container_of(pipe, struct target_stream, pipe), header, TCP_ACK, TCP_NAK_NONE, NULL);
}

static void on_broken(struct tcp_pipe *pipe, const char *reason)
{
	struct target_stream *stream = container_of(pipe, struct target_stream, pipe);
	char text[HF_ADDR_TEXT];
	uint64_t suppressed;

	if (log_limit_allows(&stream->target->limit, hf_loop_now_ns(stream->target->loop), &suppressed))
		log_info("transfer: the tcp stream from %s ended: %s (%llu more)",
			hf_addr_format(&stream->remote, text), reason, (unsigned long long)suppressed);
	stream_free(stream);
}

static void on_room(struct tcp_pipe *pipe)
{
	tcp_pipe_pause(pipe, false);
}

static const struct tcp_pipe_events target_events = {
	.header = on_header, .may_place = may_place, .placed = on_placed, .broken = on_broken, .room = on_room};

/* False: every stream in use belongs to a peer. */
static bool make_room(struct tcp_target *target)
{
	if (target->count < target->config.streams_max)
		return true;
	list_for_each (at, &target->streams) {
		struct target_stream *stream = container_of(at, struct target_stream, link);

		if (stream->begun)
			continue;
		stream_free(stream);
		return true;
	}
	return false;
}

static void accept_one(struct tcp_target *target, struct hf_io *io, const struct hf_addr *remote)
{
	struct target_stream *stream = make_room(target) ? calloc(1, sizeof(*stream)) : NULL;

	if (stream == NULL) {
		hf_io_close(io);
		return;
	}
	stream->target = target;
	stream->remote = *remote;
	if (tcp_pipe_open(&stream->pipe, target->loop, io, &target_events) != 0) {
		free(stream);
		return;
	}
	list_push_back(&target->streams, &stream->link);
	target->count++;
}

static void on_listener(struct hf_watch *watch, unsigned ready)
{
	struct tcp_target *target = container_of(watch, struct tcp_target, watch);
	struct hf_addr remote;
	struct hf_io *io;

	(void)ready;
	if (hf_stream_accept(target->listener, &io, &remote) == 0) /* one a turn: level triggered */
		accept_one(target, io, &remote);
}

int tcp_target_open(struct hf_loop *loop, const struct tcp_target_config *config, struct tcp_target **target_out,
	struct hf_error *error)
{
	struct tcp_target *target = calloc(1, sizeof(*target));
	int rc;

	*target_out = NULL;
	if (target == NULL)
		return hf_error_set(error, -ENOMEM, "no memory for the tcp transport");
	target->loop = loop;
	target->config = *config;
	target->watch.ready = on_listener;
	list_init(&target->streams);
	rc = hf_stream_listen(hf_loop_env(loop), &config->listen, &target->listener, error);
	if (rc == 0) {
		rc = hf_loop_watch(loop, &target->watch, target->listener, HF_READABLE);
		if (rc != 0)
			(void)hf_error_set(error, rc, "the tcp transport cannot watch its port: %s", strerror(-rc));
	}
	if (rc != 0) {
		tcp_target_close(target);
		return rc;
	}
	*target_out = target;
	return 0;
}

void tcp_target_close(struct tcp_target *target)
{
	if (target == NULL)
		return;
	while (!list_empty(&target->streams))
		stream_free(container_of(target->streams.next, struct target_stream, link));
	if (target->watch.io != NULL)
		hf_loop_unwatch(&target->watch);
	if (target->listener != NULL)
		hf_io_close(target->listener);
	free(target);
}

struct hf_addr tcp_target_addr(const struct tcp_target *target)
{
	struct hf_addr addr = target->config.listen;

	(void)hf_io_local(target->listener, &addr);
	return addr;
}

uint64_t tcp_target_fence(struct tcp_target *target, uint64_t initiator, uint32_t epoch)
{
	uint64_t answered = 0;

	list_for_each_safe (at, &target->streams) {
		struct target_stream *stream = container_of(at, struct target_stream, link);

		if (!stream->begun || stream->initiator != initiator || stream->epoch != epoch)
			continue;
		answered = stream->refused != 0 ? stream->refused - 1 : stream->answered;
		stream_free(stream);
	}
	return answered;
}

void tcp_target_turn(struct tcp_target *target, uint64_t now_ns)
{
	if (now_ns - target->looked_ns < LEASE_LOOK_NS)
		return;
	target->looked_ns = now_ns;
	list_for_each_safe (at, &target->streams) {
		struct target_stream *stream = container_of(at, struct target_stream, link);
		const char *reason = stream->begun ? may_place(&stream->pipe) : NULL;

		if (reason != NULL)
			on_broken(&stream->pipe, reason);
	}
}

void tcp_target_end(struct tcp_target *target, uint64_t initiator)
{
	list_for_each_safe (at, &target->streams) {
		struct target_stream *stream = container_of(at, struct target_stream, link);

		if (stream->begun && stream->initiator == initiator)
			stream_free(stream);
	}
}

void tcp_target_release(struct tcp_target *target, const void *memory, uint64_t bytes)
{
	list_for_each_safe (at, &target->streams) {
		struct target_stream *stream = container_of(at, struct target_stream, link);

		if (tcp_pipe_touches(&stream->pipe, memory, bytes))
			stream_free(stream);
	}
}
