/* Streams between simulated processes: reliable and in order, stalled by a cut, broken by a long one.
 *
 * Each end has an outbox of segments on their way; the first one has an event. A lost segment, or a cut path, means
 * another try after a retransmission time-out that doubles. An end that could not get anything through for
 * stream_limit_ns breaks (-ETIMEDOUT) and tells nobody; the other end learns of it when it sends (-ECONNRESET), or by
 * its own time-out. An end closed by its process stays until its outbox, whose last segment is FIN, has arrived.
 *
 * Reads and writes move seeded amounts, so that framing is tried at every boundary. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sim/network.h"

#define WINDOW_BYTES  (256u << 10) /* on the way and unread, per direction */
#define RTO_NS        (30 * NS_MS)
#define RTO_NS_MAX    (1 * NS_S)
#define BACKLOG_MAX   16
#define SHORT_IO_PPM  30000u       /* of reads and writes that move less than they could */
#define HOLD_NS_MAX   (20 * NS_US) /* between the ends of several streams that were held */
#define STREAM_LOSSES 3u           /* a segment is lost this much less often than a datagram: TCP has SACK */

enum segment_kind { SEGMENT_SYN, SEGMENT_SYN_ACK, SEGMENT_DATA, SEGMENT_FIN, SEGMENT_RST };

struct segment {
	struct list node;
	enum segment_kind kind;
	size_t bytes, taken;
	uint8_t data[];
};

enum stream_state { STREAM_CONNECTING, STREAM_OPEN, STREAM_BROKEN };

struct stream {
	struct sim_io base;
	struct list node; /* of the port */
	struct network *network;
	struct port *from, *to;
	struct hf_addr local, remote;
	struct stream *peer; /* NULL: not connected, or the other end is gone */
	enum stream_state state;
	int error;
	struct list outbox, inbox;
	size_t unread_bytes, outbox_bytes;
	bool ended, closed, in_backlog; /* ended: FIN came. closed: our process let go of it */
	uint64_t stalled_ns;            /* since when nothing gets through; 0: it does */
	uint64_t rto_ns;
	struct world_event delivery;
	struct list backlog_node;
};

struct listener {
	struct sim_io base;
	struct list node; /* of the port */
	struct port *port;
	struct hf_addr local;
	struct list backlog;
	unsigned backlog_count;
};

static struct stream *stream_of(struct hf_io *io)
{
	return (struct stream *)(void *)io;
}

static void free_segments(struct list *segments)
{
	while (!list_empty(segments))
		free(container_of(list_pop_front(segments), struct segment, node));
}

static void release(struct stream *stream)
{
	world_cancel(stream->network->world, &stream->delivery);
	if (stream->peer != NULL)
		stream->peer->peer = NULL;
	free_segments(&stream->outbox);
	free_segments(&stream->inbox);
	list_remove(&stream->node);
	list_remove(&stream->backlog_node);
	free(stream);
}

static void wake(struct stream *stream)
{
	if (!stream->closed && !stream->in_backlog)
		sim_io_changed(&stream->base);
}

static void break_stream(struct stream *stream, int error)
{
	if (stream->closed) {
		release(stream);
		return;
	}
	if (stream->peer != NULL)
		stream->peer->peer = NULL;
	stream->peer = NULL;
	stream->state = STREAM_BROKEN;
	stream->error = error;
	world_cancel(stream->network->world, &stream->delivery);
	free_segments(&stream->outbox);
	stream->outbox_bytes = 0;
	wake(stream);
}

/* TCP sends no more than the path takes: what finds its queue full is sent later. */
static void schedule_first(struct stream *stream, uint64_t at_ns)
{
	const struct segment *first = container_of(stream->outbox.next, struct segment, node);
	struct world *world = stream->network->world;
	uint64_t wire_ns;

	if (list_empty(&stream->outbox) || stream->delivery.slot != 0)
		return;
	wire_ns = network_wire_ns(stream->network, stream->from, stream->to, first->bytes);
	if (wire_ns == UINT64_MAX)
		wire_ns = stream->rto_ns;
	world_schedule(world, &stream->delivery, at_ns > world->now_ns + wire_ns ? at_ns : world->now_ns + wire_ns);
}

