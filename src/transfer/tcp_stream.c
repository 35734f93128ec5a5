#include "transfer/tcp_stream.h"

#include "base/ensure.h"

static struct tcp_stream *stream_of(struct tcp_pipe *pipe)
{
	return container_of(pipe, struct tcp_stream, pipe);
}

/* The target answers in the order in which it was asked. NULL: everything is answered. */
static struct tcp_slice *asked_first(struct tcp_stream *stream)
{
	list_for_each (at, &stream->out)
		if (!container_of(at, struct tcp_slice, link)->answered)
			return container_of(at, struct tcp_slice, link);
	return NULL;
}

static bool is_answer(const struct tcp_slice *slice, const struct tcp_header *header)
{
	if (slice == NULL || header->id != slice->id)
		return false;
	switch (header->type) {
	case TCP_ACK:
		return slice->opcode == HF_TRANSFER_WRITE;
	case TCP_DATA:
		return slice->opcode == HF_TRANSFER_READ && header->length == slice->length;
	case TCP_NAK:
		return true;
	case TCP_HELLO:
	case TCP_WRITE:
	case TCP_READ:
	case TCP_HEADER_TYPES:
		return false;
	}
	return false;
}

/* Those that are answered and whose bytes the kernel has let go of end. */
static void end_answered(struct tcp_stream *stream)
{
	while (!list_empty(&stream->out)) {
		struct tcp_slice *slice = container_of(stream->out.next, struct tcp_slice, link);

		if (!slice->answered || !tcp_pipe_has_let_go(&stream->pipe, slice->piece))
			return;
		list_remove(&slice->link);
		stream->out_count--;
		stream->events->ended(stream, slice, slice->reason);
	}
}

static void answer_first(struct tcp_stream *stream, enum tcp_nak reason)
{
	struct tcp_slice *slice = asked_first(stream);

	slice->answered = true;
	slice->reason = reason;
	end_answered(stream);
}

static void on_let_go(struct tcp_pipe *pipe)
{
	end_answered(stream_of(pipe));
}

static bool on_header(struct tcp_pipe *pipe, const struct tcp_header *header, uint8_t **place_out, const char **reason)
{
	struct tcp_stream *stream = stream_of(pipe);
	struct tcp_slice *slice = asked_first(stream);

	if (header->epoch != stream->epoch || !is_answer(slice, header)) {
		*reason = "an answer to nothing that was asked";
		return false;
	}
	if (header->type == TCP_DATA)
		*place_out = slice->local;
	else
		answer_first(stream, header->reason);
	return pipe->io != NULL;
}

static void on_placed(struct tcp_pipe *pipe, const struct tcp_header *header)
{
	(void)header;
	answer_first(stream_of(pipe), TCP_NAK_NONE);
}

static void on_broken(struct tcp_pipe *pipe, const char *reason)
{
	struct tcp_stream *stream = stream_of(pipe);

	stream->events->broken(stream, reason);
}

static void on_room(struct tcp_pipe *pipe)
{
	struct tcp_stream *stream = stream_of(pipe);

	stream->events->room(stream);
}

static const struct tcp_pipe_events stream_events = {
	.header = on_header, .placed = on_placed, .broken = on_broken, .room = on_room, .let_go = on_let_go};

struct tcp_header tcp_stream_hello(uint64_t initiator, uint64_t target, uint32_t epoch)
{
	return (struct tcp_header){.type = TCP_HELLO, .epoch = epoch, .id = initiator, .key = target};
}

int tcp_stream_open(struct tcp_stream *stream, struct hf_loop *loop, const struct hf_addr *local,
	const struct hf_addr *target, const struct tcp_header *hello, const struct tcp_stream_events *events,
	struct hf_error *error)
{
	struct hf_addr from = *local;
	struct hf_io *io;
	int rc;

	*stream = (struct tcp_stream){.events = events, .epoch = hello->epoch, .next_id = 1};
	list_init(&stream->out);
	hf_addr_set_port(&from, 0);
	rc = hf_stream_connect(hf_loop_env(loop), &from, target, &io, error);
	if (rc != 0)
		return rc;
	rc = tcp_pipe_open(&stream->pipe, loop, io, &stream_events);
	if (rc != 0)
		return hf_error_set(error, rc, "the tcp transport cannot watch a stream");
	tcp_pipe_send(&stream->pipe, hello, NULL);
	tcp_pipe_push(&stream->pipe);
	return 0;
}

void tcp_stream_close(struct tcp_stream *stream)
{
	tcp_pipe_close(&stream->pipe);
}

bool tcp_stream_has_room(const struct tcp_stream *stream)
{
	return tcp_pipe_has_room(&stream->pipe);
}

void tcp_stream_push(struct tcp_stream *stream)
{
	tcp_pipe_push(&stream->pipe);
}

void tcp_stream_send(struct tcp_stream *stream, struct tcp_slice *slice)
{
	const bool writes = slice->opcode == HF_TRANSFER_WRITE;
	const struct tcp_header header = {.type = writes ? TCP_WRITE : TCP_READ,
		.epoch = stream->epoch,
		.length = slice->length,
		.id = stream->next_id,
		.key = slice->key,
		.offset = slice->offset};

	ensure(tcp_stream_has_room(stream) && slice->length > 0);
	slice->id = stream->next_id++;
	slice->piece = stream->pipe.sent;
	slice->answered = false;
	list_push_back(&stream->out, &slice->link);
	stream->out_count++;
	tcp_pipe_send(&stream->pipe, &header, writes ? slice->local : NULL);
}