static void push(struct stream *stream, enum segment_kind kind, const struct iovec *pieces, size_t bytes)
{
	struct segment *segment = malloc(sizeof(*segment) + bytes);
	struct fate fate = network_fate(stream->network, stream->from, stream->to, 0);

	ensure(segment != NULL);
	*segment = (struct segment){.kind = kind, .bytes = bytes};
	for (size_t at = 0; at < bytes; pieces++) {
		size_t n = pieces->iov_len < bytes - at ? pieces->iov_len : bytes - at;

		if (n > 0)
			memcpy(segment->data + at, pieces->iov_base, n);
		if (n > 0 && stream->network->streams != NULL)
			stream->network->streams->taken(stream->network->streams, pieces->iov_base, n);
		at += n;
	}
	list_push_back(&stream->outbox, &segment->node);
	stream->outbox_bytes += bytes;
	schedule_first(stream, stream->network->world->now_ns + fate.delay_ns + 1);
}

static struct listener *find_listener(struct port *port, const struct hf_addr *address)
{
	list_for_each (at, &port->listeners) {
		struct listener *listener = container_of(at, struct listener, node);

		if (hf_addr_equal(&listener->local, address))
			return listener;
	}
	return NULL;
}

static void deliver(struct world_event *event);

static struct stream *make_stream(struct network *network, struct port *from, struct port *to)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (stream == NULL)
		return NULL;
	stream->network = network;
	stream->from = from;
	stream->to = to;
	stream->rto_ns = RTO_NS;
	stream->delivery.what = "segment";
	stream->delivery.fire = deliver;
	stream->delivery.detail = (uint64_t)from->index << 4 | to->index;
	list_init(&stream->outbox);
	list_init(&stream->inbox);
	list_init(&stream->backlog_node);
	list_init(&stream->base.node);
	list_init(&stream->base.watched_node);
	list_push_back(&from->streams, &stream->node);
	return stream;
}

/* The other side of a connection, made where the SYN arrives; false: nobody listens. */
static bool answer_syn(struct stream *stream)
{
	struct listener *listener = find_listener(stream->to, &stream->remote);
	struct stream *answer;

	if (listener == NULL || listener->backlog_count == BACKLOG_MAX)
		return false;
	answer = make_stream(stream->network, stream->to, stream->from);
	ensure(answer != NULL);
	answer->state = STREAM_OPEN;
	answer->local = stream->remote;
	answer->remote = stream->local;
	answer->in_backlog = true;
	answer->peer = stream;
	stream->peer = answer;
	list_push_back(&listener->backlog, &answer->backlog_node);
	listener->backlog_count++;
	push(answer, SEGMENT_SYN_ACK, NULL, 0);
	sim_io_changed(&listener->base);
	return true;
}

/* One segment arrives at `to`, the other end. */
static void take_segment(struct stream *to, struct segment *segment)
{
	switch (segment->kind) {
	case SEGMENT_SYN_ACK:
		to->state = STREAM_OPEN;
		free(segment);
		break;
	case SEGMENT_DATA:
		to->unread_bytes += segment->bytes;
		list_push_back(&to->inbox, &segment->node);
		break;
	case SEGMENT_FIN:
		to->ended = true;
		free(segment);
		break;
	case SEGMENT_RST:
		free(segment);
		break_stream(to, -ECONNRESET);
		return;
	case SEGMENT_SYN:
		ensure(false);
	}
	wake(to);
}

static void try_again(struct stream *stream)
{
	struct world *world = stream->network->world;

	if (stream->stalled_ns == 0)
		stream->stalled_ns = world->now_ns;
	if (world->now_ns - stream->stalled_ns > stream->network->stream_limit_ns) {
		break_stream(stream, -ETIMEDOUT);
		return;
	}
	world_schedule(world, &stream->delivery, world->now_ns + stream->rto_ns + world_range(world, 0, NS_MS));
	stream->rto_ns = stream->rto_ns * 2 > RTO_NS_MAX ? RTO_NS_MAX : stream->rto_ns * 2;
}

static void deliver(struct world_event *event)
{
	struct stream *stream = container_of(event, struct stream, delivery);
	struct world *world = stream->network->world;
	struct conditions *path = network_path(stream->network, stream->from, stream->to);
	struct segment *segment;
	bool last;

	if (path->held_until_ns > world->now_ns) {
		world_schedule(world, &stream->delivery, path->held_until_ns + world_range(world, 0, HOLD_NS_MAX));
		return;
	}
	/* acknowledgements have to get back, too */
	if (!network_open(stream->network, stream->from, stream->to) ||
		!network_open(stream->network, stream->to, stream->from) ||
		world_chance(world, path->loss_ppm / STREAM_LOSSES)) {
		try_again(stream);
		return;
	}
	stream->stalled_ns = 0;
	stream->rto_ns = RTO_NS;
	segment = container_of(list_pop_front(&stream->outbox), struct segment, node);
	stream->outbox_bytes -= segment->bytes;
	if (segment->kind == SEGMENT_SYN || stream->peer == NULL) {
		bool answered = segment->kind == SEGMENT_SYN && answer_syn(stream);

		free(segment);
		if (!answered)
			break_stream(stream, stream->state == STREAM_CONNECTING ? -ECONNREFUSED : -ECONNRESET);
		return;
	}
	last = segment->kind == SEGMENT_RST || (segment->kind == SEGMENT_FIN && stream->closed);
	take_segment(stream->peer, segment);
	if (last) {
		release(stream);
		return;
	}
	schedule_first(
		stream, world->now_ns + network_fate(stream->network, stream->from, stream->to, 0).delay_ns / 4 + 1);
	wake(stream);
}

/* ---- the io ---- */

static size_t waiting_bytes(const struct stream *stream)
{
	return stream->outbox_bytes + (stream->peer == NULL ? 0 : stream->peer->unread_bytes);
}

static unsigned stream_ready(struct sim_io *io)
{
	struct stream *stream = stream_of(&io->io);

	if (stream->state == STREAM_BROKEN)
		return HF_READABLE | HF_WRITABLE;
	return (stream->unread_bytes > 0 || stream->ended ? (unsigned)HF_READABLE : 0) |
	       (stream->state == STREAM_OPEN && waiting_bytes(stream) < WINDOW_BYTES ? (unsigned)HF_WRITABLE : 0);
}

static size_t some_of(struct stream *stream, size_t bytes)
{
	return bytes > 1 && world_chance(stream->network->world, SHORT_IO_PPM)
		       ? world_range(stream->network->world, 1, bytes - 1)
		       : bytes;
}

static ssize_t stream_read(struct hf_io *io, void *data, size_t bytes)
{
	struct stream *stream = stream_of(io);
	size_t moved = 0;
	bool was_full;

	process_step(stream->base.process);
	if (stream->base.process->muted)
		return -ECONNRESET;
	bytes = some_of(stream, bytes);
	while (moved < bytes && !list_empty(&stream->inbox)) {
		struct segment *segment = container_of(stream->inbox.next, struct segment, node);
		size_t n = segment->bytes - segment->taken;

		n = n > bytes - moved ? bytes - moved : n;
		memcpy((uint8_t *)data + moved, segment->data + segment->taken, n);
		if (stream->network->streams != NULL)
			stream->network->streams->stored(stream->network->streams, (uint8_t *)data + moved, n);
		segment->taken += n;
		moved += n;
		if (segment->taken == segment->bytes) {
			list_remove(&segment->node);
			free(segment);
		}
	}
	was_full = stream->peer != NULL && waiting_bytes(stream->peer) >= WINDOW_BYTES;
	stream->unread_bytes -= moved;
	if (was_full && moved > 0)
		wake(stream->peer);
	if (moved > 0)
		return (ssize_t)moved;
	return stream->state == STREAM_BROKEN ? stream->error : stream->ended ? 0 : -EAGAIN;
}

static ssize_t stream_writev(struct hf_io *io, const struct iovec *pieces, unsigned n)
{
	struct stream *stream = stream_of(io);
	size_t bytes = 0, waiting;

	process_step(stream->base.process);
	waiting = waiting_bytes(stream);
	if (stream->base.process->muted)
		return -ECONNRESET;
	if (stream->state == STREAM_BROKEN)
		return stream->error;
	if (stream->state == STREAM_CONNECTING || waiting >= WINDOW_BYTES)
		return -EAGAIN;
	for (unsigned i = 0; i < n; i++)
		bytes += pieces[i].iov_len;
	if (bytes == 0)
		return 0;
	bytes = some_of(stream, bytes > WINDOW_BYTES - waiting ? WINDOW_BYTES - waiting : bytes);
	push(stream, SEGMENT_DATA, pieces, bytes);
	return (ssize_t)bytes;
}

static int stream_local(struct hf_io *io, struct hf_addr *addr_out)
{
	*addr_out = stream_of(io)->local;
	return 0;
}

/* The process lets go: what it wrote still travels, and FIN behind it; or RST when it had not read everything. */
static void let_go(struct stream *stream, bool silently)
{
	bool reset = stream->unread_bytes > 0;

	stream->closed = true;
	if (silently || stream->state != STREAM_OPEN || stream->peer == NULL) {
		release(stream);
		return;
	}
	free_segments(&stream->inbox);
	stream->unread_bytes = 0;
	push(stream, reset ? SEGMENT_RST : SEGMENT_FIN, NULL, 0);
}

static void stream_close(struct hf_io *io)
{
	struct stream *stream = stream_of(io);
	bool silently = stream->base.process->muted;

	sim_io_free(&stream->base);
	let_go(stream, silently);
}

/* A dying process's kernel resets its streams, if it still can. */
static void stream_abandon(struct sim_io *io)
{
	struct stream *stream = stream_of(&io->io);

	if (stream->peer != NULL && !stream->in_backlog && network_open(stream->network, stream->from, stream->to)) {
		struct stream *peer = stream->peer;

		break_stream(stream, -ECONNRESET);
		if (!peer->closed)
			break_stream(peer, -ECONNRESET);
		return;
	}
	break_stream(stream, -ECONNRESET);
}

static const struct world_io_ops stream_ops = {
	.close = stream_close,
	.local = stream_local,
	.read = stream_read,
	.writev = stream_writev,
};

int sim_stream_connect(struct hf_env *env, const struct hf_addr *local, const struct hf_addr *peer,
	struct hf_io **io_out, struct hf_error *error)
{
	struct process *process = env_process(env);
	struct stream *stream;
	struct hf_addr bound;
	struct port *from, *to = network_find(process->host->network, peer);
	char text[HF_ADDR_TEXT];
	int rc;

	*io_out = NULL;
	if (to == NULL)
		return hf_error_set(error, -ENETUNREACH, "no route to %s", hf_addr_format(peer, text));
	if ((rc = network_bind(process, local, &from, &bound, error)) != 0)
		return rc;
	stream = make_stream(process->host->network, from, to);
	if (stream == NULL)
		return -ENOMEM;
	stream->local = bound;
	stream->remote = *peer;
	sim_io_init(&stream->base, process, &stream_ops, stream_ready, stream_abandon);
	push(stream, SEGMENT_SYN, NULL, 0);
	*io_out = &stream->base.io;
	return 0;
}

/* ---- listeners ---- */

static struct listener *listener_of(struct hf_io *io)
{
	return (struct listener *)(void *)io;
}

static unsigned listener_ready(struct sim_io *io)
{
	return list_empty(&listener_of(&io->io)->backlog) ? 0 : HF_READABLE;
}

static int listener_accept(struct hf_io *io, struct hf_io **io_out, struct hf_addr *peer_out)
{
	struct listener *listener = listener_of(io);
	struct list *first = list_pop_front(&listener->backlog);
	struct stream *stream;

	*io_out = NULL;
	if (first == NULL)
		return -EAGAIN;
	listener->backlog_count--;
	stream = container_of(first, struct stream, backlog_node);
	stream->in_backlog = false;
	sim_io_init(&stream->base, listener->base.process, &stream_ops, stream_ready, stream_abandon);
	if (peer_out != NULL)
		*peer_out = stream->remote;
	*io_out = &stream->base.io;
	return 0;
}

static int listener_local(struct hf_io *io, struct hf_addr *addr_out)
{
	*addr_out = listener_of(io)->local;
	return 0;
}

static void listener_abandon(struct sim_io *io)
{
	struct listener *listener = listener_of(&io->io);

	list_remove(&listener->node);
	for (struct list *at; (at = list_pop_front(&listener->backlog)) != NULL;)
		let_go(container_of(at, struct stream, backlog_node), false);
	listener->backlog_count = 0;
}

static void listener_close(struct hf_io *io)
{
	listener_abandon(&listener_of(io)->base);
	sim_io_free(&listener_of(io)->base);
	free(listener_of(io));
}

static const struct world_io_ops listener_ops = {
	.close = listener_close,
	.local = listener_local,
	.accept = listener_accept,
};

int sim_stream_listen(struct hf_env *env, const struct hf_addr *local, struct hf_io **io_out, struct hf_error *error)
{
	struct listener *listener;
	struct hf_addr bound;
	struct port *port;
	char text[HF_ADDR_TEXT];
	int rc;

	*io_out = NULL;
	if ((rc = network_bind(env_process(env), local, &port, &bound, error)) != 0)
		return rc;
	if (find_listener(port, &bound) != NULL)
		return hf_error_set(error, -EADDRINUSE, "%s is taken", hf_addr_format(&bound, text));
	listener = calloc(1, sizeof(*listener));
	if (listener == NULL)
		return -ENOMEM;
	listener->port = port;
	listener->local = bound;
	list_init(&listener->backlog);
	list_push_back(&port->listeners, &listener->node);
	sim_io_init(&listener->base, env_process(env), &listener_ops, listener_ready, listener_abandon);
	*io_out = &listener->base.io;
	return 0;
}

/* ---- faults ---- */

void streams_healed(struct port *port)
{
	list_for_each (at, &port->streams) {
		struct stream *stream = container_of(at, struct stream, node);
		struct world *world = stream->network->world;

		if (stream->stalled_ns != 0 && stream->delivery.slot != 0)
			world_schedule(world, &stream->delivery, world->now_ns + world_range(world, NS_US, RTO_NS));
	}
}

unsigned streams_reset(struct port *port, const struct port *other)
{
	unsigned n = 0;

	for (bool found = true; found;) {
		found = false;
		list_for_each (at, &port->streams) {
			struct stream *stream = container_of(at, struct stream, node), *peer = stream->peer;

			if (stream->to != other || peer == NULL)
				continue;
			break_stream(stream, -ECONNRESET);
			break_stream(peer, -ECONNRESET);
			found = true; /* either may be gone: start over */
			n++;
			break;
		}
	}
	return n;
}

void streams_free(struct port *port)
{
	while (!list_empty(&port->streams))
		release(container_of(port->streams.next, struct stream, node));
}
